//! What the caller describes of a transfer: dataset, elements and memory.

mod bound_plan;
mod buffer;
mod dataset_transfer;
mod hdf5_selection;
mod points;

pub(super) use bound_plan::bound;
pub use buffer::{Buffer, HostBuffer};
pub(super) use dataset_transfer::memory_selection;
pub use dataset_transfer::{DatasetTransfer, FileSelection, MemoryShape, OWN_TYPE, ReadShape};
pub(super) use hdf5_selection::{Dataspace, Hdf5Selection};
pub use points::{points, points_of};
