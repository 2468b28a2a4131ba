//! The CUDA driver API.
//!
//! The fields of [`Cuda`] have the names of the driver API without a version suffix. All are the
//! variants for the legacy default stream: stream 0 synchronises with blocking streams.

use std::ffi::{CStr, OsString, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::library::{Absent, Search, loaded, table};

pub type CUresult = c_int;
pub type CUdevice = c_int;
pub type CUdeviceptr = u64;
pub type CUcontext = *mut c_void;
pub type CUstream = *mut c_void;
pub type CUevent = *mut c_void;
pub type CUmodule = *mut c_void;
pub type CUfunction = *mut c_void;
#[allow(non_camel_case_types)]
pub type CUdevice_attribute = c_int;
#[allow(non_camel_case_types)]
pub type CUpointer_attribute = c_int;
pub type CUstreamCaptureStatus = c_int;
pub type CUstreamCaptureMode = c_int;
pub type CUlimit = c_int;
pub type CUmemoryPool = *mut c_void;
/// A host function. It runs on a thread of the driver and must not call CUDA.
pub type CUhostFn = unsafe extern "C" fn(user_data: *mut c_void);

pub const CUDA_SUCCESS: CUresult = 0;
pub const CUDA_ERROR_INVALID_VALUE: CUresult = 1;
pub const CUDA_ERROR_OUT_OF_MEMORY: CUresult = 2;
pub const CUDA_ERROR_NOT_INITIALIZED: CUresult = 3;
/// The driver is shutting down, because the process exits.
pub const CUDA_ERROR_DEINITIALIZED: CUresult = 4;
pub const CUDA_ERROR_NO_DEVICE: CUresult = 100;
/// The image is not GPU code.
pub const CUDA_ERROR_INVALID_IMAGE: CUresult = 200;
pub const CUDA_ERROR_OPERATING_SYSTEM: CUresult = 304;
/// Not a failure: the stream or event still has work.
pub const CUDA_ERROR_NOT_READY: CUresult = 600;
pub const CUDA_ERROR_ILLEGAL_ADDRESS: CUresult = 700;
pub const CUDA_ERROR_LAUNCH_FAILED: CUresult = 719;
pub const CUDA_ERROR_NOT_PERMITTED: CUresult = 800;
pub const CUDA_ERROR_NOT_SUPPORTED: CUresult = 801;
pub const CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: CUresult = 900;
pub const CUDA_ERROR_UNKNOWN: CUresult = 999;

pub const CU_MEMORYTYPE_HOST: c_uint = 1;
pub const CU_MEMORYTYPE_DEVICE: c_uint = 2;

// Each query writes: CONTEXT a CUcontext; MEMORY_TYPE and IS_MANAGED 4 bytes; DEVICE_ORDINAL a
// c_int; RANGE_START_ADDR and RANGE_SIZE 8 bytes.
pub const CU_POINTER_ATTRIBUTE_CONTEXT: CUpointer_attribute = 1;
pub const CU_POINTER_ATTRIBUTE_MEMORY_TYPE: CUpointer_attribute = 2;
pub const CU_POINTER_ATTRIBUTE_IS_MANAGED: CUpointer_attribute = 8;
pub const CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: CUpointer_attribute = 9;
pub const CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: CUpointer_attribute = 11;
pub const CU_POINTER_ATTRIBUTE_RANGE_SIZE: CUpointer_attribute = 12;

pub const CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: CUdevice_attribute = 16;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: CUdevice_attribute = 75;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: CUdevice_attribute = 76;
pub const CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED: CUdevice_attribute = 113;

pub const CU_MEM_ATTACH_GLOBAL: c_uint = 1;
pub const CU_MEMHOSTALLOC_PORTABLE: c_uint = 1;
pub const CU_MEMHOSTREGISTER_PORTABLE: c_uint = 1;
pub const CU_MEMHOSTREGISTER_DEVICEMAP: c_uint = 2;
/// Registers a mapping without PROT_WRITE, if the device supports that.
pub const CU_MEMHOSTREGISTER_READ_ONLY: c_uint = 8;

pub const CU_STREAM_DEFAULT: c_uint = 0;
pub const CU_STREAM_NON_BLOCKING: c_uint = 1;
/// The legacy default stream, like null.
pub const CU_STREAM_LEGACY: CUstream = ptr::without_provenance_mut(1);
pub const CU_STREAM_PER_THREAD: CUstream = ptr::without_provenance_mut(2);
pub const CU_STREAM_CAPTURE_STATUS_NONE: CUstreamCaptureStatus = 0;
/// Calls of this thread that are unsafe during a capture do not invalidate captures of other threads.
pub const CU_STREAM_CAPTURE_MODE_RELAXED: CUstreamCaptureMode = 2;
pub const CU_STREAM_WAIT_VALUE_GEQ: c_uint = 0;

pub const CU_MEM_ALLOCATION_TYPE_PINNED: c_int = 1;
pub const CU_MEM_LOCATION_TYPE_DEVICE: c_int = 1;
/// Whether an allocation may reuse memory that another stream frees later, and wait for that stream.
pub const CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: c_int = 3;
/// The flags of a context that say how the CPU waits.
pub const CU_CTX_SCHED_MASK: c_uint = 7;

/// Bytes of stack of a GPU thread.
pub const CU_LIMIT_STACK_SIZE: CUlimit = 0;

pub const CU_EVENT_BLOCKING_SYNC: c_uint = 1;
pub const CU_EVENT_DISABLE_TIMING: c_uint = 2;

/// `CUDA_MEMCPY2D`: a rectangle of bytes, row by row. Zero means "not used" in every member.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_snake_case)]
pub struct CudaMemcpy2D {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcMemoryType: c_uint,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr,
    pub srcArray: *mut c_void,
    pub srcPitch: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstMemoryType: c_uint,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr,
    pub dstArray: *mut c_void,
    pub dstPitch: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
}

const _: () = assert!(size_of::<CudaMemcpy2D>() == 128);

/// `CUmemcpyAttributes`. The hints concern managed memory only.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(non_snake_case)]
pub struct CudaMemcpyAttributes {
    pub srcAccessOrder: c_int,
    /// Type and number.
    pub srcLocHint: [c_int; 2],
    pub dstLocHint: [c_int; 2],
    pub flags: c_uint,
}

const _: () = assert!(size_of::<CudaMemcpyAttributes>() == 24);

/// The source is read in the order of the stream.
pub const CU_MEMCPY_SRC_ACCESS_ORDER_STREAM: c_int = 1;

/// `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_snake_case)]
pub struct CudaMemPoolProps {
    pub allocType: c_int,
    pub handleTypes: c_int,
    pub location_type: c_int,
    pub location_id: c_int,
    pub win32SecurityAttributes: *mut c_void,
    pub maxSize: usize,
    pub usage: u16,
    pub reserved: [u8; 54],
}

const _: () = assert!(size_of::<CudaMemPoolProps>() == 88);

table! {
    /// The CUDA driver API. Each function has the driver's own contract; most require `cuInit` and a
    /// context that is current on the calling thread.
    Cuda {
        required {
            fn cuInit(flags: c_uint) -> CUresult;
            fn cuDriverGetVersion(version: *mut c_int) -> CUresult;
            fn cuGetErrorName(error: CUresult, name: *mut *const c_char) -> CUresult;
            fn cuGetErrorString(error: CUresult, text: *mut *const c_char) -> CUresult;

            fn cuDeviceGetCount(count: *mut c_int) -> CUresult;
            fn cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice) -> CUresult;
            fn cuDeviceGetAttribute(
                value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice
            ) -> CUresult;
            fn cuDeviceTotalMem = "cuDeviceTotalMem_v2"(
                bytes: *mut usize, device: CUdevice
            ) -> CUresult;
            fn cuDeviceGetPCIBusId(id: *mut c_char, len: c_int, device: CUdevice) -> CUresult;

            fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> CUresult;
            fn cuCtxCreate = "cuCtxCreate_v2"(
                context: *mut CUcontext, flags: c_uint, device: CUdevice
            ) -> CUresult;
            fn cuCtxSetLimit(limit: CUlimit, value: usize) -> CUresult;
            fn cuCtxGetCurrent(context: *mut CUcontext) -> CUresult;
            fn cuCtxSetCurrent(context: CUcontext) -> CUresult;
            fn cuCtxPushCurrent = "cuCtxPushCurrent_v2"(context: CUcontext) -> CUresult;
            fn cuCtxPopCurrent = "cuCtxPopCurrent_v2"(context: *mut CUcontext) -> CUresult;
            fn cuCtxGetDevice(device: *mut CUdevice) -> CUresult;
            fn cuCtxSynchronize() -> CUresult;
            fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> CUresult;

            fn cuMemAlloc = "cuMemAlloc_v2"(address: *mut CUdeviceptr, bytes: usize) -> CUresult;
            fn cuMemFree = "cuMemFree_v2"(address: CUdeviceptr) -> CUresult;
            fn cuMemAllocManaged(
                address: *mut CUdeviceptr, bytes: usize, flags: c_uint
            ) -> CUresult;
            fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint) -> CUresult;
            fn cuMemFreeHost(address: *mut c_void) -> CUresult;
            fn cuMemHostRegister = "cuMemHostRegister_v2"(
                address: *mut c_void, bytes: usize, flags: c_uint
            ) -> CUresult;
            fn cuMemHostUnregister(address: *mut c_void) -> CUresult;
            fn cuMemHostGetDevicePointer = "cuMemHostGetDevicePointer_v2"(
                device: *mut CUdeviceptr, host: *mut c_void, flags: c_uint
            ) -> CUresult;
            fn cuPointerGetAttribute(
                value: *mut c_void, attribute: CUpointer_attribute, address: CUdeviceptr
            ) -> CUresult;
            fn cuPointerGetAttributes(
                count: c_uint,
                attributes: *mut CUpointer_attribute,
                values: *mut *mut c_void,
                address: CUdeviceptr
            ) -> CUresult;

            fn cuMemcpyAsync(
                to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream
            ) -> CUresult;
            fn cuMemcpyHtoD = "cuMemcpyHtoD_v2"(
                to: CUdeviceptr, from: *const c_void, bytes: usize
            ) -> CUresult;
            fn cuMemcpyDtoH = "cuMemcpyDtoH_v2"(
                to: *mut c_void, from: CUdeviceptr, bytes: usize
            ) -> CUresult;
            fn cuMemcpyHtoDAsync = "cuMemcpyHtoDAsync_v2"(
                to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream
            ) -> CUresult;
            fn cuMemcpyDtoHAsync = "cuMemcpyDtoHAsync_v2"(
                to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream
            ) -> CUresult;
            fn cuMemcpy2DAsync = "cuMemcpy2DAsync_v2"(
                copy: *const CudaMemcpy2D, stream: CUstream
            ) -> CUresult;
            fn cuMemsetD8 = "cuMemsetD8_v2"(to: CUdeviceptr, value: u8, bytes: usize) -> CUresult;
            fn cuMemsetD8Async(
                to: CUdeviceptr, value: u8, bytes: usize, stream: CUstream
            ) -> CUresult;

            fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) -> CUresult;
            fn cuStreamCreateWithPriority(
                stream: *mut CUstream, flags: c_uint, priority: c_int
            ) -> CUresult;
            fn cuStreamDestroy = "cuStreamDestroy_v2"(stream: CUstream) -> CUresult;
            fn cuStreamSynchronize(stream: CUstream) -> CUresult;
            fn cuStreamQuery(stream: CUstream) -> CUresult;
            fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) -> CUresult;
            fn cuStreamGetCtx(stream: CUstream, context: *mut CUcontext) -> CUresult;
            fn cuStreamIsCapturing(
                stream: CUstream, status: *mut CUstreamCaptureStatus
            ) -> CUresult;
            fn cuLaunchHostFunc(
                stream: CUstream, function: CUhostFn, user_data: *mut c_void
            ) -> CUresult;

            // Every driver since CUDA 4.0 has these three, so requiring them excludes no driver.
            fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) -> CUresult;
            fn cuModuleGetFunction(
                function: *mut CUfunction, module: CUmodule, name: *const c_char
            ) -> CUresult;
            fn cuLaunchKernel(
                function: CUfunction,
                grid_x: c_uint,
                grid_y: c_uint,
                grid_z: c_uint,
                block_x: c_uint,
                block_y: c_uint,
                block_z: c_uint,
                shared_bytes: c_uint,
                stream: CUstream,
                parameters: *mut *mut c_void,
                extra: *mut *mut c_void
            ) -> CUresult;

            fn cuEventCreate(event: *mut CUevent, flags: c_uint) -> CUresult;
            fn cuEventDestroy = "cuEventDestroy_v2"(event: CUevent) -> CUresult;
            fn cuEventRecord(event: CUevent, stream: CUstream) -> CUresult;
            fn cuEventQuery(event: CUevent) -> CUresult;
            fn cuEventSynchronize(event: CUevent) -> CUresult;
        }
        optional {
            /// Since CUDA 11.2, on devices with memory pools. They do not wait.
            fn cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult;
            fn cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) -> CUresult;
            fn cuMemPoolCreate(
                pool: *mut CUmemoryPool, properties: *const CudaMemPoolProps
            ) -> CUresult;
            fn cuMemPoolSetAttribute(
                pool: CUmemoryPool, attribute: c_int, value: *mut c_void
            ) -> CUresult;
            fn cuMemAllocFromPoolAsync(
                address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream
            ) -> CUresult;
            /// Since CUDA 12.8. Copy `i` is of `sizes[i]` bytes. This variant reports by `failed` which
            /// copy is wrong; CUDA 13 keeps it beside one without.
            fn cuMemcpyBatchAsync(
                to: *const CUdeviceptr,
                from: *const CUdeviceptr,
                sizes: *const usize,
                count: usize,
                attributes: *const CudaMemcpyAttributes,
                first_of_attributes: *const usize,
                attributes_count: usize,
                failed: *mut usize,
                stream: CUstream
            ) -> CUresult;
            fn cuDevicePrimaryCtxGetState(
                device: CUdevice, flags: *mut c_uint, active: *mut c_int
            ) -> CUresult;
            fn cuCtxGetId(context: CUcontext, id: *mut u64) -> CUresult;
            fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) -> CUresult;
            fn cuStreamWaitValue32 = "cuStreamWaitValue32_v2"(
                stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint
            ) -> CUresult;
        }
    }
}

impl Cuda {
    /// The driver's name for a result, such as `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn error_name(&self, code: CUresult) -> String {
        text_of(self.cuGetErrorName, code).unwrap_or_else(|| format!("CUDA error {code}"))
    }

    /// The driver's description of a result.
    pub fn error_text(&self, code: CUresult) -> String {
        text_of(self.cuGetErrorString, code).unwrap_or_else(|| "unrecognized error code".to_owned())
    }
}

fn text_of(
    query: unsafe extern "C" fn(CUresult, *mut *const c_char) -> CUresult,
    code: CUresult,
) -> Option<String> {
    let mut text = ptr::null();
    // SAFETY: both queries accept any code, need no initialised driver and only write `text`.
    let result = unsafe { query(code, &mut text) };
    if result != CUDA_SUCCESS || text.is_null() {
        return None;
    }
    // SAFETY: on success `text` is a NUL-terminated constant of the driver.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

const LIBRARY: Search = Search {
    title: "CUDA driver library",
    variable: "PENSTOCK_CUDA_LIBRARY",
    names: &["libcuda.so.1"],
    // In a Linux guest of Windows (WSL), the loader does not search this folder.
    folders: || vec!["/usr/lib/wsl/lib".into()],
};

static CUDA: OnceLock<Result<Cuda, Absent>> = OnceLock::new();

/// The CUDA driver API, opened on the first call. `PENSTOCK_CUDA_LIBRARY` names another library.
/// Opening it does not initialise CUDA.
pub fn cuda() -> Result<&'static Cuda, Absent> {
    CUDA.get_or_init(|| Cuda::of(&LIBRARY.open(LIBRARY.override_path().as_deref())?))
        .as_ref()
        .map_err(Absent::clone)
}

/// Whether any part of this process has loaded the CUDA driver library. Until then no pointer can
/// be a device pointer, and a program that uses only host memory need not open the library.
///
/// Cheap enough to call on each request: the loader is searched again only after it has loaded an
/// object since the last call.
pub fn cuda_is_loaded() -> bool {
    static LOADED: AtomicBool = AtomicBool::new(false);
    /// The loader's count of loads at the last negative result; the initial value is no such count.
    static LOADS_SEEN: AtomicU64 = AtomicU64::new(u64::MAX);

    if LOADED.load(Ordering::Relaxed) {
        return true;
    }
    if matches!(CUDA.get(), Some(Ok(_))) {
        LOADED.store(true, Ordering::Relaxed);
        return true;
    }
    let loads = loads_so_far();
    if LOADS_SEEN.load(Ordering::Relaxed) == loads {
        return false;
    }
    let names = LIBRARY.names.iter().map(OsString::from);
    // A library that is found stays loaded, so that a positive result may be cached.
    let is_loaded = names
        .chain(LIBRARY.override_path())
        .any(|name| loaded(&name).is_some());
    if is_loaded {
        LOADED.store(true, Ordering::Relaxed);
    } else {
        LOADS_SEEN.store(loads, Ordering::Relaxed);
    }
    is_loaded
}

/// The number of objects that the loader has loaded since the process started.
fn loads_so_far() -> u64 {
    unsafe extern "C" fn first_only(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        loads: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid `info`, and `loads` is the u64 given below.
        unsafe { *loads.cast::<u64>() = (*info).dlpi_adds };
        1
    }
    let mut loads = 0_u64;
    // SAFETY: the callback has the expected signature and `loads` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first_only), (&raw mut loads).cast()) };
    loads
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn a_library_without_the_driver_api_is_absent_and_says_what_it_lacks() {
        let libm = LIBRARY.open(Some(OsStr::new("libm.so.6"))).unwrap();
        assert_eq!(
            Cuda::of(&libm)
                .err()
                .expect("libm is not a CUDA driver")
                .what,
            "libm.so.6: opened, but it does not export cuInit"
        );
    }

    #[test]
    fn a_loaded_library_is_recognised_by_soname_and_a_missing_one_is_not() {
        assert!(loaded(OsStr::new("libc.so.6")).is_some());
        assert!(loaded(OsStr::new("libpenstock-none.so.1")).is_none());
    }

    #[test]
    fn a_library_loaded_later_raises_the_count_of_loads() {
        let before = loads_so_far();
        assert!(before > 0);
        // A part of glibc that this program does not need.
        let name = c"libutil.so.1";
        // SAFETY: this library has no initialiser that matters.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null());
        assert!(loads_so_far() > before);
    }

    #[test]
    fn two_calls_return_the_same_table_or_the_same_reason() {
        match (cuda(), cuda()) {
            (Ok(first), Ok(second)) => {
                assert!(std::ptr::eq(first, second));
                assert!(cuda_is_loaded());
                assert_eq!(
                    first.error_name(CUDA_ERROR_OUT_OF_MEMORY),
                    "CUDA_ERROR_OUT_OF_MEMORY"
                );
            }
            (Err(first), Err(second)) => {
                assert!(first.what.starts_with("CUDA driver library: "), "{first}");
                assert_eq!(first, second);
            }
            _ => panic!("the result changed"),
        }
    }
}
