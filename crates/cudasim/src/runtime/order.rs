//! Streams, events and capture.

use std::ffi::{c_int, c_uint, c_void};

use super::{forwards, with_context};
use crate::api::{event, store, stream};
use crate::status::SUCCESS;
use crate::stream::{LEAST_PRIORITY, resolve_current};

type Handle = *mut c_void;

forwards! { in_context:
    cudaStreamCreateWithFlags(created: *mut Handle, flags: c_uint) => stream::cuStreamCreate;
    cudaStreamCreateWithPriority(created: *mut Handle, flags: c_uint, priority: c_int)
        => stream::cuStreamCreateWithPriority;
    cudaStreamDestroy(handle: Handle) => stream::cuStreamDestroy_v2;
    cudaStreamQuery(handle: Handle) => stream::cuStreamQuery;
    cudaStreamSynchronize(handle: Handle) => stream::cuStreamSynchronize;
    cudaStreamWaitEvent(handle: Handle, event: Handle, flags: c_uint) => stream::cuStreamWaitEvent;
    cudaStreamIsCapturing(handle: Handle, status: *mut c_int) => stream::cuStreamIsCapturing;
    cudaStreamBeginCapture(handle: Handle, mode: c_int) => stream::cuStreamBeginCapture_v2;
    cudaStreamEndCapture(handle: Handle, graph: *mut Handle) => stream::cuStreamEndCapture;
    cudaThreadExchangeStreamCaptureMode(mode: *mut c_int)
        => stream::cuThreadExchangeStreamCaptureMode;
    cudaLaunchHostFunc(
        handle: Handle,
        function: Option<unsafe extern "C" fn(*mut c_void)>,
        data: *mut c_void
    ) => stream::cuLaunchHostFunc;
    cudaEventCreateWithFlags(created: *mut Handle, flags: c_uint) => event::cuEventCreate;
    cudaEventDestroy(handle: Handle) => event::cuEventDestroy_v2;
    cudaEventRecord(handle: Handle, stream: Handle) => event::cuEventRecord;
    cudaEventQuery(handle: Handle) => event::cuEventQuery;
    cudaEventSynchronize(handle: Handle) => event::cuEventSynchronize;
    cudaEventElapsedTime(milliseconds: *mut f32, from: Handle, to: Handle)
        => event::cuEventElapsedTime_v2;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamCreate(created: *mut Handle) -> c_int {
    // SAFETY: by contract of this function.
    unsafe { cudaStreamCreateWithFlags(created, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamGetPriority(handle: Handle, priority: *mut c_int) -> c_int {
    // SAFETY: the client's pointer is null or valid.
    with_context(|| resolve_current(handle).and(unsafe { store(priority, LEAST_PRIORITY) }))
}

/// The status alone; a capture has no graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaStreamGetCaptureInfo(
    handle: Handle,
    status: *mut c_int,
    identity: *mut u64,
    graph: *mut Handle,
    dependencies: *mut *const Handle,
    edges: *mut *const c_void,
    count: *mut usize,
) -> c_int {
    // SAFETY: the client's pointers are null or valid.
    unsafe {
        let code = cudaStreamIsCapturing(handle, status);
        if code == SUCCESS {
            let _ = store(identity, 0);
            let _ = store(graph, std::ptr::null_mut());
            let _ = store(dependencies, std::ptr::null());
            let _ = store(edges, std::ptr::null());
            let _ = store(count, 0);
        }
        code
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaEventCreate(created: *mut Handle) -> c_int {
    // SAFETY: by contract of this function.
    unsafe { cudaEventCreateWithFlags(created, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaEventRecordWithFlags(
    handle: Handle,
    stream: Handle,
    _flags: c_uint,
) -> c_int {
    // SAFETY: by contract of this function.
    unsafe { cudaEventRecord(handle, stream) }
}
