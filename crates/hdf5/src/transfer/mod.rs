//! The common path of all transfers of datasets. Each transfer is planned and starts after those in
//! flight with which it conflicts, whichever interface submitted them.
//!
//! So transfers take effect in the order of their submission. What HDF5 does by itself when the
//! program calls it is not visible here: the program, or the connector, waits for pending transfers
//! first.
//!
//! A transfer passes these modules once, from top to bottom:
//!
//! 1. `execution` starts it, waits for it, and plans it in the order of its conflicts;
//! 2. `prepare` turns its description into a plan that needs HDF5 no more;
//! 3. `cache` has what is known of datasets that cannot change, `sinks` are where writes end;
//! 4. `conflicts` has the pending operations and what they access;
//! 5. `request` is what the caller describes, `hdf5_state` what HDF5 is doing.
//!
//! Each uses only those below it.

mod cache;
pub mod conflicts;
mod execution;
mod hdf5_state;
mod prepare;
mod request;
mod sinks;

pub use cache::{TransferDescription, forget, is_read_alike, open_file, refuse_misread};
pub use conflicts::{is_done, rewritten_blocks, unfinished_storage};
pub use execution::{
    ElementMemory, PlannedRead, Reader, TransferHandle, WorkerRead, make_durable, many,
    may_make_durable, nothing_is_pending, small_read, start, wait_for_dataset, wait_for_file,
    wait_for_path,
};
pub use hdf5_state::{
    InCall, cannot_flush, file_to_sync, inside, is_inside, may_flush, unresolved_count,
};
pub use prepare::{
    Planned, Refused, StoredDataset, describe, is_cut_off, prepare, prepare_dataset_for_copy,
    prepare_for_copy, prepare_or_refuse,
};
pub use request::{
    Buffer, DatasetTransfer, FileSelection, HostBuffer, MemoryShape, OWN_TYPE, ReadShape, points,
    points_of,
};
