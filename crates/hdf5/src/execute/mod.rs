//! Plans carried out: chunks are read, decoded, converted and placed by the engine's workers.
//!
//! Nothing here calls HDF5, and nothing needs its lock.

mod buffer;
mod device;
mod feed;
mod host;
mod place;
mod reading;
pub(crate) mod submit;
pub mod write;

pub use place::Target;
pub use reading::Reading;
pub(crate) use submit::extents;
pub use submit::{Manner, submit};
