//! Initialisation, devices, and descriptions of errors.

use std::ffi::{c_char, c_int, c_uint};

use super::{store, store_text};
use crate::device::{self, NAME, device};
use crate::status::{self, INVALID_VALUE, Result, code};

const DRIVER_VERSION: c_int = 13000;

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(flags: c_uint) -> c_int {
    code(device::initialize(flags))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the client's pointer is null or valid.
    code(unsafe { store(version, DRIVER_VERSION) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    // SAFETY: the client's pointer is null or valid.
    code(device::count().and_then(|found| unsafe { store(count, found as c_int) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(handle: *mut c_int, ordinal: c_int) -> c_int {
    // SAFETY: the client's pointer is null or valid.
    code(device(ordinal).and_then(|_| unsafe { store(handle, ordinal) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(
    name: *mut c_char,
    length: c_int,
    ordinal: c_int,
) -> c_int {
    // SAFETY: the client's buffer is null or holds `length` bytes.
    code(device(ordinal).and_then(|_| unsafe { store_text(name, length, NAME.to_bytes()) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetPCIBusId(
    id: *mut c_char,
    length: c_int,
    ordinal: c_int,
) -> c_int {
    let text = format!("0000:{:02X}:00.0", bus(ordinal));
    // SAFETY: the client's buffer is null or holds `length` bytes.
    code(device(ordinal).and_then(|_| unsafe { store_text(id, length, text.as_bytes()) }))
}

fn bus(ordinal: c_int) -> c_int {
    ordinal.wrapping_add(1)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, ordinal: c_int) -> c_int {
    // SAFETY: the client's pointer is null or valid.
    code(device(ordinal).and_then(|found| unsafe { store(bytes, found.arena().capacity()) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    ordinal: c_int,
) -> c_int {
    // SAFETY: the client's pointer is null or valid.
    code(device(ordinal).and_then(|_| unsafe { store(value, attribute_of(attribute, ordinal)) }))
}

/// The value of an attribute; 0 if the stand-in does not have it.
pub(crate) fn attribute_of(attribute: c_int, ordinal: c_int) -> c_int {
    match attribute {
        1 => 1024,          // MAX_THREADS_PER_BLOCK
        10 => 32,           // WARP_SIZE
        13 => 1_980_000,    // CLOCK_RATE, kHz
        15 => 1,            // GPU_OVERLAP
        16 => 132,          // MULTIPROCESSOR_COUNT
        18 => 0,            // INTEGRATED
        19 => 1,            // CAN_MAP_HOST_MEMORY
        33 => bus(ordinal), // PCI_BUS_ID
        34 => 0,            // PCI_DEVICE_ID
        40 => 3,            // ASYNC_ENGINE_COUNT
        41 => 1,            // UNIFIED_ADDRESSING
        50 => 0,            // PCI_DOMAIN_ID
        75 => 9,            // COMPUTE_CAPABILITY_MAJOR
        76 => 0,            // COMPUTE_CAPABILITY_MINOR
        78 => 1,            // STREAM_PRIORITIES_SUPPORTED
        83 => 1,            // MANAGED_MEMORY
        88 => 0,            // PAGEABLE_MEMORY_ACCESS
        89 => 1,            // CONCURRENT_MANAGED_ACCESS
        91 => 1,            // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        99 => 1,            // HOST_REGISTER_SUPPORTED
        113 => 1,           // READ_ONLY_HOST_REGISTER_SUPPORTED
        116 => 1,           // GPU_DIRECT_RDMA_SUPPORTED
        122 => 0,           // CAN_USE_64_BIT_STREAM_MEM_OPS: not implemented
        123 => 1,           // CAN_USE_STREAM_WAIT_VALUE_NOR
        134 => -1,          // HOST_NUMA_ID: unknown
        _ => 0,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(error: c_int, name: *mut *const c_char) -> c_int {
    // SAFETY: the client's pointer is null or valid.
    code(unsafe { describe(error, name, |(name, _)| name.as_ptr()) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(error: c_int, text: *mut *const c_char) -> c_int {
    // SAFETY: the client's pointer is null or valid.
    code(unsafe { describe(error, text, |(_, text)| text.as_ptr()) })
}

/// # Safety
/// `place` is null or valid.
unsafe fn describe(
    error: c_int,
    place: *mut *const c_char,
    pick: fn((&'static std::ffi::CStr, &'static std::ffi::CStr)) -> *const c_char,
) -> Result {
    let known = status::describe(error);
    // SAFETY: by contract of this function.
    unsafe { store(place, known.map_or(std::ptr::null(), pick)) }?;
    known.map(drop).ok_or(INVALID_VALUE)
}
