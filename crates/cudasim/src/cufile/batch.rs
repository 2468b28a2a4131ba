//! Batches of transfers, which are submitted together and whose results are collected later.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use penstock_sys::cufile::*;

use super::session::{self, Mode};
use super::transfer::{self, Operation, Request};
use super::{Failure, Result, handle, parameter, statistics};
use crate::{device, failure};

pub struct Batch {
    capacity: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Entry>,
    running: usize,
    finished: VecDeque<Event>,
    has_thread: bool,
}

/// One transfer and the client's cookie for it.
struct Entry {
    request: Request,
    cookie: usize,
}

// SAFETY: the handle in the request is only used as a key, never dereferenced.
unsafe impl Send for Entry {}

struct Event {
    cookie: usize,
    status: i32,
    moved: isize,
}

static BATCHES: Mutex<Option<HashMap<usize, Arc<Batch>>>> = Mutex::new(None);

pub fn set_up(capacity: usize) -> Result<*mut c_void> {
    session::ensure_open()?;
    let greatest = parameter::size(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE);
    let possible = (1..=greatest).contains(&capacity);
    statistics::count(|basic| &mut basic.batch_setup_ops, possible);
    if !possible {
        return Err(Failure::Operation(CU_FILE_INVALID_VALUE));
    }
    let handle = crate::handle::new_handle();
    let batch = Batch {
        capacity,
        state: Mutex::default(),
        changed: Condvar::new(),
    };
    BATCHES
        .lock()
        .unwrap()
        .get_or_insert_default()
        .insert(handle, Arc::new(batch));
    Ok(handle as *mut c_void)
}

pub fn find(handle: *mut c_void) -> Result<Arc<Batch>> {
    let batches = BATCHES.lock().unwrap();
    batches
        .as_ref()
        .and_then(|all| all.get(&(handle as usize)))
        .cloned()
        .ok_or(Failure::Operation(CU_FILE_INVALID_VALUE))
}

/// Drops transfers that have not begun and waits for the running one.
pub fn destroy(handle: *mut c_void) {
    let removed = BATCHES
        .lock()
        .unwrap()
        .as_mut()
        .and_then(|all| all.remove(&(handle as usize)));
    statistics::count(|basic| &mut basic.batch_destroy_ops, removed.is_some());
    if let Some(batch) = removed {
        let mut state = batch.state.lock().unwrap();
        state.waiting.clear();
        while state.running > 0 {
            state = batch.changed.wait(state).unwrap();
        }
    }
}

impl Batch {
    /// Queues all transfers, or none if one of them is invalid.
    pub fn submit(self: &Arc<Batch>, operations: &[CUfileIOParams]) -> Result {
        let submitted = self.try_submit(operations);
        statistics::count(|basic| &mut basic.batch_submit_ops, submitted.is_ok());
        submitted
    }

    fn try_submit(self: &Arc<Batch>, operations: &[CUfileIOParams]) -> Result {
        let mode = session::mode()?;
        if let Some(code) = failure::code(failure::Kind::CufileBatch) {
            return Err(Failure::injected(code));
        }
        let entries = operations.iter().map(entry).collect::<Result<Vec<_>>>()?;
        let context = device::top()?.ok_or(Failure::Operation(CU_FILE_INVALID_CONTEXT_ERROR))?;
        context.check()?;
        let mut state = self.state.lock().unwrap();
        let outstanding = state.waiting.len() + state.running + state.finished.len();
        if outstanding + entries.len() > self.capacity {
            return Err(Failure::Operation(CU_FILE_BATCH_FULL));
        }
        state.waiting.extend(entries);
        if !state.has_thread {
            let batch = self.clone();
            let thread = std::thread::Builder::new().name("cudasim-batch".into());
            thread
                .spawn(move || batch.serve())
                .map_err(|_| Failure::Operation(CU_FILE_BATCH_SUBMIT_FAILED))?;
            state.has_thread = true;
        }
        statistics::count(
            match mode {
                Mode::PeerToPeer => |basic| &mut basic.batch_p2p_submit_ops,
                Mode::NvidiaFs => |basic| &mut basic.batch_nvfs_submit_ops,
                Mode::Posix => |basic| &mut basic.batch_aio_submit_ops,
            },
            true,
        );
        statistics::count(|basic| &mut basic.batch_total_submit_ops, true);
        Ok(())
    }

    /// Runs waiting transfers until none is left.
    fn serve(&self) {
        let mut state = self.state.lock().unwrap();
        while let Some(entry) = state.waiting.pop_front() {
            state.running += 1;
            drop(state);
            let result = transfer::transfer_in_context(entry.request);
            let (status, moved) = match result {
                Ok(bytes) => (CUFILE_COMPLETE, bytes as isize),
                Err(error) => (CUFILE_FAILED, error.into_count()),
            };
            statistics::count(|basic| &mut basic.batch_complete_ops, result.is_ok());
            state = self.state.lock().unwrap();
            state.running -= 1;
            state.finished.push_back(Event {
                cookie: entry.cookie,
                status,
                moved,
            });
            self.changed.notify_all();
        }
        state.has_thread = false;
        self.changed.notify_all();
    }

    /// Returns finished transfers, each once: at most `room` and at least `least`, unless the timeout
    /// expires or fewer are outstanding.
    pub fn collect(
        &self,
        least: usize,
        room: usize,
        timeout: Option<Duration>,
    ) -> Result<Vec<CUfileIOEvents>> {
        if least > room {
            return Err(Failure::Operation(CU_FILE_INVALID_VALUE));
        }
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut state = self.state.lock().unwrap();
        while state.finished.len() < least && state.waiting.len() + state.running > 0 {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => break,
                Some(left) => self.changed.wait_timeout(state, left).unwrap().0,
                None => self.changed.wait(state).unwrap(),
            };
        }
        let count = state.finished.len().min(room);
        let events = state.finished.drain(..count).map(|event| CUfileIOEvents {
            cookie: event.cookie as *mut c_void,
            status: event.status,
            ret: event.moved as usize,
        });
        Ok(events.collect())
    }

    /// Cancels transfers that have not begun.
    pub fn cancel(&self) {
        let mut state = self.state.lock().unwrap();
        let cancelled = std::mem::take(&mut state.waiting);
        state
            .finished
            .extend(cancelled.into_iter().map(|entry| Event {
                cookie: entry.cookie,
                status: CUFILE_CANCELED,
                moved: 0,
            }));
        statistics::count(|basic| &mut basic.batch_cancel_ops, true);
        self.changed.notify_all();
    }
}

fn entry(operation: &CUfileIOParams) -> Result<Entry> {
    let invalid = Failure::Operation(CU_FILE_INVALID_VALUE);
    handle::find(operation.fh)?;
    let kind = match operation.opcode {
        CUFILE_READ => Operation::Read,
        CUFILE_WRITE => Operation::Write,
        _ => return Err(invalid),
    };
    if operation.mode != CUFILE_BATCH || operation.batch.devPtr_base.is_null() {
        return Err(invalid);
    }
    let request = Request {
        operation: kind,
        handle: operation.fh,
        base: operation.batch.devPtr_base as usize,
        size: operation.batch.size,
        file_offset: operation.batch.file_offset,
        buffer_offset: operation.batch.devPtr_offset,
        vectored: false,
    };
    Ok(Entry {
        request,
        cookie: operation.cookie as usize,
    })
}
