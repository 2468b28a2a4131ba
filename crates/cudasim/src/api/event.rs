//! Events.

use std::ffi::{c_int, c_uint, c_void};

use super::store;
use crate::device::{self, current, current_for_query};
use crate::status::{INVALID_VALUE, code};
use crate::stream::resolve_used;
use crate::{capture, event, failure};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(handle: *mut *mut c_void, flags: c_uint) -> c_int {
    code(current().and_then(|context| {
        if handle.is_null() {
            return Err(INVALID_VALUE);
        }
        let created = event::create(context, flags)?;
        // SAFETY: the client's pointer is valid.
        unsafe { store(handle, created) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventDestroy_v2(handle: *mut c_void) -> c_int {
    code(device::release_in_any_state(|| event::destroy(handle)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord(handle: *mut c_void, stream: *mut c_void) -> c_int {
    code(resolve_used(stream).and_then(|stream| event::resolve(handle)?.record(&stream)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventQuery(handle: *mut c_void) -> c_int {
    code(current_for_query().and_then(|_| {
        capture::unsafe_call()?;
        event::resolve(handle)?.query()
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventSynchronize(handle: *mut c_void) -> c_int {
    code(current().and_then(|_| {
        capture::unsafe_call()?;
        failure::check(failure::Kind::Synchronize)?;
        event::resolve(handle)?.synchronize()
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime_v2(
    milliseconds: *mut f32,
    from: *mut c_void,
    to: *mut c_void,
) -> c_int {
    code(current_for_query().and_then(|_| {
        let elapsed = event::resolve(from)?.milliseconds_to(&*event::resolve(to)?)?;
        // SAFETY: the client's pointer is null or valid.
        unsafe { store(milliseconds, elapsed) }
    }))
}
