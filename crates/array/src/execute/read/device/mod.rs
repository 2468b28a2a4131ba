//! Reads into GPU memory. Workers decode chunks into pinned slots and launch kernels that place
//! them; meanwhile the GPU itself decodes batches of chunks.
//!
//! - `device_read` is what a worker does, in turn: it starts a batch for the GPU, concludes one,
//!   or decodes chunks itself;
//! - `stager` is the way of the chunks that workers decode, with `slots` and `gather`;
//! - `batches` are those that the GPU decodes: `loader` fills a `batch`, `results` launches
//!   and reads it, with the decoders of `decoding`;
//! - `rates`, as measured, divide the chunks between both.

mod batch;
mod batches;
mod decoding;
mod device_read;
mod gather;
mod gpu_filters;
mod in_place;
mod loader;
mod plans;
mod rates;
mod results;
mod slots;
mod stager;

pub(in crate::execute) use device_read::DeviceRead;
