//! Arrays in files: shapes, selections and chunks become plans, and plans are carried out.
//!
//! A [`StoredArray`] says what a file holds, a [`Selection`] which elements are wanted, a
//! [`MemoryLayout`] where they are in memory. A [`Plan`] made of them is the same for a read and a write;
//! [`execute`] moves its bytes, in host memory or on a GPU. Nothing here knows which format the
//! description comes from.

mod boxes;
mod chunks;
pub mod execute;
mod plan;
mod reserve;
mod selection;

pub use boxes::{BoxAxis, BoxRun, Segment, StridedBox};
pub use chunks::{ChunkGrid, ChunkTable, MAX_RANK, NO_STORAGE, StoredChunk, TableBuilder};
pub use plan::{
    Before, Changed, Changes, ChunkJob, ElementMapping, FileRange, FileSegment, FillJob,
    MemoryLayout, NO_FILTERS, Plan, Source, StoredArray, Window, Windows, Work, Works, bytes,
    in_order, match_selections,
};
pub use reserve::{make_room, push};
pub use selection::{Axis, AxisRun, Run, Selection, push_run};
