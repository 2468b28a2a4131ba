//! Contexts beside the primary one of a device.

#[macro_use]
mod common;
use common::*;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::mpsc;

const INVALID_VALUE: i32 = 1;
const OUT_OF_MEMORY: i32 = 2;
const INVALID_DEVICE: i32 = 101;
const INVALID_CONTEXT: i32 = 201;
const UNSUPPORTED_LIMIT: i32 = 215;
const INVALID_HANDLE: i32 = 400;
const NOT_READY: i32 = 600;
const ILLEGAL_ADDRESS: i32 = 700;
const CONTEXT_IS_DESTROYED: i32 = 709;

fn current() -> *mut c_void {
    let mut context = null_mut();
    done!(cuCtxGetCurrent(&mut context));
    context
}

fn id(context: *mut c_void) -> u64 {
    let mut id = 0;
    done!(cuCtxGetId(context, &mut id));
    id
}

/// The context that memory belongs to.
fn owner(address: u64) -> *mut c_void {
    const CONTEXT: i32 = 1;
    let mut context = null_mut::<c_void>();
    done!(cuPointerGetAttribute(
        (&raw mut context).cast(),
        CONTEXT,
        address
    ));
    context
}

fn free_memory() -> usize {
    let (mut free, mut total) = (0, 0);
    done!(cuMemGetInfo_v2(&mut free, &mut total));
    free
}

#[test]
fn a_created_context_is_pushed() {
    let _alone = alone();
    let primary = context();
    let created = created_context();
    assert_ne!(created, primary);
    assert_eq!(current(), created);
    let mut ordinal = -1;
    done!(cuCtxGetDevice(&mut ordinal));
    assert_eq!(ordinal, 0);
    assert_eq!(pop(), created);
    assert_eq!(current(), primary);
    done!(cuCtxDestroy_v2(created));
}

#[test]
fn every_context_has_a_number_of_its_own() {
    let _alone = alone();
    let primary = context();
    let (first, second) = (created_context(), created_context());
    assert_ne!(id(primary), id(first));
    assert_ne!(id(first), id(second));
    let mut none = 0;
    done!(cuCtxDestroy_v2(second));
    expect!(INVALID_CONTEXT, cuCtxGetId(second, &mut none));
    done!(cuCtxDestroy_v2(first));
}

#[test]
fn a_context_is_created_only_for_known_flags_and_devices() {
    let _alone = alone();
    context();
    let mut none = null_mut();
    expect!(INVALID_VALUE, cuCtxCreate_v2(null_mut(), 0, 0));
    expect!(INVALID_VALUE, cuCtxCreate_v2(&mut none, 0x100, 0));
    expect!(INVALID_DEVICE, cuCtxCreate_v2(&mut none, 0, 1));
}

#[test]
fn creation_fails_when_injected() {
    let _alone = alone();
    let (primary, before) = (context(), cudasim_live_contexts());
    let mut none = null_mut();
    fail(Some("context:1"));
    expect!(OUT_OF_MEMORY, cuCtxCreate_v2(&mut none, 0, 0));
    assert_eq!(current(), primary);
    assert_eq!(cudasim_live_contexts(), before);
    done!(cuCtxDestroy_v2(created_context()));
    fail(None);
}

#[test]
fn memory_belongs_to_the_context_in_which_it_was_allocated() {
    let _alone = alone();
    let primary = context();
    let first = device_memory(64);
    let created = created_context();
    let second = device_memory(64);
    let host = pinned(64).as_ptr() as u64;
    assert_eq!(owner(first), primary);
    assert_eq!(owner(second), created);
    assert_eq!(owner(host), created);
    done!(cuCtxDestroy_v2(created));
}

#[test]
fn contexts_of_a_device_share_its_memory() {
    let _alone = alone();
    context();
    let (device, mut back) = (device_memory(64), vec![0u8; 64]);
    done!(cuMemHostRegister_v2(back.as_mut_ptr().cast(), 64, 0));
    let mut managed = 0;
    done!(cuMemAllocManaged(&mut managed, 64, 1));
    let free = free_memory();
    let created = created_context();
    assert_eq!(free_memory(), free);
    let stream = stream(NON_BLOCKING);
    done!(cuMemsetD8Async(device, 5, 64, stream));
    done!(cuMemcpyDtoDAsync_v2(managed, device, 64, stream));
    // Memory that the primary context has pinned is pinned here too: the call does not wait.
    let gate = Gate::close(stream);
    done!(cuMemcpyDtoHAsync_v2(
        back.as_mut_ptr().cast(),
        managed,
        64,
        stream
    ));
    expect!(NOT_READY, cuStreamQuery(stream));
    gate.open();
    done!(cuStreamSynchronize(stream));
    done!(cuMemFree_v2(device));
    assert_eq!(free_memory(), free + 64);
    done!(cuCtxDestroy_v2(created));
    done!(cuMemHostUnregister(back.as_mut_ptr().cast()));
    assert_eq!(back, [5; 64]);
}

#[test]
fn synchronising_a_context_does_not_wait_for_another() {
    let _alone = alone();
    context();
    let busy = stream(NON_BLOCKING);
    let gate = Gate::close(busy);
    let created = created_context();
    done!(cuCtxSynchronize());
    expect!(NOT_READY, cuStreamQuery(busy));
    gate.open();
    done!(cuStreamSynchronize(busy));
    done!(cuCtxDestroy_v2(created));
}

#[test]
fn a_stream_waits_for_an_event_of_another_context() {
    let _alone = alone();
    context();
    let (first, event, device) = (stream(NON_BLOCKING), event(), device_memory(16));
    let gate = Gate::close(first);
    done!(cuMemsetD8Async(device, 1, 16, first));
    done!(cuEventRecord(event, first));
    let created = created_context();
    let second = stream(NON_BLOCKING);
    done!(cuStreamWaitEvent(second, event, 0));
    done!(cuMemsetD8Async(device, 2, 16, second));
    std::thread::sleep(std::time::Duration::from_millis(30));
    expect!(NOT_READY, cuEventQuery(event));
    expect!(NOT_READY, cuStreamQuery(second));
    gate.open();
    done!(cuStreamSynchronize(second));
    done!(cuEventQuery(event));
    assert_eq!(peek(device, 16), [2; 16]);
    done!(cuCtxDestroy_v2(created));
}

#[test]
fn an_event_is_recorded_only_on_a_stream_of_its_context() {
    let _alone = alone();
    context();
    let first = stream(NON_BLOCKING);
    let created = created_context();
    let event = event();
    expect!(INVALID_HANDLE, cuEventRecord(event, first));
    done!(cuEventRecord(event, stream(NON_BLOCKING)));
    done!(cuCtxDestroy_v2(created));
}

#[test]
fn a_reset_of_the_primary_context_leaves_others_alive() {
    let _alone = alone();
    let primary = context();
    let lost = device_memory(64);
    let created = created_context();
    let (stream, kept) = (stream(NON_BLOCKING), device_memory(64));
    done!(cuDevicePrimaryCtxReset_v2(0));
    done!(cuMemsetD8Async(kept, 3, 64, stream));
    done!(cuStreamSynchronize(stream));
    assert_eq!(peek(kept, 64), [3; 64]);
    expect!(INVALID_VALUE, cuMemsetD8Async(lost, 3, 64, stream));
    done!(cuCtxSetCurrent(primary));
    let mut none = 0;
    expect!(CONTEXT_IS_DESTROYED, cuMemAlloc_v2(&mut none, 64));
    done!(cuCtxDestroy_v2(created));
}

#[test]
fn destroying_a_context_frees_its_contents() {
    let _alone = alone();
    context();
    let count = || {
        let memory = (cudasim_live_allocations(), cudasim_live_registrations());
        let work = (cudasim_live_streams(), cudasim_live_events());
        (cudasim_live_contexts(), memory, work, free_memory())
    };
    let before = count();
    let mut bytes = vec![0u8; 64];
    let created = created_context();
    let (busy, _) = (stream(NON_BLOCKING), event());
    let (_, _) = (device_memory(64), pinned(64));
    done!(cuMemHostRegister_v2(bytes.as_mut_ptr().cast(), 64, 0));
    let _never_opened = Gate::close(busy);
    let during = count();
    assert_eq!(during.0, before.0 + 1);
    assert_eq!(during.1, (before.1.0 + 3, before.1.1 + 1));
    assert_eq!(during.2, (before.2.0 + 1, before.2.1 + 1));
    assert_eq!(during.3, before.3 - 64);
    done!(cuCtxDestroy_v2(created));
    assert_eq!(count(), before);
    expect!(INVALID_HANDLE, cuStreamQuery(busy));
}

#[test]
fn a_destroyed_context_is_popped_only_from_the_calling_thread() {
    let _alone = alone();
    let primary = context();
    let created = created_context();
    let (started, starts) = mpsc::channel();
    let (destroyed, destroys) = mpsc::channel::<()>();
    let handle = created as usize;
    let other = std::thread::spawn(move || {
        done!(cuCtxPushCurrent_v2(handle as *mut c_void));
        started.send(()).unwrap();
        destroys.recv().unwrap();
        let mut none = 0;
        expect!(CONTEXT_IS_DESTROYED, cuMemAlloc_v2(&mut none, 1));
        pop();
    });
    starts.recv().unwrap();
    done!(cuCtxDestroy_v2(created));
    destroyed.send(()).unwrap();
    other.join().unwrap();
    assert_eq!(current(), primary);
    expect!(INVALID_CONTEXT, cuCtxPushCurrent_v2(created));
    expect!(INVALID_CONTEXT, cuCtxDestroy_v2(created));
}

#[test]
fn a_primary_context_cannot_be_destroyed() {
    let _alone = alone();
    let primary = context();
    expect!(INVALID_CONTEXT, cuCtxDestroy_v2(primary));
    device_memory(64);
}

#[test]
fn an_asynchronous_failure_fails_every_context_of_the_device() {
    let _alone = alone();
    let primary = context();
    let created = created_context();
    let (stream, device) = (stream(NON_BLOCKING), device_memory(64));
    let mut none = null_mut();
    fail(Some("copyexec:1"));
    done!(cuMemcpyDtoDAsync_v2(device, device, 64, stream));
    expect!(ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    pop();
    assert_eq!(current(), primary);
    expect!(ILLEGAL_ADDRESS, cuCtxSynchronize());
    expect!(ILLEGAL_ADDRESS, cuCtxCreate_v2(&mut none, 0, 0));
    done!(cuCtxDestroy_v2(created));
    expect!(ILLEGAL_ADDRESS, cuCtxSynchronize());
    fail(None);
    done!(cuCtxSynchronize());
}

#[test]
fn a_context_keeps_its_limits() {
    const STACK_SIZE: i32 = 0;
    const MALLOC_HEAP_SIZE: i32 = 2;
    const PERSISTING_L2_CACHE_SIZE: i32 = 6;
    let _alone = alone();
    context();
    let limit = |limit| {
        let mut value = 0;
        done!(cuCtxGetLimit(&mut value, limit));
        value
    };
    let before = limit(STACK_SIZE);
    let created = created_context();
    for kind in STACK_SIZE..=MALLOC_HEAP_SIZE {
        done!(cuCtxSetLimit(kind, 4096 + kind as usize));
        assert_eq!(limit(kind), 4096 + kind as usize);
    }
    expect!(
        UNSUPPORTED_LIMIT,
        cuCtxSetLimit(PERSISTING_L2_CACHE_SIZE, 1)
    );
    expect!(INVALID_VALUE, cuCtxSetLimit(-1, 1));
    expect!(INVALID_VALUE, cuCtxGetLimit(null_mut(), STACK_SIZE));
    done!(cuCtxDestroy_v2(created));
    assert_eq!(limit(STACK_SIZE), before);
}
