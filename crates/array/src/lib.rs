//! Arrays in files: plans made of shapes, selections and chunks, and their execution.
//!
//! A [`StoredArray`] describes the array in the file, a [`Selection`] the elements to move, and a
//! [`MemoryLayout`] where they lie in memory. A [`Plan`] made of these serves reads and writes
//! alike; [`execute`] moves its bytes to and from host memory or a GPU. This crate has no knowledge
//! of file formats.
//!
//! # Example
//! Reads two rows of a 4 x 3 array of 32-bit integers that starts at byte 16 of a file:
//! ```
//! use std::io::Write;
//! use std::sync::Arc;
//!
//! use penstock_array::execute::{
//!     Beforehand, BoundPlan, PreparedTransfer, SubmitOptions, TransferKind, submit,
//! };
//! use penstock_array::{
//!     Axis, ElementMapping, MemoryLayout, MemorySize, Plan, Selection, Source, StoredArray, StoredSize,
//! };
//! use penstock_codec::convert::TypeConversion;
//! use penstock_engine::file::side::Direct;
//! use penstock_engine::file::{Access, File, position::Operation};
//! use penstock_engine::options::Options;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("array.bin");
//! let mut file = std::fs::File::create(&path)?;
//! file.write_all(&[0; 16])?;
//! for number in 0..12i32 {
//!     file.write_all(&number.to_ne_bytes())?;
//! }
//!
//! let array = StoredArray {
//!     name: "numbers".to_owned(),
//!     shape: vec![4, 3],
//!     element: StoredSize(4),
//!     source: Source::Contiguous { offset: 16 },
//!     pipeline: Default::default(),
//!     unfiltered_edges: false,
//!     fill: None,
//! };
//! let rows = Selection::Grid(vec![Axis::range(1, 2), Axis::all(3)]);
//! let memory = MemoryLayout::dense(&[2, 3], MemorySize(4))?;
//! let plan = Plan::new(&array, rows, &memory, ElementMapping::whole(MemorySize(4)), Operation::Read)?;
//!
//! let read = Access { read: true, ..Access::default() };
//! let transfer = PreparedTransfer {
//!     kind: TransferKind::Read(vec![BoundPlan {
//!         plan: Arc::new(plan),
//!         files: vec![Arc::new(File::open(&path, read, Options::default())?).into()],
//!         conversion: TypeConversion::Copy,
//!         direct: Direct::WhereCold,
//!         given: None,
//!         cache: None,
//!     }]),
//!     direction: Operation::Read,
//!     low: 0,
//!     length: memory.length,
//!     path,
//!     beforehand: Beforehand::default(),
//! };
//! let mut found = [0i32; 6];
//! // SAFETY: the array is 24 bytes long, and nothing touches it before the request is finished.
//! let request = unsafe {
//!     submit(transfer, found.as_mut_ptr() as usize, None, SubmitOptions::default())?
//! };
//! request.finish()?;
//! assert_eq!(found, [3, 4, 5, 6, 7, 8]);
//! # Ok(())
//! # }
//! ```

#![deny(missing_docs, unreachable_pub, rustdoc::broken_intra_doc_links)]

mod boxes;
mod chunks;
pub mod execute;
mod plan;
mod reserve;
mod selection;

pub use boxes::{BoxAxis, BoxRun, Ranges, Segment, StridedBox};
pub use chunks::{
    ArrayChunks, ChunkCache, ChunkGrid, ChunkTable, Entries, MAX_RANK, NO_STORAGE, StoredChunk,
    TableBuilder,
};
pub use plan::{
    Before, Changed, Changes, ChunkJob, ElementMapping, FileRange, FileSegment, FillJob, Holes,
    MemoryLayout, MemorySide, MemorySize, NO_FILTERS, Plan, PlanJob, PlanJobs, Source, StoredArray,
    StoredSize, Window, Windows, bytes, in_dataset, in_order, match_selections,
};
pub use reserve::{make_room, push};
pub use selection::{Axis, AxisRun, Run, Selection, push_run};
