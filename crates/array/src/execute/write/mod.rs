//! Writes: workers gather the new elements of each chunk, convert them and encode the chunk. A sink
//! does the work that only the format's library can do, in submitter steps. Elements whose place in
//! the file is known need no sink.

mod before;
mod chunks;
mod device_encode;
mod device_gather;
mod elements;
mod filled;
mod gather;
mod queue;

pub(super) use super::device::placing::kernels;
pub(super) use chunks::ChunkWrite;
pub(super) use elements::ElementWrite;
pub(super) use gather::Array;
