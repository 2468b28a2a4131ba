//! The driver's result codes, with their names and a short description of each.

use std::ffi::CStr;

/// A `CUresult` other than `CUDA_SUCCESS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaError(pub i32);

pub type Result<T = ()> = std::result::Result<T, CudaError>;

pub const SUCCESS: i32 = 0;

/// The `CUresult` of a call.
pub fn code(result: Result) -> i32 {
    match result {
        Ok(()) => SUCCESS,
        Err(CudaError(code)) => code,
    }
}

macro_rules! codes {
    ($($value:literal $constant:ident $name:literal $text:literal;)*) => {
        $(pub const $constant: CudaError = CudaError($value);)*

        /// The name and description of a code; `None` for a code that the stand-in does not have.
        pub fn describe(code: i32) -> Option<(&'static CStr, &'static CStr)> {
            match code {
                0 => Some((c"CUDA_SUCCESS", c"no error")),
                $($value => Some(($name, $text)),)*
                _ => None,
            }
        }
    };
}

codes! {
    1 INVALID_VALUE c"CUDA_ERROR_INVALID_VALUE" c"invalid argument";
    2 OUT_OF_MEMORY c"CUDA_ERROR_OUT_OF_MEMORY" c"out of memory";
    3 NOT_INITIALIZED c"CUDA_ERROR_NOT_INITIALIZED" c"initialization error";
    4 DEINITIALIZED c"CUDA_ERROR_DEINITIALIZED" c"driver shutting down";
    100 NO_DEVICE c"CUDA_ERROR_NO_DEVICE" c"no CUDA-capable device is detected";
    101 INVALID_DEVICE c"CUDA_ERROR_INVALID_DEVICE" c"invalid device ordinal";
    200 INVALID_IMAGE c"CUDA_ERROR_INVALID_IMAGE" c"device kernel image is invalid";
    201 INVALID_CONTEXT c"CUDA_ERROR_INVALID_CONTEXT" c"invalid device context";
    209 NO_BINARY_FOR_GPU c"CUDA_ERROR_NO_BINARY_FOR_GPU"
        c"no kernel image is available for execution on the device";
    214 ECC_UNCORRECTABLE c"CUDA_ERROR_ECC_UNCORRECTABLE" c"uncorrectable ECC error encountered";
    215 UNSUPPORTED_LIMIT c"CUDA_ERROR_UNSUPPORTED_LIMIT" c"limit is not supported on this architecture";
    218 INVALID_PTX c"CUDA_ERROR_INVALID_PTX" c"a PTX JIT compilation failed";
    304 OPERATING_SYSTEM c"CUDA_ERROR_OPERATING_SYSTEM" c"OS call failed";
    401 ILLEGAL_STATE c"CUDA_ERROR_ILLEGAL_STATE" c"the operation cannot be performed in the present state";
    400 INVALID_HANDLE c"CUDA_ERROR_INVALID_HANDLE" c"invalid resource handle";
    500 NOT_FOUND c"CUDA_ERROR_NOT_FOUND" c"named symbol not found";
    600 NOT_READY c"CUDA_ERROR_NOT_READY" c"device not ready";
    700 ILLEGAL_ADDRESS c"CUDA_ERROR_ILLEGAL_ADDRESS" c"an illegal memory access was encountered";
    709 CONTEXT_IS_DESTROYED c"CUDA_ERROR_CONTEXT_IS_DESTROYED" c"context is destroyed";
    712 HOST_MEMORY_ALREADY_REGISTERED c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"
        c"part or all of the requested memory range is already mapped";
    713 HOST_MEMORY_NOT_REGISTERED c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"
        c"pointer does not correspond to a registered memory region";
    716 MISALIGNED_ADDRESS c"CUDA_ERROR_MISALIGNED_ADDRESS" c"misaligned address";
    719 LAUNCH_FAILED c"CUDA_ERROR_LAUNCH_FAILED" c"unspecified launch failure";
    800 NOT_PERMITTED c"CUDA_ERROR_NOT_PERMITTED" c"operation not permitted";
    801 NOT_SUPPORTED c"CUDA_ERROR_NOT_SUPPORTED" c"operation not supported";
    900 STREAM_CAPTURE_UNSUPPORTED c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
        c"operation not permitted when stream is capturing";
    901 STREAM_CAPTURE_INVALIDATED c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
        c"operation failed due to a previous error during capture";
    906 STREAM_CAPTURE_IMPLICIT c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"
        c"operation would make the legacy stream depend on a capturing blocking stream";
    999 UNKNOWN c"CUDA_ERROR_UNKNOWN" c"unknown error";
}
