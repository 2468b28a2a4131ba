//! Transfers in stream order.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Mutex;
use std::time::Duration;

use penstock_sys::cufile::*;

use super::transfer::{self, Operation, Request};
use super::{Failure, Result, handle, session};
use crate::stream::resolve_current;

const KNOWN_FLAGS: u32 = CU_FILE_STREAM_FIXED_BUF_OFFSET
    | CU_FILE_STREAM_FIXED_FILE_OFFSET
    | CU_FILE_STREAM_FIXED_FILE_SIZE
    | CU_FILE_STREAM_PAGE_ALIGNED_INPUTS;

/// Flags of the registered streams.
static FLAGS: Mutex<Option<HashMap<usize, u32>>> = Mutex::new(None);

/// The pointers of a call, which stay valid until the stream completes the operation.
pub struct Pointers {
    pub size: *mut usize,
    pub file_offset: *mut i64,
    pub buffer_offset: *mut i64,
    pub moved: *mut isize,
}

// SAFETY: the contract of the call allows their use on the stream's thread.
unsafe impl Send for Pointers {}

/// A number that is read at submission if it is fixed, and otherwise at execution.
struct Value<T> {
    place: *const T,
    known: Option<T>,
}

// SAFETY: as for `Pointers`.
unsafe impl<T: Send> Send for Value<T> {}

impl<T: Copy> Value<T> {
    /// # Safety
    /// `place` is valid now, and until `get`.
    unsafe fn new(place: *const T, fixed: bool) -> Value<T> {
        let known = fixed.then(|| {
            // SAFETY: by contract of this function.
            unsafe { place.read() }
        });
        Value { place, known }
    }

    fn get(&self) -> T {
        // SAFETY: by contract of `new`.
        self.known.unwrap_or_else(|| unsafe { self.place.read() })
    }
}

pub fn register(stream: *mut c_void, flags: u32) -> Result {
    session::ensure_open()?;
    let invalid = Failure::Operation(CU_FILE_INVALID_VALUE);
    if flags & !KNOWN_FLAGS != 0 || resolve_current(stream).is_err() {
        return Err(invalid);
    }
    FLAGS
        .lock()
        .unwrap()
        .get_or_insert_default()
        .insert(stream as usize, flags);
    Ok(())
}

pub fn deregister(stream: *mut c_void) -> Result {
    session::mode()?;
    let mut flags = FLAGS.lock().unwrap();
    flags
        .as_mut()
        .and_then(|all| all.remove(&(stream as usize)))
        .map(drop)
        .ok_or(Failure::Operation(CU_FILE_INVALID_VALUE))
}

fn flags_of(stream: *mut c_void) -> u32 {
    let flags = FLAGS.lock().unwrap();
    flags
        .as_ref()
        .and_then(|all| all.get(&(stream as usize)))
        .copied()
        .unwrap_or(0)
}

/// Queues a transfer. Arguments are read when it executes, unless the flags of the registered stream
/// fix them at submission. A transfer that fails reports this in `moved` and does not fail the
/// context.
///
/// # Safety
/// The pointers are valid until the stream completes the operation.
pub unsafe fn submit(
    operation: Operation,
    handle: *mut c_void,
    base: usize,
    pointers: Pointers,
    stream: *mut c_void,
) -> Result {
    session::ensure_open()?;
    let missing = pointers.size.is_null()
        || pointers.file_offset.is_null()
        || pointers.buffer_offset.is_null()
        || pointers.moved.is_null();
    if missing || base == 0 {
        return Err(Failure::Operation(CU_FILE_INVALID_VALUE));
    }
    handle::find(handle)?;
    let queue = resolve_current(stream)?;
    let flags = flags_of(stream);
    let fixed = |flag| flags & flag != 0;
    // SAFETY: by contract of this function.
    let (size, file_offset, buffer_offset) = unsafe {
        (
            Value::new(pointers.size, fixed(CU_FILE_STREAM_FIXED_FILE_SIZE)),
            Value::new(
                pointers.file_offset,
                fixed(CU_FILE_STREAM_FIXED_FILE_OFFSET),
            ),
            Value::new(
                pointers.buffer_offset,
                fixed(CU_FILE_STREAM_FIXED_BUF_OFFSET),
            ),
        )
    };
    let handle = handle as usize;
    queue.submit(Duration::ZERO, move |_| {
        let pointers = pointers;
        let request = Request {
            operation,
            handle: handle as *mut c_void,
            base,
            size: size.get(),
            file_offset: file_offset.get(),
            buffer_offset: buffer_offset.get(),
            vectored: false,
        };
        let moved = match transfer::transfer_in_context(request) {
            Ok(bytes) => bytes as isize,
            Err(error) => error.into_count(),
        };
        // SAFETY: by contract of `submit`.
        unsafe { pointers.moved.write(moved) };
        Ok(())
    })?;
    Ok(())
}
