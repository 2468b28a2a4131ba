//! Contexts, and the stack of current ones.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use super::store;
use crate::capture;
use crate::device::{self, device};
use crate::status::{INVALID_VALUE, code};
use crate::stream::{GREATEST_PRIORITY, LEAST_PRIORITY};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(
    context: *mut *mut c_void,
    ordinal: c_int,
) -> c_int {
    code(device(ordinal).and_then(|found| {
        if context.is_null() {
            return Err(INVALID_VALUE);
        }
        found.retain()?;
        // SAFETY: the client's pointer is valid.
        unsafe { store(context, found.handle()) }
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(ordinal: c_int) -> c_int {
    code(device(ordinal).and_then(|context| context.release()))
}

/// `cudaDeviceReset` calls this function.
#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxReset_v2(ordinal: c_int) -> c_int {
    code(device(ordinal).and_then(|context| context.reset()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxCreate_v2(
    context: *mut *mut c_void,
    flags: c_uint,
    ordinal: c_int,
) -> c_int {
    if context.is_null() {
        return code(device::count().and(Err(INVALID_VALUE)));
    }
    // SAFETY: the client's pointer is valid.
    code(device::create(ordinal, flags).and_then(|found| unsafe { store(context, found.handle()) }))
}

/// Refuses a primary context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxDestroy_v2(context: *mut c_void) -> c_int {
    code(device::destroy(context))
}

/// Keeps the value, which has no effect.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetLimit(limit: c_int, value: usize) -> c_int {
    code(device::current().and_then(|context| {
        context.limit(limit)?.store(value, Ordering::Relaxed);
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetLimit(value: *mut usize, limit: c_int) -> c_int {
    code(device::current().and_then(|context| {
        let found = context.limit(limit)?.load(Ordering::Relaxed);
        // SAFETY: the client's pointer is null or valid.
        unsafe { store(value, found) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetId(context: *mut c_void, id: *mut u64) -> c_int {
    // SAFETY: the client's pointer is null or valid.
    code(device::by_handle(context).and_then(|found| unsafe { store(id, found.id()?) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxGetState(
    ordinal: c_int,
    flags: *mut c_uint,
    active: *mut c_int,
) -> c_int {
    code(device(ordinal).and_then(|context| {
        // SAFETY: the client's pointers are null or valid.
        unsafe {
            store(flags, 0)?;
            store(active, context.is_active().into())
        }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut *mut c_void) -> c_int {
    code(device::top().and_then(|top| {
        let handle = top.map_or(std::ptr::null_mut(), |found| found.handle());
        // SAFETY: the client's pointer is null or valid.
        unsafe { store(context, handle) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> c_int {
    if context.is_null() {
        return code(device::top().map(|_| device::set_current(None)));
    }
    code(device::by_handle(context).map(|found| device::set_current(Some(found))))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPushCurrent_v2(context: *mut c_void) -> c_int {
    code(device::by_handle(context).map(device::push))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut *mut c_void) -> c_int {
    code(device::pop().map(|popped| {
        if !context.is_null() {
            // SAFETY: the client's pointer is valid.
            unsafe { context.write(popped.handle()) };
        }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetDevice(ordinal: *mut c_int) -> c_int {
    // SAFETY: the client's pointer is null or valid.
    code(device::current_or_failed().and_then(|found| unsafe { store(ordinal, found.ordinal()) }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> c_int {
    code(device::current().and_then(|context| {
        capture::unsafe_call()?;
        context.synchronize()
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetStreamPriorityRange(
    least: *mut c_int,
    greatest: *mut c_int,
) -> c_int {
    code(device::current().map(|_| {
        for (place, value) in [(least, LEAST_PRIORITY), (greatest, GREATEST_PRIORITY)] {
            if !place.is_null() {
                // SAFETY: the client's pointer is valid.
                unsafe { place.write(value) };
            }
        }
    }))
}
