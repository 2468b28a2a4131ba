//! cuFile, in one of the modes that the real library may have on a machine.
//!
//! It reads and writes files through its own descriptors, without `O_DIRECT`, so any alignment works.
//! [`statistics`] counts the path that the real library would have taken.

use penstock_sys::cufile::{
    CU_FILE_CUDA_DRIVER_ERROR, CU_FILE_DRIVER_NOT_INITIALIZED, CU_FILE_SUCCESS, CUfileError,
};

use crate::status::CudaError;

pub mod api;

mod buffer;
mod handle;
mod session;
mod statistics;
mod transfer;

pub use buffer::count as count_buffers;
pub use handle::count as count_handles;

/// The reason why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// A `CUfileOpError`.
    Operation(i32),
    /// An `errno`.
    System(i32),
    Cuda(CudaError),
}

type Result<T = ()> = std::result::Result<T, Failure>;

impl From<CudaError> for Failure {
    fn from(error: CudaError) -> Failure {
        Failure::Cuda(error)
    }
}

impl Failure {
    /// The failure with an injected code.
    fn injected(code: i32) -> Failure {
        if code < CU_FILE_DRIVER_NOT_INITIALIZED {
            Failure::System(code)
        } else {
            Failure::Operation(code)
        }
    }

    /// The return value of `cuFileRead`. Sets `errno` for a system error.
    fn into_count(self) -> isize {
        match self {
            Failure::Operation(code) => -(code as isize),
            Failure::Cuda(_) => -(CU_FILE_CUDA_DRIVER_ERROR as isize),
            Failure::System(number) => {
                // SAFETY: the pointer to this thread's errno is always valid.
                unsafe { *libc::__errno_location() = number };
                -1
            }
        }
    }
}

/// The `CUfileError` of a call.
fn status(result: Result) -> CUfileError {
    let (err, cu_err) = match result {
        Ok(()) => (CU_FILE_SUCCESS, 0),
        Err(Failure::Operation(code)) => (code, 0),
        Err(Failure::System(_)) => (penstock_sys::cufile::CU_FILE_IO_ERROR, 0),
        Err(Failure::Cuda(CudaError(code))) => (CU_FILE_CUDA_DRIVER_ERROR, code),
    };
    CUfileError { err, cu_err }
}
