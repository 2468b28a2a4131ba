//! Filters on the GPU: nvCOMP decodes LZ4 and Zstd, and kernels of our own decode deflate, check
//! checksums, unshuffle, convert and place.
//!
//! The caller owns device memory, streams and contexts, uploads the tables, and waits. A table's
//! bytes are uploaded by earlier work of the launch's stream, or of work that this stream waits
//! for. They stay until the launch is done.

mod checksum;
pub mod framing;
mod inflate;
mod kernels;
pub mod nvcomp;
mod place;

use std::fmt;

use penstock_sys::cuda::{CUresult, Cuda};

pub use checksum::{Checksum, ChecksumTable, Verdict};
pub use inflate::{InflateTable, Inflated};
pub use kernels::Kernels;
pub use place::{Axis, PlaceTable, Shuffles, Side};

/// A call of the CUDA driver that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuError {
    /// The name of the call.
    pub call: &'static str,
    /// Its result.
    pub code: CUresult,
}

impl GpuError {
    pub(crate) fn check(code: CUresult, call: &'static str) -> Result<(), GpuError> {
        match code {
            penstock_sys::cuda::CUDA_SUCCESS => Ok(()),
            code => Err(GpuError { call, code }),
        }
    }

    /// The failure in the driver's words.
    pub fn text(&self, cuda: &Cuda) -> String {
        format!(
            "{} failed with {}: {}",
            self.call,
            cuda.error_name(self.code),
            cuda.error_text(self.code)
        )
    }
}

impl fmt::Display for GpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed with CUDA error {}", self.call, self.code)
    }
}

impl std::error::Error for GpuError {}

/// A struct that kernels read, as bytes.
///
/// # Safety
/// It is `repr(C)`, without padding, and every member is an integer.
unsafe trait Plain: Copy {}

fn bytes_of<T: Plain>(table: &[T]) -> &[u8] {
    // SAFETY: a plain struct is initialised bytes throughout, as many as its size says.
    unsafe { std::slice::from_raw_parts(table.as_ptr().cast(), size_of_val(table)) }
}
