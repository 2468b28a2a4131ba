//! Events: points in a stream's work that can be queried and waited for.

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

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
    is_timed: bool,
    latest: Mutex<Option<Arc<Recording>>>,
}

/// One recording of an event. Its waiters keep it when the event is recorded again.
#[derive(Default)]
pub struct Recording {
    reached: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl Recording {
    pub fn reach(&self) {
        *self.reached.lock().unwrap() = Some(Instant::now());
        self.changed.notify_all();
    }

    pub fn wait(&self) {
        let mut reached = self.reached.lock().unwrap();
        while reached.is_none() {
            reached = self.changed.wait(reached).unwrap();
        }
    }

    fn reached(&self) -> Option<Instant> {
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
    let is_timed = flags & DISABLE_TIMING == 0;
    Ok(EVENTS.add(Arc::new(Event {
        context,
        is_timed,
        latest,
    })))
}

pub fn destroy(handle: *mut c_void) -> Result {
    let event = EVENTS.remove(handle).ok_or(INVALID_HANDLE)?;
    event.context.pass();
    Ok(())
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
            Some(recording) if recording.reached().is_none() => Err(NOT_READY),
            _ => Ok(()),
        }
    }

    pub fn synchronize(&self) -> Result {
        if let Some(recording) = self.latest() {
            recording.wait();
        }
        self.context.check()
    }

    /// The milliseconds from this event to a later one. Both must have been reached.
    pub fn milliseconds_to(&self, later: &Event) -> Result<f32> {
        let time = |event: &Event| {
            let recording = event.latest().filter(|_| event.is_timed);
            recording.ok_or(INVALID_HANDLE)?.reached().ok_or(NOT_READY)
        };
        let (from, to) = (time(self)?, time(later)?);
        let forward = to.saturating_duration_since(from).as_secs_f32();
        Ok(1e3 * (forward - from.saturating_duration_since(to).as_secs_f32()))
    }

    fn latest(&self) -> Option<Arc<Recording>> {
        self.latest.lock().unwrap().clone()
    }
}
