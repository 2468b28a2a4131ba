//! Functions that always fail: those of the runtime that PyTorch imports, and those of the driver
//! that its loader of NVRTC imports.

use std::ffi::c_int;

use super::report;
use crate::config;
use crate::status::NOT_SUPPORTED;

macro_rules! refused {
    ($result:expr; $($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            config::log(format_args!("{} is not supported", stringify!($name)));
            $result
        }
    )*};
}

refused! { report(NOT_SUPPORTED.0);
    cudaDeviceEnablePeerAccess
    cudaDeviceGetGraphMemAttribute
    cudaDeviceSetGraphMemAttribute
    cudaGetSymbolAddress
    cudaGraphAddNode
    cudaGraphConditionalHandleCreate
    cudaGraphDestroy
    cudaGraphExecDestroy
    cudaGraphGetNodes
    cudaGraphInstantiate
    cudaGraphInstantiateWithFlags
    cudaGraphLaunch
    cudaGraphNodeGetDependencies
    cudaGraphRetainUserObject
    cudaIpcCloseMemHandle
    cudaIpcGetEventHandle
    cudaIpcGetMemHandle
    cudaIpcOpenEventHandle
    cudaIpcOpenMemHandle
    cudaLibraryGetGlobal
    cudaLibraryGetKernel
    cudaLibraryGetKernelCount
    cudaLibraryGetManaged
    cudaLibraryGetUnifiedFunction
    cudaLibraryLoadData
    cudaLibraryLoadFromFile
    cudaLibraryUnload
    cudaMemcpy2DAsync
    cudaMemcpyToSymbol
    cudaStreamAddCallback
    cudaStreamBeginCaptureToGraph
    cudaStreamUpdateCaptureDependencies
    cudaUserObjectCreate
    cudaUserObjectRelease
}

refused! { NOT_SUPPORTED.0;
    cuFuncGetAttribute
    cuFuncSetAttribute
    cuFuncSetCacheConfig
    cuLaunchCooperativeKernel
    cuLinkAddData_v2
    cuLinkComplete
    cuLinkCreate_v2
    cuModuleLoad
    cuModuleLoadDataEx
    cuOccupancyMaxActiveBlocksPerMultiprocessor
    cuTensorMapEncodeTiled
}
