//! Allocation and registration. In a failed context, calls that free or unregister memory still do
//! so, and then return the failure.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use penstock_sys::cuda::CudaMemPoolProps;

use super::store;
use crate::device::{self, Context, current, current_for_query};
use crate::status::{INVALID_VALUE, NOT_FOUND, Result, code};
use crate::stream;
use crate::{capture, memory};

fn checked<T>(place: *mut T) -> Result {
    if place.is_null() {
        Err(INVALID_VALUE)
    } else {
        Ok(())
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, size: usize) -> c_int {
    code(current().and_then(|context| {
        checked(address)?;
        capture::unsafe_call()?;
        let allocated = memory::allocate_device(context, size)?;
        // SAFETY: the client's pointer is valid.
        unsafe { store(address, allocated as u64) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocManaged(address: *mut u64, size: usize, flags: c_uint) -> c_int {
    code(current().and_then(|context| {
        checked(address)?;
        capture::unsafe_call()?;
        let allocated = memory::allocate_managed(context, size, flags)?;
        // SAFETY: the client's pointer is valid.
        unsafe { store(address, allocated as u64) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_int {
    code(current().and_then(|context| {
        let arena = context.arena();
        // SAFETY: the client's pointers are null or valid.
        unsafe {
            store(free, arena.free())?;
            store(total, arena.capacity())
        }
    }))
}

/// Allocates at once, although the client may use the memory only in stream order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(address: *mut u64, size: usize, at: *mut c_void) -> c_int {
    code(current().and_then(|_| {
        checked(address)?;
        let stream = stream::resolve_current(at)?;
        let allocated = memory::allocate_device(stream.context, size)?;
        if let Some(region) = memory::find(allocated) {
            region.in_pool.store(true, Ordering::Relaxed);
        }
        // SAFETY: the client's pointer is valid.
        unsafe { store(address, allocated as u64) }
    }))
}

/// All pools of a device share its memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemPoolCreate(
    pool: *mut *mut c_void,
    properties: *const CudaMemPoolProps,
) -> c_int {
    code(device::count().and_then(|_| {
        // SAFETY: the client's pointer is null or valid.
        let properties = unsafe { properties.as_ref() }.ok_or(INVALID_VALUE)?;
        let found = device::device(properties.location_id)?;
        // SAFETY: the client's pointer is null or valid.
        unsafe { store(pool, found.handle()) }
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolSetAttribute(
    pool: *mut c_void,
    attribute: c_int,
    value: *mut c_void,
) -> c_int {
    code(device::count().and_then(|_| {
        let is_known = (1..=4).contains(&attribute);
        if is_known && !pool.is_null() && !value.is_null() {
            Ok(())
        } else {
            Err(INVALID_VALUE)
        }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocFromPoolAsync(
    address: *mut u64,
    size: usize,
    pool: *mut c_void,
    at: *mut c_void,
) -> c_int {
    if pool.is_null() {
        return code(Err(INVALID_VALUE));
    }
    // SAFETY: passed on.
    unsafe { cuMemAllocAsync(address, size, at) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeAsync(address: u64, at: *mut c_void) -> c_int {
    code(current().and_then(|_| {
        let stream = stream::resolve_current(at)?;
        let free = move || {
            let _ = memory::free_device(address as usize);
        };
        stream.submit_always(free).map(drop)
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: u64) -> c_int {
    code(end(address as usize, memory::free_device))
}

/// Frees or unregisters memory, which blocks the context that it belongs to, whichever is current.
fn end(address: usize, release: fn(usize) -> Result) -> Result {
    device::current_or_failed()?;
    capture::unsafe_call()?;
    device::release_in_any_state(|| {
        let owner = memory::find(address).map(|region| region.context);
        let _blocked = owner.and_then(Context::block);
        release(address)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(
    address: *mut *mut c_void,
    size: usize,
    flags: c_uint,
) -> c_int {
    code(current().and_then(|context| {
        checked(address)?;
        capture::unsafe_call()?;
        let allocated = memory::allocate_host(context, size, flags)?;
        // SAFETY: the client's pointer is valid.
        unsafe { store(address, allocated as *mut c_void) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(address: *mut c_void) -> c_int {
    code(end(address as usize, memory::free_host))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostRegister_v2(
    address: *mut c_void,
    size: usize,
    flags: c_uint,
) -> c_int {
    code(current().and_then(|context| {
        capture::unsafe_call()?;
        memory::register_host(context, address as usize, size, flags)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostUnregister(address: *mut c_void) -> c_int {
    code(end(address as usize, memory::unregister_host))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostGetDevicePointer_v2(
    device: *mut u64,
    host: *mut c_void,
    flags: c_uint,
) -> c_int {
    code(current().and_then(|_| {
        let known = memory::find(host as usize).is_some_and(|region| region.is_host());
        if flags != 0 || !known {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the client's pointer is null or valid.
        unsafe { store(device, host as u64) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAddressRange_v2(
    base: *mut u64,
    size: *mut usize,
    address: u64,
) -> c_int {
    code(current_for_query().and_then(|_| {
        let region = memory::find(address as usize).ok_or(NOT_FOUND)?;
        // SAFETY: the client's pointers are null or valid; either may be left out.
        unsafe {
            if !base.is_null() {
                base.write(region.base as u64);
            }
            if !size.is_null() {
                size.write(region.size);
            }
        }
        Ok(())
    }))
}
