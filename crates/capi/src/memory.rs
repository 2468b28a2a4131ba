//! Kinds of memory, allocation, registration, copies and streams.

use std::ffi::{c_int, c_void};

use penstock_array::execute::prepare;
use penstock_engine::{Stream, allocate, buffer};

use crate::arguments::place_of;
use crate::error::guard;
use crate::handle::release;

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
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_device_count(count: *mut c_int) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        *place_of(count, "count")? = allocate::device_count()?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_device_alloc(
    device: c_int,
    bytes: u64,
    pointer: *mut *mut c_void,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        let place = place_of(pointer, "pointer")?;
        *place = allocate::device_alloc(device, bytes)? as usize as *mut c_void;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_device_free(pointer: *mut c_void) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe { allocate::device_free(pointer as u64) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_device_release(place: *mut *mut c_void) {
    // SAFETY: by contract of this function.
    unsafe { release(place, |pointer| penstock_device_free(pointer)) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_host_release(place: *mut *mut c_void) {
    // SAFETY: by contract of this function.
    unsafe { release(place, |pointer| penstock_host_free(pointer)) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_host_alloc(bytes: u64, pointer: *mut *mut c_void) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        let place = place_of(pointer, "pointer")?;
        *place = allocate::host_alloc(bytes)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_host_free(pointer: *mut c_void) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe { allocate::host_free(pointer) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_copy(
    destination: *mut c_void,
    source: *const c_void,
    bytes: u64,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe { allocate::copy(destination as usize, source as usize, bytes) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_stream_wait(device: c_int, stream: *mut c_void) -> c_int {
    // SAFETY: by contract, the stream is live.
    guard(|| unsafe { Stream::from_raw(stream) }.synchronize(device))
}

#[unsafe(no_mangle)]
extern "C" fn penstock_device_wait(device: c_int) -> c_int {
    guard(|| Stream::synchronize_all(device))
}

#[unsafe(no_mangle)]
extern "C" fn penstock_init(device: c_int) -> c_int {
    guard(|| {
        allocate::must_see(device)?;
        prepare(device)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_device_stream(device: c_int, stream: *mut *mut c_void) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        let place = place_of(stream, "stream")?;
        *place = Stream::of_lenders(device)?.as_raw();
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_stream_query(
    device: c_int,
    stream: *mut c_void,
    is_idle: *mut c_int,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        let place = place_of(is_idle, "is_idle")?;
        *place = Stream::from_raw(stream).is_idle(device)?.into();
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn penstock_buffer_register(pointer: *mut c_void, bytes: u64) -> c_int {
    guard(|| buffer::register(pointer as usize, bytes))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_buffer_deregister(pointer: *mut c_void) -> c_int {
    guard(|| buffer::deregister(pointer as usize))
}
