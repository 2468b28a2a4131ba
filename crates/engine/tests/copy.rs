//! Copies and fills after the legacy default stream.

mod common;

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use common::pending::{A_WHILE, alone, sharing};
use common::standin::standin;
use common::stream::CallerStream;
use common::{Place, pattern};
use penstock_engine::copy::{copy, follow_default_stream, zero};
use penstock_engine::error::{Error, Kind};
use penstock_engine::memory::{Memory, is_on_host};
use penstock_sys::cuda::CUDA_ERROR_UNKNOWN;

const LENGTH: usize = 100_000;
const PLACES: [Place; 4] = [Place::Host, Place::Pinned, Place::Managed, Place::Device];
/// Memory that has work of the GPU before it.
const GPU_PLACES: [Place; 2] = [Place::Managed, Place::Device];

fn places() -> &'static [Place] {
    if common::has_gpu() {
        &PLACES
    } else {
        &PLACES[..1]
    }
}

fn zero_of(memory: &common::Memory) -> Result<(), Error> {
    // SAFETY: the memory has so many bytes.
    unsafe { zero(memory.address(), LENGTH) }
}

#[test]
fn copies_go_between_all_kinds_of_memory_and_touch_nothing_else() {
    let _sharing = sharing();
    for from in places() {
        for to in places() {
            let (source, target) = (from.memory(LENGTH, 0), to.memory(LENGTH + 20, 3));
            let content = pattern(LENGTH, 13);
            source.fill(&content);
            // SAFETY: both are that long.
            unsafe { copy(target.address(), source.address(), LENGTH).unwrap() };
            assert!(target.bytes(LENGTH) == content, "{from:?} to {to:?}");
            assert!(target.frame_is_intact(LENGTH), "{from:?} to {to:?}");
        }
    }
}

#[test]
fn memory_of_any_kind_is_filled_with_zeros_and_nothing_else_is_touched() {
    let _sharing = sharing();
    for place in places() {
        let memory = place.memory(LENGTH + 20, 3);
        zero_of(&memory).unwrap();
        assert!(memory.bytes(LENGTH) == vec![0; LENGTH], "{place:?}");
        assert!(memory.frame_is_intact(LENGTH), "{place:?}");
    }
}

#[test]
fn a_copy_of_no_bytes_makes_no_call_and_a_null_pointer_is_refused() {
    // SAFETY: no byte is touched.
    unsafe {
        copy(0, 0, 0).unwrap();
        zero(0, 0).unwrap();
        let byte = 0u8;
        for error in [copy(0, &raw const byte as usize, 1), zero(0, 1)] {
            assert_eq!(error.unwrap_err().kind(), Kind::Invalid);
        }
    }
}

#[test]
fn the_cpu_may_touch_pageable_and_pinned_memory_only() {
    let _sharing = sharing();
    for place in places() {
        let memory = place.memory(LENGTH, 0);
        let on_host = is_on_host(memory.address() + 99).unwrap();
        assert_eq!(on_host, !GPU_PLACES.contains(place), "{place:?}");
    }
}

/// Whether `act` is done only when a blocking stream comes to its end.
fn waits_for_blocking_streams(act: impl FnOnce() + Send) -> bool {
    let stream = CallerStream::blocking();
    let gate = stream.close_gate();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            act();
            done.store(true, SeqCst);
        });
        std::thread::sleep(A_WHILE);
        let early = done.load(SeqCst);
        gate.open();
        !early
    })
}

#[test]
fn work_of_blocking_streams_is_waited_for() {
    let _alone = alone();
    if !common::has_gpu() {
        return;
    }
    for place in GPU_PLACES {
        let (memory, host) = (place.memory(LENGTH, 0), Place::Host.memory(LENGTH, 0));
        let known = Memory::at(memory.address()).unwrap();
        let follow = || follow_default_stream(&known).unwrap();
        assert!(waits_for_blocking_streams(follow), "{place:?}");
        // SAFETY: both are that long.
        let copy = || unsafe { copy(host.address(), memory.address(), LENGTH).unwrap() };
        assert!(waits_for_blocking_streams(copy), "{place:?}");
        assert!(waits_for_blocking_streams(|| zero_of(&memory).unwrap()));
    }
}

#[test]
fn nothing_is_waited_for_before_memory_of_the_host_nor_by_other_streams() {
    let _alone = alone();
    if !common::has_gpu() {
        return;
    }
    // CUDA frees pinned and device memory when all streams are at their end only, so a gate that
    // memory outlives would never open.
    let memories = [Place::Host, Place::Pinned, Place::Device].map(|place| place.memory(LENGTH, 0));
    let known = memories
        .each_ref()
        .map(|memory| Memory::at(memory.address()).unwrap());
    let (blocking, other) = (CallerStream::blocking(), CallerStream::new());
    let [host, pinned, device] = &known;

    let gate = blocking.close_gate();
    follow_default_stream(host).unwrap();
    follow_default_stream(pinned).unwrap();
    gate.open();

    let gate = other.close_gate();
    follow_default_stream(device).unwrap();
    zero_of(&memories[2]).unwrap();
    gate.open();
}

#[test]
fn copies_and_fills_work_while_a_blocking_stream_is_captured() {
    let _alone = alone();
    let Some(standin) = standin() else { return };
    let (memory, host) = (
        Place::Device.memory(LENGTH, 0),
        Place::Host.memory(LENGTH, 0),
    );
    let known = Memory::at(memory.address()).unwrap();
    // From the start, and from the second or third call on, as captures begin at any time.
    for specification in ["capture:*", "capture:2+", "capture:3+"] {
        memory.fill(&pattern(LENGTH, 7));
        let failing = standin.fail(specification);
        follow_default_stream(&known).unwrap();
        drop(failing);
        let failing = standin.fail(specification);
        // SAFETY: both are that long.
        unsafe { copy(host.address(), memory.address(), LENGTH).unwrap() };
        drop(failing);
        assert!(host.bytes(LENGTH) == pattern(LENGTH, 7), "{specification}");
        let failing = standin.fail(specification);
        zero_of(&memory).unwrap();
        drop(failing);
        assert!(memory.bytes(LENGTH) == vec![0; LENGTH], "{specification}");
    }
}

#[test]
fn a_call_that_the_driver_refuses_is_an_error_that_names_it() {
    let _alone = alone();
    let Some(standin) = standin() else { return };
    let (memory, host) = (
        Place::Device.memory(LENGTH, 0),
        Place::Host.memory(LENGTH, 0),
    );
    let known = Memory::at(memory.address()).unwrap();
    let check = |specification: &str, calls: &str, act: &dyn Fn() -> Result<(), Error>| {
        let failing = standin.fail(specification);
        let error = act().unwrap_err();
        drop(failing);
        assert_eq!(error.gpu_code(), CUDA_ERROR_UNKNOWN, "{error}");
        let is_named = calls.split('|').any(|call| error.cause().contains(call));
        assert!(is_named, "{error}");
        act().unwrap();
    };
    // SAFETY: both are that long.
    let copy = || unsafe { copy(memory.address(), host.address(), LENGTH) };
    check("copy:*", "cuMemcpyAsync", &copy);
    let waits = "cuStreamSynchronize|the stream before the request";
    check("synchronize:*", waits, &copy);
    check("pointer:*", "cuPointerGetAttributes", &copy);
    check("memset:*", "cuMemsetD8Async", &|| zero_of(&memory));
    check("record:*", "cuEventRecord", &|| {
        follow_default_stream(&known)
    });
}

#[test]
fn a_child_of_a_process_that_used_the_gpu_copies_on_the_host() {
    if common::has_gpu() {
        common::process::run_case("a_fork_after_use_of_the_gpu", &[]);
    }
}

#[test]
#[ignore = "a case"]
fn a_fork_after_use_of_the_gpu() {
    let memory = Place::Device.memory(LENGTH, 0);
    zero_of(&memory).unwrap();
    let (from, mut to) = (pattern(LENGTH, 1), vec![0u8; LENGTH]);
    // SAFETY: the child only copies, and leaves at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: both are that long.
        let copied =
            unsafe { copy(to.as_mut_ptr() as usize, from.as_ptr() as usize, LENGTH).is_ok() };
        // SAFETY: ends the child without unwinding into the test.
        unsafe { libc::_exit(i32::from(!(copied && to == from))) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}
