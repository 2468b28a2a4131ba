//! A submitted plan: what the workers of one request share, and what each of them does.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

use super::grow::{self, Grown};
use super::tracker::Tracker;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::file::File;
use crate::file::position::Operation;
use crate::memory::Memory;
use crate::plan::{Block, Plan};
use crate::routes::{Direct, Route, Work};
use crate::save;
use crate::trace;

/// The extents of a request that lie in one place, and how they travel.
pub(crate) struct Part {
    pub plan: Plan,
    pub memory: Memory,
    pub route: Arc<dyn Route>,
    pub direct: Direct,
    /// The next block that no worker has taken.
    pub next: AtomicUsize,
}

/// What the last worker does when all bytes are moved.
pub(crate) enum Ending {
    Nothing,
    /// Data and size go to the medium.
    Sync,
    /// The finished temporary file takes the place of `target`.
    Publish {
        target: PathBuf,
        durable: bool,
    },
}

pub(crate) struct Job {
    pub engine: &'static Engine,
    pub file: Arc<File>,
    pub operation: Operation,
    pub parts: Vec<Part>,
    pub queue_depth: u32,
    pub ending: Ending,
    pub tracker: Arc<Tracker>,
    /// How the file grew before the first block of a direct write.
    pub grown: OnceLock<Result<Option<Grown>>>,
    /// Workers that have not begun and are still wanted.
    pub to_begin: AtomicUsize,
    /// What must stay alive until no worker touches the buffers: the submitter's keepalive.
    pub owner: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Part {
    fn take(&self) -> Option<&Block> {
        // Checked first, so that workers that come late do not push the count on without end.
        if self.next.load(Relaxed) >= self.plan.blocks.len() {
            return None;
        }
        self.plan.blocks.get(self.next.fetch_add(1, Relaxed))
    }

    fn has_more(&self) -> bool {
        self.next.load(Relaxed) < self.plan.blocks.len()
    }
}

impl Job {
    fn work<'a>(&'a self, part: &'a Part) -> Work<'a> {
        Work {
            file: &self.file,
            operation: self.operation,
            plan: &part.plan,
            memory: &part.memory,
            direct: part.direct,
            queue_depth: self.queue_depth,
            counters: &self.tracker.counters,
            gate: part.route.gate(),
            ring: &self.engine.ring,
        }
    }

    /// One worker's share: blocks until none is left, an error, or a cancellation. The last
    /// worker to come out concludes the request. It does not wait for workers that have not
    /// begun, which may be long in the service of other requests: they find nothing left to do.
    pub fn serve(self: &Arc<Self>) {
        let begins = |n: usize| n.checked_sub(1);
        if self
            .to_begin
            .fetch_update(Relaxed, Relaxed, begins)
            .is_err()
        {
            return;
        }
        let run = catch_unwind(AssertUnwindSafe(|| self.serve_parts()));
        match run {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.tracker.progress.fail(self.named(error)),
            Err(panic) => self.tracker.progress.fail(Error::panicked(&*panic)),
        }
        let needless = self.to_begin.swap(0, Relaxed);
        for _ in 0..=needless {
            if self.tracker.progress.leave() {
                self.conclude();
            }
        }
    }

    fn serve_parts(&self) -> Result<()> {
        self.make_room()?;
        let mut joined = false;
        for part in &self.parts {
            if self.tracker.progress.stopping() || !part.has_more() {
                continue;
            }
            if !joined {
                self.tracker.counters.joined();
                joined = true;
            }
            let mut lane = part.route.lane(self.work(part))?;
            while !self.tracker.progress.stopping() {
                let Some(block) = part.take() else { break };
                let span = trace::span(|| {
                    let (offset, length) = part.plan.stretch(block);
                    trace::Block {
                        operation: self.operation,
                        route: part.route.name(),
                        offset,
                        length,
                    }
                });
                lane.carry(block).map_err(|e| self.placed(e, part, block))?;
                drop(span);
            }
            lane.drain().map_err(|e| e.in_file(self.file.path()))?;
        }
        Ok(())
    }

    /// Done by the first worker; the others wait for it.
    fn make_room(&self) -> Result<()> {
        let directly = |part: &&Part| !matches!(part.direct, Direct::Never);
        if self.operation == Operation::Read || !self.parts.iter().any(|p| directly(&p)) {
            return Ok(());
        }
        let plans = || self.parts.iter().filter(directly).map(|part| &part.plan);
        match self.grown.get_or_init(|| grow::grow(&self.file, plans())) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.clone()),
        }
    }

    fn placed(&self, error: Error, part: &Part, block: &Block) -> Error {
        let (offset, length) = part.plan.stretch(block);
        error.at(self.file.path(), offset, length)
    }

    /// An error that names the file which the caller knows.
    fn named(&self, error: Error) -> Error {
        match &self.ending {
            Ending::Publish { target, .. } => error.of_file(target),
            _ => error.in_file(self.file.path()),
        }
    }

    fn conclude(&self) {
        let stopped = self.tracker.progress.seal();
        let ending = catch_unwind(AssertUnwindSafe(|| match &stopped {
            None => self.end_well(),
            Some(_) => {
                self.clean_up();
                Ok(())
            }
        }));
        match ending {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                self.clean_up();
                self.tracker.progress.fail(self.named(error));
            }
            Err(panic) => {
                self.clean_up();
                self.tracker.progress.fail(Error::panicked(&*panic));
            }
        }
        let owner = self.owner.lock().unwrap_or_else(|e| e.into_inner()).take();
        // The submitter's own code; whatever it does, the request must finish.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(owner)));
        let tracker = &self.tracker;
        trace::request(self.operation, tracker.submitted, tracker.counters.total());
        tracker.finish();
        self.file.users.leave();
        self.engine.requests.leave();
    }

    fn end_well(&self) -> Result<()> {
        for part in &self.parts {
            super::edges::write(&self.work(part))?;
        }
        match &self.ending {
            Ending::Nothing => Ok(()),
            Ending::Sync => self.file.sync(),
            Ending::Publish { target, durable } => save::publish(&self.file, target, *durable),
        }
    }

    fn clean_up(&self) {
        if let Some(Ok(Some(grown))) = self.grown.get() {
            grow::shrink(&self.file, *grown);
        }
        if let Ending::Publish { .. } = self.ending {
            save::discard(&self.file);
        }
    }
}
