//! Plans transfers on the caller's thread. A plan contains all that its execution needs to know of HDF5.

mod description;
mod elements;
mod files;
mod hdf5_only;
mod object_copy;
mod outcome;
mod plan;
mod read;
mod stored_address;
mod through_hdf5;
mod virtual_read;
mod write;

pub use description::describe;
pub use hdf5_only::is_cut_off;
pub use object_copy::{prepare_dataset_for_copy, prepare_for_copy};
pub use outcome::{Planned, Refused};
pub use plan::{prepare, prepare_or_refuse};
pub use stored_address::StoredDataset;
