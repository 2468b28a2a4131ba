//! Kernels of the program. They are registered and cannot run: every launch, and every question
//! about one, fails with `cudaErrorNoKernelImageForDevice`.

use std::ffi::{c_int, c_void};

use super::{ignored, report};
use crate::config;
use crate::status::NO_BINARY_FOR_GPU;

/// The handle of every registered fat binary. No call reads it.
static FAT_BINARY: usize = 0;

#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterFatBinary(_image: *const c_void) -> *const c_void {
    (&raw const FAT_BINARY).cast()
}

ignored! {
    __cudaRegisterFatBinaryEnd
    __cudaRegisterFunction
    __cudaRegisterVar
    __cudaUnregisterFatBinary
    cudaProfilerStart
    cudaProfilerStop
}

macro_rules! without_image {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            config::log(format_args!("{}: kernels of the program do not run", stringify!($name)));
            report(NO_BINARY_FOR_GPU.0)
        }
    )*};
}

// The compiler's code for `kernel<<<...>>>()` calls `__cudaPushCallConfiguration` first, and does not
// launch if that fails.
without_image! {
    __cudaPushCallConfiguration
    __cudaPopCallConfiguration
    __cudaGetKernel
    __cudaLaunchKernel
    cudaLaunchKernel
    cudaLaunchKernelExC
    cudaLaunchCooperativeKernel
    cudaFuncGetAttributes
    cudaFuncSetAttribute
    cudaKernelSetAttributeForDevice
    cudaOccupancyMaxActiveBlocksPerMultiprocessor
    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
}
