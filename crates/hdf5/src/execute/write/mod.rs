//! Writes carried out: workers gather the new elements of each chunk, convert them and encode the
//! chunk; what HDF5 must do is done in the submitter's turns.

mod blocks;
mod chunks;
mod device;
mod feed;
mod gather;
mod host;
mod native;
mod submit;
mod through;
mod writing;

pub(crate) use native::Native;
pub use submit::submit;
pub(crate) use through::Dense;
pub(crate) use writing::Writing;
