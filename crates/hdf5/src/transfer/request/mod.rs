//! What the caller describes of a transfer: dataset, elements and memory.

mod buffer;
mod dataset_transfer;
mod hdf5_selection;
mod page_cache;
mod points;

pub use buffer::{Buffer, HostBuffer};
pub use dataset_transfer::{DatasetTransfer, FileSelection, MemoryShape};
pub(super) use hdf5_selection::{Dataspace, Hdf5Selection};
pub(super) use page_cache::direct;
pub use points::{points, points_of};
