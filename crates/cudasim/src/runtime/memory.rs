//! Allocation, registration, copies and fills.

use std::ffi::{c_int, c_uint, c_void};

use super::{forwards, ignored, in_context, initialised, report, with_context};
use crate::api::copy::{cuMemsetD8_v2, cuMemsetD8Async, queue};
use crate::api::{memory as driver, store};
use crate::copy::Direction;
use crate::device::device;
use crate::memory;
use crate::region::Kind;
use crate::status::{INVALID_VALUE, NOT_SUPPORTED, Result, SUCCESS, code};

forwards! { in_context:
    cudaMalloc(address: *mut u64, size: usize) => driver::cuMemAlloc_v2;
    cudaMallocManaged(address: *mut u64, size: usize, flags: c_uint) => driver::cuMemAllocManaged;
    cudaMallocAsync(address: *mut u64, size: usize, stream: *mut c_void) => driver::cuMemAllocAsync;
    cudaFreeAsync(address: u64, stream: *mut c_void) => driver::cuMemFreeAsync;
    cudaHostAlloc(address: *mut *mut c_void, size: usize, flags: c_uint) => driver::cuMemHostAlloc;
    cudaFreeHost(address: *mut c_void) => driver::cuMemFreeHost;
    cudaHostRegister(address: *mut c_void, size: usize, flags: c_uint)
        => driver::cuMemHostRegister_v2;
    cudaHostUnregister(address: *mut c_void) => driver::cuMemHostUnregister;
}

ignored! {
    cudaMemPoolSetAccess
    cudaMemPoolSetAttribute
    cudaMemPoolTrimTo
}

/// The pool has no state: its memory is that of the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetDefaultMemPool(
    pool: *mut *mut c_void,
    ordinal: c_int,
) -> c_int {
    // SAFETY: the client's pointer is null or valid.
    initialised(|| code(device(ordinal).and_then(|found| unsafe { store(pool, found.handle()) })))
}

/// Bytes reserved and used are 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemPoolGetAttribute(
    _pool: *mut c_void,
    attribute: c_int,
    value: *mut u64,
) -> c_int {
    const RELEASE_THRESHOLD: c_int = 4;
    const USED_BYTES_HIGH: c_int = 8;
    report(match attribute {
        // SAFETY: the client's pointer is null or valid, and these attributes have 64 bits.
        RELEASE_THRESHOLD..=USED_BYTES_HIGH => code(unsafe { store(value, 0) }),
        _ => NOT_SUPPORTED.0,
    })
}

/// Without an address, it only makes a context current.
#[unsafe(no_mangle)]
pub extern "C" fn cudaFree(address: u64) -> c_int {
    in_context(|| {
        if address == 0 {
            SUCCESS
        } else {
            driver::cuMemFree_v2(address)
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMallocHost(address: *mut *mut c_void, size: usize) -> c_int {
    // SAFETY: by contract of this function.
    unsafe { cudaHostAlloc(address, size, 0) }
}

/// The direction of a `cudaMemcpyKind`.
fn direction(kind: c_int) -> Result<Direction> {
    match kind {
        0 | 4 => Ok(Direction::Any),
        1 => Ok(Direction::HostToDevice),
        2 => Ok(Direction::DeviceToHost),
        3 => Ok(Direction::DeviceToDevice),
        _ => Err(INVALID_VALUE),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpy(to: u64, from: u64, size: usize, kind: c_int) -> c_int {
    with_context(|| queue(direction(kind)?, to, from, size, None))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpyAsync(
    to: u64,
    from: u64,
    size: usize,
    kind: c_int,
    stream: *mut c_void,
) -> c_int {
    with_context(|| queue(direction(kind)?, to, from, size, Some(stream)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemcpyPeerAsync(
    to: u64,
    _to_device: c_int,
    from: u64,
    _from_device: c_int,
    size: usize,
    stream: *mut c_void,
) -> c_int {
    with_context(|| queue(Direction::DeviceToDevice, to, from, size, Some(stream)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemset(to: u64, value: c_int, size: usize) -> c_int {
    // SAFETY: the driver's function has the same contract.
    in_context(|| unsafe { cuMemsetD8_v2(to, value as u8, size) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemsetAsync(
    to: u64,
    value: c_int,
    size: usize,
    stream: *mut c_void,
) -> c_int {
    // SAFETY: the driver's function has the same contract.
    in_context(|| unsafe { cuMemsetD8Async(to, value as u8, size, stream) })
}

/// `cudaPointerAttributes`.
#[repr(C)]
pub struct PointerAttributes {
    pub kind: c_int,
    pub device: c_int,
    pub device_pointer: usize,
    pub host_pointer: usize,
    reserved: [i64; 8],
}

const UNREGISTERED: c_int = 0;
const HOST: c_int = 1;
const DEVICE: c_int = 2;
const MANAGED: c_int = 3;
/// The device of unregistered memory.
const NO_DEVICE: c_int = -2;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaPointerGetAttributes(
    attributes: *mut PointerAttributes,
    address: usize,
) -> c_int {
    // SAFETY: the client's pointer is null or valid.
    initialised(|| code(unsafe { store(attributes, attributes_of(address)) }))
}

fn attributes_of(address: usize) -> PointerAttributes {
    let region = memory::find(address);
    let kind = region
        .as_ref()
        .map_or(UNREGISTERED, |region| match region.kind {
            Kind::Device => DEVICE,
            Kind::Managed => MANAGED,
            Kind::HostAllocated | Kind::HostRegistered => HOST,
        });
    PointerAttributes {
        kind,
        device: region.map_or(NO_DEVICE, |region| region.context.ordinal()),
        device_pointer: if kind == UNREGISTERED { 0 } else { address },
        host_pointer: if kind == DEVICE { 0 } else { address },
        reserved: [0; 8],
    }
}
