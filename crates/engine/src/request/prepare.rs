//! From an order to parts ready for workers: checks, kinds of memory, route, block, plan.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use super::Order;
use super::job::Part;
use crate::engine::Engine;
use crate::error::{Error, Kind, Result};
use crate::file::File;
use crate::file::position::Operation;
use crate::file::residency::residency;
use crate::memory::Memory;
use crate::options::{Choice, IoMode, Options, RouteName};
use crate::plan::{self, Cut, Extent};
use crate::report::{Counters, Path, Report};
use crate::routes::fault::{Faults, Faulty};
use crate::routes::{
    Direct, Gds, Host, HostUring, Mapped, Resident, Route, Staged, StagedUring, gds,
};

pub(super) struct Prepared {
    pub parts: Vec<Part>,
    pub asked: RouteName,
    pub block: u64,
    pub queue_depth: u32,
    pub durable: bool,
    threads: usize,
}

impl Prepared {
    /// How many workers can find something to do.
    pub fn lanes(&self) -> usize {
        let blocks: usize = self.parts.iter().map(|p| p.plan.blocks.len()).sum();
        self.threads.min(blocks).max(1)
    }
}

/// One range between a file and pageable memory that is not worth more than one system call.
const SMALL: u64 = 512 << 10;

/// Serves a small order on host memory at once, without a job. `None` if it is not one.
pub(super) fn small(engine: &Engine, file: &File, order: &Order<'_>) -> Option<Result<Report>> {
    let [extent] = order.extents else { return None };
    if extent.length > SMALL || extent.end_checked().is_none() || order.faults.is_some() {
        return None;
    }
    let options = merged(engine, file, order.options);
    if options.direct == Some(Choice::Yes)
        || options.io == Some(IoMode::Uring)
        || options.durable == Some(true)
        || options.check().is_err()
    {
        return None;
    }
    match Memory::at(extent.memory) {
        Ok(memory) if memory.context.is_none() => {}
        _ => return None,
    }
    let submitted = Instant::now();
    let result = check_access(file, order.operation)
        .and_then(|()| move_small(file, order.operation, extent));
    Some(result.map(|counters| {
        let elapsed = submitted.elapsed().as_nanos() as u64;
        counters.report(RouteName::Host, -1, extent.length, elapsed.max(1))
    }))
}

fn move_small(file: &File, operation: Operation, extent: &Extent) -> Result<Counters> {
    use crate::file::position::{Stop, transfer};
    let counters = Counters::default();
    let memory = extent.memory as *mut u8;
    // SAFETY: the caller of `run` vouches for the extent.
    let (moved, stop) = unsafe {
        transfer(
            None,
            file.buffered_fd(),
            operation,
            memory,
            extent.length,
            extent.offset,
        )
    };
    counters.joined();
    counters.io_call();
    counters.moved(Path::HostBuffered, moved);
    let at = |error: Error| error.at(file.path(), extent.offset, extent.length);
    match stop {
        None => Ok(counters),
        Some(Stop::End) => Err(at(Error::end_of_file(
            extent.offset + extent.length,
            file.size()?,
        ))),
        Some(Stop::Failed(e)) => Err(at(Error::os(
            &e,
            match operation {
                Operation::Read => "cannot read",
                Operation::Write => "cannot write",
            },
        ))),
    }
}

fn merged(engine: &Engine, file: &File, call: Options) -> Options {
    call.or(file.options()).or(engine.outer_options())
}

fn check_access(file: &File, operation: Operation) -> Result<()> {
    match operation {
        Operation::Read => file.must_be_readable(),
        Operation::Write => file.must_be_writable(),
    }
}

pub(super) fn prepare(engine: &Engine, file: &File, order: Order<'_>) -> Result<Prepared> {
    let options = merged(engine, file, order.options);
    options.check()?;
    check_access(file, order.operation)?;
    check_ranges(file, order.operation, order.extents)?;

    let asked = options.route.unwrap_or(RouteName::Auto);
    let mut prepared = Prepared {
        parts: Vec::new(),
        asked,
        block: 0,
        queue_depth: options.queue_depth.unwrap_or(DEFAULT_QUEUE_DEPTH),
        durable: options.durable.unwrap_or(false),
        threads: 1,
    };
    let faults = order.faults.map(Faults::new).map(Arc::new);
    for (memory, extents) in by_place(order.extents)? {
        let choice = Chooser {
            engine,
            file,
            operation: order.operation,
            memory: &memory,
            options: &options,
            load: Load::of(&extents),
        }
        .choose(&extents)?;
        prepared.threads = prepared.threads.max(choice.threads);
        prepared.block = prepared.block.max(choice.cut.block);
        let route = match &faults {
            None => choice.route,
            Some(faults) => Arc::new(Faulty {
                inner: choice.route,
                faults: Arc::clone(faults),
            }),
        };
        let plan = plan::build(extents, choice.cut)?;
        prepared.parts.push(Part {
            plan,
            memory,
            route,
            direct: choice.direct,
            next: AtomicUsize::new(0),
        });
    }
    Ok(prepared)
}

const DEFAULT_QUEUE_DEPTH: u32 = 16;

/// A read must lie within the file as it is now. (It may still shrink while it is read; that
/// shows as an error, too.)
fn check_ranges(file: &File, operation: Operation, extents: &[Extent]) -> Result<()> {
    let some = || extents.iter().filter(|e| e.length > 0);
    if some().any(|e| e.memory == 0) {
        return Err(Error::invalid("the buffer is a null pointer"));
    }
    if operation == Operation::Write || some().next().is_none() {
        return Ok(());
    }
    let size = file.size()?;
    match some().find(|e| e.end_checked().is_some_and(|end| end > size)) {
        Some(past) => {
            Err(Error::end_of_file(past.end(), size).at(file.path(), past.offset, past.length))
        }
        None => Ok(()),
    }
}

/// Sorts extents by where their memory is. Neighbours mostly lie in one allocation, about which
/// the driver is asked once.
fn by_place(extents: &[Extent]) -> Result<Vec<(Memory, Vec<Extent>)>> {
    let mut places: Vec<(Memory, Vec<Extent>)> = Vec::new();
    let mut known: Option<(std::ops::Range<usize>, usize)> = None;
    for extent in extents.iter().filter(|e| e.length > 0) {
        if let Some((range, index)) = &known
            && range.contains(&extent.memory)
            && extent.memory + extent.length as usize <= range.end
        {
            places[*index].1.push(*extent);
            continue;
        }
        let memory = Memory::at(extent.memory)?;
        let index = match places.iter().position(|(m, _)| m.same_place(&memory)) {
            Some(index) => index,
            None => {
                places.push((memory.clone(), Vec::with_capacity(extents.len())));
                places.len() - 1
            }
        };
        places[index].1.push(*extent);
        known = memory.range.clone().map(|range| (range, index));
    }
    Ok(places)
}

/// How much there is to move, in how large ranges.
#[derive(Clone, Copy)]
struct Load {
    bytes: u64,
    /// Bytes of an average range.
    average: u64,
}

impl Load {
    fn of(extents: &[Extent]) -> Load {
        let bytes = extents.iter().map(|e| e.length).sum();
        Load {
            bytes,
            average: bytes / extents.len().max(1) as u64,
        }
    }
    /// Many small ranges, for which the number of calls counts more than their bytes.
    fn is_scattered(&self) -> bool {
        self.average < 1 << 20 && self.bytes > self.average
    }
}

struct Chosen {
    route: Arc<dyn Route>,
    cut: Cut,
    direct: Direct,
    threads: usize,
}

struct Chooser<'a> {
    engine: &'a Engine,
    file: &'a File,
    operation: Operation,
    memory: &'a Memory,
    options: &'a Options,
    load: Load,
}

/// Reads that are not cached go past the cache from this size on.
const DIRECT_READ_GPU: u64 = 4 << 20;
/// For host memory later: a program that reads a file into host memory often reads it again, and
/// then finds it cached.
const DIRECT_READ_HOST: u64 = 1 << 30;
/// Writes go past the cache from this size on: it costs an allocation up front, and nothing is
/// left in the cache.
const DIRECT_WRITE: u64 = 64 << 20;

/// From this many workers on, their copies out of the page cache keep up with the link.
const ENOUGH_COPIERS: usize = 4;
const MAX_AUTO_THREADS: usize = 8;

const STAGED_BLOCK: u64 = 4 << 20;
const MAPPED_BLOCK: u64 = 64 << 20;
const GDS_BLOCK: u64 = 16 << 20;

impl Chooser<'_> {
    fn choose(&self, extents: &[Extent]) -> Result<Chosen> {
        let cached = self.cached_share(extents);
        let direct = self.direct(cached)?;
        let threads = self.threads(cached);
        let route = self.route(cached, threads)?;
        let block = self.block(route.name(), threads)?;
        let align = if direct == Direct::Never {
            1
        } else {
            self.file.direct_alignment()
        };
        let gap = match (self.operation, route.name()) {
            (Operation::Write, _) | (_, RouteName::Host) => 0,
            (_, RouteName::Mapped | RouteName::Auto) => 1 << 20,
            (_, RouteName::Gds) => 0,
            _ if direct == Direct::Never => 4 << 10,
            _ => 16 << 10,
        };
        let edges = self.operation == Operation::Write
            && direct != Direct::Never
            && route.name() != RouteName::Gds;
        if edges {
            self.allocate(extents)?;
        }
        Ok(Chosen {
            route,
            cut: Cut {
                block,
                gap,
                align,
                edges,
                write: self.operation == Operation::Write,
            },
            direct,
            threads,
        })
    }

    /// Which share of the ranges is in the page cache, by a few samples.
    fn cached_share(&self, extents: &[Extent]) -> f64 {
        const SAMPLES: u64 = 16;
        const WINDOW: u64 = 64 << 10;
        if self.operation == Operation::Write || self.load.bytes < SMALL {
            return 1.0;
        }
        let fd = self.file.buffered_fd();
        let share_of = |offset: u64, length: u64| residency(fd, offset, length).unwrap_or(1.0);
        let sum: f64 = match extents {
            [one] => (0..SAMPLES)
                .map(|i| {
                    let at = one.offset + one.length / SAMPLES * i;
                    share_of(at, WINDOW.min(one.offset + one.length - at))
                })
                .sum(),
            many => (0..SAMPLES)
                .map(|i| {
                    let e = &many[(many.len() as u64 * i / SAMPLES) as usize];
                    share_of(e.offset, e.length.min(WINDOW))
                })
                .sum(),
        };
        sum / SAMPLES as f64
    }

    fn direct(&self, cached: f64) -> Result<Direct> {
        match self.options.direct.unwrap_or(Choice::Auto) {
            Choice::No => Ok(Direct::Never),
            Choice::Yes if self.file.direct_fd().is_some() => Ok(Direct::Always),
            Choice::Yes => Err(Error::new(
                Kind::Unavailable,
                format!(
                    "the file system ({}) has no direct I/O for this file",
                    self.file.system().name()
                ),
            )
            .remedy("use direct=auto or direct=no")),
            Choice::Auto if self.operation == Operation::Write => {
                let large = self.load.bytes >= DIRECT_WRITE && !self.load.is_scattered();
                Ok(if large && self.file.direct_fd().is_some() {
                    Direct::Preferred
                } else {
                    Direct::Never
                })
            }
            Choice::Auto => {
                let from = if self.memory.context.is_some() {
                    DIRECT_READ_GPU
                } else {
                    DIRECT_READ_HOST
                };
                // Scattered ranges are judged together: packing them tightly pays only if none
                // of them has to be read in whole pages.
                let wanted = self.load.bytes >= from
                    && (!self.load.is_scattered() || cached < 0.95)
                    && self.file.direct_fd().is_some();
                Ok(if wanted {
                    Direct::WhereCold
                } else {
                    Direct::Never
                })
            }
        }
    }

    fn threads(&self, cached: f64) -> usize {
        if let Some(threads) = self.options.threads {
            return threads as usize;
        }
        // Threads that wait for a medium need no core of their own.
        if cached < 0.5 {
            MAX_AUTO_THREADS
        } else {
            self.engine.cores.clamp(1, MAX_AUTO_THREADS)
        }
    }

    fn route(&self, cached: f64, threads: usize) -> Result<Arc<dyn Route>> {
        let uring = match self.options.io.unwrap_or(IoMode::Auto) {
            IoMode::Uring => true,
            IoMode::Threads => false,
            // A medium answers scattered reads best when it has many of them at a time.
            IoMode::Auto => cached < 0.5 && self.load.is_scattered(),
        };
        if self.memory.context.is_none() {
            return Ok(if uring {
                Arc::new(HostUring)
            } else {
                Arc::new(Host)
            });
        }
        let staged = || -> Arc<dyn Route> {
            if uring {
                Arc::new(StagedUring)
            } else {
                Arc::new(Staged)
            }
        };
        Ok(match self.options.route.unwrap_or(RouteName::Auto) {
            RouteName::Staged => staged(),
            RouteName::Mapped => Arc::new(Mapped),
            RouteName::Gds => Arc::new(Gds),
            RouteName::Host => {
                return Err(Error::invalid("the host route does not reach GPU memory")
                    .remedy("use route=auto, staged, mapped or gds for GPU memory"));
            }
            RouteName::Auto if gds::is_peer_to_peer(self.file) => Arc::new(Gds),
            RouteName::Auto
                if self.operation == Operation::Read
                    && cached > 0.5
                    && threads < ENOUGH_COPIERS
                    && !self.load.is_scattered()
                    && self.options.io != Some(IoMode::Uring) =>
            {
                Arc::new(Resident)
            }
            RouteName::Auto => staged(),
        })
    }

    /// Bytes of a block: as asked for, or the route's best, smaller where there would not be
    /// enough blocks to keep all workers busy.
    fn block(&self, route: RouteName, threads: usize) -> Result<u64> {
        let align = self.file.direct_alignment();
        let (best, least) = match route {
            RouteName::Mapped | RouteName::Auto => (MAPPED_BLOCK, 4 << 20),
            RouteName::Gds => (GDS_BLOCK, 1 << 20),
            _ => (STAGED_BLOCK, 256 << 10),
        };
        let block = match (self.options.block, self.file.system().stripe) {
            (Some(block), _) => block,
            (None, Some(stripe)) if route != RouteName::Auto => stripe.clamp(1 << 20, 16 << 20),
            (None, _) => {
                let share = self.load.bytes / (threads as u64 * 4);
                share.next_multiple_of(64 << 10).clamp(least, best)
            }
        };
        // Two slots of each worker, and the aligned pages around a span, must fit the ring.
        let most = (self.engine.ring.capacity() / 2).max(align);
        Ok(block.min(most).next_multiple_of(align))
    }

    /// Allocates what a direct write will write beyond the present end of the file: extending it
    /// write by write would make the file system serialise them.
    fn allocate(&self, extents: &[Extent]) -> Result<()> {
        let size = self.file.size()?;
        let end = extents.iter().map(|e| e.offset + e.length).max();
        let start = extents.iter().map(|e| e.offset).min();
        if let (Some(start), Some(end)) = (start, end)
            && end > size
        {
            let start = start.max(size);
            self.file.allocate(start, end - start)?;
        }
        Ok(())
    }
}
