//! The HDF5 libraries of the process: which copy calls, the calls with their errors, and which drivers
//! have plain files.

mod at_close;
pub mod callback;
pub mod copies;
mod in_call;
mod owned;
pub mod plain_files;
mod session;

pub(crate) use at_close::drop_at_close;
pub use in_call::{InCall, may_flush};
pub use session::{Close, Id, Session};
