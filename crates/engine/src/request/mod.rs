//! Requests: from a caller's ranges to workers, and back to the caller.
//!
//! [`run`] moves the bytes before it returns, and [`submit`] lets workers move them.
//! [`submit_task`] gives workers other work than a plain transfer. A [`Request`] reports its
//! progress and its outcome, and may need the thread of its submitter: see [`Task::step`].

mod at_once;
mod bypass;
mod choose;
mod drain;
mod grow;
mod job;
mod launch;
mod limits;
mod prepare;
mod progress;
mod signal;
mod task;
mod tracker;
mod transfer;
mod unaligned;
mod watch;

use std::any::Any;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::{Duration, Instant};

use crate::changes::Changing;
use crate::engine::{Engine, engine};
use crate::error::{Error, Kind, Result};
use crate::file::position::Operation;
use crate::file::turns::Turns;
use crate::file::{Access, File};
use crate::fork::refuse_fork;
use crate::gpu::Context;
use crate::gpu::stream::{Flag, Stream};
use crate::in_flight::{InFlight, REQUESTS, WITHOUT_STEPS};
use crate::memory::Memory;
use crate::options::Options;
use crate::plan::Extent;
use crate::report::Report;
use crate::routes::fault::Decide;
use crate::save::Replacement;
use crate::workers::Runnable;
pub use at_once::{AtOnce, are_cached, is_quick};
use bypass::Bypass;
pub(crate) use choose::{DEFAULT_QUEUE_DEPTH, DEFAULT_SLOTS, MAX_AUTO_THREADS};
pub use drain::drain;
use job::Job;
use launch::Launch;
pub use limits::{
    LEAST_TRANSFER, LEAST_TRANSFER_OF_ROWS, MAPPED_ROW, MOST_AT_ONCE, MOST_CACHED_AT_ONCE,
    MOST_CHUNKS, MOST_DECODED, MOST_OF_WAITER, MOST_PLAIN, MOST_READS, MOST_ROWS,
    MOST_WORK_OF_WAITER, ROW_CALL,
};
pub use progress::Waited;
pub use task::{Remaining, Share, Task, TaskOrder};
use tracker::Tracker;
use transfer::{Ending, Transfer};

/// A transfer between ranges of a file and memory.
pub struct Order<'a> {
    /// The direction.
    pub operation: Operation,
    /// The ranges, in any order. Those of a write must not overlap in the file: that is refused. Those of a read
    /// should not overlap in memory: each byte there is then of one of them, on every route, and which is
    /// unspecified.
    pub extents: &'a [Extent],
    /// The options of this call. The outer levels complete them.
    pub options: Options,
    /// The memory of the buffer in which all extents lie, as the driver reports it for the lowest
    /// byte. `None` if it is not known.
    pub memory: Option<Memory>,
    /// Faults to inject, for tests.
    pub faults: Option<Box<Decide>>,
    /// Whether other requests may run meanwhile. The mapped route, which waits for all copies of the
    /// engine when it unpins pages, is then taken only if the options name it.
    pub background: bool,
    /// Whether the caller only waits for the request, so that its thread may do a share of a small
    /// one while it waits.
    pub waiter_shares: bool,
    /// A submitter step at the end, when all bytes have moved or the transfer has failed. Only
    /// [`submit`] takes it.
    pub last_step: Option<LastStep>,
}

impl<'a> Order<'a> {
    /// An order without faults, not in the background.
    pub fn new(operation: Operation, extents: &'a [Extent], options: Options) -> Self {
        Order {
            operation,
            extents,
            options,
            memory: None,
            faults: None,
            background: false,
            waiter_shares: false,
            last_step: None,
        }
    }
}

/// How a request is ordered with a stream of the caller's.
#[derive(Clone, Copy)]
pub struct StreamOrder {
    /// The stream.
    pub stream: Stream,
    /// The request starts when all work queued on the stream so far is done.
    pub after: bool,
    /// Work queued on the stream later starts when the request has finished or failed.
    pub before: bool,
}

/// Carries out an order on the calling thread and on the workers that it needs.
///
/// # Errors
/// The first failure, with its file and range. An unknown part of the bytes has then moved.
///
/// # Safety
/// The memory of each extent is valid (for writing, if the operation is a read), and no other code
/// touches it in a conflicting way, until the call returns.
pub unsafe fn run(file: &Arc<File>, order: Order<'_>) -> Result<Report> {
    let engine = engine()?;
    if let Some(done) = at_once::order(engine, file, &order) {
        return done;
    }
    run_here(transfer_job(engine, file, order, None, None)?)
}

/// Reads a range of the file at `path`: opens it, does what [`run`] does, and closes it.
///
/// # Errors
/// The failure of [`File::open`], or that of [`run`].
///
/// # Safety
/// As for [`run`].
pub unsafe fn load(path: &Path, extent: Extent, options: Options) -> Result<Report> {
    let file = Arc::new(File::open(path, Access::READ, Options::default())?);
    // SAFETY: passed on.
    let done = unsafe { run(&file, Order::new(Operation::Read, &[extent], options)) };
    file.wait_until_unused();
    done
}

/// Replaces the contents of the file `target` by `length` bytes at `memory`, atomically.
///
/// # Errors
/// The first failure. The file `target` is then as it was before.
///
/// # Safety
/// As for [`run`].
pub unsafe fn save(target: &Path, memory: usize, length: u64, options: Options) -> Result<Report> {
    let engine = engine()?;
    run_here(save_job(engine, target, memory, length, options, None)?)
}

/// Starts an order and returns at once. `owner` is dropped as soon as the buffers are no longer in
/// use, on any thread.
///
/// # Errors
/// An invalid order. Failures of the transfer are the outcome of the request.
///
/// # Safety
/// As for [`run`], but until the request is finished. The stream lives until the call returns.
pub unsafe fn submit(
    file: &Arc<File>,
    order: Order<'_>,
    stream: Option<StreamOrder>,
    owner: Option<Box<dyn Any + Send>>,
) -> Result<Request> {
    let engine = engine()?;
    let lengths = order.extents.iter().map(|e| e.length);
    let bytes = lengths.fold(0, u64::saturating_add);
    let waiter_shares = order.waiter_shares && bytes <= MOST_OF_WAITER;
    let made = transfer_job(engine, file, order, None, owner)?;
    start(engine, made, waiter_shares, stream)
}

/// Work that the submitter's thread does in its last step. It is called once.
pub type LastStep = Box<dyn Fn() + Send + Sync>;

/// The asynchronous form of [`save`]. `waiter_shares` is that of an [`Order`].
///
/// # Safety
/// As for [`submit`].
pub unsafe fn submit_save(
    target: &Path,
    (memory, length): (usize, u64),
    options: Options,
    waiter_shares: bool,
    stream: Option<StreamOrder>,
    owner: Option<Box<dyn Any + Send>>,
) -> Result<Request> {
    let engine = engine()?;
    let made = save_job(engine, target, memory, length, options, owner)?;
    let waiter_shares = waiter_shares && length <= MOST_OF_WAITER;
    start(engine, made, waiter_shares, stream)
}

fn save_job(
    engine: &'static Engine,
    target: &Path,
    memory: usize,
    length: u64,
    options: Options,
    owner: Option<Box<dyn Any + Send>>,
) -> Result<NewJob> {
    let replacement = Replacement::begin(target, options)?;
    let file = Arc::clone(replacement.file());
    let extents = [Extent {
        offset: 0,
        length,
        memory,
    }];
    let order = Order::new(Operation::Write, &extents, options);
    transfer_job(engine, &file, order, Some(replacement), owner)
}

/// Checks and plans an order, whose file takes the place of another one if it is a `replacement`.
fn transfer_job(
    engine: &'static Engine,
    file: &Arc<File>,
    mut order: Order<'_>,
    replacement: Option<Replacement>,
    owner: Option<Box<dyn Any + Send>>,
) -> Result<NewJob> {
    let submitted = Instant::now();
    let operation = order.operation;
    let last = order.last_step.take();
    let prepared = prepare::prepare(engine, file, order).map_err(|e| e.in_file(file.path()))?;
    let lanes = prepared.lanes();
    let ending = match replacement {
        Some(replacement) => Ending::Publish {
            replacement,
            allocated: OnceLock::new(),
            durable: prepared.durable,
        },
        None if prepared.durable && operation == Operation::Write => Ending::Sync,
        None => Ending::Nothing,
    };
    let parts = prepared.parts;
    let tracker = Tracker {
        requested: prepared.requested,
        block: prepared.block,
        context: parts.iter().find_map(|p| p.memory.context.clone()),
        ..Tracker::new(file.path().to_owned(), submitted, lanes, last.is_some())
    };
    tracker.counters.tuned(prepared.tuned);
    if let Some(note) = prepared.note {
        tracker.counters.note(&note);
    }
    let turns = prepared.most_in_turn;
    let turns = turns.map(|most| (Arc::clone(&file.turns), most));
    let transfer = Transfer {
        file: Arc::clone(file),
        operation,
        parts,
        ending,
        room: OnceLock::new(),
        bypass: Bypass::default(),
        last,
    };
    let transfer = Box::new(transfer);
    let users = Some(&file.users);
    Ok(make_job(
        engine,
        transfer,
        tracker,
        (lanes, turns),
        users,
        owner,
    ))
}

fn make_job(
    engine: &'static Engine,
    task: Box<dyn Task>,
    tracker: Tracker,
    (lanes, turns): (usize, Option<(Arc<Turns>, usize)>),
    users: Option<&Arc<InFlight>>,
    owner: Option<Box<dyn Any + Send>>,
) -> NewJob {
    let has_steps = tracker.progress.has_steps();
    let without_steps = (!has_steps).then_some(&*WITHOUT_STEPS);
    let counters = [users, without_steps, Some(&*REQUESTS)];
    let job = Job {
        engine,
        task: RwLock::new(Some(task)),
        has_steps,
        entered: counters.map(|counter| counter.map(|all| (Arc::clone(all), all.enter()))),
        changing: Mutex::new(Some(Changing::begin())),
        tracker: Arc::new(tracker),
        to_begin: AtomicUsize::new(lanes),
        turns,
        owner: Mutex::new(owner),
    };
    (Arc::new(job), lanes)
}

/// Starts a task and returns at once. `owner` is dropped as for [`submit`].
///
/// # Errors
/// A stream that cannot be waited for, or a forked child.
///
/// # Safety
/// The memory that the task touches stays valid until the request is finished.
pub unsafe fn submit_task(
    order: TaskOrder,
    stream: Option<StreamOrder>,
    owner: Option<Box<dyn Any + Send>>,
) -> Result<Request> {
    let engine = engine()?;
    let waiter_shares = order.waiter_shares;
    start(engine, order.into_job(engine, owner), waiter_shares, stream)
}

/// A job and the number of its workers.
type NewJob = (Arc<Job>, usize);

/// Carries out a job with this thread as one of its workers.
fn run_here((job, lanes): NewJob) -> Result<Report> {
    // If no thread can be started, this one does all the work.
    let _ = enqueue(&job, lanes - 1, lanes);
    let tracker = Arc::clone(&job.tracker);
    job.serve();
    drop(job);
    match tracker.progress.wait() {
        Waited::Finished(outcome) => outcome?,
        Waited::Step | Waited::Pending => {
            return Err(Error::new(
                Kind::Internal,
                "internal error: unexpected submitter step",
            ));
        }
    }
    Ok(tracker.report())
}

/// `count` tasks that serve a job.
fn tasks(job: Arc<Job>, count: usize) -> Vec<Runnable> {
    std::iter::repeat_n(job, count)
        .map(|job| Box::new(move || job.serve()) as Runnable)
        .collect()
}

/// Lets threads carry out `count` of the tasks of a job that wants `lanes` at the same time. Returns
/// the tasks if there is no thread.
fn enqueue(job: &Arc<Job>, count: usize, lanes: usize) -> std::result::Result<(), Vec<Runnable>> {
    let tasks = tasks(Arc::clone(job), count);
    job.engine.workers.submit(tasks, lanes, job.device())
}

/// Carries out on this thread the tasks for which no thread could be started.
fn carry_out(submitted: std::result::Result<(), Vec<Runnable>>) {
    if let Err(tasks) = submitted {
        tasks.into_iter().for_each(|task| task());
    }
}

fn start(
    engine: &'static Engine,
    (job, lanes): NewJob,
    waiter_shares: bool,
    order: Option<StreamOrder>,
) -> Result<Request> {
    let tracker = Arc::clone(&job.tracker);
    let stepper = job.has_steps.then(|| Arc::clone(&job));
    let launch = Launch::new(engine, job, lanes);
    let request = Request {
        tracker,
        launch: Arc::clone(&launch),
        stepper,
        reported: AtomicBool::new(false),
        postponed: AtomicBool::new(false),
    };
    let Some(order) = order else {
        if waiter_shares && request.stepper.is_none() {
            launch.begin_with_waiter()
        } else {
            launch.begin()
        }
        return Ok(request);
    };
    match request.put_in_order(order) {
        Ok(()) => Ok(request),
        Err(error) => {
            launch.abandon(error.clone());
            let _ = request.finish();
            Err(error)
        }
    }
}

/// A request in flight. Any number of threads may wait for it, poll it and cancel it.
///
/// Dropping a request lets it continue. A request with steps is stopped instead, because its steps
/// can no longer be taken. Either way, the caller's promise about the buffers lasts until the
/// request is finished.
pub struct Request {
    tracker: Arc<Tracker>,
    launch: Arc<Launch>,
    /// The job of a request with steps.
    stepper: Option<Arc<Job>>,
    /// Whether the outcome was reported to the caller.
    reported: AtomicBool,
    /// Whether the last step could not be taken.
    postponed: AtomicBool,
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(job) = &self.stepper {
            job.give_up_steps();
        }
        self.begin();
    }
}

/// The error of what a thread cannot finish because it is inside a callback.
pub fn inside_callback(what: &str) -> Error {
    Error::invalid(format!(
        "{what} cannot finish inside a callback that a library makes during another call"
    ))
    .remedy("do this after that call, such as an iteration, has returned")
}

impl Request {
    /// Starts the request in order with a stream.
    fn put_in_order(&self, order: StreamOrder) -> Result<()> {
        let stream = order.stream;
        let context = self.context(stream)?;
        if order.before {
            // All that can fail comes before the stream may start the request.
            stream.can_wait(&context)?;
            self.tracker.signals.flag(|| Flag::new(&context))?;
        }
        let waits = order.after && !stream.is_idle_in(&context)?;
        if waits {
            self.launch.after(stream, &context, order.before)?;
        }
        if order.before {
            self.make_wait(stream, &context)?;
        }
        if !waits {
            self.launch.begin();
        }
        Ok(())
    }

    /// Begins what waits for a thread that waits for the request.
    fn begin(&self) {
        self.launch.begin_with_workers();
        self.launch.begin_here(None);
    }

    /// Waits for the outcome or for a submitter step, at most as long as `limit`, and notes that
    /// the outcome was reported. Carries out here a request that has no thread of its own.
    pub fn wait(&self, limit: Option<Duration>) -> Waited<Error> {
        let news = self.watch(limit);
        if matches!(news, Waited::Finished(_)) {
            self.mark_reported();
        }
        news
    }

    /// As [`wait`](Self::wait), for a caller that does not report the outcome.
    pub fn watch(&self, limit: Option<Duration>) -> Waited<Error> {
        if let Err(forked) = refuse_fork() {
            return Waited::Finished(Err(forked));
        }
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        self.launch.begin_here(end);
        loop {
            // If no thread polls the streams that may fail, each waiting thread does.
            let watch = watch::poll();
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let news = match watch.into_iter().chain(left).min() {
                None => self.tracker.progress.wait(),
                Some(time) => self.tracker.progress.wait_for(time),
            };
            match news {
                Waited::Pending if left.is_none_or(|left| !left.is_zero()) => {}
                news => return news,
            }
        }
    }

    /// Waits for the outcome, and takes all steps meanwhile. Only the submitter's thread may call
    /// this.
    ///
    /// # Errors
    /// The outcome, if it is a failure, or a step that this thread cannot take now.
    pub fn finish(&self) -> Result<()> {
        loop {
            match self.wait(None) {
                Waited::Finished(outcome) => return outcome,
                Waited::Step if !self.step() => return Err(self.is_for_later()),
                Waited::Step | Waited::Pending => {}
            }
        }
    }

    /// As [`wait`](Self::wait), without waiting.
    pub fn test(&self) -> Waited<Error> {
        self.wait(Some(Duration::ZERO))
    }

    /// As [`watch`](Self::watch), without waiting and without carrying anything out on this thread.
    pub fn peek(&self) -> Waited<Error> {
        self.tracker.progress.now()
    }

    /// Notes that the outcome was reported to the caller.
    pub fn mark_reported(&self) {
        self.reported.store(true, Relaxed);
    }

    /// Whether the outcome was reported, by [`wait`](Self::wait) or
    /// [`mark_reported`](Self::mark_reported).
    pub fn is_reported(&self) -> bool {
        self.reported.load(Relaxed)
    }

    /// Takes the submitter's step, if the request needs one. Only the submitter's thread may call
    /// this. Returns false if the step cannot be taken now: [`Remaining::Later`].
    pub fn step(&self) -> bool {
        let Some(job) = &self.stepper else {
            return true;
        };
        let is_taken = job.step(|count| {
            carry_out(enqueue(job, count, count));
        });
        self.postponed.store(!is_taken, Relaxed);
        is_taken
    }

    /// Whether the last [`step`](Self::step) could not be taken.
    pub fn is_postponed(&self) -> bool {
        self.postponed.load(Relaxed)
    }

    /// The error of a wait for a step that this thread cannot take now.
    pub fn is_for_later(&self) -> Error {
        inside_callback("the request").in_file(&self.tracker.path)
    }

    /// Stops the request: each worker stops after its present block. A request that still waits for
    /// a stream finishes at once. A request that is nearly finished may still succeed.
    pub fn cancel(&self) {
        let cancelled =
            Error::new(Kind::Cancelled, "the request was cancelled").in_file(&self.tracker.path);
        self.tracker.progress.cancel(cancelled.clone());
        // A step of a request that is stopped can always be taken.
        self.postponed.store(false, Relaxed);
        if matches!(self.tracker.progress.now(), Waited::Step) {
            self.tracker.signals.raise();
        }
        self.launch.abandon(cancelled);
    }

    /// Bytes of the caller that have moved so far.
    pub fn moved(&self) -> u64 {
        self.launch.begin_with_workers();
        self.tracker.counters.total()
    }

    /// Bytes of the ranges, in the order of the file, that have arrived without a gap, at least. Only
    /// large staged reads of long ranges count them while they run.
    pub fn arrived(&self) -> u64 {
        self.launch.begin_with_workers();
        match self.tracker.progress.now() {
            Waited::Finished(Ok(())) => self.tracker.counters.total(),
            _ => self.tracker.arrived.load(Acquire),
        }
    }

    /// Makes the report count the time from `began`, for instance from the start of the call that
    /// prepared the request.
    pub fn count_from(&self, began: Instant) {
        self.tracker.count_from(began);
    }

    /// What the request did; `None` until it is finished.
    pub fn report(&self) -> Option<Report> {
        match self.tracker.progress.now() {
            Waited::Finished(_) => Some(self.tracker.report()),
            _ => {
                self.launch.begin_with_workers();
                None
            }
        }
    }

    /// A descriptor that is readable while a submitter step is due and once the request is
    /// finished. It closes when the request is dropped.
    pub fn descriptor(&self) -> Result<RawFd> {
        self.begin();
        let descriptor = self.tracker.signals.descriptor()?;
        // A step that became due earlier could not signal the descriptor.
        if matches!(self.peek(), Waited::Step) {
            self.tracker.signals.raise();
        }
        Ok(descriptor)
    }

    /// Makes work queued on the stream from now on wait until the request has finished or failed.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] from drivers without this wait; [`Kind::Invalid`] while the stream is
    /// captured into a CUDA graph.
    pub fn hold_stream(&self, stream: Stream) -> Result<()> {
        self.begin();
        self.make_wait(stream, &self.context(stream)?)
    }

    fn make_wait(&self, stream: Stream, context: &Arc<Context>) -> Result<()> {
        match self.tracker.signals.flag(|| Flag::new(context))? {
            Some(flag) => stream.wait_for(context, flag),
            None => Ok(()),
        }
    }

    /// The context of the request's GPU memory, or of the stream if all memory is on the host.
    fn context(&self, stream: Stream) -> Result<Arc<Context>> {
        match &self.tracker.context {
            Some(context) => Ok(Arc::clone(context)),
            None => stream.context(),
        }
    }
}
