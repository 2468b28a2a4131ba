//! The driver's first interface, whose device pointers and sizes have 32 bits. The real library still
//! exports it; a client that binds one of these functions instead of its `_v2` successor would
//! corrupt memory. Here the function fails.

use std::ffi::c_int;

use crate::config;
use crate::status::NOT_SUPPORTED;

macro_rules! refused {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            config::log(format_args!("{} has 32-bit arguments", stringify!($name)));
            NOT_SUPPORTED.0
        }
    )*};
}

refused! {
    cuDeviceTotalMem
    cuMemAlloc
    cuMemFree
    cuMemGetAddressRange
    cuMemHostGetDevicePointer
    cuMemcpyHtoD
    cuMemcpyDtoH
    cuMemcpyHtoDAsync
    cuMemcpyDtoHAsync
    cuMemcpyDtoDAsync
    cuMemsetD8
}
