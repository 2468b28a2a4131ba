//! A stand-in for the low-level batched interface of nvCOMP, on the CPU.
//!
//! Batches are decoded in stream order, from and to device memory. A chunk that cannot
//! be decoded gets its own status. Errors that are undefined behavior in the real library fail the
//! context: an address that is not aligned to `ALIGNMENT`, temporary memory that is too small, and a
//! range that is not wholly accessible to the GPU.

use penstock_sys::nvcomp::{NVCOMP_ERROR_CUDA, NVCOMP_SUCCESS, NvcompStatus};

use crate::status::CudaError;

pub mod api;

mod batch;
mod format;

/// The strictest alignment that any format and version requires.
const ALIGNMENT: usize = 8;

type Result<T = ()> = std::result::Result<T, NvcompStatus>;

/// The status of a call.
fn status(result: Result) -> NvcompStatus {
    result.err().unwrap_or(NVCOMP_SUCCESS)
}

/// nvCOMP reports all CUDA errors as one status.
fn cuda(_: CudaError) -> NvcompStatus {
    NVCOMP_ERROR_CUDA
}
