//! The task of a plain transfer: it moves the blocks of a plan between a file and memory.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::LastStep;
use super::grow;
use super::task::{Remaining, Share, Task};
use crate::error::{Error, Result};
use crate::file::File;
use crate::file::mapping::Mappings;
use crate::file::position::Operation;
use crate::file::side::{Direct, FileSide};
use crate::in_flight::Round;
use crate::memory::Memory;
use crate::plan::{Block, Extent, Plan};
use crate::routes::{Route, Work};
use crate::save::Replacement;
use crate::staging::{Gate, Setting};
use crate::trace;

/// The extents of a request that lie in one memory, and the route between them and the file.
pub(crate) struct Part {
    pub plan: Plan,
    pub memory: Memory,
    pub route: Arc<dyn Route>,
    pub direct: Direct,
    pub queue_depth: u32,
    pub slots: u32,
    /// Whether new data are written through mappings of the file.
    pub uses_mappings: bool,
    /// The mappings. The first worker creates them.
    pub mappings: OnceLock<Mappings>,
    /// The index of the next block that no worker has taken.
    pub next: AtomicUsize,
    /// Set if workers, not the plan, cut the part into blocks.
    pub run: Option<Run>,
}

/// A range that is contiguous in file and memory. Workers cut it while they read it, in
/// the sizes that the GPU's staging gate sets.
pub(crate) struct Run {
    gate: Arc<Gate>,
    range: Extent,
    /// The offset of the next byte that no worker has taken.
    next: AtomicU64,
}

impl Run {
    pub(crate) fn new(gate: Arc<Gate>, range: Extent) -> Run {
        Run {
            gate,
            range,
            next: AtomicU64::new(range.offset),
        }
    }

    fn has_more(&self) -> bool {
        self.next.load(Relaxed) < self.range.end()
    }

    /// Takes at most `bytes`, up to a multiple of 64 KiB in the file.
    fn take(&self, bytes: u64) -> Option<Extent> {
        const ALIGN: u64 = 64 << 10;
        let end_of = |start: u64| {
            let end = (start + bytes) / ALIGN * ALIGN;
            let end = if end > start { end } else { start + bytes };
            end.min(self.range.end())
        };
        let next = |start| (start < self.range.end()).then(|| end_of(start));
        let offset = self.next.fetch_update(Relaxed, Relaxed, next).ok()?;
        Some(Extent {
            offset,
            length: end_of(offset) - offset,
            memory: self.range.memory + (offset - self.range.offset) as usize,
        })
    }
}

/// What remains to be done when all bytes have moved.
pub(crate) enum Ending {
    Nothing,
    /// Data and size are brought to the medium.
    Sync,
    /// The new file takes the place of the old one.
    Publish {
        replacement: Replacement,
        durable: bool,
    },
}

pub(super) struct Transfer {
    pub file: Arc<File>,
    /// The round in which the request entered [`File::users`].
    pub entered: Round,
    pub operation: Operation,
    pub parts: Vec<Part>,
    pub ending: Ending,
    /// Whether the file has room for a direct write, determined before its first block.
    pub room: OnceLock<Result<()>>,
    /// The submitter's last step. If there is one, the ending belongs to that step as well.
    pub last: Option<LastStep>,
}

impl Part {
    fn take(&self) -> Option<&Block> {
        // The check keeps late workers from raising the count without end.
        if self.next.load(Relaxed) >= self.plan.blocks.len() {
            return None;
        }
        self.plan.blocks.get(self.next.fetch_add(1, Relaxed))
    }

    fn mappings(&self, file: &File) -> &Mappings {
        self.mappings.get_or_init(|| {
            Mappings::of(file, &grow::joined(&grow::beyond(self.plan.extents(), 0)))
        })
    }

    fn has_more(&self) -> bool {
        match &self.run {
            Some(run) => run.has_more(),
            None => self.next.load(Relaxed) < self.plan.blocks.len(),
        }
    }

    fn span(&self, operation: Operation, (offset, length): (u64, u64)) -> Option<trace::TraceSpan> {
        trace::span(|| trace::TracedBlock {
            operation,
            route: self.route.name(),
            offset,
            length,
        })
    }
}

impl Transfer {
    fn work<'a>(&'a self, part: &'a Part, share: &'a Share<'_>) -> Work<'a> {
        Work {
            side: FileSide {
                direct: part.direct,
                gate: part.route.gate(),
                ..FileSide::new(&self.file, self.operation, share.counters())
            },
            plan: &part.plan,
            memory: &part.memory,
            queue_depth: part.queue_depth,
            slots: part.slots,
            ring: share.ring(),
            mappings: part.uses_mappings.then(|| part.mappings(&self.file)),
        }
    }

    /// Allocates blocks for a direct write. The first worker does so, and the other workers wait
    /// for it.
    fn make_room(&self) -> Result<()> {
        let directly = |part: &&Part| !matches!(part.direct, Direct::Never);
        if self.operation == Operation::Read || !self.parts.iter().any(|p| directly(&p)) {
            return Ok(());
        }
        let plans = || self.parts.iter().filter(directly).map(|part| &part.plan);
        self.room
            .get_or_init(|| grow::grow(&self.file, plans()))
            .clone()
    }

    /// One worker's share of a run.
    fn serve_run(&self, part: &Part, run: &Run, share: &Share<'_>) -> Result<()> {
        let path = self.file.path();
        let request = std::ptr::from_ref(self).addr();
        while let Some(mut pass) = run
            .gate
            .enter(request, || !share.stopping() && run.has_more())
        {
            share.joined();
            // Dropped before the pass, so that no slot is in use outside.
            let mut lane = part.route.lane(self.work(part, share))?;
            while !share.stopping() {
                let fill = pass.fill().min(part.plan.slot_bytes);
                let Some(range) = run.take(fill) else { break };
                let span = part.span(self.operation, (range.offset, range.length));
                lane.carry_range(&range)
                    .map_err(|e| e.at(path, range.offset, range.length))?;
                drop(span);
                if !pass.goes_on(range.length, share.ring().made()) {
                    break;
                }
            }
            lane.drain().map_err(|e| e.in_file(path))?;
        }
        Ok(())
    }

    fn write_unaligned(&self, share: &Share<'_>) -> Result<()> {
        self.parts
            .iter()
            .try_for_each(|part| super::unaligned::write(&self.work(part, share)))
    }

    fn ending(&self) -> Result<()> {
        let mappings = self.parts.iter().filter_map(|part| part.mappings.get());
        if let Some(offset) = mappings.filter_map(Mappings::last).next() {
            self.file.note_change(offset);
        }
        match &self.ending {
            Ending::Nothing => Ok(()),
            Ending::Sync => self.file.sync(),
            Ending::Publish {
                replacement,
                durable,
            } => replacement.publish(*durable),
        }
    }

    fn placed(&self, error: Error, part: &Part, block: &Block) -> Error {
        let (offset, length) = part.plan.stretch(block);
        error.at(self.file.path(), offset, length)
    }
}

impl Task for Transfer {
    fn serve(&self, share: &Share<'_>) -> Result<()> {
        if share.stopping() {
            return Ok(());
        }
        self.make_room()?;
        for part in &self.parts {
            if share.stopping() || !part.has_more() {
                continue;
            }
            if let Some(run) = &part.run {
                self.serve_run(part, run, share)?;
                continue;
            }
            share.joined();
            let mut lane = part.route.lane(self.work(part, share))?;
            while !share.stopping() {
                let Some(block) = part.take() else { break };
                let span = part.span(self.operation, part.plan.stretch(block));
                lane.carry(block).map_err(|e| self.placed(e, part, block))?;
                drop(span);
            }
            lane.drain().map_err(|e| e.in_file(self.file.path()))?;
        }
        Ok(())
    }

    fn end(&self, share: &Share<'_>) -> Result<()> {
        for (part, run) in self.parts.iter().filter_map(|p| Some((p, p.run.as_ref()?))) {
            let Setting { workers, fill } = run.gate.setting();
            let block = fill.min(part.plan.slot_bytes);
            share.counters().chosen(block, workers as u32);
        }
        match self.last {
            Some(_) => Ok(()),
            None => self.write_unaligned(share).and_then(|()| self.ending()),
        }
    }

    /// No worker makes a step due, so this runs when all of them have left.
    fn step(&self, share: &Share<'_>) -> Result<Remaining> {
        self.write_unaligned(share)?;
        self.ending()?;
        Ok(Remaining::Nothing)
    }

    fn end_steps(&self) {
        if let Some(last) = &self.last {
            last();
        }
    }

    fn clean_up(&self) {
        if let Ending::Publish { replacement, .. } = &self.ending {
            replacement.discard();
        }
    }

    fn named(&self, error: Error) -> Error {
        error.in_file(self.file.path())
    }

    fn operation(&self) -> Operation {
        self.operation
    }

    fn finished(self: Box<Self>) {
        let users = Arc::clone(&self.file.users);
        let entered = self.entered;
        drop(self);
        users.leave(entered);
    }
}
