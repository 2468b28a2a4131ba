//! The state of HDF5 that transfers depend on: calls in progress, open files, buffers.

mod file_liveness;
mod file_queries;
mod flush;
mod pending_count;
mod reentrancy;

pub(super) use crate::library::drop_at_close;
pub use crate::library::{InCall, may_flush};
pub(super) use file_liveness::MarkedFile;
pub(super) use file_queries::{
    chunk_cache_bytes_of, chunk_cache_of, is_writable, open_file_numbers,
};
pub use flush::file_to_sync;
pub(super) use flush::{flush_and_sync, refuse_elsewhere};
pub use pending_count::address as unresolved_count;
pub(super) use pending_count::{changed, is_none as has_nothing_pending};
pub use reentrancy::{cannot_flush, inside, is_inside};
