//! Streams: queues of operations, each with a thread of its own.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::device::{self, Context};
use crate::handle::Table;
use crate::status::{INVALID_HANDLE, INVALID_VALUE, OPERATING_SYSTEM, Result};
use crate::{capture, failure};

pub const LEGACY: usize = 0x1;
pub const PER_THREAD: usize = 0x2;
const NON_BLOCKING: u32 = 0x1;
/// Streams of a context whose creation does not wait in the blocking mode.
const STREAMS_WITHOUT_WAIT: usize = 35;
pub const GREATEST_PRIORITY: i32 = -5;
pub const LEAST_PRIORITY: i32 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The default stream: ordered before and after all work of blocking streams.
    Legacy,
    Blocking,
    NonBlocking,
}

pub struct Stream {
    pub context: &'static Context,
    pub kind: Kind,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Operation>,
    submitted: u64,
    completed: u64,
    has_thread: bool,
    /// Whether new operations are refused. The thread ends when the queue is empty.
    closed: bool,
    /// Whether the context is destroyed, so that waiting operations are dropped.
    abandoned: bool,
}

type Work = Box<dyn FnOnce(&Stream) + Send>;

struct Operation {
    after: Vec<Ticket>,
    /// Whether it runs even in a failed context, because other streams wait for it.
    always: bool,
    work: Work,
}

/// A position in a stream's queue.
pub struct Ticket {
    stream: Arc<Stream>,
    number: u64,
}

static STREAMS: Table<Stream> = Table::new();

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
    /// This thread's own default stream in each context.
    static OWN: RefCell<Vec<OwnStream>> = const { RefCell::new(Vec::new()) };
}

/// A per-thread default stream, which closes when its thread ends.
struct OwnStream(Arc<Stream>);

impl Drop for OwnStream {
    fn drop(&mut self) {
        self.0.close();
    }
}

pub fn in_host_function() -> bool {
    IN_HOST_FUNCTION.get()
}

/// Calls a host function, which must not call the driver.
pub fn call_host_function(function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) {
    IN_HOST_FUNCTION.set(true);
    // SAFETY: by contract of cuLaunchHostFunc, `data` is a valid argument of the function.
    unsafe { function(data) };
    IN_HOST_FUNCTION.set(false);
}

pub fn create(context: &'static Context, flags: u32) -> Result<*mut c_void> {
    if flags & !NON_BLOCKING != 0 {
        return Err(INVALID_VALUE);
    }
    failure::check(failure::Kind::Stream)?;
    let kind = if flags & NON_BLOCKING != 0 {
        Kind::NonBlocking
    } else {
        Kind::Blocking
    };
    let waits = context.streams().len() >= STREAMS_WITHOUT_WAIT;
    let _blocked = waits.then(|| context.block());
    let stream = Stream::new(context, kind);
    context.add_stream(&stream)?;
    Ok(STREAMS.add(stream))
}

/// Closes a stream. Work already submitted still runs.
pub fn destroy(handle: *mut c_void) -> Result {
    let stream = STREAMS.remove(handle).ok_or(INVALID_HANDLE)?;
    stream.context.pass();
    stream.close();
    Ok(())
}

/// The stream of a handle. The default streams belong to `context`.
pub fn resolve(context: &'static Context, handle: *mut c_void) -> Result<Arc<Stream>> {
    match handle as usize {
        0 | LEGACY => context.legacy_stream(),
        PER_THREAD => own(context),
        _ => STREAMS.find(handle).ok_or(INVALID_HANDLE),
    }
}

fn own(context: &'static Context) -> Result<Arc<Stream>> {
    OWN.with_borrow_mut(|own| {
        own.retain(|stream| !stream.0.queue.lock().unwrap().abandoned);
        if let Some(found) = own
            .iter()
            .find(|stream| std::ptr::eq(stream.0.context, context))
        {
            return Ok(found.0.clone());
        }
        let stream = Stream::new(context, Kind::Blocking);
        context.add_stream(&stream)?;
        own.push(OwnStream(stream.clone()));
        Ok(stream)
    })
}

/// The number of streams that are not destroyed.
pub fn count() -> usize {
    STREAMS.len()
}

impl Stream {
    pub fn new(context: &'static Context, kind: Kind) -> Arc<Stream> {
        let (queue, changed) = Default::default();
        Arc::new(Stream {
            context,
            kind,
            queue,
            changed,
        })
    }

    /// Queues an operation that occupies the stream for `time` and then runs `work`, unless the
    /// context has failed by then. An error of `work` fails the context.
    pub fn submit(
        self: &Arc<Stream>,
        time: Duration,
        work: impl FnOnce(&Stream) -> Result + Send + 'static,
    ) -> Result<Ticket> {
        let work = move |stream: &Stream| {
            std::thread::sleep(time);
            if stream.context.check().is_ok()
                && let Err(error) = work(stream)
            {
                stream.context.fail(error);
            }
        };
        self.enqueue(false, Box::new(work))
    }

    /// Queues an operation that runs even in a failed context, because other streams wait for it.
    pub fn submit_always(
        self: &Arc<Stream>,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<Ticket> {
        self.enqueue(true, Box::new(move |_| work()))
    }

    fn enqueue(self: &Arc<Stream>, always: bool, work: Work) -> Result<Ticket> {
        let after = self.predecessors()?;
        let mut queue = self.queue.lock().unwrap();
        if queue.closed {
            return Err(INVALID_HANDLE);
        }
        if !queue.has_thread {
            let stream = self.clone();
            let thread = std::thread::Builder::new().name("cudasim-stream".into());
            thread
                .spawn(move || stream.serve())
                .map_err(|_| OPERATING_SYSTEM)?;
            queue.has_thread = true;
        }
        queue.submitted += 1;
        queue.waiting.push_back(Operation {
            after,
            always,
            work,
        });
        self.changed.notify_all();
        Ok(Ticket {
            stream: self.clone(),
            number: queue.submitted,
        })
    }

    /// The operations of other streams that the next operation must follow. All are submitted
    /// already, so no two operations can wait for each other.
    fn predecessors(&self) -> Result<Vec<Ticket>> {
        match self.kind {
            Kind::NonBlocking => Ok(Vec::new()),
            Kind::Blocking => Ok(self.context.legacy_stream()?.last().into_iter().collect()),
            Kind::Legacy => {
                let streams = self.context.streams();
                let blocking = streams
                    .iter()
                    .filter(|stream| stream.kind == Kind::Blocking);
                Ok(blocking.filter_map(Stream::last).collect())
            }
        }
    }

    /// The last operation, if it is not complete.
    pub fn last(self: &Arc<Stream>) -> Option<Ticket> {
        let queue = self.queue.lock().unwrap();
        let pending = queue.completed < queue.submitted;
        pending.then(|| Ticket {
            stream: self.clone(),
            number: queue.submitted,
        })
    }

    pub fn is_idle(self: &Arc<Stream>) -> Result<bool> {
        Ok(self.last().is_none() && self.predecessors()?.is_empty())
    }

    /// Waits for all work submitted so far.
    pub fn synchronize(self: &Arc<Stream>) -> Result {
        let before = if self.kind == Kind::Legacy {
            self.predecessors()?
        } else {
            Vec::new()
        };
        for ticket in before.into_iter().chain(self.last()) {
            ticket.wait();
        }
        self.context.check()
    }

    /// Whether the context has failed or is destroyed, so that no wait is needed.
    pub fn has_failed(&self) -> bool {
        self.context.check().is_err() || self.queue.lock().unwrap().abandoned
    }

    fn close(&self) {
        self.queue.lock().unwrap().closed = true;
        self.changed.notify_all();
        if self.is_empty() {
            self.context.remove_stream(self);
        }
    }

    fn is_empty(&self) -> bool {
        let queue = self.queue.lock().unwrap();
        queue.completed == queue.submitted
    }

    /// Drops waiting operations and refuses new ones.
    pub fn abandon(&self) {
        {
            let mut queue = self.queue.lock().unwrap();
            queue.closed = true;
            queue.abandoned = true;
        }
        self.changed.notify_all();
        STREAMS.retain(|stream| !std::ptr::eq(stream, self));
    }

    fn serve(self: Arc<Stream>) {
        // SAFETY: only sets the timer slack of this thread, so that its sleeps are precise.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000 as libc::c_ulong) };
        while let Some((operation, abandoned)) = self.next() {
            if !abandoned {
                for ticket in &operation.after {
                    ticket.wait();
                }
            }
            if operation.always || !abandoned {
                (operation.work)(&self);
            }
            self.queue.lock().unwrap().completed += 1;
            self.changed.notify_all();
        }
        self.context.remove_stream(&self);
    }

    fn next(&self) -> Option<(Operation, bool)> {
        let mut queue = self.queue.lock().unwrap();
        loop {
            if let Some(operation) = queue.waiting.pop_front() {
                return Some((operation, queue.abandoned));
            }
            if queue.closed {
                return None;
            }
            queue = self.changed.wait(queue).unwrap();
        }
    }
}

impl Ticket {
    pub fn wait(&self) {
        let mut queue = self.stream.queue.lock().unwrap();
        while queue.completed < self.number {
            queue = self.stream.changed.wait(queue).unwrap();
        }
    }
}

/// The stream of a handle, once no other call blocks its context. Fails unless the current context is
/// usable.
pub fn resolve_current(handle: *mut c_void) -> Result<Arc<Stream>> {
    resolve(device::current_for_query()?, handle)?
        .context
        .pass();
    resolve_for_query(handle)
}

/// As [`resolve_current`], for a query, which begins even if another call blocks the context.
fn resolve_for_query(handle: *mut c_void) -> Result<Arc<Stream>> {
    let stream = resolve(device::current_for_query()?, handle)?;
    stream.context.check()?;
    if stream.kind == Kind::Legacy {
        failure::check(failure::Kind::Capture)?;
    }
    Ok(stream)
}

/// As [`resolve_current`], for a call that uses the stream, which a capture may forbid.
pub fn resolve_used(handle: *mut c_void) -> Result<Arc<Stream>> {
    let stream = resolve_current(handle)?;
    capture::uses(&stream)?;
    Ok(stream)
}

/// As [`resolve_used`], for a query.
pub fn resolve_queried(handle: *mut c_void) -> Result<Arc<Stream>> {
    let stream = resolve_for_query(handle)?;
    capture::uses(&stream)?;
    Ok(stream)
}
