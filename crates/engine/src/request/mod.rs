//! Requests: from a caller's ranges to workers, and back to the caller.

mod choose;
mod drain;
mod duty;
pub(crate) mod edges;
mod grow;
mod job;
mod launch;
mod prepare;
mod progress;
mod signal;
mod tracker;
mod transfer;
mod watch;

use std::any::Any;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::{Duration, Instant};

use crate::engine::{Engine, engine};
use crate::error::{Error, Kind, Result};
use crate::file::File;
use crate::file::position::Operation;
use crate::fork::refuse_fork;
use crate::gpu::Context;
use crate::gpu::stream::{Flag, Stream};
use crate::in_flight::{REQUESTS, WITHOUT_TURNS};
use crate::options::{MAX_THREADS, Options, RouteName};
use crate::plan::Extent;
use crate::report::Report;
use crate::routes::fault::Decide;
use crate::save::{self, Replacement};
use crate::workers::Task;
pub(crate) use choose::{DEFAULT_QUEUE_DEPTH, DEFAULT_SLOTS, MAX_AUTO_THREADS};
pub use drain::drain;
pub use duty::{Duty, Remaining, Share};
use job::Job;
use launch::Launch;
use prepare::Prepared;
use progress::Progress;
pub use progress::Waited;
use tracker::Tracker;
use transfer::{Ending, Transfer};

/// What a caller asks for.
pub struct Order<'a> {
    pub operation: Operation,
    pub extents: &'a [Extent],
    pub options: Options,
    /// Faults to inject, for tests.
    pub faults: Option<Box<Decide>>,
    /// The caller goes on meanwhile, maybe with work on the same GPU: the mapped route, which
    /// waits for the GPU to be idle, is then taken only if asked for.
    pub background: bool,
}

impl<'a> Order<'a> {
    pub fn new(operation: Operation, extents: &'a [Extent], options: Options) -> Self {
        Order {
            operation,
            extents,
            options,
            faults: None,
            background: false,
        }
    }
}

/// Order with a stream of the caller's.
#[derive(Clone, Copy)]
pub struct StreamOrder {
    pub stream: Stream,
    /// The transfer starts when all work queued on the stream so far is done.
    pub after: bool,
    /// Work queued on the stream later starts when the transfer is finished or has failed.
    pub before: bool,
}

/// Carries out an order on the calling thread and as many workers as it takes.
///
/// # Safety
/// The memory of each extent is valid (for writing, if the operation is a read), and nobody
/// else touches it in a conflicting way, until the call returns.
pub unsafe fn run(file: &Arc<File>, order: Order<'_>) -> Result<Report> {
    let engine = engine()?;
    if let Some(done) = prepare::small(engine, file, &order) {
        return done;
    }
    let job = Submission::of_file(engine, file, order)?.into_job(None, None);
    run_here(engine, job)
}

/// Writes `length` bytes at `memory` as the whole new contents of the file `target`, atomically.
///
/// # Safety
/// As for [`run`].
pub unsafe fn save(target: &Path, memory: usize, length: u64, options: Options) -> Result<Report> {
    let engine = engine()?;
    let job = Submission::of_save(engine, target, memory, length, options)?.into_job(None, None);
    run_here(engine, job)
}

/// Starts an order and returns at once. `owner` is dropped when the buffers are no longer touched.
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
    let submission = Submission::of_file(engine, file, order)?;
    start(engine, submission.into_job(owner, None), None, stream)
}

/// What the submitter's thread does in its last turn.
pub type LastTurn = Box<dyn Fn() + Send + Sync>;

/// As [`submit`], with one turn of the submitter's at the end, when all bytes are moved or no more
/// will be.
///
/// # Safety
/// As for [`submit`].
pub unsafe fn submit_with_turn(
    file: &Arc<File>,
    order: Order<'_>,
    stream: Option<StreamOrder>,
    owner: Option<Box<dyn Any + Send>>,
    last: LastTurn,
) -> Result<Request> {
    let engine = engine()?;
    let made = Submission::of_file(engine, file, order)?.into_job(owner, Some(last));
    let turner = Some(Arc::clone(&made.0));
    start(engine, made, turner, stream)
}

/// The asynchronous form of [`save`].
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
    start(engine, submission.into_job(owner, None), None, stream)
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
        let replacement = Replacement::begin(save::destination(target)?, options)?;
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

    fn into_job(self, owner: Option<Box<dyn Any + Send>>, last: Option<LastTurn>) -> Made {
        let lanes = self.prepared.lanes();
        let progress = match last {
            Some(_) => Progress::with_turns(lanes),
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
    duty: Box<dyn Duty>,
    tracker: Tracker,
    lanes: usize,
    owner: Option<Box<dyn Any + Send>>,
) -> Made {
    let has_turns = tracker.progress.has_turns();
    let entered = REQUESTS.enter();
    let without_turns = (!has_turns).then(|| WITHOUT_TURNS.enter());
    let job = Job {
        engine,
        duty: RwLock::new(Some(duty)),
        has_turns,
        entered,
        without_turns,
        tracker: Arc::new(tracker),
        to_begin: AtomicUsize::new(lanes),
        owner: Mutex::new(owner),
    };
    (Arc::new(job), lanes)
}

/// A duty as a request.
pub struct DutyOrder {
    pub duty: Box<dyn Duty>,
    /// The file that errors name.
    pub path: PathBuf,
    /// Workers that can find something to do; at least 1.
    pub workers: usize,
    /// A context of the memory, if it is on a GPU.
    pub context: Option<Arc<Context>>,
    pub asked: RouteName,
    pub block: u64,
    /// Whether [`Duty::turn`] is to be called.
    pub has_turns: bool,
    /// What was done before, and why the request goes another way than asked for.
    pub moved: u64,
    pub moved_by: crate::report::Path,
    pub note: Option<String>,
}

impl DutyOrder {
    fn into_job(self, engine: &'static Engine, owner: Option<Box<dyn Any + Send>>) -> Made {
        let lanes = self.workers.clamp(1, MAX_THREADS as usize);
        let progress = match self.has_turns {
            true => Progress::with_turns(lanes),
            false => Progress::new(lanes),
        };
        let mut tracker = Tracker::new(self.path, Instant::now(), progress);
        tracker.asked = self.asked;
        tracker.block = self.block;
        tracker.device = self.context.as_ref().map_or(-1, |c| c.device);
        tracker.context = self.context;
        tracker.counters.moved(self.moved_by, self.moved);
        if let Some(note) = &self.note {
            tracker.counters.note(note);
        }
        make_job(engine, self.duty, tracker, lanes, owner)
    }
}

/// Carries out a duty on the calling thread, which also takes its turns, and as many workers as
/// it takes.
///
/// # Safety
/// The memory that the duty touches stays valid until the call returns.
pub unsafe fn run_duty(order: DutyOrder) -> Result<Report> {
    let engine = engine()?;
    if !order.has_turns {
        return run_here(engine, order.into_job(engine, None));
    }
    // SAFETY: passed on.
    let request = unsafe { submit_duty(order, None, None)? };
    request.finish()?;
    Ok(request.tracker.report())
}

/// Starts a duty and returns at once.
///
/// # Safety
/// The memory that the duty touches stays valid until the request is finished.
pub unsafe fn submit_duty(
    order: DutyOrder,
    stream: Option<StreamOrder>,
    owner: Option<Box<dyn Any + Send>>,
) -> Result<Request> {
    let engine = engine()?;
    let has_turns = order.has_turns;
    let made = order.into_job(engine, owner);
    let turner = has_turns.then(|| Arc::clone(&made.0));
    start(engine, made, turner, stream)
}

/// A job, and how many workers it wants.
type Made = (Arc<Job>, usize);

/// Serves a job with this thread as one of its workers.
fn run_here(engine: &Engine, (job, lanes): Made) -> Result<Report> {
    // Should no thread be had, this one does all the work.
    let _ = engine
        .workers
        .submit(tasks(Arc::clone(&job), lanes - 1), lanes);
    let tracker = Arc::clone(&job.tracker);
    job.serve();
    drop(job);
    match tracker.progress.wait() {
        Waited::Finished(outcome) => outcome?,
        Waited::Turn | Waited::Pending => {
            return Err(Error::new(
                Kind::Internal,
                "a turn was asked for by mistake",
            ));
        }
    }
    Ok(tracker.report())
}

/// As many workers for a job. The last one takes the handle given: it must not be left to whoever
/// submits them, since letting go of a job may close its file.
fn tasks(job: Arc<Job>, count: usize) -> Vec<Task> {
    std::iter::repeat_n(job, count)
        .map(|job| Box::new(move || job.serve()) as Task)
        .collect()
}

/// Carries out here what no thread could be had for.
fn carry_out(submitted: std::result::Result<(), Vec<Task>>) {
    if let Err(tasks) = submitted {
        tasks.into_iter().for_each(|task| task());
    }
}

fn start(
    engine: &'static Engine,
    (job, lanes): Made,
    turner: Option<Arc<Job>>,
    order: Option<StreamOrder>,
) -> Result<Request> {
    let tracker = Arc::clone(&job.tracker);
    let launch = Launch::new(engine, job, lanes);
    let request = Request {
        tracker,
        launch: Arc::clone(&launch),
        turner,
        told: AtomicBool::new(false),
    };
    let Some(order) = order else {
        launch.begin();
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

/// A transfer under way. Dropping it lets the transfer go on, or stops one with turns, which are
/// then taken by nobody: the caller's promise about the buffers holds until it is finished.
pub struct Request {
    tracker: Arc<Tracker>,
    launch: Arc<Launch>,
    /// The job of a request with turns.
    turner: Option<Arc<Job>>,
    /// Whether somebody has asked for the outcome and got it.
    told: AtomicBool,
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(job) = &self.turner {
            job.give_turns_up();
        }
        self.launch.begin_here(None);
    }
}

impl Request {
    /// Starts the request in the order asked for.
    fn put_in_order(&self, order: StreamOrder) -> Result<()> {
        let stream = order.stream;
        let context = self.context(stream)?;
        if order.before {
            // What can fail is tried before the stream may start the transfer.
            stream.can_wait(&context)?;
            self.tracker.signals.flag(|| Flag::new(&context))?;
        }
        if order.after {
            self.launch.after(stream, &context, order.before)?;
        }
        if order.before {
            self.hold(stream, &context)?;
        }
        if !order.after {
            self.launch.begin();
        }
        Ok(())
    }

    /// The outcome, or the submitter's turn; `Pending` when `limit` is over first.
    pub fn wait(&self, limit: Option<Duration>) -> Waited<Error> {
        let news = self.watch(limit);
        if matches!(news, Waited::Finished(_)) {
            self.tell();
        }
        news
    }

    /// As [`wait`](Self::wait), for somebody who tells nobody of the outcome.
    pub fn watch(&self, limit: Option<Duration>) -> Waited<Error> {
        if let Err(forked) = refuse_fork() {
            return Waited::Finished(Err(forked));
        }
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        self.launch.begin_here(end);
        loop {
            // Where no thread looks at streams that may fail, those who wait do.
            let watch = watch::attend();
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

    /// Waits for the end, and takes all turns meanwhile.
    pub fn finish(&self) -> Result<()> {
        loop {
            match self.wait(None) {
                Waited::Finished(outcome) => return outcome,
                Waited::Turn => self.turn(),
                Waited::Pending => {}
            }
        }
    }

    /// What [`wait`](Self::wait) would say now.
    pub fn test(&self) -> Waited<Error> {
        self.wait(Some(Duration::ZERO))
    }

    /// As [`watch`](Self::watch) now, without beginning anything on this thread.
    pub fn peek(&self) -> Waited<Error> {
        self.tracker.progress.now()
    }

    /// The outcome is known to whoever has to know it.
    pub fn tell(&self) {
        self.told.store(true, Relaxed);
    }

    pub fn is_told(&self) -> bool {
        self.told.load(Relaxed)
    }

    /// Takes the submitter's turn, if there is one to take.
    pub fn turn(&self) {
        let Some(job) = &self.turner else { return };
        let engine = job.engine;
        job.turn(|count| {
            let made = engine.workers.submit(tasks(Arc::clone(job), count), count);
            carry_out(made);
        });
    }

    /// Asks the request to stop at the next block of each worker.
    /// One that still waits for a stream is finished at once.
    pub fn cancel(&self) {
        let cancelled =
            Error::new(Kind::Cancelled, "the request was cancelled").in_file(&self.tracker.path);
        self.tracker.progress.cancel(cancelled.clone());
        if matches!(self.tracker.progress.now(), Waited::Turn) {
            self.tracker.signals.tell();
        }
        self.launch.abandon(cancelled);
    }

    /// Bytes moved so far.
    pub fn moved(&self) -> u64 {
        self.tracker.counters.total()
    }

    /// Makes the report count the time from an earlier moment on, such as the begin of the call that
    /// found out what to submit.
    pub fn count_from(&self, began: Instant) {
        self.tracker.count_from(began);
    }

    /// What the request did, once it is finished.
    pub fn report(&self) -> Option<Report> {
        match self.tracker.progress.now() {
            Waited::Finished(_) => Some(self.tracker.report()),
            _ => None,
        }
    }

    /// A descriptor that is readable once the request is finished, and while the submitter is asked for
    /// its turn; it lives as long as this.
    pub fn descriptor(&self) -> Result<RawFd> {
        self.launch.begin_here(None);
        let descriptor = self.tracker.signals.descriptor()?;
        // Who asked for the turn before found no descriptor to tell.
        if matches!(self.peek(), Waited::Turn) {
            self.tracker.signals.tell();
        }
        Ok(descriptor)
    }

    /// Makes work queued on the stream from now on wait for the end of this request.
    pub fn hold_stream(&self, stream: Stream) -> Result<()> {
        self.launch.begin_here(None);
        self.hold(stream, &self.context(stream)?)
    }

    fn hold(&self, stream: Stream, context: &Arc<Context>) -> Result<()> {
        match self.tracker.signals.flag(|| Flag::new(context))? {
            Some(flag) => stream.wait_for(context, flag),
            None => Ok(()),
        }
    }

    /// The context of the request's GPU memory; of the stream for host memory.
    fn context(&self, stream: Stream) -> Result<Arc<Context>> {
        match &self.tracker.context {
            Some(context) => Ok(Arc::clone(context)),
            None => stream.context(),
        }
    }
}
