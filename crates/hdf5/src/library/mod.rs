//! The HDF5 libraries of the process: which copy calls, the calls themselves with their errors, and
//! notification when a copy closes.

pub mod callback;
pub mod copies;
pub mod numbers;
pub mod plain_files;
mod session;

pub use session::{Close, Id, Session};
