//! The engine: moves bytes between files and GPU or host memory.
//!
//! A [`request`] is planned, and cut into blocks. Workers move the blocks along a route: straight
//! into host memory, through pinned slots ([`staging`]) and copy queues ([`gpu`]), from mapped
//! pages, or by cuFile. A [`Report`](report::Report) has the number of bytes that took each
//! [`Path`](report::Path).
//!
//! [`request::run`] returns when the bytes have moved. [`request::submit`] returns a
//! [`Request`](request::Request) to wait for. Both take addresses instead of slices, since the memory
//! may be a GPU's; so both are unsafe.
//!
//! ```
//! use std::sync::Arc;
//!
//! use penstock_engine::Extent;
//! use penstock_engine::file::position::Operation;
//! use penstock_engine::file::{Access, File};
//! use penstock_engine::options::Options;
//! use penstock_engine::request::{Order, run, submit};
//!
//! # fn main() -> penstock_engine::error::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("field.bin");
//! let access = Access { read: true, write: true, create: true, truncate: true };
//! let options = Options::parse("threads=2;block=1MiB")?;
//! let file = Arc::new(File::open(&path, access, options)?);
//!
//! let field: Vec<u8> = (0..3 << 20).map(|i| i as u8).collect();
//! let whole = Extent { offset: 0, length: field.len() as u64, memory: field.as_ptr() as usize };
//! // SAFETY: `field` outlives the call, and nothing changes it meanwhile.
//! let report = unsafe { run(&file, Order::new(Operation::Write, &[whole], Options::default()))? };
//! assert_eq!(report.bytes(), 3 << 20);
//!
//! // Every other KiB, by workers, while this thread could do something else.
//! let mut half = vec![0; field.len() / 2];
//! let extents: Vec<Extent> = half
//!     .chunks_mut(1024)
//!     .enumerate()
//!     .map(|(i, row)| Extent {
//!         offset: 2048 * i as u64,
//!         length: 1024,
//!         memory: row.as_mut_ptr() as usize,
//!     })
//!     .collect();
//! let order = Order::new(Operation::Read, &extents, Options::default());
//! // SAFETY: `half` is not touched until the request has finished.
//! let request = unsafe { submit(&file, order, None, None)? };
//! request.finish()?;
//! assert!(half.chunks(1024).zip(field.chunks(2048)).all(|(got, both)| *got == both[..1024]));
//! # Ok(())
//! # }
//! ```

#![deny(missing_docs, unreachable_pub, rustdoc::broken_intra_doc_links)]

pub mod allocate;
mod changes;
pub mod copy;
mod cufile;
pub mod describe;
mod engine;
pub mod error;
pub mod file;
mod fork;
pub mod gpu;
mod in_flight;
pub mod memory;
pub mod options;
mod plan;
mod profile;
pub mod reach;
pub mod report;
pub mod request;
mod routes;
pub mod save;
mod sharing;
pub mod size;
pub mod snapshot;
pub mod staging;
mod sync;
pub mod threads;
pub mod trace;
mod workers;

pub use changes::files_unchanged_since;
pub use cufile::buffer;
pub use engine::{
    chunk_cache_bytes, cores, merged_options, options_without_engine, set_process_options,
};
pub use fork::{process, refuse_fork};
pub use gpu::any_stream_waits;
pub use gpu::stream::Stream;
pub use memory::MemoryKind;
pub use plan::Extent;
pub use request::{StreamOrder, drain};
pub use routes::fault;
pub use sync::Recover;
