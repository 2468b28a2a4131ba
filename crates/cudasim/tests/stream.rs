//! When and in which order streams execute their work.

#[macro_use]
mod common;
use common::*;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const NOT_READY: i32 = 600;
const NOT_PERMITTED: i32 = 800;
const INVALID_HANDLE: i32 = 400;
const LEGACY: *mut c_void = null_mut();
const PER_THREAD: *mut c_void = 2 as *mut c_void;

/// Sleeps long enough for a stream that does not wait to complete its work.
fn pause() {
    std::thread::sleep(Duration::from_millis(30));
}

#[test]
fn a_copy_from_pinned_memory_reads_it_when_it_executes() {
    context();
    let (stream, device, slot) = (stream(NON_BLOCKING), device_memory(64), pinned(64));
    slot.fill(1);
    let gate = Gate::close(stream);
    done!(cuMemcpyHtoDAsync_v2(
        device,
        slot.as_ptr().cast(),
        64,
        stream
    ));
    slot.fill(2);
    gate.open();
    done!(cuStreamSynchronize(stream));
    assert_eq!(peek(device, 64), [2; 64]);
}

#[test]
fn a_copy_from_pageable_memory_reads_it_in_the_call() {
    context();
    let (stream, device) = (stream(NON_BLOCKING), device_memory(64));
    let mut bytes = [1u8; 64];
    let gate = Gate::close(stream);
    done!(cuMemcpyHtoDAsync_v2(
        device,
        bytes.as_ptr().cast(),
        64,
        stream
    ));
    bytes.fill(2);
    gate.open();
    done!(cuStreamSynchronize(stream));
    assert_eq!(peek(device, 64), [1; 64]);
}

#[test]
fn a_copy_to_pageable_memory_is_complete_on_return() {
    context();
    let (stream, device) = (stream(NON_BLOCKING), device_memory(1 << 20));
    done!(cuMemsetD8Async(device, 7, 1 << 20, stream));
    let mut bytes = vec![0u8; 1 << 20];
    done!(cuMemcpyDtoHAsync_v2(
        bytes.as_mut_ptr().cast(),
        device,
        bytes.len(),
        stream
    ));
    assert!(bytes.iter().all(|&byte| byte == 7));
}

#[test]
fn a_copy_to_pinned_memory_is_complete_only_after_synchronisation() {
    context();
    let (stream, device, slot) = (stream(NON_BLOCKING), device_memory(64), pinned(64));
    let gate = Gate::close(stream);
    done!(cuMemsetD8Async(device, 7, 64, stream));
    done!(cuMemcpyDtoHAsync_v2(
        slot.as_mut_ptr().cast(),
        device,
        64,
        stream
    ));
    expect!(NOT_READY, cuStreamQuery(stream));
    assert_eq!(peek(slot.as_ptr() as u64, 64), [0; 64]);
    gate.open();
    done!(cuStreamSynchronize(stream));
    done!(cuStreamQuery(stream));
    assert_eq!(peek(slot.as_ptr() as u64, 64), [7; 64]);
}

#[test]
fn a_stream_executes_in_the_order_of_submission() {
    context();
    let (stream, device) = (stream(NON_BLOCKING), device_memory(256));
    for value in 0..=255 {
        done!(cuMemsetD8Async(device, value, 256, stream));
        done!(cuMemcpyDtoDAsync_v2(device, device, 256, stream));
    }
    done!(cuStreamSynchronize(stream));
    assert_eq!(peek(device, 256), [255; 256]);
}

#[test]
fn streams_do_not_wait_for_each_other() {
    context();
    let (closed, free) = (stream(NON_BLOCKING), stream(NON_BLOCKING));
    let gate = Gate::close(closed);
    let device = device_memory(16);
    done!(cuMemsetD8Async(device, 1, 16, free));
    done!(cuStreamSynchronize(free));
    expect!(NOT_READY, cuStreamQuery(closed));
    gate.open();
    done!(cuStreamSynchronize(closed));
}

#[test]
fn a_stream_waits_for_an_event_of_another() {
    context();
    let (first, second) = (stream(NON_BLOCKING), stream(NON_BLOCKING));
    let (device, event) = (device_memory(16), event());
    let gate = Gate::close(first);
    done!(cuMemsetD8Async(device, 1, 16, first));
    done!(cuEventRecord(event, first));
    done!(cuStreamWaitEvent(second, event, 0));
    done!(cuMemsetD8Async(device, 2, 16, second));
    pause();
    expect!(NOT_READY, cuEventQuery(event));
    expect!(NOT_READY, cuStreamQuery(second));
    gate.open();
    done!(cuEventSynchronize(event));
    done!(cuStreamSynchronize(second));
    assert_eq!(peek(device, 16), [2; 16]);
}

#[test]
fn a_wait_refers_to_the_latest_recording_at_its_submission() {
    context();
    let (first, second, event) = (stream(NON_BLOCKING), stream(NON_BLOCKING), event());
    done!(cuEventRecord(event, first));
    done!(cuStreamWaitEvent(second, event, 0));
    let gate = Gate::close(first);
    done!(cuEventRecord(event, first));
    done!(cuStreamSynchronize(second));
    gate.open();
    done!(cuStreamSynchronize(first));
}

#[test]
fn a_wait_for_an_event_that_was_never_recorded_returns() {
    context();
    let (stream, event) = (stream(NON_BLOCKING), event());
    done!(cuEventQuery(event));
    done!(cuStreamWaitEvent(stream, event, 0));
    done!(cuStreamSynchronize(stream));
}

#[test]
fn a_copy_takes_the_time_of_its_bytes() {
    context();
    let (stream, size) = (stream(NON_BLOCKING), 16 << 20);
    let (device, slot) = (device_memory(size), pinned(size));
    let begin = Instant::now();
    done!(cuMemcpyHtoDAsync_v2(
        device,
        slot.as_ptr().cast(),
        size,
        stream
    ));
    done!(cuStreamSynchronize(stream));
    let modelled = Duration::from_secs_f64(size as f64 / 20e9);
    assert!(begin.elapsed() >= modelled);
}

#[test]
fn a_destroyed_stream_finishes_its_work() {
    context();
    let (stream, device, event) = (stream(NON_BLOCKING), device_memory(16), event());
    let gate = Gate::close(stream);
    done!(cuMemsetD8Async(device, 9, 16, stream));
    done!(cuEventRecord(event, stream));
    done!(cuStreamDestroy_v2(stream));
    expect!(INVALID_HANDLE, cuStreamQuery(stream));
    gate.open();
    done!(cuEventSynchronize(event));
    assert_eq!(peek(device, 16), [9; 16]);
}

#[test]
fn the_default_stream_waits_for_blocking_streams() {
    context();
    let (blocking, device) = (stream(0), device_memory(16));
    let gate = Gate::close(blocking);
    done!(cuMemsetD8Async(device, 1, 16, LEGACY));
    pause();
    expect!(NOT_READY, cuStreamQuery(LEGACY));
    gate.open();
    done!(cuStreamSynchronize(LEGACY));
    assert_eq!(peek(device, 16), [1; 16]);
}

#[test]
fn only_blocking_streams_wait_for_the_default_stream() {
    context();
    let (blocking, free, device) = (stream(0), stream(NON_BLOCKING), device_memory(16));
    let gate = Gate::close(LEGACY);
    done!(cuMemsetD8Async(device, 1, 16, blocking));
    done!(cuMemsetD8Async(device + 8, 2, 8, free));
    done!(cuStreamSynchronize(free));
    pause();
    expect!(NOT_READY, cuStreamQuery(blocking));
    gate.open();
    done!(cuStreamSynchronize(blocking));
    assert_eq!(peek(device, 16), [1; 16]);
}

#[test]
fn each_thread_has_a_default_stream_of_its_own() {
    context();
    let device = device_memory(16);
    let gate = Gate::close(PER_THREAD);
    std::thread::spawn(move || {
        context();
        done!(cuMemsetD8Async(device, 3, 16, PER_THREAD));
        done!(cuStreamSynchronize(PER_THREAD));
    })
    .join()
    .unwrap();
    assert_eq!(peek(device, 16), [3; 16]);
    expect!(NOT_READY, cuStreamQuery(PER_THREAD));
    gate.open();
    done!(cuStreamSynchronize(PER_THREAD));
}

#[test]
fn a_context_waits_for_all_its_streams() {
    context();
    let (stream, device) = (stream(NON_BLOCKING), device_memory(16));
    let gate = Gate::close(stream);
    done!(cuMemsetD8Async(device, 4, 16, stream));
    let opener = std::thread::spawn(move || {
        pause();
        gate.open();
    });
    done!(cuCtxSynchronize());
    assert_eq!(peek(device, 16), [4; 16]);
    opener.join().unwrap();
}

unsafe extern "C" fn call_the_driver(result: *mut c_void) {
    let mut address = 0;
    // SAFETY: the test passes an atomic that outlives the stream's work.
    let result = unsafe { &*result.cast::<AtomicI32>() };
    // SAFETY: `address` is valid; the call is refused.
    result.store(unsafe { cuMemAlloc_v2(&mut address, 1) }, Ordering::Release);
}

#[test]
fn a_host_function_runs_in_order_and_may_not_call_the_driver() {
    context();
    let (stream, result) = (stream(NON_BLOCKING), AtomicI32::new(-1));
    let gate = Gate::close(stream);
    let data = (&raw const result).cast_mut().cast();
    done!(cuLaunchHostFunc(stream, Some(call_the_driver), data));
    pause();
    assert_eq!(result.load(Ordering::Acquire), -1);
    gate.open();
    done!(cuStreamSynchronize(stream));
    assert_eq!(result.load(Ordering::Acquire), NOT_PERMITTED);
}

#[test]
fn a_stream_waits_for_a_value_with_every_comparison() {
    context();
    const GEQ: u32 = 0;
    const EQ: u32 = 1;
    const AND: u32 = 2;
    const NOR: u32 = 3;
    let cases = [
        (GEQ, 5, 4, 6),
        (GEQ, 5, u32::MAX, 5),
        (EQ, 5, 6, 5),
        (AND, 4, 3, 12),
        (NOR, 0xFFFF_FFFE, 1, 0),
    ];
    for (flags, value, before, after) in cases {
        let stream = stream(NON_BLOCKING);
        let word = pinned(4).as_mut_ptr().cast::<u32>();
        // SAFETY: the word lives as long as the process and is only used atomically.
        let atomic = unsafe { AtomicU32::from_ptr(word) };
        atomic.store(before, Ordering::Release);
        done!(cuStreamWaitValue32_v2(stream, word as u64, value, flags));
        pause();
        expect!(NOT_READY, cuStreamQuery(stream));
        atomic.store(after, Ordering::Release);
        done!(cuStreamSynchronize(stream));
    }
}

#[test]
fn a_stream_waits_for_a_value_that_another_writes_to_device_memory() {
    context();
    let (first, second, word) = (stream(NON_BLOCKING), stream(NON_BLOCKING), device_memory(4));
    done!(cuMemsetD8Async(word, 0, 4, first));
    done!(cuStreamSynchronize(first));
    done!(cuStreamWaitValue32_v2(second, word, 77, 1));
    done!(cuMemsetD8Async(word, 77, 1, first));
    done!(cuStreamSynchronize(second));
    assert_eq!(peek(word, 4), 77u32.to_ne_bytes());
}

#[test]
fn many_threads_share_one_stream() {
    context();
    let stream = stream(NON_BLOCKING) as usize;
    let device = device_memory(64 * 8);
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            scope.spawn(move || {
                context();
                let slot = pinned(64);
                for round in 0..50 {
                    let sent = pattern(64, thread ^ round);
                    slot.copy_from_slice(&sent);
                    let at = device + u64::from(thread) * 64;
                    let stream = stream as *mut c_void;
                    done!(cuMemcpyHtoDAsync_v2(at, slot.as_ptr().cast(), 64, stream));
                    done!(cuStreamSynchronize(stream));
                    assert_eq!(peek(at, 64), sent);
                }
            });
        }
    });
}
