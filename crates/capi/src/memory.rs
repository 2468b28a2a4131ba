//! Kinds of memory, allocation, registration, copies and streams.

use std::ffi::{c_int, c_void};

use penstock_engine::{Stream, allocate, buffer};

use crate::error::{OK, guard, null};
use crate::handle::release;

/// # Safety
/// `kind` and `device` are null or valid for the results.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_memory_kind(
    pointer: *const c_void,
    kind: *mut c_int,
    device: *mut c_int,
) -> c_int {
    guard(|| {
        let (found, ordinal) = allocate::memory_kind(pointer as usize)?;
        // SAFETY: by contract, the pointers are null or valid.
        unsafe {
            if let Some(kind) = kind.as_mut() {
                *kind = found as c_int;
            }
            if let Some(device) = device.as_mut() {
                *device = ordinal;
            }
        }
        Ok(OK)
    })
}

/// # Safety
/// `count` is null or valid for the result.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_device_count(count: *mut c_int) -> c_int {
    guard(|| {
        // SAFETY: by contract, the pointer is null or valid.
        *unsafe { count.as_mut() }.ok_or_else(|| null("count"))? = allocate::device_count()?;
        Ok(OK)
    })
}

/// # Safety
/// `pointer` is null or valid for the result.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_device_alloc(
    device: c_int,
    bytes: u64,
    pointer: *mut *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: by contract, the pointer is null or valid.
        let place = unsafe { pointer.as_mut() }.ok_or_else(|| null("pointer"))?;
        *place = allocate::device_alloc(device, bytes)? as usize as *mut c_void;
        Ok(OK)
    })
}

/// # Safety
/// `pointer` came from `penstock_device_alloc`, and nothing uses the memory any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_device_free(pointer: *mut c_void) -> c_int {
    guard(|| {
        // SAFETY: passed on.
        unsafe { allocate::device_free(pointer as u64)? };
        Ok(OK)
    })
}

/// # Safety
/// `place` is null, or points to null or to memory as for [`penstock_device_free`].
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_device_release(place: *mut *mut c_void) {
    // SAFETY: by contract of this function.
    unsafe { release(place, |pointer| penstock_device_free(pointer)) };
}

/// # Safety
/// `place` is null, or points to null or to memory as for [`penstock_host_free`].
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_host_release(place: *mut *mut c_void) {
    // SAFETY: by contract of this function.
    unsafe { release(place, |pointer| penstock_host_free(pointer)) };
}

/// # Safety
/// `pointer` is null or valid for the result.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_host_alloc(bytes: u64, pointer: *mut *mut c_void) -> c_int {
    guard(|| {
        // SAFETY: by contract, the pointer is null or valid.
        let place = unsafe { pointer.as_mut() }.ok_or_else(|| null("pointer"))?;
        *place = allocate::host_alloc(bytes)?;
        Ok(OK)
    })
}

/// # Safety
/// `pointer` came from `penstock_host_alloc`, and nothing uses the memory any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_host_free(pointer: *mut c_void) -> c_int {
    guard(|| {
        // SAFETY: passed on.
        unsafe { allocate::host_free(pointer)? };
        Ok(OK)
    })
}

/// # Safety
/// Both pointers are valid for `bytes` bytes, and the ranges do not overlap.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_copy(
    destination: *mut c_void,
    source: *const c_void,
    bytes: u64,
) -> c_int {
    guard(|| {
        // SAFETY: passed on.
        unsafe { allocate::copy(destination as usize, source as usize, bytes)? };
        Ok(OK)
    })
}

/// # Safety
/// `stream` is a live stream.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_stream_wait(device: c_int, stream: *mut c_void) -> c_int {
    guard(|| {
        // SAFETY: passed on.
        unsafe { Stream::from_raw(stream) }.synchronize(device)?;
        Ok(OK)
    })
}

/// # Safety
/// `stream` is a live stream; `is_idle` is null or valid for the result.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_stream_query(
    device: c_int,
    stream: *mut c_void,
    is_idle: *mut c_int,
) -> c_int {
    guard(|| {
        // SAFETY: by contract, the pointer is null or valid.
        let result = unsafe { is_idle.as_mut() }.ok_or_else(|| null("is_idle"))?;
        // SAFETY: passed on.
        *result = unsafe { Stream::from_raw(stream) }.is_idle(device)?.into();
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
extern "C" fn penstock_buffer_register(pointer: *mut c_void, bytes: u64) -> c_int {
    guard(|| {
        buffer::register(pointer as usize, bytes)?;
        Ok(OK)
    })
}

/// # Safety
/// No request uses the memory.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_buffer_deregister(pointer: *mut c_void) -> c_int {
    guard(|| {
        buffer::deregister(pointer as usize)?;
        Ok(OK)
    })
}
