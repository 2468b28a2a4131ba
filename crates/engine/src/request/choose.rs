//! Chooses route, block, number of workers and direct I/O for a request.
//!
//! The caller's options come first, then the tuned profile. The rest follows from the kind of
//! memory, the size and shape of the request, how much of the file is cached, and what the GPUs of
//! the host share. docs/performance.md has the measurements behind the constants.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::limits::{MAPPED_ROW, MOST_UNSEEN};
use crate::cufile;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::file::mapping::{Coverage, Mappings};
use crate::file::position::Operation;
use crate::file::stripe;
use crate::file::{File, page_size};
use crate::memory::Memory;
use crate::options::{Choice, IoMode, Options, RouteName};
use crate::plan::{Cut, Extent, Rows};
use crate::profile::{self, Place};
use crate::routes::{
    Direct, Gds, Host, HostUring, Mapped, Resident, Route, Staged, StagedUring, gds,
};
use crate::sharing::{Mark, Staging};

/// The size of a request: its bytes, and the average length of its ranges.
#[derive(Clone, Copy)]
pub(super) struct Load {
    bytes: u64,
    /// Bytes of an average range.
    average: u64,
}

impl Load {
    pub(crate) fn of(extents: &[Extent]) -> Load {
        // Hostile lengths may add up to more than 64 bits; the plan refuses them.
        let add = |sum: u64, e: &Extent| sum.saturating_add(e.length);
        let bytes = extents.iter().fold(0, add);
        Load {
            bytes,
            average: bytes / extents.len().max(1) as u64,
        }
    }
    pub(crate) fn of_rows(all: &[Rows]) -> Load {
        let bytes = all.iter().map(Rows::bytes).sum();
        let ranges: u64 = all.iter().map(|rows| rows.count).sum();
        Load {
            bytes,
            average: bytes / ranges.max(1),
        }
    }
    /// Whether the ranges are many and small, so that the number of calls counts more than their
    /// bytes.
    fn is_scattered(&self) -> bool {
        self.average < 1 << 20 && self.bytes > self.average
    }
}

/// The choice for a request, or for one part of it.
pub(super) struct Chosen {
    pub route: Arc<dyn Route>,
    pub cut: Cut,
    pub direct: Direct,
    pub threads: usize,
    pub queue_depth: u32,
    pub slots: u32,
    /// What the mappings of a write of new data cover.
    pub coverage: Option<Coverage>,
    /// The mark of the GPU, for a large read from the page cache.
    pub reading: Option<Arc<Mark>>,
    /// Whether what has arrived can be counted in the order of the file.
    pub counts: bool,
    /// Whether workers fill slots from the page cache by reads of their own.
    pub copies_out: bool,
    pub tuned: Tuned,
}

/// The options that come from the tuned profile, or why an existing profile contributes none.
pub(super) type Tuned = std::result::Result<Options, String>;

/// How the bytes go between the file and memory, from which workers and blocks follow.
struct Way {
    /// The share of the ranges that is in the page cache.
    cached: f64,
    /// `Auto` is [`Resident`].
    route: RouteName,
    direct: Direct,
    /// Whether a write goes through mappings of the file.
    uses_mappings: bool,
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
    /// Whether the caller may use the GPU while the request runs.
    pub background: bool,
}

pub(crate) const MAX_AUTO_THREADS: usize = 8;
pub(crate) const DEFAULT_QUEUE_DEPTH: u32 = 16;
/// A worker uses one slot with the file while the GPU uses the other.
pub(crate) const DEFAULT_SLOTS: u32 = 2;

/// Cached reads into a GPU of at least this size take account of those into other GPUs.
const LARGE_READ: u64 = 48 << 20;
/// Average bytes of several ranges from which blocks that end with a range cost nothing.
const RUN_RANGE: u64 = 8 << 20;

impl Chooser<'_> {
    pub(crate) fn choose(self, extents: &[Extent]) -> Result<Chosen> {
        let cached = self.cached_share(extents);
        let tuned = self.tuned(cached);
        let options = self.options.or(tuned.as_ref().copied().unwrap_or_default());
        let with_profile = Chooser {
            options: &options,
            ..self
        };
        with_profile.choose_by(cached, tuned, extents)
    }

    fn choose_by(&self, cached: f64, tuned: Tuned, extents: &[Extent]) -> Result<Chosen> {
        let direct = self.direct(cached, &tuned)?;
        let route = self.route(cached)?;
        let coverage = match direct {
            Direct::Never => self.coverage(route.name(), extents),
            _ => None,
        };
        let way = Way {
            cached,
            route: route.name(),
            direct,
            uses_mappings: coverage.is_some(),
        };
        let is_read = self.operation == Operation::Read;
        let is_staged_read = is_read && way.route == RouteName::Staged;
        let is_direct = direct != Direct::Never;
        let is_large = self.load.bytes >= LARGE_READ;
        let has_long = extents.len() == 1 || self.load.average >= RUN_RANGE;
        let slots = self.options.slots.unwrap_or(DEFAULT_SLOTS);
        // The GPUs of the host share its cache and cores. A staged read of cached bytes takes its GPU's
        // share, and marks the GPU if it is large.
        let context = self.memory.context.as_deref();
        let shared = context.filter(|_| is_staged_read && cached > 0.5);
        let reading = shared.filter(|_| is_large).map(Mark::set);
        let staging = shared.map_or(STAGING_ALONE, |context| {
            Staging::of(context.driver, slots, self.engine.cores, is_large)
        });
        let threads = self.threads(&way, staging.threads);
        Ok(Chosen {
            copies_out: is_staged_read && !is_direct && !self.uses_uring(cached),
            counts: is_staged_read
                && is_large
                && has_long
                && self.options.io != Some(IoMode::Uring),
            route,
            cut: Cut {
                block: self.block(&way, threads, staging.block),
                gap: self.gap(&way),
                align: if is_direct {
                    self.file.direct_alignment()
                } else {
                    1
                },
                split_unaligned: !is_read && is_direct && way.route != RouteName::Gds,
                pack: context.is_some(),
                // A write should make few long calls in the order of the file, both for the medium
                // and for the file system's lock of the file. So should a read that is not cached.
                reorder: is_read && cached > 0.5,
            },
            direct,
            threads,
            queue_depth: self.options.queue_depth.unwrap_or(DEFAULT_QUEUE_DEPTH),
            slots,
            coverage,
            reading,
            tuned,
        })
    }

    /// The share of the ranges that is in the page cache, from a few samples.
    fn cached_share(&self, extents: &[Extent]) -> f64 {
        const SAMPLES: u64 = 16;
        const WINDOW: u64 = 64 << 10;
        if self.operation == Operation::Write || self.load.bytes < MOST_UNSEEN {
            return 1.0;
        }
        let share_of =
            |offset: u64, length: u64| self.file.residency(offset, length).unwrap_or(1.0);
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

    fn tuned(&self, cached: f64) -> Tuned {
        let nothing = Ok(Options::default());
        let place = match self.operation {
            Operation::Write if self.options.durable == Some(true) => Place::Storage,
            Operation::Write => Place::Cache,
            Operation::Read if cached > 0.95 => Place::Cache,
            Operation::Read if cached < 0.05 => Place::Storage,
            Operation::Read => return nothing,
        };
        // Profiles have no measurements of many small ranges.
        if self.load.is_scattered() {
            return nothing;
        }
        let context = self.memory.context.as_deref();
        let Some(found) = self.engine.profiles.find(self.file, context) else {
            return nothing;
        };
        let profile = found.as_ref().as_ref().map_err(String::clone)?;
        let (operation, bytes) = (self.operation, self.load.bytes);
        let tuned = profile::under(self.options, profile, operation, bytes, place);
        Ok(tuned.filter(|row| self.can_follow(row)).unwrap_or_default())
    }

    /// Whether a row of the profile can serve this request. No caller named the row, so
    /// it must not fail.
    fn can_follow(&self, tuned: &Options) -> bool {
        match tuned.route {
            // The route waits for the copies of other requests.
            Some(RouteName::Mapped) => !self.background,
            Some(RouteName::Gds) => gds::takes(self.file),
            _ => true,
        }
    }
}

/// The number of workers that copy out of the page cache as fast as the link to the GPU.
const ENOUGH_COPIERS: usize = 4;
/// Below this size, pinning pages costs more than copying them.
const MAPPED_FROM: u64 = 4 << 20;

/// The route.
impl Chooser<'_> {
    fn uses_uring(&self, cached: f64) -> bool {
        match self.options.io.unwrap_or(IoMode::Auto) {
            IoMode::Uring => true,
            IoMode::Threads | IoMode::Mmap => false,
            // A medium serves scattered reads best when it has many of them at once.
            IoMode::Auto => cached < 0.5 && self.load.is_scattered(),
        }
    }

    fn route(&self, cached: f64) -> Result<Arc<dyn Route>> {
        let uring = self.uses_uring(cached);
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
}

/// Reads of at least this size that are not cached bypass the page cache.
const DIRECT_READ_GPU: u64 = 4 << 20;
/// The same for host memory, where a program often reads a file again and then finds it cached.
const DIRECT_READ_HOST: u64 = 1 << 30;
/// Durable writes of at least this size bypass the page cache. Other writes are done when the page
/// cache has them, and no medium is faster than that.
const DIRECT_WRITE: u64 = 64 << 20;

/// Direct I/O.
impl Chooser<'_> {
    fn direct(&self, cached: f64, tuned: &Tuned) -> Result<Direct> {
        match self.options.direct.unwrap_or(Choice::Auto) {
            Choice::No => Ok(Direct::Never),
            // An option from a profile is a preference, not a requirement.
            Choice::Yes if tuned.as_ref().is_ok_and(|row| row.direct.is_some()) => {
                Ok(match self.file.direct_fd() {
                    Some(_) => Direct::Preferred,
                    None => Direct::Never,
                })
            }
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
                // If all samples are cached, residency is not queried for each block. Scattered
                // ranges are judged together: tight packing pays only if hardly any of them has to
                // be read in whole pages.
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
}

/// New data of at least this size are written through mappings of the file, by at least
/// `ENOUGH_COPIERS` workers. A single worker is slower through mappings than by `pwrite`.
const MAPPED_WRITE: u64 = 32 << 20;
/// The rows of all processes are at least this part of what is mapped, since blocks are allocated for
/// all of it.
const MAPPED_SHARE: u64 = 2;

/// Writes through mappings of the file.
impl Chooser<'_> {
    /// What the mappings cover through which workers write new data, without a common lock.
    fn coverage(&self, route: RouteName, extents: &[Extent]) -> Option<Coverage> {
        let can = self.operation == Operation::Write
            && matches!(route, RouteName::Host | RouteName::Staged);
        let maps = match self.options.io.unwrap_or(IoMode::Auto) {
            IoMode::Mmap => can,
            IoMode::Auto => {
                can && self.load.bytes >= MAPPED_WRITE
                    && self.options.durable != Some(true)
                    && self.copiers() * self.file.writers() >= ENOUGH_COPIERS
                    && self.file.system().maps_large_pages()
            }
            IoMode::Threads | IoMode::Uring => false,
        };
        if !maps {
            None
        } else if self.load.is_scattered() {
            self.are_new_rows(extents).then_some(Coverage::Rows)
        } else {
            self.begin_in_holes(extents).then_some(Coverage::Ranges)
        }
    }

    /// Whether rows fill a new part of the file, together with those of other processes.
    fn are_new_rows(&self, extents: &[Extent]) -> bool {
        if !self.file.takes_mapped_rows()
            || self.load.average < MAPPED_ROW
            || bypasses_cache(self.options)
        {
            return false;
        }
        let start = extents.iter().map(|e| e.offset).min().unwrap_or(0);
        let end = extents.iter().map(Extent::end).max().unwrap_or(0);
        let processes = self.file.writers() as u64;
        let filled = self.load.bytes.saturating_mul(processes);
        filled.saturating_mul(MAPPED_SHARE) >= end - start
            && Mappings::take_rows(self.file, start, end)
    }

    /// Whether the first, the middle and the last range begin in holes of the file, from their
    /// first whole page. The other ranges are assumed to do the same.
    fn begin_in_holes(&self, extents: &[Extent]) -> bool {
        const BEGINNING: u64 = 1 << 20;
        let samples = [0, extents.len() / 2, extents.len().saturating_sub(1)];
        let mut samples = samples.iter().filter_map(|&at| extents.get(at));
        samples.all(|e| {
            let start = e.offset.next_multiple_of(page_size());
            let end = e.offset.saturating_add(e.length.min(BEGINNING));
            start >= end || self.file.is_hole(start, end)
        })
    }
}

/// Whether a write with these options may bypass the page cache.
fn bypasses_cache(options: &Options) -> bool {
    options.direct == Some(Choice::Yes)
        || options.durable == Some(true)
        || options.route == Some(RouteName::Gds)
        || cufile::is_worth_asking()
}

/// Workers that write through the page cache wait for the lock of the file on most file systems. More
/// of them help only with ranges that take time to gather, or on other file systems.
const MAX_BUFFERED_WRITERS: usize = 4;
/// Bytes up to which one worker is best, for background reads and for writes. Four times the bytes
/// justify twice the workers: waking workers takes core time from other work.
const FIRST_THREAD: u64 = 2 << 20;
/// Bytes per worker of a cached read that the caller waits for, up to eight workers. Blocks have
/// sizes between this and [`LARGE_COPY_SHARE`].
const COPY_SHARE: u64 = 1 << 20;
const LARGE_COPY_SHARE: u64 = 4 << 20;
/// Average bytes of a call from which a cached read mostly copies. A few workers copy as fast as
/// memory allows, so the number of workers then follows from the total bytes.
const COPIED: u64 = 64 << 10;

/// Workers.
impl Chooser<'_> {
    /// The number of workers; at most `most` for a read.
    fn threads(&self, way: &Way, most: usize) -> usize {
        if let Some(threads) = self.options.threads {
            return threads as usize;
        }
        // Threads that wait for a medium need no core of their own.
        if way.cached < 0.5 || matches!(way.direct, Direct::Preferred | Direct::Always) {
            return MAX_AUTO_THREADS;
        }
        let most = match self.operation {
            Operation::Read => most,
            Operation::Write if way.uses_mappings && self.background => {
                MAX_BUFFERED_WRITERS.min(self.copiers() / 2).max(1)
            }
            Operation::Write if way.uses_mappings => MAX_AUTO_THREADS,
            Operation::Write
                if self.file.system().takes_one_writer()
                    // Short writes of several processes keep the lock busy: four of 3 KiB rows
                    // took 1.3 times as long with four workers each on 16 cores.
                    && (!self.load.is_scattered() || self.file.writers() > 1)
                    // cuFile's bytes bypass the page cache.
                    && way.route != RouteName::Gds =>
            {
                1
            }
            Operation::Write => MAX_BUFFERED_WRITERS,
        };
        let bytes = self.load.bytes;
        let only_copies = self.only_copies(way.cached);
        let worthwhile = if only_copies && !self.background {
            let few = bytes / COPY_SHARE;
            few.min((bytes / LARGE_COPY_SHARE).max(MAX_AUTO_THREADS as u64)) as usize
        } else if self.load.is_scattered() && !only_copies {
            most
        } else {
            (bytes / FIRST_THREAD).isqrt() as usize
        };
        worthwhile.clamp(1, self.copiers().min(most))
    }

    /// Whether the calls of a read mostly copy cached bytes.
    fn only_copies(&self, cached: f64) -> bool {
        self.operation == Operation::Read && cached > 0.95 && self.load.average >= COPIED
    }

    /// The most workers that can copy at the same time. Processes that write one file together
    /// share the cores.
    fn copiers(&self) -> usize {
        match self.options.threads {
            Some(threads) => threads as usize,
            None if self.operation == Operation::Write => self.file.share_of(self.engine.cores),
            None => self.engine.cores,
        }
    }
}

const STAGED_BLOCK: u64 = 8 << 20;
/// The limits of a staged read that shares the host with no other.
const STAGING_ALONE: Staging = Staging {
    threads: MAX_AUTO_THREADS,
    block: STAGED_BLOCK,
};
/// The block of a buffered write. This many bytes from the GPU are still in the processor's cache
/// when they are copied into the page cache, and other writers of the file wait no longer than that
/// for its lock. For longer calls, Linux takes pages of 2 MiB into the page cache. A virtual
/// machine returns free pages of that size to its host, which clears them before the next use; a
/// write then takes up to ten times as long.
const BUFFERED_WRITE: u64 = 1 << 20;
/// The least block of a write that bypasses the page cache. Each call pays for the lock and the
/// journal of the file system, and waits for the medium.
const LEAST_WRITE: u64 = 4 << 20;
const MAPPED_BLOCK: u64 = 32 << 20;
const GDS_BLOCK: u64 = 16 << 20;
/// Blocks of a worker that copies, at least, so that all workers end together.
const BLOCKS_OF_COPIER: u64 = 4;

/// Blocks.
impl Chooser<'_> {
    /// The bytes of a block: the size in the options, that of the file's stripes, or an equal share of
    /// the request. Shares between the least and the best size of the way keep all workers busy.
    fn block(&self, way: &Way, threads: usize, staged: u64) -> u64 {
        let is_copied = self.copies_blocks(way);
        let share = || {
            let blocks = threads as u64 * if is_copied { BLOCKS_OF_COPIER } else { 8 };
            let share = (self.load.bytes / blocks).next_multiple_of(64 << 10);
            let sizes = self.block_sizes(way, is_copied, staged);
            share.clamp(*sizes.start(), *sizes.end())
        };
        let stripe = self.file.system().stripe;
        let stripe = stripe.filter(|_| way.route != RouteName::Auto);
        let block = self.options.block.or(stripe.map(stripe::block));
        // Two slots of a worker, with the aligned pages around a span, must fit the ring.
        let align = self.file.direct_alignment();
        let most = (self.engine.ring.capacity() / 2).max(align);
        block
            .unwrap_or_else(share)
            .min(most)
            .next_multiple_of(align)
    }

    /// The least and the best size of a block; `staged` is the best one of a staged read.
    fn block_sizes(&self, way: &Way, is_copied: bool, staged: u64) -> RangeInclusive<u64> {
        let is_write = self.operation == Operation::Write;
        let is_buffered = is_write && way.direct == Direct::Never;
        match way.route {
            RouteName::Mapped | RouteName::Auto => 4 << 20..=MAPPED_BLOCK,
            RouteName::Gds => 1 << 20..=GDS_BLOCK,
            RouteName::Staged if is_buffered => 256 << 10..=BUFFERED_WRITE,
            RouteName::Host if is_buffered => BUFFERED_WRITE..=BUFFERED_WRITE,
            _ if is_write => LEAST_WRITE..=staged,
            _ if is_copied => COPY_SHARE..=staged.min(LARGE_COPY_SHARE),
            _ => 256 << 10..=staged,
        }
    }

    /// Whether blocks are as large as those of a read that only copies. Besides its bytes, each copy
    /// from a slot takes the GPU as long as 256 KiB more (decision 28), so small ranges are packed
    /// into such blocks, too.
    fn copies_blocks(&self, way: &Way) -> bool {
        let is_packed = way.route == RouteName::Staged
            && self.operation == Operation::Read
            && way.cached > 0.95;
        way.direct == Direct::Never && (is_packed || self.only_copies(way.cached))
    }

    /// The largest gap between ranges of the file that is read along with them.
    fn gap(&self, way: &Way) -> u64 {
        match way.route {
            _ if self.operation == Operation::Write => 0,
            RouteName::Host | RouteName::Gds => 0,
            RouteName::Mapped | RouteName::Auto => 1 << 20,
            _ if way.direct == Direct::Never => 4 << 10,
            _ => 16 << 10,
        }
    }
}
