//! Injected failures, asynchronous errors, and calls that are refused.

#[macro_use]
mod common;
use common::*;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

const INVALID_VALUE: i32 = 1;
const OUT_OF_MEMORY: i32 = 2;
const NOT_INITIALIZED: i32 = 3;
const INVALID_CONTEXT: i32 = 201;
const ILLEGAL_ADDRESS: i32 = 700;
const CONTEXT_IS_DESTROYED: i32 = 709;
const LAUNCH_FAILED: i32 = 719;

#[test]
fn only_the_selected_call_fails() {
    let _alone = alone();
    context();
    fail(Some("alloc:2"));
    let mut address = 0;
    done!(cuMemAlloc_v2(&mut address, 16));
    expect!(OUT_OF_MEMORY, cuMemAlloc_v2(&mut address, 16));
    done!(cuMemAlloc_v2(&mut address, 16));
}

#[test]
fn each_kind_fails_with_its_default_error() {
    let _alone = alone();
    context();
    let (stream, mut pointer, device) = (stream(NON_BLOCKING), null_mut(), device_memory(8));
    let mut bytes = [0u8; 8];
    fail(Some(
        "hostalloc:*,hostregister:*,launch:1+,copy:1:214,stream:*,event:*",
    ));
    expect!(OUT_OF_MEMORY, cuMemHostAlloc(&mut pointer, 8, 0));
    expect!(
        OUT_OF_MEMORY,
        cuMemHostRegister_v2(bytes.as_mut_ptr().cast(), 8, 0)
    );
    expect!(
        LAUNCH_FAILED,
        cuLaunchHostFunc(stream, Some(note), null_mut())
    );
    expect!(214, cuMemcpyHtoD_v2(device, bytes.as_ptr().cast(), 8));
    expect!(OUT_OF_MEMORY, cuStreamCreate(&mut pointer, 0));
    expect!(OUT_OF_MEMORY, cuEventCreate(&mut pointer, 0));
    fail(None);
    done!(cuMemcpyHtoD_v2(device, bytes.as_ptr().cast(), 8));
}

unsafe extern "C" fn note(called: *mut c_void) {
    // SAFETY: the test passes an atomic that outlives the stream's work.
    unsafe { &*called.cast::<AtomicBool>() }.store(true, Ordering::Release);
}

#[test]
fn a_copy_that_fails_in_execution_fails_the_context() {
    let _alone = alone();
    context();
    let (stream, device, slot) = (stream(NON_BLOCKING), device_memory(64), pinned(64));
    let called = AtomicBool::new(false);
    let mut address = 0;
    fail(Some("copyexec:1"));
    let gate = Gate::close(stream);
    done!(cuMemcpyHtoDAsync_v2(
        device,
        slot.as_ptr().cast(),
        64,
        stream
    ));
    done!(cuLaunchHostFunc(
        stream,
        Some(note),
        (&raw const called).cast_mut().cast()
    ));
    gate.open();
    expect!(ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    expect!(ILLEGAL_ADDRESS, cuStreamQuery(stream));
    expect!(ILLEGAL_ADDRESS, cuMemAlloc_v2(&mut address, 1));
    assert!(
        !called.load(Ordering::Acquire),
        "a host function ran in a failed context"
    );
    assert_eq!(peek(device, 64), [cudasim::memory::POISON; 64]);
    fail(None);
    done!(cuMemAlloc_v2(&mut address, 1));
}

#[test]
fn calls_in_a_failed_context_still_release() {
    let _alone = alone();
    context();
    let count = || {
        let memory = (cudasim_live_allocations(), cudasim_live_registrations());
        (memory, cudasim_live_streams(), cudasim_live_events())
    };
    let before = count();
    let mut bytes = vec![0u8; 64];
    let mut host = null_mut();
    let (stream, event, device) = (stream(NON_BLOCKING), event(), device_memory(64));
    done!(cuMemHostAlloc(&mut host, 64, 0));
    done!(cuMemHostRegister_v2(bytes.as_mut_ptr().cast(), 64, 0));
    let during = ((before.0.0 + 2, before.0.1 + 1), before.1 + 1, before.2 + 1);
    assert_eq!(count(), during);
    fail(Some("copyexec:1"));
    expect!(
        ILLEGAL_ADDRESS,
        cuMemcpyHtoD_v2(device, bytes.as_ptr().cast(), 64)
    );
    expect!(ILLEGAL_ADDRESS, cuStreamDestroy_v2(stream));
    expect!(ILLEGAL_ADDRESS, cuEventDestroy_v2(event));
    expect!(ILLEGAL_ADDRESS, cuMemFree_v2(device));
    expect!(ILLEGAL_ADDRESS, cuMemFreeHost(host));
    expect!(
        ILLEGAL_ADDRESS,
        cuMemHostUnregister(bytes.as_mut_ptr().cast())
    );
    assert_eq!(count(), before);
    fail(None);
}

#[test]
fn pinned_memory_freed_under_a_copy_fails_the_context() {
    let _alone = alone();
    context();
    let (stream, device) = (stream(NON_BLOCKING), device_memory(64));
    let mut host = null_mut();
    done!(cuMemHostAlloc(&mut host, 64, 0));
    let gate = Gate::close(stream);
    done!(cuMemcpyHtoDAsync_v2(device, host, 64, stream));
    done!(cuMemFreeHost(host));
    gate.open();
    expect!(ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    fail(None);
}

#[test]
fn unregistering_waits_for_all_work_of_the_device() {
    let _alone = alone();
    context();
    let (busy, device) = (stream(NON_BLOCKING), device_memory(64));
    let mut bytes = vec![0u8; 64];
    done!(cuMemHostRegister_v2(bytes.as_mut_ptr().cast(), 64, 0));
    let gate = Gate::close(busy);
    done!(cuMemsetD8Async(device, 1, 64, busy));
    let address = bytes.as_mut_ptr() as usize;
    let unregistering = std::thread::spawn(move || {
        context();
        // SAFETY: the memory lives until this thread is joined.
        unsafe { cuMemHostUnregister(address as *mut _) }
    });
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(!unregistering.is_finished());
    gate.open();
    assert_eq!(unregistering.join().unwrap(), 0);
    done!(cuStreamSynchronize(busy));
}

#[test]
fn device_memory_freed_under_a_copy_fails_the_context() {
    let _alone = alone();
    context();
    let (stream, device) = (stream(NON_BLOCKING), device_memory(64));
    let gate = Gate::close(stream);
    done!(cuMemsetD8Async(device, 1, 64, stream));
    done!(cuMemFree_v2(device));
    gate.open();
    expect!(ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    fail(None);
}

#[test]
fn a_waiting_stream_stops_waiting_when_the_context_fails() {
    let _alone = alone();
    context();
    let (waiting, failing, device) = (stream(NON_BLOCKING), stream(NON_BLOCKING), device_memory(4));
    let _never_opened = Gate::close(waiting);
    fail(Some("copyexec:1"));
    done!(cuMemcpyDtoDAsync_v2(device, device, 4, failing));
    expect!(ILLEGAL_ADDRESS, cuStreamSynchronize(failing));
    fail(None);
    done!(cuStreamQuery(waiting));
}

#[test]
fn a_thread_without_a_context_is_refused() {
    let _alone = alone();
    context();
    let device = device_memory(16);
    std::thread::spawn(move || {
        let (mut address, mut current) = (0, std::ptr::dangling_mut::<c_void>());
        expect!(INVALID_CONTEXT, cuMemAlloc_v2(&mut address, 16));
        expect!(INVALID_CONTEXT, cuMemsetD8_v2(device, 0, 16));
        expect!(INVALID_CONTEXT, cuStreamSynchronize(null_mut()));
        done!(cuCtxGetCurrent(&mut current));
        assert!(current.is_null());
    })
    .join()
    .unwrap();
}

#[test]
fn each_thread_has_a_stack_of_contexts() {
    let _alone = alone();
    let first = context();
    let mut popped = null_mut();
    done!(cuCtxPushCurrent_v2(first));
    done!(cuCtxPopCurrent_v2(&mut popped));
    assert_eq!(popped, first);
    done!(cuCtxPopCurrent_v2(&mut popped));
    expect!(INVALID_CONTEXT, cuCtxPopCurrent_v2(&mut popped));
    expect!(INVALID_CONTEXT, cuCtxSetCurrent(8 as *mut c_void));
}

/// Runs `body` in a forked child and returns its exit status.
fn in_child(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child only runs `body`, which calls the driver, and leaves without unwinding.
    match unsafe { libc::fork() } {
        // SAFETY: ends the child immediately.
        0 => unsafe { libc::_exit(body()) },
        child => {
            let mut status = 0;
            // SAFETY: waits for the child just made.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert!(libc::WIFEXITED(status));
            libc::WEXITSTATUS(status)
        }
    }
}

#[test]
fn a_forked_child_cannot_use_the_driver() {
    let _alone = alone();
    context();
    let mut address = 0;
    assert_eq!(in_child(|| cuInit(0)), NOT_INITIALIZED);
    let mut allocate = || {
        // SAFETY: `address` is valid; the call is refused.
        unsafe { cuMemAlloc_v2(&mut address, 1) }
    };
    assert_eq!(in_child(&mut allocate), NOT_INITIALIZED);
}

#[test]
fn the_last_release_destroys_the_contents_of_the_context() {
    let _alone = alone();
    context();
    while {
        let (mut flags, mut active) = (0, 0);
        done!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
        active == 1
    } {
        done!(cuDevicePrimaryCtxRelease_v2(0));
    }
    let mut address = 0;
    expect!(CONTEXT_IS_DESTROYED, cuMemAlloc_v2(&mut address, 1));
    assert_eq!(cudasim_live_allocations(), 0);
    assert_eq!(cudasim_live_streams(), 0);
    assert_eq!(cudasim_live_events(), 0);
    context();
    done!(cuMemAlloc_v2(&mut address, 1));
    expect!(INVALID_VALUE, cuMemFree_v2(address + 1));
    done!(cuMemFree_v2(address));
}
