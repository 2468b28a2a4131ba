//! A stand-in for the low-level batched interface of nvCOMP, on the CPU.
//!
//! Batches are decoded and encoded in the order of their stream, through device memory. A chunk
//! that cannot be decoded gets a status of its own. What the real library leaves undefined ends the
//! context here: an address that is not aligned to `ALIGNMENT`, temporary memory that is too
//! small, and a range that is not wholly in memory that the GPU reaches.

use penstock_sys::nvcomp::{NVCOMP_ERROR_CUDA, NVCOMP_SUCCESS, NvcompStatus};

use crate::status::CudaError;

pub mod api;

mod batch;
mod format;

/// The strictest alignment that any format and version asks for.
const ALIGNMENT: usize = 8;

type Result<T = ()> = std::result::Result<T, NvcompStatus>;

/// The status of a call.
fn status(result: Result) -> NvcompStatus {
    result.err().unwrap_or(NVCOMP_SUCCESS)
}

/// nvCOMP has one status for all failures of CUDA.
fn cuda(_: CudaError) -> NvcompStatus {
    NVCOMP_ERROR_CUDA
}
