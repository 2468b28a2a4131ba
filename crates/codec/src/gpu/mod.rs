//! Filters on the GPU: nvCOMP decodes LZ4 and Zstd; the kernels of this crate decode and encode deflate,
//! compute checksums, shuffle and unshuffle, convert and move elements.
//!
//! The caller owns device memory, streams and contexts, uploads the tables, and synchronizes. A
//! table's upload precedes its launch in the same stream, or in work that this stream waits for. The
//! uploaded table stays in place until the launch completes.

mod checksum;
mod deflate;
pub mod framing;
mod inflate;
mod kernels;
pub mod nvcomp;
mod place;

use std::fmt;

use penstock_sys::cuda::{CUresult, Cuda};

pub use checksum::{Checksum, ChecksumTable, Verdict};
pub use deflate::{DeflateMemory, DeflateTable};
pub use inflate::{InflateTable, Inflated};
pub use kernels::Kernels;
pub use place::{PlaceAxis, PlaceTable, Shuffles, Side};

/// A failed call of the CUDA driver.
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

    /// The failure, with the driver's name and description of the error.
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

/// A struct that kernels read.
///
/// # Safety
/// It is `repr(C)`, without padding, and every member is an integer.
unsafe trait Plain: Copy {}

fn bytes_of<T: Plain>(table: &[T]) -> &[u8] {
    // SAFETY: a plain struct has no padding, so all of its bytes are initialised.
    unsafe { std::slice::from_raw_parts(table.as_ptr().cast(), size_of_val(table)) }
}
