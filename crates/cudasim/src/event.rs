//! Events: points in a stream's work that can be queried and waited for.

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex};

use crate::device::Context;
use crate::failure;
use crate::handle::Table;
use crate::status::{INVALID_HANDLE, INVALID_VALUE, NOT_READY, Result};
use crate::stream::Stream;

const DISABLE_TIMING: u32 = 0x2;
const INTERPROCESS: u32 = 0x4;
const KNOWN_FLAGS: u32 = 0x7;

static EVENTS: Table<Event> = Table::new();

pub struct Event {
    context: &'static Context,
    latest: Mutex<Option<Arc<Recording>>>,
}

/// One recording of an event. Its waiters keep it when the event is recorded again.
#[derive(Default)]
pub struct Recording {
    reached: Mutex<bool>,
    changed: Condvar,
}

impl Recording {
    pub fn reach(&self) {
        *self.reached.lock().unwrap() = true;
        self.changed.notify_all();
    }

    pub fn wait(&self) {
        let mut reached = self.reached.lock().unwrap();
        while !*reached {
            reached = self.changed.wait(reached).unwrap();
        }
    }

    fn is_reached(&self) -> bool {
        *self.reached.lock().unwrap()
    }
}

pub fn create(context: &'static Context, flags: u32) -> Result<*mut c_void> {
    let interprocess_with_timing = flags & (INTERPROCESS | DISABLE_TIMING) == INTERPROCESS;
    if flags & !KNOWN_FLAGS != 0 || interprocess_with_timing {
        return Err(INVALID_VALUE);
    }
    failure::check(failure::Kind::Event)?;
    let latest = Mutex::new(None);
    Ok(EVENTS.add(Arc::new(Event { context, latest })))
}

pub fn destroy(handle: *mut c_void) -> Result {
    EVENTS.remove(handle).map(drop).ok_or(INVALID_HANDLE)
}

pub fn remove_all(context: &Context) {
    EVENTS.retain(|event| !std::ptr::eq(event.context, context));
}

pub fn resolve(handle: *mut c_void) -> Result<Arc<Event>> {
    EVENTS.find(handle).ok_or(INVALID_HANDLE)
}

pub fn count() -> usize {
    EVENTS.len()
}

impl Event {
    pub fn record(&self, stream: &Arc<Stream>) -> Result {
        if !std::ptr::eq(self.context, stream.context) {
            return Err(INVALID_HANDLE);
        }
        failure::check(failure::Kind::Record)?;
        let recording = Arc::new(Recording::default());
        let reached = recording.clone();
        stream.submit_always(move || reached.reach())?;
        *self.latest.lock().unwrap() = Some(recording);
        Ok(())
    }

    /// Makes later work of `stream` wait for the latest recording, if there is one.
    pub fn make_wait(&self, stream: &Arc<Stream>) -> Result {
        if let Some(recording) = self.latest() {
            stream.submit_always(move || recording.wait())?;
        }
        Ok(())
    }

    pub fn query(&self) -> Result {
        self.context.check()?;
        match self.latest() {
            Some(recording) if !recording.is_reached() => Err(NOT_READY),
            _ => Ok(()),
        }
    }

    pub fn synchronize(&self) -> Result {
        if let Some(recording) = self.latest() {
            recording.wait();
        }
        self.context.check()
    }

    fn latest(&self) -> Option<Arc<Recording>> {
        self.latest.lock().unwrap().clone()
    }
}
