//! Streams. The default streams are those of the current context.

use std::ffi::{c_int, c_uint, c_void};

use super::{Sent, store};
use crate::device::{self, current};
use crate::status::{INVALID_VALUE, NOT_READY, Result, code};
use crate::stream::{self, resolve_current, resolve_queried, resolve_used};
use crate::{capture, config, copy, event, failure};

type HostFunction = unsafe extern "C" fn(*mut c_void);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(handle: *mut *mut c_void, flags: c_uint) -> c_int {
    // SAFETY: the client's pointer is null or valid.
    unsafe { cuStreamCreateWithPriority(handle, flags, 0) }
}

/// All streams have the same priority.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreateWithPriority(
    handle: *mut *mut c_void,
    flags: c_uint,
    _priority: c_int,
) -> c_int {
    code(current().and_then(|context| {
        if handle.is_null() {
            return Err(INVALID_VALUE);
        }
        let created = stream::create(context, flags)?;
        // SAFETY: the client's pointer is valid.
        unsafe { store(handle, created) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamDestroy_v2(handle: *mut c_void) -> c_int {
    code(device::release_in_any_state(|| stream::destroy(handle)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamSynchronize(handle: *mut c_void) -> c_int {
    code(resolve_used(handle).and_then(|stream| {
        capture::unsafe_call()?;
        failure::check(failure::Kind::Synchronize)?;
        stream.synchronize()
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamQuery(handle: *mut c_void) -> c_int {
    code(resolve_queried(handle).and_then(|stream| {
        capture::unsafe_call()?;
        let idle = stream.is_idle()?;
        stream.context.check()?;
        if idle { Ok(()) } else { Err(NOT_READY) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetCtx(handle: *mut c_void, context: *mut *mut c_void) -> c_int {
    code(resolve_current(handle).and_then(|stream| {
        // SAFETY: the client's pointer is null or valid.
        unsafe { store(context, stream.context.handle()) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamIsCapturing(handle: *mut c_void, status: *mut c_int) -> c_int {
    code(resolve_current(handle).and_then(|stream| {
        // SAFETY: the client's pointer is null or valid.
        unsafe { store(status, capture::query(&stream)?) }
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBeginCapture_v2(handle: *mut c_void, mode: c_int) -> c_int {
    code(resolve_current(handle).and_then(|stream| capture::begin(stream, mode)))
}

/// Returns no graph, only the status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(handle: *mut c_void, graph: *mut *mut c_void) -> c_int {
    code(resolve_current(handle).and_then(|stream| {
        // SAFETY: the client's pointer is null or valid.
        unsafe { store(graph, std::ptr::null_mut())? };
        capture::end(&stream)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int) -> c_int {
    if mode.is_null() {
        return code(Err(INVALID_VALUE));
    }
    // SAFETY: the client's pointer is valid.
    code(capture::exchange_mode(unsafe { *mode }).map(|before| unsafe { *mode = before }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamWaitEvent(
    handle: *mut c_void,
    event: *mut c_void,
    flags: c_uint,
) -> c_int {
    code(resolve_used(handle).and_then(|stream| {
        if flags > 1 {
            return Err(INVALID_VALUE);
        }
        event::resolve(event)?.make_wait(&stream)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchHostFunc(
    handle: *mut c_void,
    function: Option<HostFunction>,
    data: *mut c_void,
) -> c_int {
    code(launch(handle, function, data))
}

/// Queues the function for the stream's thread. It does not run in a failed context.
fn launch(handle: *mut c_void, function: Option<HostFunction>, data: *mut c_void) -> Result {
    let stream = resolve_used(handle)?;
    let function = function.ok_or(INVALID_VALUE)?;
    failure::check(failure::Kind::Launch)?;
    let data = Sent(data);
    stream.submit(config::launch_time(), move |_| {
        stream::call_host_function(function, data.get());
        Ok(())
    })?;
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamWaitValue32_v2(
    handle: *mut c_void,
    address: u64,
    value: u32,
    flags: c_uint,
) -> c_int {
    code(
        resolve_used(handle)
            .and_then(|stream| copy::wait_value(&stream, address as usize, value, flags)),
    )
}
