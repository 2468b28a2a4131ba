//! HDF5: layouts and selections become plans.
//!
//! HDF5 itself is called only here and only through a [`Session`], on the caller's thread and under
//! the caller's lock: [`DatasetInfo::read`], [`ChunkTable::read`] and [`Selection::of_space`] turn
//! what it knows into plain data. From plain data, [`ReadPlan`] says which bytes of the file become
//! which elements of the destination; carrying that out needs no HDF5 and no lock.

mod agreement;
pub mod binding;
mod blocks;
mod change;
mod chunks;
mod compose;
pub mod connector;
pub mod driver;
mod edge;
mod element;
pub mod execute;
mod metadata;
mod numbers;
pub mod order;
mod pair;
mod placement;
mod plan;
mod pointers;
pub mod read;
mod room;
mod selection;
mod session;
mod space;
mod sweep;
mod swizzle;
pub mod transfer;
mod unfinished;
mod unsettled;
pub mod write;

pub use change::Conversion;
pub use chunks::{ChunkGrid, ChunkTable, StoredChunk, TableBuilder};
pub use compose::{Composition, Part, SourceFile, Store, compose};
pub use element::{
    Complex, ElementType, Enumeration, Field, Float, FloatKind, FloatLayout, Integer, Order,
    Padding,
};
pub use metadata::{DatasetInfo, ExternalSlot, FileInfo, Layout, MappedSelection, VirtualMapping};
pub use pair::pair;
pub use placement::{ByteCopy, Patch, PatchDim};
pub use plan::{
    ChunkJob, Destination, FileRange, FillJob, Item, NO_FILTERS, ReadPlan, Source, Window, Windows,
    Work, Works,
};
pub use selection::{Axis, AxisRun, Run, Selection};
pub use session::Session;
