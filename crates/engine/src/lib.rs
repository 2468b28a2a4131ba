//! The engine: moves bytes between files and GPU or host memory.
//!
//! A [`request`] is planned, and cut into blocks. Workers move the blocks along a route: straight
//! into host memory, through pinned slots ([`staging`]) and copy queues ([`gpu`]), from mapped
//! pages, or by cuFile. A [`Report`](report::Report) has the number of bytes that took each
//! [`Path`](report::Path).
//!
//! [`request::run`] returns when the bytes have moved. [`submit`] returns a
//! [`Request`](request::Request) to wait for. Both take addresses instead of slices, since the memory
//! may be a GPU's; so both are unsafe.
//!
//! A function that returns a [`Result`](error::Result) fails if a call of the system or of the driver
//! fails. `# Errors` names other failures.
//!
//! ```
//! use std::sync::Arc;
//!
//! use penstock_engine::{Access, Extent, File, Operation, Options, Order, submit};
//!
//! # fn main() -> penstock_engine::error::Result<()> {
//! # let path = std::path::Path::new("Cargo.toml");
//! let file = Arc::new(File::open(path, Access::READ, Options::default())?);
//! let mut memory = [0; 9];
//! let extents = [Extent::new(0, &mut memory)]; // from byte 0 of the file
//! let order = Order::new(Operation::Read, &extents, Options::default());
//! // SAFETY: nothing else touches `memory` until the request has finished.
//! let request = unsafe { submit(&file, order, None, None)? };
//! request.finish()?;
//! assert_eq!(&memory, b"[package]");
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
mod page;
mod plan;
mod profile;
pub mod reach;
mod recent;
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
pub use file::position::Operation;
pub use file::{Access, File};
pub use fork::{process, refuse_fork};
pub use gpu::any_stream_waits;
pub use gpu::stream::Stream;
pub use memory::MemoryKind;
pub use options::Options;
pub use plan::Extent;
pub use request::{Order, StreamOrder, drain, submit};
pub use routes::fault;
pub use sync::Recover;
