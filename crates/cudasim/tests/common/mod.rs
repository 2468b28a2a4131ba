//! Helpers of the tests: a current context, and short forms of frequent calls.
#![allow(dead_code, unused_imports)]

use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard};

pub use cudasim::api::context::*;
pub use cudasim::api::control::*;
pub use cudasim::api::copy::*;
pub use cudasim::api::device::*;
pub use cudasim::api::event::*;
pub use cudasim::api::memory::*;
pub use cudasim::api::module::*;
pub use cudasim::api::pointer::*;
pub use cudasim::api::stream::*;

pub const NON_BLOCKING: u32 = 1;

/// Calls the driver and fails the test unless it returns `$code`.
macro_rules! expect {
    ($code:expr, $call:expr) => {{
        // SAFETY: the arguments are as the driver's documentation of the function requires.
        #[allow(unused_unsafe)]
        let code = unsafe { $call };
        assert_eq!(code, $code, "{}", stringify!($call));
    }};
}

/// Calls the driver and fails the test unless it succeeds.
macro_rules! done {
    ($call:expr) => {
        expect!(0, $call)
    };
}

/// Makes the primary context of device 0 current on this thread.
pub fn context() -> *mut c_void {
    let mut context = null_mut();
    done!(cuInit(0));
    done!(cuDevicePrimaryCtxRetain(&mut context, 0));
    done!(cuCtxSetCurrent(context));
    context
}

/// Creates a context of device 0, which becomes the top of this thread's stack.
pub fn created_context() -> *mut c_void {
    let mut context = null_mut();
    done!(cuCtxCreate_v2(&mut context, 0, 0));
    context
}

/// Pops the current context of this thread.
pub fn pop() -> *mut c_void {
    let mut context = null_mut();
    done!(cuCtxPopCurrent_v2(&mut context));
    context
}

/// Serializes tests that use state of the whole process: failures, counters, cuFile.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    fail(None);
    guard
}

pub fn fail(specification: Option<&str>) {
    let text = specification.map(|text| CString::new(text).unwrap());
    let pointer = text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
    // SAFETY: the pointer is null or to a NUL-terminated string.
    unsafe { cudasim_fail(pointer) };
}

pub fn device_memory(size: usize) -> u64 {
    let mut address = 0;
    done!(cuMemAlloc_v2(&mut address, size));
    address
}

pub fn stream(flags: u32) -> *mut c_void {
    let mut stream = null_mut();
    done!(cuStreamCreate(&mut stream, flags));
    stream
}

pub fn event() -> *mut c_void {
    let mut event = null_mut();
    done!(cuEventCreate(&mut event, 0));
    event
}

/// Pinned memory, never freed.
pub fn pinned(size: usize) -> &'static mut [u8] {
    let mut address = null_mut();
    done!(cuMemHostAlloc(&mut address, size, 0));
    // SAFETY: the call has allocated `size` bytes, to which nothing else refers.
    unsafe { std::slice::from_raw_parts_mut(address.cast(), size) }
}

/// Blocks a stream: work submitted after it waits until the gate is opened.
pub struct Gate(*mut u32);

// SAFETY: the word is only used atomically.
unsafe impl Send for Gate {}

impl Gate {
    pub fn close(stream: *mut c_void) -> Gate {
        let word = pinned(4).as_mut_ptr().cast::<u32>();
        done!(cuStreamWaitValue32_v2(stream, word as u64, 1, 0));
        Gate(word)
    }

    pub fn open(&self) {
        // SAFETY: the word lives as long as the process and is only used atomically.
        let word = unsafe { std::sync::atomic::AtomicU32::from_ptr(self.0) };
        word.store(1, std::sync::atomic::Ordering::Release);
    }
}

pub fn peek(address: u64, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    done!(cudasim_peek(address, bytes.as_mut_ptr().cast(), size));
    bytes
}

/// Bytes that differ from place to place and from `seed` to `seed`.
pub fn pattern(size: usize, seed: u8) -> Vec<u8> {
    (0..size)
        .map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed)
        .collect()
}
