//! Memory and streams of a context that the program has made itself, beside the primary one.

mod common;

use std::ptr;
use std::time::Duration;

use common::stream::{CallerStream, driver_function, enter_context};
use common::{Sandbox, has_gpu, options, pattern};
use penstock_engine::allocate;
use penstock_engine::file::position::Operation;
use penstock_engine::request::{Order, run, submit};
use penstock_engine::snapshot::Snapshot;
use penstock_engine::{Extent, Stream, StreamOrder};
use penstock_sys::cuda::{CUcontext, Cuda};

const LENGTH: usize = 3 << 20;

/// A context of the program's that is current on this thread.
struct Own {
    handle: CUcontext,
    cuda: &'static Cuda,
}

impl Own {
    fn new() -> Own {
        let cuda = enter_context();
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` is a place for the answer.
        assert_eq!(unsafe { (cuda.cuCtxCreate)(&mut handle, 0, 0) }, 0);
        Own { handle, cuda }
    }

    fn memory(&self) -> u64 {
        let mut address = 0;
        // SAFETY: `address` is a place for the answer.
        assert_eq!(unsafe { (self.cuda.cuMemAlloc)(&mut address, LENGTH) }, 0);
        address
    }

    /// Ends the context and all that was made in it.
    fn destroy(self) {
        let destroy = driver_function(c"cuCtxDestroy_v2");
        // SAFETY: the function has this signature.
        let destroy: extern "C" fn(CUcontext) -> i32 = unsafe { std::mem::transmute(destroy) };
        assert_eq!(destroy(self.handle), 0);
    }

    fn is_current(&self) -> bool {
        let mut current = ptr::null_mut();
        // SAFETY: `current` is a place for the answer.
        assert_eq!(unsafe { (self.cuda.cuCtxGetCurrent)(&mut current) }, 0);
        current == self.handle
    }
}

fn bytes(address: u64) -> Vec<u8> {
    let mut found = vec![0; LENGTH];
    let to = found.as_mut_ptr() as usize;
    // SAFETY: both have that many bytes.
    unsafe { allocate::copy(to, address as usize, LENGTH as u64).unwrap() };
    found
}

fn whole(memory: u64) -> [Extent; 1] {
    [Extent {
        offset: 0,
        length: LENGTH as u64,
        memory: memory as usize,
    }]
}

#[test]
fn memory_of_a_context_of_the_programs_is_filled_and_saved_by_each_route() {
    if !has_gpu() {
        return;
    }
    let own = Own::new();
    let (memory, sandbox) = (own.memory(), Sandbox::new());
    for (seed, set) in (1..).zip(["route=staged", "route=mapped", "io=uring", "direct=yes"]) {
        let content = pattern(LENGTH, seed);
        let from = sandbox.file("from.bin", &content);
        let to = sandbox.file("to.bin", &vec![0; LENGTH]);
        let extents = whole(memory);
        // SAFETY: the memory lives until the end of the test.
        unsafe {
            run(&from, Order::new(Operation::Read, &extents, options(set))).unwrap();
            assert!(bytes(memory) == content, "{set}");
            run(&to, Order::new(Operation::Write, &extents, options(set))).unwrap();
        }
        assert!(common::plain(&sandbox.path("to.bin")) == content, "{set}");
        assert!(own.is_current(), "{set}");
    }
    own.destroy();
}

#[test]
fn requests_are_in_order_with_streams_of_a_context_of_the_programs() {
    if !has_gpu() {
        return;
    }
    let own = Own::new();
    let (memory, stream) = (own.memory(), CallerStream::here());
    let sandbox = Sandbox::new();
    let content = pattern(LENGTH, 7);
    let file = sandbox.file("from.bin", &content);
    let gate = stream.close_gate();
    let extents = whole(memory);
    let order = Order::new(Operation::Read, &extents, options(""));
    let around: StreamOrder = stream.order(true, true);
    // SAFETY: memory and stream live until the request is finished.
    let request = unsafe { submit(&file, order, Some(around), None).unwrap() };
    std::thread::sleep(Duration::from_millis(50));
    assert!(request.test().finished().is_none());
    gate.open();
    request.finish().unwrap();
    stream.synchronize();
    assert!(bytes(memory) == content);
    drop(stream);
    own.destroy();
}

#[test]
fn a_copy_of_memory_of_a_context_that_is_gone_is_still_there() {
    if !has_gpu() {
        return;
    }
    let own = Own::new();
    let memory = own.memory();
    let content = pattern(LENGTH, 9);
    // SAFETY: both have that many bytes.
    unsafe { allocate::copy(memory as usize, content.as_ptr() as usize, LENGTH as u64).unwrap() };
    // SAFETY: the memory is valid until the copy is complete.
    let taken = unsafe { Snapshot::take(memory as usize, 0..LENGTH as u64, None).unwrap() };
    own.destroy();
    assert!(bytes(taken.snapshot.address() as u64) == content);
}

#[test]
fn a_copy_on_a_default_stream_of_a_context_of_the_programs_is_made_before_it_is_written() {
    if !has_gpu() {
        return;
    }
    let own = Own::new();
    let (memory, before) = (own.memory(), CallerStream::blocking_here());
    let (old, new) = (pattern(LENGTH, 11), pattern(LENGTH, 12));
    let sandbox = Sandbox::new();
    for handle in [0_usize, 1] {
        // SAFETY: both have that many bytes.
        unsafe { allocate::copy(memory as usize, old.as_ptr() as usize, LENGTH as u64).unwrap() };
        let to = sandbox.file("to.bin", &vec![0; LENGTH]);
        // The copy on the default stream waits for this stream, which changes the memory before.
        let gate = before.close_gate();
        let opener = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            gate.open();
        });
        before.copy_to_gpu(memory, &new);
        // SAFETY: a default stream.
        let stream = unsafe { Stream::from_raw(handle as *mut _) };
        // SAFETY: the memory is valid until the request is finished.
        let taken =
            unsafe { Snapshot::take(memory as usize, 0..LENGTH as u64, Some(stream)).unwrap() };
        let extents = [Extent {
            offset: 0,
            length: LENGTH as u64,
            memory: taken.snapshot.address(),
        }];
        let order = Order::new(Operation::Write, &extents, options(""));
        // SAFETY: the copy lives until the request is finished.
        unsafe { submit(&to, order, taken.after, None).unwrap() }
            .finish()
            .unwrap();
        opener.join().unwrap();
        assert!(common::plain(&sandbox.path("to.bin")) == new, "{handle}");
    }
    drop(before);
    own.destroy();
}

#[test]
fn requests_after_the_end_of_a_context_of_the_programs_work() {
    if !has_gpu() {
        return;
    }
    let sandbox = Sandbox::new();
    for seed in 1..4 {
        let own = Own::new();
        let (memory, content) = (own.memory(), pattern(LENGTH, seed));
        let file = sandbox.file("from.bin", &content);
        let extents = whole(memory);
        // SAFETY: the memory lives until the context ends.
        unsafe { run(&file, Order::new(Operation::Read, &extents, options(""))).unwrap() };
        assert!(bytes(memory) == content);
        own.destroy();
    }
}
