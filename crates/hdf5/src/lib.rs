//! HDF5: layouts and selections become plans.
//!
//! HDF5 itself is called only here and only through a [`Session`], on the caller's thread and under
//! the caller's lock: [`DatasetInfo::read`], [`ChunkTable::read`] and [`Selection::of_space`] turn
//! what it knows into plain data. From plain data, [`ReadPlan`] says which bytes of the file become
//! which elements of the destination; carrying that out needs no HDF5 and no lock.

mod blocks;
mod chunks;
mod conversion;
pub mod dataset;
pub mod execute;
pub mod library;
mod pair;
mod placement;
mod plan;
mod room;
mod selection;
mod sweep;
pub mod transfer;
mod virtual_dataset;

pub use chunks::{ChunkGrid, ChunkTable, StoredChunk, TableBuilder};
pub use conversion::Conversion;
pub use dataset::{
    Complex, DatasetInfo, ElementType, Enumeration, ExternalSlot, Field, FileInfo, Float,
    FloatKind, FloatLayout, Integer, Layout, MappedSelection, Order, Padding, VirtualMapping,
};
pub use library::Session;
pub use pair::pair;
pub use placement::{ByteCopy, Patch, PatchDim};
pub use plan::{
    ChunkJob, Destination, FileRange, FillJob, Item, NO_FILTERS, ReadPlan, Source, Window, Windows,
    Work, Works,
};
pub use selection::{Axis, AxisRun, Run, Selection};
pub use virtual_dataset::{Composition, Part, SourceFile, Store, compose};
