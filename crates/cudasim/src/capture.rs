//! Stream capture: which calls it forbids, and which calls invalidate it. Nothing is recorded: a
//! captured stream accepts no work.

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use crate::status::{
    ILLEGAL_STATE, INVALID_VALUE, Result, STREAM_CAPTURE_IMPLICIT, STREAM_CAPTURE_INVALIDATED,
    STREAM_CAPTURE_UNSUPPORTED,
};
use crate::stream::{Kind, Stream};

pub const STATUS_NONE: i32 = 0;
const STATUS_ACTIVE: i32 = 1;
const STATUS_INVALIDATED: i32 = 2;

/// The least and the greatest `CUstreamCaptureMode`.
const GLOBAL: i32 = 0;
const RELAXED: i32 = 2;

struct Capture {
    stream: Arc<Stream>,
    thread: ThreadId,
    mode: i32,
    is_valid: bool,
}

static CAPTURES: Mutex<Vec<Capture>> = Mutex::new(Vec::new());

thread_local! {
    static MODE: Cell<i32> = const { Cell::new(GLOBAL) };
}

/// Sets the capture mode of the calling thread and returns the previous one.
pub fn exchange_mode(mode: i32) -> Result<i32> {
    match mode {
        GLOBAL..=RELAXED => Ok(MODE.replace(mode)),
        _ => Err(INVALID_VALUE),
    }
}

pub fn begin(stream: Arc<Stream>, mode: i32) -> Result {
    if !(GLOBAL..=RELAXED).contains(&mode) {
        return Err(INVALID_VALUE);
    }
    if stream.kind == Kind::Legacy {
        return Err(STREAM_CAPTURE_UNSUPPORTED);
    }
    if status(&stream) != STATUS_NONE {
        return Err(ILLEGAL_STATE);
    }
    CAPTURES.lock().unwrap().push(Capture {
        stream,
        thread: thread::current().id(),
        mode,
        is_valid: true,
    });
    Ok(())
}

/// Ends the capture of a stream. Fails if another call has invalidated it.
pub fn end(stream: &Arc<Stream>) -> Result {
    let mut captures = CAPTURES.lock().unwrap();
    let at = captures.iter().position(|c| Arc::ptr_eq(&c.stream, stream));
    if captures.swap_remove(at.ok_or(ILLEGAL_STATE)?).is_valid {
        Ok(())
    } else {
        Err(STREAM_CAPTURE_INVALIDATED)
    }
}

/// The capture status of a stream. Fails for the legacy stream while a blocking stream is captured.
/// Invalidates no capture.
pub fn query(stream: &Arc<Stream>) -> Result<i32> {
    let is_blocked = CAPTURES.lock().unwrap().iter().any(|c| blocks(c, stream));
    if stream.kind == Kind::Legacy && is_blocked {
        Err(STREAM_CAPTURE_IMPLICIT)
    } else {
        Ok(status(stream))
    }
}

fn status(stream: &Arc<Stream>) -> i32 {
    let captures = CAPTURES.lock().unwrap();
    match captures.iter().find(|c| Arc::ptr_eq(&c.stream, stream)) {
        None => STATUS_NONE,
        Some(capture) if capture.is_valid => STATUS_ACTIVE,
        Some(_) => STATUS_INVALIDATED,
    }
}

/// Whether a capture forbids work on the legacy stream of its context.
fn blocks(capture: &Capture, legacy: &Stream) -> bool {
    capture.stream.kind == Kind::Blocking && std::ptr::eq(capture.stream.context, legacy.context)
}

/// Must be called by every use of a stream other than [`query`]. Invalidates captures that forbid
/// the use, and then fails.
pub fn uses(stream: &Arc<Stream>) -> Result {
    invalidate(STREAM_CAPTURE_UNSUPPORTED, |c| {
        Arc::ptr_eq(&c.stream, stream)
    })?;
    match stream.kind {
        Kind::Legacy => invalidate(STREAM_CAPTURE_IMPLICIT, |c| blocks(c, stream)),
        _ => Ok(()),
    }
}

/// Must be called by calls that the driver considers unsafe during a capture: those that allocate,
/// register, wait or query.
pub fn unsafe_call() -> Result {
    let (mode, here) = (MODE.get(), thread::current().id());
    invalidate(STREAM_CAPTURE_UNSUPPORTED, |c| {
        let is_concerned = c.thread == here || (mode == GLOBAL && c.mode == GLOBAL);
        mode != RELAXED && c.mode != RELAXED && is_concerned
    })
}

fn invalidate(error: crate::status::CudaError, ends: impl Fn(&Capture) -> bool) -> Result {
    let mut captures = CAPTURES.lock().unwrap();
    let mut result = Ok(());
    for capture in captures.iter_mut().filter(|c| ends(c)) {
        capture.is_valid = false;
        result = Err(error);
    }
    result
}
