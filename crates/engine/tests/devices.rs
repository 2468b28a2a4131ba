//! Memory and streams of several GPUs in one process.

mod common;

use std::ptr;

use common::process::run_case;
use common::stream::{CallerStream, enter_context};
use common::{Sandbox, options, pattern};
use penstock_engine::allocate::{self, memory_kind};
use penstock_engine::file::position::Operation;
use penstock_engine::memory::MemoryKind;
use penstock_engine::request::{Order, submit};
use penstock_engine::{Extent, StreamOrder};

/// Whether two devices are visible; prints a message if not.
fn has_two_devices() -> bool {
    let has = allocate::device_count().is_ok_and(|count| count > 1);
    if !has {
        eprintln!("SKIPPED: needs two devices");
    }
    has
}

/// Runs a case with two devices where the process runs on the stand-in, else as the machine is.
fn run_with_two_devices(name: &str) {
    run_case(name, &[("CUDASIM_DEVICES", "2")]);
}

#[test]
#[ignore = "a case"]
fn a_stream_of_another_device_first() {
    if !has_two_devices() {
        return;
    }
    // All of it by the driver itself: the engine knows no context yet.
    let cuda = enter_context();
    let stream = CallerStream::new();
    let mut near = 0;
    // SAFETY: `near` is a place for the answer; the current context is that of device 0.
    assert_eq!(unsafe { (cuda.cuMemAlloc)(&mut near, 4096) }, 0);
    // SAFETY: undoes what `enter_context` did.
    assert_eq!(unsafe { (cuda.cuCtxSetCurrent)(ptr::null_mut()) }, 0);

    let sandbox = Sandbox::new();
    let content = pattern(100_000, 3);
    let file = sandbox.file("file.bin", &content);
    let far = allocate::device_alloc(1, content.len() as u64).unwrap();
    let extents = [Extent {
        offset: 0,
        length: content.len() as u64,
        memory: far as usize,
    }];
    let order = Order::new(Operation::Read, &extents, options("threads=1"));
    let after = StreamOrder {
        stream: stream.raw(),
        after: true,
        before: true,
    };
    // SAFETY: memory and stream live until the request is finished.
    let request = unsafe { submit(&file, order, Some(after), None).unwrap() };
    request.finish().unwrap();

    assert_eq!(request.report().unwrap().device, 1);
    assert_eq!(memory_kind(near as usize).unwrap(), (MemoryKind::Device, 0));
    assert_eq!(memory_kind(far as usize).unwrap(), (MemoryKind::Device, 1));
    let own = allocate::device_alloc(0, 10).unwrap();
    assert_eq!(memory_kind(own as usize).unwrap(), (MemoryKind::Device, 0));
    let mut back = vec![0u8; content.len()];
    // SAFETY: both have that many bytes.
    unsafe { allocate::copy(back.as_mut_ptr() as usize, far as usize, back.len() as u64).unwrap() };
    assert!(back == content);
}

#[test]
fn a_stream_of_one_gpu_orders_a_request_for_memory_of_another() {
    run_with_two_devices("a_stream_of_another_device_first");
}
