//! The HDF5 libraries of the process: which copy calls, the calls with their errors, and which drivers
//! have plain files.

pub mod callback;
pub mod copies;
mod in_call;
mod owned;
pub mod plain_files;
mod session;

pub use in_call::{InCall, may_flush};
pub use session::{Close, Id, Session};
