//! Which route, block, number of workers and way past the page cache serve a request best.
//!
//! What the caller asked for is taken; then what the tuned profile says; the rest follows from the kind
//! of memory, the size, the shape of the request, how much of the file is cached, and what the GPUs of
//! the host share. docs/performance.md has the measurements behind the constants.

use std::sync::Arc;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::file::File;
use crate::file::position::Operation;
use crate::file::residency::residency;
use crate::file::stripe;
use crate::memory::Memory;
use crate::options::{Choice, IoMode, Options, RouteName};
use crate::plan::{Cut, Extent};
use crate::profile::{self, Place};
use crate::routes::{
    Direct, Gds, Host, HostUring, Mapped, Resident, Route, Staged, StagedUring, gds,
};
use crate::sharing::Staging;

/// How much there is to move, in how large ranges.
#[derive(Clone, Copy)]
pub(super) struct Load {
    bytes: u64,
    /// Bytes of an average range.
    average: u64,
}

impl Load {
    pub fn of(extents: &[Extent]) -> Load {
        // Hostile lengths may add up to more than there is; the plan refuses them.
        let add = |sum: u64, e: &Extent| sum.saturating_add(e.length);
        let bytes = extents.iter().fold(0, add);
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

/// What a request, or one part of it, gets.
pub(super) struct Chosen {
    pub route: Arc<dyn Route>,
    pub cut: Cut,
    pub direct: Direct,
    pub threads: usize,
    pub queue_depth: u32,
    pub slots: u32,
    /// What the options have from the tuned profile.
    pub tuned: Options,
    /// Why there is nothing from it, although there is a profile.
    pub not_tuned: Option<String>,
}

/// What the choice depends on.
#[derive(Clone, Copy)]
pub(super) struct Chooser<'a> {
    pub engine: &'a Engine,
    pub file: &'a File,
    pub operation: Operation,
    pub memory: &'a Memory,
    pub options: &'a Options,
    pub load: Load,
    /// The caller goes on meanwhile, maybe with work on the same GPU.
    pub background: bool,
}

/// Reads that are not cached go past the cache from this size on.
const DIRECT_READ_GPU: u64 = 4 << 20;
/// For host memory later: a program that reads a file into host memory often reads it again, and
/// then finds it cached.
const DIRECT_READ_HOST: u64 = 1 << 30;
/// Durable writes go past the cache from this size on. Others are done when the cache has them,
/// which no medium can beat.
const DIRECT_WRITE: u64 = 64 << 20;

/// From this many workers on, their copies out of the page cache keep up with the link.
const ENOUGH_COPIERS: usize = 4;
pub(crate) const MAX_AUTO_THREADS: usize = 8;
/// Pinning pages costs more than copying them below this size.
const MAPPED_FROM: u64 = 4 << 20;
/// Workers that write through the page cache stand in line for the lock of the file on most file
/// systems: more of them pay only for ranges that take time to bring together, or elsewhere.
const MAX_BUFFERED_WRITERS: usize = 4;
pub(crate) const DEFAULT_QUEUE_DEPTH: u32 = 16;
/// One slot of a worker is with the file while the other is with the GPU.
pub(crate) const DEFAULT_SLOTS: u32 = 2;
/// One worker is best for so much; four times as much is worth twice the workers, since waking
/// them takes time.
const FIRST_THREAD: u64 = 2 << 20;

const STAGED_BLOCK: u64 = 8 << 20;
/// The copy into the page cache finds so much still in the processor's cache, where the GPU's bytes
/// have just arrived; and who else writes to the file waits no longer than that for its lock.
const BUFFERED_WRITE: u64 = 1 << 20;
const MAPPED_BLOCK: u64 = 32 << 20;
const GDS_BLOCK: u64 = 16 << 20;

impl Chooser<'_> {
    pub fn choose(self, extents: &[Extent]) -> Result<Chosen> {
        let cached = self.cached_share(extents);
        let (tuned, not_tuned) = self.tuned(cached);
        let options = self.options.or(tuned);
        let chosen = Chooser {
            options: &options,
            ..self
        }
        .choose_by(cached, &tuned)?;
        Ok(Chosen {
            tuned,
            not_tuned,
            ..chosen
        })
    }

    fn choose_by(&self, cached: f64, tuned: &Options) -> Result<Chosen> {
        let direct = self.direct(cached, tuned)?;
        let route = self.route(cached)?;
        let slots = self.options.slots.unwrap_or(DEFAULT_SLOTS);
        let staging = self.staging(cached, route.name(), slots);
        let threads = self.threads(cached, direct, route.name(), staging.threads);
        let block = self.block(route.name(), direct, threads, staging.block)?;
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
        Ok(Chosen {
            route,
            cut: Cut {
                block,
                gap,
                align,
                edges,
                pack: self.memory.context.is_some(),
            },
            direct,
            threads,
            queue_depth: self.options.queue_depth.unwrap_or(DEFAULT_QUEUE_DEPTH),
            slots,
            tuned: Options::default(),
            not_tuned: None,
        })
    }

    /// What the tuned profile adds to the options, or why it adds nothing where there is one.
    fn tuned(&self, cached: f64) -> (Options, Option<String>) {
        let none = (Options::default(), None);
        let context = self.memory.context.as_deref();
        let place = match self.operation {
            Operation::Write if self.options.durable == Some(true) => Place::Storage,
            Operation::Write => Place::Cache,
            Operation::Read if cached > 0.95 => Place::Cache,
            Operation::Read if cached < 0.05 => Place::Storage,
            Operation::Read => return none,
        };
        // Of many small ranges nothing is measured.
        if self.load.is_scattered() {
            return none;
        }
        let Some(found) = self.engine.profiles.find(self.file, context) else {
            return none;
        };
        let profile = match &*found {
            Ok(profile) => profile,
            Err(why) => return (Options::default(), Some(why.clone())),
        };
        let (operation, bytes) = (self.operation, self.load.bytes);
        match profile::under(self.options, profile, operation, bytes, place) {
            Some(tuned) if self.can_follow(&tuned) => (tuned, None),
            _ => none,
        }
    }

    /// Whether a row of a profile, which nobody has asked for by name, leads somewhere here.
    fn can_follow(&self, tuned: &Options) -> bool {
        match tuned.route {
            // It waits for the GPU to be idle.
            Some(RouteName::Mapped) => !self.background,
            Some(RouteName::Gds) => gds::takes(self.file),
            _ => true,
        }
    }

    /// How much of the cache and of the cores a staged read may take.
    fn staging(&self, cached: f64, route: RouteName, slots: u32) -> Staging {
        let alone = Staging {
            threads: MAX_AUTO_THREADS,
            block: STAGED_BLOCK,
        };
        match &self.memory.context {
            Some(context)
                if route == RouteName::Staged
                    && self.operation == Operation::Read
                    && cached > 0.5 =>
            {
                Staging::of(context, self.load.bytes, slots, self.engine.cores, alone)
            }
            _ => alone,
        }
    }

    /// Which share of the ranges is in the page cache, by a few samples.
    fn cached_share(&self, extents: &[Extent]) -> f64 {
        const SAMPLES: u64 = 16;
        const WINDOW: u64 = 64 << 10;
        if self.operation == Operation::Write || self.load.bytes < (512 << 10) {
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

    fn direct(&self, cached: f64, tuned: &Options) -> Result<Direct> {
        match self.options.direct.unwrap_or(Choice::Auto) {
            Choice::No => Ok(Direct::Never),
            // A profile does not insist.
            Choice::Yes if tuned.direct.is_some() => Ok(match self.file.direct_fd() {
                Some(_) => Direct::Preferred,
                None => Direct::Never,
            }),
            Choice::Yes => self.file.must_have_direct().map(|()| Direct::Always),
            Choice::Auto if self.operation == Operation::Write => {
                let large = self.load.bytes >= DIRECT_WRITE && !self.load.is_scattered();
                let durable = self.options.durable == Some(true);
                Ok(if large && durable && self.file.direct_fd().is_some() {
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
                // What all samples found cached is not asked about again block by block. Scattered
                // ranges are judged together: packing them tightly pays only if hardly any of
                // them has to be read in whole pages.
                let cached_enough = if self.load.is_scattered() { 0.95 } else { 1.0 };
                let wanted = self.load.bytes >= from
                    && cached < cached_enough
                    && self.file.direct_fd().is_some();
                Ok(if wanted {
                    Direct::WhereCold
                } else {
                    Direct::Never
                })
            }
        }
    }

    fn threads(&self, cached: f64, direct: Direct, route: RouteName, most: usize) -> usize {
        if let Some(threads) = self.options.threads {
            return threads as usize;
        }
        // Threads that wait for a medium need no core of their own.
        if cached < 0.5 || direct == Direct::Preferred || direct == Direct::Always {
            return MAX_AUTO_THREADS;
        }
        let most = match self.operation {
            Operation::Read => most,
            Operation::Write
                if self.file.system().takes_one_writer()
                    && !self.load.is_scattered()
                    // Whose bytes go straight to storage, past the page cache.
                    && route != RouteName::Gds =>
            {
                1
            }
            Operation::Write => MAX_BUFFERED_WRITERS,
        };
        let worthwhile = if self.load.is_scattered() {
            most
        } else {
            (self.load.bytes / FIRST_THREAD).isqrt() as usize
        };
        worthwhile.clamp(1, self.copiers().min(most))
    }

    /// How many workers could copy at the same time.
    fn copiers(&self) -> usize {
        match self.options.threads {
            Some(threads) => threads as usize,
            None => self.engine.cores,
        }
    }

    fn route(&self, cached: f64) -> Result<Arc<dyn Route>> {
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
            RouteName::Host | RouteName::Hdf5 => {
                return Err(Error::invalid("the host route does not reach GPU memory")
                    .remedy("use route=auto, staged, mapped or gds for GPU memory"));
            }
            RouteName::Auto if gds::is_peer_to_peer(self.file) => Arc::new(Gds),
            RouteName::Auto
                if self.operation == Operation::Read
                    && !self.background
                    && cached > 0.5
                    && self.copiers() < ENOUGH_COPIERS
                    && self.load.bytes >= MAPPED_FROM
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
    fn block(&self, route: RouteName, direct: Direct, threads: usize, staged: u64) -> Result<u64> {
        let align = self.file.direct_alignment();
        let (best, least) = match route {
            RouteName::Mapped | RouteName::Auto => (MAPPED_BLOCK, 4 << 20),
            RouteName::Gds => (GDS_BLOCK, 1 << 20),
            RouteName::Staged | RouteName::Host
                if self.operation == Operation::Write && direct == Direct::Never =>
            {
                (BUFFERED_WRITE, 256 << 10)
            }
            _ => (staged, 256 << 10),
        };
        let block = match (self.options.block, self.file.system().stripe) {
            (Some(block), _) => block,
            (None, Some(size)) if route != RouteName::Auto => stripe::block(size),
            (None, _) => {
                let share = self.load.bytes / (threads as u64 * 8);
                share.next_multiple_of(64 << 10).clamp(least, best)
            }
        };
        // Two slots of each worker, and the aligned pages around a span, must fit the ring.
        let most = (self.engine.ring.capacity() / 2).max(align);
        Ok(block.min(most).next_multiple_of(align))
    }
}
