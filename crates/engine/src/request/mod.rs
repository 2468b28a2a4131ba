//! Requests: from a caller's ranges to workers, and back to the caller.
//!
//! [`run`] moves the bytes before it returns, and [`submit`] lets workers move them.
//! [`submit_task`] gives workers something else to do than a plain transfer. A [`Request`] tells
//! how far it is and how it ended, and may need the thread of its submitter: see [`Task::step`].

mod at_once;
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
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::{Duration, Instant};

use crate::changes::Changing;
use crate::engine::{Engine, engine};
use crate::error::{Error, Kind, Result};
use crate::file::File;
use crate::file::position::Operation;
use crate::fork::refuse_fork;
use crate::gpu::Context;
use crate::gpu::stream::{Flag, Stream};
use crate::in_flight::{REQUESTS, WITHOUT_STEPS};
use crate::memory::Memory;
use crate::options::Options;
use crate::plan::Extent;
use crate::report::Report;
use crate::routes::fault::Decide;
use crate::save::Replacement;
use crate::workers::Work;
pub use at_once::{AtOnce, is_quick};
pub(crate) use choose::{DEFAULT_QUEUE_DEPTH, DEFAULT_SLOTS, MAX_AUTO_THREADS};
pub use drain::drain;
use job::Job;
use launch::Launch;
pub use limits::{
    MOST_AT_ONCE, MOST_CACHED_AT_ONCE, MOST_CHUNKS, MOST_DECODED, MOST_OF_WAITER, MOST_PLAIN,
    MOST_WORK_OF_WAITER,
};
use prepare::Prepared;
use progress::Progress;
pub use progress::Waited;
pub use task::{Remaining, Share, Task, TaskOrder};
use tracker::Tracker;
use transfer::{Ending, Transfer};

/// A transfer between ranges of a file and memory.
pub struct Order<'a> {
    /// The direction.
    pub operation: Operation,
    /// The ranges, in any order. Those of a write must not overlap in the file.
    pub extents: &'a [Extent],
    /// The options of this call; those that it leaves open come from the outer levels.
    pub options: Options,
    /// What is known of the memory: all extents lie in one buffer, and this is what the driver says of
    /// its lowest byte.
    pub memory: Option<Memory>,
    /// Faults to inject, for tests.
    pub faults: Option<Box<Decide>>,
    /// Whether the caller may use the GPU meanwhile. Then the mapped route, which waits until the GPU
    /// is idle, is taken only if the options name it.
    pub background: bool,
    /// Whether the caller does nothing else than wait for the request, and so may have a share of a
    /// small one.
    pub waiter_shares: bool,
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

/// Carries out an order on the calling thread and as many workers as it takes.
///
/// # Errors
/// The first failure, with its file and range. An unknown part of the bytes has then moved.
///
/// # Safety
/// The memory of each extent is valid (for writing, if the operation is a read), and nobody
/// else touches it in a conflicting way, until the call returns.
pub unsafe fn run(file: &Arc<File>, order: Order<'_>) -> Result<Report> {
    let engine = engine()?;
    if let Some(done) = at_once::order(engine, file, &order) {
        return done;
    }
    let job = Submission::of_file(engine, file, order)?.into_job(None, None);
    run_here(engine, job)
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
    let job = Submission::of_save(engine, target, memory, length, options)?.into_job(None, None);
    run_here(engine, job)
}

/// Starts an order and returns at once. `owner` is dropped as soon as nothing touches the buffers any
/// more, on any thread.
///
/// # Errors
/// What is wrong with the order itself. Failures of the transfer are its outcome.
///
/// # Safety
/// As for [`run`], but until the request is finished. A stream given lives until the call returns.
pub unsafe fn submit(
    file: &Arc<File>,
    order: Order<'_>,
    stream: Option<StreamOrder>,
    owner: Option<Box<dyn Any + Send>>,
) -> Result<Request> {
    let engine = engine()?;
    let bytes = order
        .extents
        .iter()
        .map(|e| e.length)
        .fold(0, u64::saturating_add);
    let waiter_shares = order.waiter_shares && bytes <= MOST_OF_WAITER;
    let submission = Submission::of_file(engine, file, order)?;
    let made = submission.into_job(owner, None);
    start(engine, made, waiter_shares, None, stream)
}

/// What the submitter's thread does in its last step. It is called once.
pub type LastStep = Box<dyn Fn() + Send + Sync>;

/// As [`submit`], with one step of the submitter's at the end, when all bytes have moved or no more
/// will.
///
/// # Errors
/// As for [`submit`].
///
/// # Safety
/// As for [`submit`].
pub unsafe fn submit_with_step(
    file: &Arc<File>,
    order: Order<'_>,
    stream: Option<StreamOrder>,
    owner: Option<Box<dyn Any + Send>>,
    last: LastStep,
) -> Result<Request> {
    let engine = engine()?;
    let made = Submission::of_file(engine, file, order)?.into_job(owner, Some(last));
    let stepper = Some(Arc::clone(&made.0));
    start(engine, made, false, stepper, stream)
}

/// The asynchronous form of [`save`].
///
/// # Errors
/// As for [`submit`].
///
/// # Safety
/// As for [`submit`].
pub unsafe fn submit_save(
    target: &Path,
    memory: usize,
    length: u64,
    options: Options,
    stream: Option<StreamOrder>,
    owner: Option<Box<dyn Any + Send>>,
) -> Result<Request> {
    let engine = engine()?;
    let submission = Submission::of_save(engine, target, memory, length, options)?;
    let made = submission.into_job(owner, None);
    start(engine, made, false, None, stream)
}

/// A checked and planned order.
struct Submission {
    engine: &'static Engine,
    file: Arc<File>,
    operation: Operation,
    prepared: Prepared,
    ending: Ending,
    submitted: Instant,
}

impl Submission {
    fn of_file(engine: &'static Engine, file: &Arc<File>, order: Order<'_>) -> Result<Self> {
        let submitted = Instant::now();
        let operation = order.operation;
        let prepared = prepare::prepare(engine, file, order).map_err(|e| e.in_file(file.path()))?;
        let durable = prepared.durable && operation == Operation::Write;
        Ok(Submission {
            engine,
            file: Arc::clone(file),
            operation,
            prepared,
            ending: if durable {
                Ending::Sync
            } else {
                Ending::Nothing
            },
            submitted,
        })
    }

    fn of_save(
        engine: &'static Engine,
        target: &Path,
        memory: usize,
        length: u64,
        options: Options,
    ) -> Result<Self> {
        let replacement = Replacement::begin(target, options)?;
        let extents = [Extent {
            offset: 0,
            length,
            memory,
        }];
        let order = Order::new(Operation::Write, &extents, options);
        let mut submission = Submission::of_file(engine, replacement.file(), order)
            .map_err(|error| error.of_file(target))?;
        submission.ending = Ending::Publish {
            replacement,
            durable: submission.prepared.durable,
        };
        Ok(submission)
    }

    fn into_job(self, owner: Option<Box<dyn Any + Send>>, last: Option<LastStep>) -> Made {
        let lanes = self.prepared.lanes();
        let progress = match last {
            Some(_) => Progress::with_steps(lanes),
            None => Progress::new(lanes),
        };
        let parts = self.prepared.parts;
        let context = parts.iter().find_map(|p| p.memory.context.clone());
        let path = match &self.ending {
            Ending::Publish { replacement, .. } => replacement.target(),
            _ => self.file.path(),
        };
        let path = path.to_owned();
        let mut tracker = Tracker::new(path, self.submitted, progress);
        tracker.asked = self.prepared.asked;
        tracker.block = self.prepared.block;
        tracker.device = context.as_ref().map_or(-1, |c| c.device);
        tracker.context = context;
        tracker.counters.tuned(self.prepared.tuned);
        if let Some(note) = self.prepared.note {
            tracker.counters.note(&note);
        }
        let entered = self.file.users.enter();
        let transfer = Transfer {
            file: self.file,
            entered,
            operation: self.operation,
            parts,
            ending: self.ending,
            room: OnceLock::new(),
            last,
        };
        make_job(self.engine, Box::new(transfer), tracker, lanes, owner)
    }
}

fn make_job(
    engine: &'static Engine,
    task: Box<dyn Task>,
    tracker: Tracker,
    lanes: usize,
    owner: Option<Box<dyn Any + Send>>,
) -> Made {
    let has_steps = tracker.progress.has_steps();
    let entered = REQUESTS.enter();
    let without_steps = (!has_steps).then(|| WITHOUT_STEPS.enter());
    let job = Job {
        engine,
        task: RwLock::new(Some(task)),
        has_steps,
        entered,
        without_steps,
        changing: Mutex::new(Some(Changing::begin())),
        tracker: Arc::new(tracker),
        to_begin: AtomicUsize::new(lanes),
        owner: Mutex::new(owner),
    };
    (Arc::new(job), lanes)
}

/// Starts a task and returns at once. `owner` is dropped as for [`submit`].
///
/// # Errors
/// What keeps the request from starting: a stream that cannot be waited for, a fork.
///
/// # Safety
/// The memory that the task touches stays valid until the request is finished.
pub unsafe fn submit_task(
    order: TaskOrder,
    stream: Option<StreamOrder>,
    owner: Option<Box<dyn Any + Send>>,
) -> Result<Request> {
    let engine = engine()?;
    let has_steps = order.has_steps;
    let waiter_shares = order.waiter_shares && !has_steps;
    let made = order.into_job(engine, owner);
    let stepper = has_steps.then(|| Arc::clone(&made.0));
    start(engine, made, waiter_shares, stepper, stream)
}

/// A job and the number of its workers.
type Made = (Arc<Job>, usize);

/// Carries out a job with this thread as one of its workers.
fn run_here(engine: &Engine, (job, lanes): Made) -> Result<Report> {
    // If no thread can be started, this one does all the work.
    let _ = engine
        .workers
        .submit(tasks(Arc::clone(&job), lanes - 1), lanes);
    let tracker = Arc::clone(&job.tracker);
    job.serve();
    drop(job);
    match tracker.progress.wait() {
        Waited::Finished(outcome) => outcome?,
        Waited::Step | Waited::Pending => {
            return Err(Error::new(
                Kind::Internal,
                "a step was asked for by mistake",
            ));
        }
    }
    Ok(tracker.report())
}

/// `count` tasks that serve a job. The last one takes the given handle: the submitter must not drop
/// it, since the last handle of a job may close its file.
fn tasks(job: Arc<Job>, count: usize) -> Vec<Work> {
    std::iter::repeat_n(job, count)
        .map(|job| Box::new(move || job.serve()) as Work)
        .collect()
}

/// Carries out on this thread the tasks for which no thread could be started.
fn carry_out(submitted: std::result::Result<(), Vec<Work>>) {
    if let Err(tasks) = submitted {
        tasks.into_iter().for_each(|task| task());
    }
}

fn start(
    engine: &'static Engine,
    (job, lanes): Made,
    waiter_shares: bool,
    stepper: Option<Arc<Job>>,
    order: Option<StreamOrder>,
) -> Result<Request> {
    let tracker = Arc::clone(&job.tracker);
    let launch = Launch::new(engine, job, lanes);
    let request = Request {
        tracker,
        launch: Arc::clone(&launch),
        stepper,
        told: AtomicBool::new(false),
        postponed: AtomicBool::new(false),
    };
    let Some(order) = order else {
        match waiter_shares {
            true => launch.begin_with_waiter(),
            false => launch.begin(),
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
/// Dropping a request lets it continue. A request with steps is stopped instead, since nobody takes
/// its steps any more. Either way, the caller's promise about the buffers lasts until it is finished.
pub struct Request {
    tracker: Arc<Tracker>,
    launch: Arc<Launch>,
    /// The job of a request with steps.
    stepper: Option<Arc<Job>>,
    /// Whether somebody was told the outcome.
    told: AtomicBool,
    /// Whether the last step could not be taken.
    postponed: AtomicBool,
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(job) = &self.stepper {
            job.give_up_steps();
        }
        self.launch.begin_with_workers();
        self.launch.begin_here(None);
    }
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

    /// Waits for the outcome or for the submitter's step, at most as long as `limit`, and notes
    /// that the outcome was told. A request without a thread of its own is carried out here.
    pub fn wait(&self, limit: Option<Duration>) -> Waited<Error> {
        let news = self.watch(limit);
        if matches!(news, Waited::Finished(_)) {
            self.tell();
        }
        news
    }

    /// As [`wait`](Self::wait), for a caller who does not tell the outcome to anybody.
    pub fn watch(&self, limit: Option<Duration>) -> Waited<Error> {
        if let Err(forked) = refuse_fork() {
            return Waited::Finished(Err(forked));
        }
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        self.launch.begin_here(end);
        loop {
            // If no thread polls the streams that may fail, those who wait do.
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

    /// Waits for the outcome, and takes all steps meanwhile. To be called on the submitter's thread.
    ///
    /// # Errors
    /// The outcome, if it is a failure; a step that this thread cannot take now.
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

    /// Notes that the outcome was told to whoever has to know it.
    pub fn tell(&self) {
        self.told.store(true, Relaxed);
    }

    /// Whether the outcome was told: by [`wait`](Self::wait) or [`tell`](Self::tell).
    pub fn is_told(&self) -> bool {
        self.told.load(Relaxed)
    }

    /// Takes the submitter's step, if the request asks for it. Only the submitter's thread may call
    /// this. Returns false if the step cannot be taken now: [`Remaining::Later`].
    pub fn step(&self) -> bool {
        let Some(job) = &self.stepper else {
            return true;
        };
        let engine = job.engine;
        let is_taken = job.step(|count| {
            let made = engine.workers.submit(tasks(Arc::clone(job), count), count);
            carry_out(made);
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
        Error::invalid(
            "the end of the request cannot be carried out inside a function that a library calls \
             during another call",
        )
        .remedy("wait for the request after that call, such as an iteration, has returned")
        .in_file(&self.tracker.path)
    }

    /// Asks the request to stop, which each worker does after its present block. A request that still
    /// waits for a stream finishes at once. One that is nearly finished may still succeed.
    pub fn cancel(&self) {
        let cancelled =
            Error::new(Kind::Cancelled, "the request was cancelled").in_file(&self.tracker.path);
        self.tracker.progress.cancel(cancelled.clone());
        // A step of a request that is stopped can always be taken.
        self.postponed.store(false, Relaxed);
        if matches!(self.tracker.progress.now(), Waited::Step) {
            self.tracker.signals.tell();
        }
        self.launch.abandon(cancelled);
    }

    /// Bytes of the caller that have moved so far.
    pub fn moved(&self) -> u64 {
        self.launch.begin_with_workers();
        self.tracker.counters.total()
    }

    /// Makes the report count the time from `began`, such as the start of the call that prepared the
    /// request.
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

    /// A descriptor that is readable once the request is finished, and while it asks for the
    /// submitter's step. It closes when this is dropped.
    ///
    /// # Errors
    /// What eventfd(2) says.
    pub fn descriptor(&self) -> Result<RawFd> {
        self.launch.begin_with_workers();
        self.launch.begin_here(None);
        let descriptor = self.tracker.signals.descriptor()?;
        // A step that was asked for earlier found no descriptor.
        if matches!(self.peek(), Waited::Step) {
            self.tracker.signals.tell();
        }
        Ok(descriptor)
    }

    /// Makes work queued on the stream from now on wait until the request has finished or failed.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] from drivers that cannot wait so; [`Kind::Invalid`] while the stream is
    /// captured into a CUDA graph.
    pub fn hold_stream(&self, stream: Stream) -> Result<()> {
        self.launch.begin_with_workers();
        self.launch.begin_here(None);
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
