//! The kernels compared with plain loops on the CPU.
//!
//! The tests run on the machine's GPU, or on the stand-in under `scripts/standin-gpu`. Without
//! either they are skipped and say so.

mod checksum;
mod convert;
mod deflate;
mod device;
mod inflate;
mod place;
#[path = "../../../engine/tests/common/repetitions.rs"]
mod repetitions;
mod samples;
mod tables;
#[path = "../common/zlib.rs"]
mod zlib;
