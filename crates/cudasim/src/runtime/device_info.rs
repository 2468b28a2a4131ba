//! Devices, versions and errors.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::{forwards, initialised, peek_error, report, take_error, use_device};
use crate::api::{context, device as driver, memory, store};
use crate::device::{self, NAME};
use crate::status::{self, INVALID_VALUE, Result, code};

/// CUDA 13.2, for which PyTorch is built.
const RUNTIME_VERSION: c_int = 13020;

/// `cudaDeviceProp` of CUDA 13. What is zero in the stand-in has no name.
#[repr(C)]
pub struct DeviceProperties {
    name: [u8; 256],
    uuid: [u8; 16],
    luid: [u8; 8],
    luid_device_node_mask: u32,
    total_global_memory: usize,
    shared_memory_per_block: usize,
    registers_per_block: c_int,
    warp_size: c_int,
    memory_pitch: usize,
    threads_per_block: c_int,
    threads: [c_int; 3],
    grid: [c_int; 3],
    constant_memory: usize,
    compute_capability: [c_int; 2],
    texture_alignments: [usize; 2],
    multiprocessors: c_int,
    integrated: c_int,
    can_map_host_memory: c_int,
    textures: [c_int; 39],
    surface_alignment: usize,
    concurrent_kernels: c_int,
    ecc: c_int,
    pci_bus: c_int,
    pci: [c_int; 3],
    async_engines: c_int,
    unified_addressing: c_int,
    memory_bus_width: c_int,
    l2_cache: [c_int; 2],
    threads_per_multiprocessor: c_int,
    stream_priorities: c_int,
    l1_caches: [c_int; 2],
    shared_memory_per_multiprocessor: usize,
    registers_per_multiprocessor: c_int,
    managed_memory: c_int,
    boards: [c_int; 4],
    concurrent_managed_access: c_int,
    compute_preemption: c_int,
    host_pointer_for_registered_memory: c_int,
    cooperative_launch: c_int,
    shared_memory_per_block_opt_in: usize,
    others: [c_int; 82],
}

const _: () = assert!(size_of::<DeviceProperties>() == 1008);
const _: () = assert!(std::mem::offset_of!(DeviceProperties, multiprocessors) == 384);
const _: () = assert!(std::mem::offset_of!(DeviceProperties, pci_bus) == 568);
const _: () = assert!(std::mem::offset_of!(DeviceProperties, managed_memory) == 636);
const _: () =
    assert!(std::mem::offset_of!(DeviceProperties, shared_memory_per_block_opt_in) == 672);

forwards! { initialised:
    cudaGetDeviceCount(count: *mut c_int) => driver::cuDeviceGetCount;
    cudaDeviceGetAttribute(value: *mut c_int, attribute: c_int, ordinal: c_int)
        => driver::cuDeviceGetAttribute;
    cudaDeviceGetPCIBusId(id: *mut c_char, length: c_int, ordinal: c_int)
        => driver::cuDeviceGetPCIBusId;
}

forwards! { in_context:
    cudaDeviceSynchronize() => context::cuCtxSynchronize;
    cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int)
        => context::cuCtxGetStreamPriorityRange;
    cudaMemGetInfo(free: *mut usize, total: *mut usize) => memory::cuMemGetInfo_v2;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the driver's function has the same contract.
    report(unsafe { driver::cuDriverGetVersion(version) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaRuntimeGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the client's pointer is null or valid.
    report(code(unsafe { store(version, RUNTIME_VERSION) }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaSetDevice(ordinal: c_int) -> c_int {
    initialised(|| code(use_device(ordinal)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDevice(ordinal: *mut c_int) -> c_int {
    initialised(|| {
        code(device::top().and_then(|top| {
            // SAFETY: the client's pointer is null or valid.
            unsafe { store(ordinal, top.map_or(0, |context| context.ordinal())) }
        }))
    })
}

/// Devices copy to each other only through the driver, as without NVLink.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceCanAccessPeer(
    can: *mut c_int,
    ordinal: c_int,
    peer: c_int,
) -> c_int {
    let both = || device::device(ordinal).and(device::device(peer));
    // SAFETY: the client's pointer is null or valid.
    initialised(|| code(both().and_then(|_| unsafe { store(can, 0) })))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDeviceProperties(
    properties: *mut DeviceProperties,
    ordinal: c_int,
) -> c_int {
    // SAFETY: the client's pointer is null or valid.
    initialised(|| code(properties_of(ordinal).and_then(|all| unsafe { store(properties, all) })))
}

fn properties_of(ordinal: c_int) -> Result<DeviceProperties> {
    let context = device::device(ordinal)?;
    let attribute = |number| driver::attribute_of(number, ordinal);
    // SAFETY: every field is a number or an array of numbers, for which zero is valid.
    let mut all: DeviceProperties = unsafe { std::mem::zeroed() };
    all.name[..NAME.count_bytes()].copy_from_slice(NAME.to_bytes());
    all.uuid[15] = ordinal as u8;
    all.total_global_memory = context.arena().capacity();
    all.shared_memory_per_block = 48 << 10;
    all.registers_per_block = 65536;
    all.warp_size = attribute(10);
    all.threads_per_block = attribute(1);
    all.threads = [1024, 1024, 64];
    all.grid = [c_int::MAX, 65535, 65535];
    all.constant_memory = 64 << 10;
    all.compute_capability = [attribute(75), attribute(76)];
    all.multiprocessors = attribute(16);
    all.can_map_host_memory = attribute(19);
    all.concurrent_kernels = 1;
    all.pci_bus = attribute(33);
    all.async_engines = attribute(40);
    all.unified_addressing = attribute(41);
    all.threads_per_multiprocessor = 2048;
    all.stream_priorities = attribute(78);
    all.registers_per_multiprocessor = 65536;
    all.managed_memory = attribute(83);
    all.concurrent_managed_access = attribute(89);
    all.host_pointer_for_registered_memory = attribute(91);
    Ok(all)
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGetLastError() -> c_int {
    take_error()
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaPeekAtLastError() -> c_int {
    peek_error()
}

/// The driver's name of the error.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorName(error: c_int) -> *const c_char {
    description(error).0.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorString(error: c_int) -> *const c_char {
    description(error).1.as_ptr()
}

fn description(error: c_int) -> (&'static CStr, &'static CStr) {
    const UNKNOWN: &CStr = c"unrecognized error code";
    status::describe(error).unwrap_or((UNKNOWN, UNKNOWN))
}

/// Finds the newest version of a driver function, whatever `version` and `flags` are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDriverEntryPointByVersion(
    name: *const c_char,
    function: *mut *const c_void,
    _version: u32,
    _flags: u64,
    status: *mut c_int,
) -> c_int {
    const FOUND: c_int = 0;
    const NOT_FOUND: c_int = 1;
    if name.is_null() {
        return report(INVALID_VALUE.0);
    }
    // SAFETY: the client's string is NUL-terminated, its pointers are null or valid.
    report(code(unsafe {
        let found = driver_function(CStr::from_ptr(name));
        if !status.is_null() {
            status.write(if found.is_null() { NOT_FOUND } else { FOUND });
        }
        store(function, found)
    }))
}

/// The address of a driver function in this library; null if the stand-in does not have it.
fn driver_function(name: &CStr) -> *const c_void {
    // SAFETY: `dladdr` fills the zeroed description of a function of this library, and `dlopen`
    // only finds the library again, by the name under which it was loaded.
    let own = unsafe {
        let mut own: libc::Dl_info = std::mem::zeroed();
        libc::dladdr(driver::cuInit as *const c_void, &mut own);
        libc::dlopen(own.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD)
    };
    let name = name.to_string_lossy();
    let symbols = ["_v3", "_v2", ""].map(|version| format!("{name}{version}\0"));
    // SAFETY: each symbol is NUL-terminated.
    let addresses = symbols.map(|symbol| unsafe { libc::dlsym(own, symbol.as_ptr().cast()) });
    let found = addresses.into_iter().find(|address| !address.is_null());
    found.unwrap_or(std::ptr::null_mut())
}
