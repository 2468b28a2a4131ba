//! Arrays in files: plans made of shapes, selections and chunks, and their execution.
//!
//! A [`StoredArray`] describes the array in the file, a [`Selection`] the elements to move, and a
//! [`MemoryLayout`] where they lie in memory. A [`Plan`] made of these serves reads and writes
//! alike; [`execute`] moves its bytes to and from host memory or a GPU. This crate has no knowledge
//! of file formats.
//!
//! # Example
//! Reads two rows of a 4 x 3 array of bytes that starts at byte 16 of a file:
//! ```
//! use std::sync::Arc;
//!
//! use penstock_array::execute::ArrayTransfer;
//! use penstock_array::{Axis, Selection, Source, StoredArray, StoredSize};
//! use penstock_engine::file::{Access, File};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("image.bin");
//! std::fs::write(&path, (0..28).collect::<Vec<u8>>())?;
//! let read = Access { read: true, ..Access::default() };
//! let file = Arc::new(File::open(&path, read, Default::default())?);
//!
//! let source = Source::Contiguous { offset: 16 };
//! let array = StoredArray::new("image", &[4, 3], StoredSize(1), source);
//! let rows = Selection::Grid(vec![Axis::range(1, 2), Axis::all(3)]);
//! let mut memory = [0; 6];
//! ArrayTransfer::new(&array, rows, &[2, 3]).read_into(file, &mut memory)?;
//! assert_eq!(memory, [19, 20, 21, 22, 23, 24]);
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
pub use selection::{Axis, Run, Selection, push_run};
