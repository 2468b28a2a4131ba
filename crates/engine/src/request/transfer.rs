//! The task of a plain transfer: it moves the blocks of a plan between a file and memory.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::LastStep;
use super::bypass::Bypass;
use super::grow;
use super::task::{Remaining, Share, Task};
use crate::error::{Error, Result};
use crate::file::File;
use crate::file::mapping::{Coverage, Mappings};
use crate::file::position::Operation;
use crate::file::side::{Direct, FileSide};
use crate::memory::Memory;
use crate::options::RouteName;
use crate::plan::{Block, Extent, Plan};
use crate::routes::{Route, STAGED, Work};
use crate::save::Replacement;
use crate::sharing::Mark;
use crate::sync::{Mutex, Recover};
use crate::trace;

/// The extents of a request that lie in one memory, and the route between them and the file.
pub(crate) struct Part {
    pub plan: Plan,
    pub memory: Memory,
    pub route: Arc<dyn Route>,
    pub direct: Direct,
    pub queue_depth: u32,
    pub slots: u32,
    /// What the mappings of a write of new data cover.
    pub coverage: Option<Coverage>,
    /// The mappings. The first worker creates them.
    pub mappings: OnceLock<Mappings>,
    /// The index of the next block that no worker has taken.
    pub next: AtomicUsize,
    /// The mark of the GPU that a large read renews.
    pub reading: Option<Arc<Mark>>,
    /// Counts what has arrived of a part whose plan is in the order of the file.
    pub arrivals: Option<Arrivals>,
}

/// How far blocks have been taken and have arrived, in the order of the file.
#[derive(Default)]
pub(crate) struct Arrivals {
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    /// The position of the next byte that no worker has taken.
    next: u64,
    /// The positions of the blocks that may not have arrived yet.
    in_flight: BTreeSet<u64>,
}

impl Taken {
    /// Returns the position of the next block, which has these bytes.
    fn take(&mut self, bytes: u64) -> u64 {
        let position = self.next;
        self.next += bytes;
        self.in_flight.insert(position);
        position
    }
}

impl Arrivals {
    /// Notes that the blocks at these positions have arrived. Returns the position before which
    /// all bytes have.
    fn arrived(&self, blocks: impl IntoIterator<Item = u64>) -> u64 {
        let mut taken = self.taken.lock().recover();
        for position in blocks {
            taken.in_flight.remove(&position);
        }
        taken.in_flight.first().copied().unwrap_or(taken.next)
    }
}

/// The blocks of a worker that may be in flight. A staged lane reuses its slots in turn.
struct InFlight<'a> {
    arrivals: &'a Arrivals,
    share: &'a Share<'a>,
    /// Whether no other part has bytes of the request.
    is_only: bool,
    slots: usize,
    blocks: VecDeque<u64>,
}

impl InFlight<'_> {
    /// Notes a block that the lane has carried, and so that the one before it in its slot has arrived.
    fn carried(&mut self, position: u64) {
        self.blocks.push_back(position);
        if self.blocks.len() > self.slots {
            let first = self.blocks.pop_front();
            self.arrived(first);
        }
    }

    /// Notes that the lane is empty.
    fn drained(&mut self) {
        let all = std::mem::take(&mut self.blocks);
        self.arrived(all);
    }

    fn arrived(&self, blocks: impl IntoIterator<Item = u64>) {
        let arrived = self.arrivals.arrived(blocks);
        if self.is_only {
            self.share.arrived(arrived);
        }
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
        /// Set when its blocks are allocated, before the first of them is written.
        allocated: OnceLock<()>,
        durable: bool,
    },
}

pub(super) struct Transfer {
    pub operation: Operation,
    pub parts: Vec<Part>,
    pub ending: Ending,
    /// Whether the file has room for a direct write, determined before its first block.
    pub room: OnceLock<Result<()>>,
    pub bypass: Bypass,
    /// The submitter's last step. If there is one, the ending belongs to that step as well.
    pub last: Option<LastStep>,
    /// Dropped last, after its marks.
    pub file: Arc<File>,
}

impl Part {
    /// Also returns the position of the block, if the part counts what has arrived.
    fn take(&self) -> Option<(&Block, Option<u64>)> {
        // The check keeps late workers from raising the count without end.
        if self.next.load(Relaxed) >= self.plan.blocks.len() {
            return None;
        }
        let mut taken = self
            .arrivals
            .as_ref()
            .map(|arrivals| arrivals.taken.lock().recover());
        let block = self.plan.blocks.get(self.next.fetch_add(1, Relaxed))?;
        Some((block, taken.as_mut().map(|taken| taken.take(block.bytes))))
    }

    fn mappings(&self, file: &File, coverage: Coverage) -> &Mappings {
        self.mappings.get_or_init(|| {
            let ranges = grow::joined(&grow::beyond(self.plan.extents(), 0));
            Mappings::of(file, &ranges, coverage)
        })
    }

    /// The last byte of the file that this part writes, if it has mappings.
    fn last_mapped(&self) -> Option<u64> {
        self.mappings
            .get()
            .filter(|mappings| !mappings.is_empty())?;
        self.plan.extents().map(|extent| extent.end() - 1).max()
    }

    fn has_more(&self) -> bool {
        self.next.load(Relaxed) < self.plan.blocks.len()
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
    fn route<'a>(&self, part: &'a Part) -> &'a dyn Route {
        if self.bypass.is_off() && part.route.name() == RouteName::Gds {
            &STAGED
        } else {
            &*part.route
        }
    }

    fn work<'a>(&'a self, part: &'a Part, share: &'a Share<'_>) -> Work<'a> {
        Work {
            side: FileSide {
                direct: if self.bypass.is_off() {
                    Direct::Never
                } else {
                    part.direct
                },
                gate: part.route.gate(),
                ..FileSide::new(&self.file, self.operation, share.counters())
            },
            plan: &part.plan,
            memory: &part.memory,
            queue_depth: part.queue_depth,
            slots: part.slots,
            ring: share.ring(),
            mappings: part
                .coverage
                .map(|coverage| part.mappings(&self.file, coverage)),
        }
    }

    fn in_flight<'a>(
        &self,
        part: &Part,
        arrivals: &'a Arrivals,
        share: &'a Share<'a>,
    ) -> InFlight<'a> {
        InFlight {
            arrivals,
            share,
            is_only: self.parts.len() == 1,
            slots: part.slots.max(1) as usize,
            blocks: VecDeque::new(),
        }
    }

    /// Marks the file for a write that bypasses the page cache, and allocates blocks for a direct one. The
    /// first worker does so. All workers wait until no other request maps rows, or this share is over.
    fn make_room(&self, share: &Share<'_>) -> Result<()> {
        let directly = |part: &&Part| !matches!(part.direct, Direct::Never);
        let bypasses = |part: &Part| directly(&part) || part.route.name() == RouteName::Gds;
        if self.operation == Operation::Read || !self.parts.iter().any(bypasses) {
            return Ok(());
        }
        let must = self.parts.iter().any(|part| part.direct == Direct::Always);
        let bypasses = self.bypass.wait(&self.file, share, must)?;
        if !bypasses || !self.parts.iter().any(|part| directly(&part)) {
            return Ok(());
        }
        let plans = || self.parts.iter().filter(directly).map(|part| &part.plan);
        self.room
            .get_or_init(|| grow::grow(&self.file, plans()))
            .clone()
    }

    /// Allocates the blocks of a file that is to replace another one. ext4 begins to write out such a file when
    /// it is put in place, unless all of its blocks are allocated: 16 MiB take five times as long. The write
    /// reports what is wrong.
    fn allocate_new(&self) {
        if let Ending::Publish { allocated, .. } = &self.ending {
            let extents = self.parts.iter().flat_map(|part| part.plan.extents());
            let end = extents.map(Extent::end).max().unwrap_or(0);
            if end > 0 {
                allocated.get_or_init(|| drop(self.file.allocate(0, end, false)));
            }
        }
    }

    fn write_unaligned(&self, share: &Share<'_>) -> Result<()> {
        self.parts
            .iter()
            .try_for_each(|part| super::unaligned::write(&self.work(part, share)))
    }

    fn ending(&self) -> Result<()> {
        if let Some(offset) = self.parts.iter().find_map(Part::last_mapped) {
            self.file.note_change(offset);
        }
        match &self.ending {
            Ending::Nothing => Ok(()),
            Ending::Sync => self.file.sync(),
            Ending::Publish {
                replacement,
                durable,
                ..
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
        if share.is_over() {
            return Ok(());
        }
        self.allocate_new();
        self.make_room(share)?;
        for part in &self.parts {
            if share.is_over() || !part.has_more() {
                continue;
            }
            share.joined();
            let mut in_flight = part
                .arrivals
                .as_ref()
                .map(|arrivals| self.in_flight(part, arrivals, share));
            let mut lane = self.route(part).lane(self.work(part, share))?;
            while !share.is_over() {
                let Some((block, position)) = part.take() else {
                    break;
                };
                let span = part.span(self.operation, part.plan.stretch(block));
                lane.carry(block).map_err(|e| self.placed(e, part, block))?;
                drop(span);
                if let Some(mark) = &part.reading {
                    mark.renew();
                }
                if let Some((in_flight, position)) = in_flight.as_mut().zip(position) {
                    in_flight.carried(position);
                }
            }
            lane.drain().map_err(|e| e.in_file(self.file.path()))?;
            if let Some(in_flight) = &mut in_flight {
                in_flight.drained();
            }
        }
        Ok(())
    }

    fn end(&self, share: &Share<'_>) -> Result<()> {
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
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bytes_behind_a_block_in_flight_have_not_arrived() {
        let arrivals = Arrivals::default();
        for _ in 0..4 {
            arrivals.taken.lock().recover().take(512);
        }
        assert_eq!(arrivals.arrived([2 * 512]), 0);
        assert_eq!(arrivals.arrived([0]), 512);
        assert_eq!(arrivals.arrived([512]), 3 * 512);
        assert_eq!(arrivals.arrived([3 * 512]), 4 * 512);
    }
}
