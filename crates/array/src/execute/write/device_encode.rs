//! Encodes batches of chunks on the GPU.
//!
//! 1. A kernel gathers the elements of each chunk there, shuffled if the pipeline has a shuffle
//!    filter.
//! 2. The encoder of this project writes deflate streams (RFC 1951), and another launch their
//!    checksums.
//! 3. Only the encoded bytes are copied to host memory, through the halves of a pinned slot in
//!    turn.
//!
//! The link then carries encoded bytes only. Batches are large, because a few chunks do not fill a
//! GPU. docs/decisions/0020 has the measurements.

use std::sync::Arc;

use penstock_codec::Filter;
use penstock_codec::convert::TypeConversion;
use penstock_codec::filters::{codec, id};
use penstock_codec::gpu::{
    Checksum, ChecksumTable, DeflateMemory, DeflateTable, Kernels, PlaceAxis, PlaceTable, Shuffles,
    Side,
};
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::gpu::{CopyQueue, Direction, OwnContext, QueueLease};
use penstock_engine::options::{Decoder, Options};
use penstock_engine::request::Share;
use penstock_engine::staging::Slot;

use super::queue::Numbered;
use crate::execute::bound::BoundPlan;
use crate::execute::device::Parts;
use crate::execute::device::placing::{gpu_error, internal, push_gathered};
use crate::execute::device::scratch::Scratch;
use crate::execute::memory::DeviceMemory;
use crate::{Before, Changed, Plan};

/// The part of a write that the GPU encodes.
pub(super) struct GpuEncoding {
    filters: GpuFilters,
    /// Most bytes of GPU memory for a launch.
    memory: u64,
    /// Largest number of decoded bytes in a batch.
    pub batch: u64,
}

/// Filters that the GPU applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GpuFilters {
    /// The size of the elements that a preceding filter shuffles; 1 without such a filter.
    shuffled: u32,
    /// The position of the following checksum filter, which the CPU applies to the encoded bytes.
    fletcher: Option<usize>,
}

impl GpuFilters {
    /// Accepts, in order of encoding: an optional shuffle, deflate, an optional checksum.
    fn of(filters: &[Filter], is_requested: bool) -> Option<GpuFilters> {
        let mut rest = filters.iter().enumerate().peekable();
        let shuffled = match rest.next_if(|(_, f)| f.id == id::SHUFFLE) {
            Some((_, shuffle)) => one_value(shuffle).filter(|size| *size > 0)?,
            None => 1,
        };
        let (_, deflate) = rest.next()?;
        let fletcher = rest.next_if(|(_, f)| f.id == id::FLETCHER32);
        let highest = if is_requested {
            HIGHEST_LEVEL
        } else {
            MOST_LEVEL
        };
        let is_level = |level: &u32| (1..=highest).contains(level);
        one_value(deflate).filter(is_level)?;
        let fits = deflate.id == id::DEFLATE && rest.next().is_none();
        fits.then(|| GpuFilters {
            shuffled,
            fletcher: fletcher.map(|(at, _)| at),
        })
    }
}

/// Returns the client value of a filter that has exactly one.
fn one_value(filter: &Filter) -> Option<u32> {
    match filter.values[..] {
        [value] => Some(value),
        _ => None,
    }
}

/// The highest level that the GPU encodes if the options do not name it. Its chunks are about as
/// large as those of zlib's lower levels, and a caller that sets a higher level wants small chunks.
const MOST_LEVEL: u32 = 6;
/// The highest level of zlib.
const HIGHEST_LEVEL: u32 = 9;
/// The most workers that have a batch on the GPU. While some encode, others copy their encoded
/// bytes.
pub(super) const GPU_WORKERS: usize = 4;
/// Below this number of bytes, the CPU is done in the time in which the GPU encodes a segment.
const FEWEST: u64 = 4 << 20;
/// The decoded bytes of a batch, unless memory is limited: about half of what the GPU encodes at a time.
const BATCH: u64 = 32 << 20;
/// Default size of the GPU memory for chunks in flight.
const SCRATCH: u64 = 1 << 30;
/// Chunks with more boxes are left to the CPU, since their tables are large.
const MOST_BOXES: u64 = 64;
/// Bytes of the pinned slot of a worker. Tables take up to a half of it.
const SLOT: usize = 8 << 20;
/// Larger elements have no room for their fill value beside the tables.
const LARGEST_ELEMENT: u64 = 1 << 20;
/// Most bytes of tables for a chunk: its boxes with their axes, and its other entries.
const BOX: usize = 512;
const ENTRIES: usize = 1024;

impl GpuEncoding {
    /// Returns the GPU's part in a write; `None` if the CPU encodes all chunks.
    pub(super) fn of(plan: &Plan, options: &Options) -> Option<GpuEncoding> {
        let decoder = options.decode.unwrap_or(Decoder::Auto);
        let is_requested = matches!(decoder, Decoder::Gpu);
        let filters = GpuFilters::of(&plan.pipeline().filters, is_requested)?;
        let memory = options.scratch.unwrap_or(SCRATCH) / GPU_WORKERS as u64;
        // Chunks take less than this, except small ones.
        let batch = BATCH.min(memory / 6);
        let bytes = plan.touched().saturating_mul(plan.decoded_size());
        // Chunks that are written in part would split the batches.
        let is_worth_it = bytes >= FEWEST
            && batch * GPU_WORKERS as u64 >= FEWEST
            && plan.decoded_size() <= batch
            && plan.covers_chunks();
        let fits = match decoder {
            Decoder::Cpu => false,
            Decoder::Gpu => true,
            Decoder::Auto => is_worth_it,
        };
        (fits && plan.file_element() <= LARGEST_ELEMENT).then_some(GpuEncoding {
            filters,
            memory,
            batch,
        })
    }

    /// Returns whether the GPU encodes a chunk.
    pub(super) fn fits(&self, changed: &Changed, plan: &Plan) -> bool {
        let job = &changed.job;
        let segments = DeflateTable::segments_of(job.decoded_size);
        changed.before != Before::Stored
            && !plan.is_unfiltered(job.chunk)
            && job.box_count() <= MOST_BOXES
            && segments <= DeflateTable::MOST_SEGMENTS
            && DeflateTable::memory_of(job.decoded_size) <= self.memory
    }

    /// Returns how many of the first chunks of a batch fit into one launch.
    pub(super) fn portion(&self, batch: &[Numbered]) -> usize {
        let (mut segments, mut tables, mut memory) = (0, 0, 0);
        let fits = batch.iter().take_while(|numbered| {
            let job = &numbered.changed.job;
            segments += DeflateTable::segments_of(job.decoded_size);
            tables += ENTRIES + BOX * job.box_count() as usize;
            memory += DeflateTable::memory_of(job.decoded_size);
            segments <= DeflateTable::MOST_SEGMENTS && tables <= SLOT / 2 && memory <= self.memory
        });
        fits.count().max(1)
    }
}

/// A worker's batches of chunks on the GPU.
pub(super) struct DeviceEncode<'a> {
    // Dropped first, so that it waits for all work before the slot is returned.
    lent: QueueLease<'a>,
    bound: &'a BoundPlan,
    encoding: &'a GpuEncoding,
    memory: DeviceMemory,
    kernels: &'a Kernels,
    share: &'a Share<'a>,
    slot: Option<Slot>,
    /// GPU memory of the batch.
    scratch: Vec<Scratch>,
}

/// The work of one launch.
struct Launch {
    /// Sets the elements of a chunk that is new, or reaches beyond the array, to the fill value.
    fills: PlaceTable,
    places: PlaceTable,
    checksums: ChecksumTable,
    deflate: DeflateTable,
}

impl<'a> DeviceEncode<'a> {
    pub(super) fn new(
        bound: &'a BoundPlan,
        encoding: &'a GpuEncoding,
        memory: DeviceMemory,
        context: &'a Arc<OwnContext>,
        kernels: &'a Kernels,
        share: &'a Share<'a>,
    ) -> Result<DeviceEncode<'a>> {
        Ok(DeviceEncode {
            lent: QueueLease::new(context)?,
            bound,
            encoding,
            memory,
            kernels,
            share,
            slot: None,
            scratch: Vec::new(),
        })
    }

    /// Encodes chunks and returns the stored bytes of each. After this returns, none of its work
    /// accesses any memory.
    ///
    /// # Errors
    /// [`Kind::Memory`] if the GPU has too little memory, besides the failures of the driver.
    pub(super) fn encode(&mut self, batch: &[Numbered]) -> Result<Vec<Vec<u8>>> {
        let slot = self.slot()?;
        let holding = self.lent.context().hold_memory();
        let encoded = self.encode_in_scratch(batch, slot);
        let queue = self.lent.queue()?;
        for scratch in self.scratch.drain(..) {
            scratch.release(queue);
        }
        // After the release, which happens in the order of the queue.
        let finished = queue.finish();
        drop(holding);
        let encoded = encoded?;
        finished?;
        Ok(encoded)
    }

    fn encode_in_scratch(&mut self, batch: &[Numbered], slot: *mut u8) -> Result<Vec<Vec<u8>>> {
        let mut parts = Parts::default();
        let fill = parts.take(self.bound.plan.file_element());
        let places: Vec<u64> = batch
            .iter()
            .map(|n| parts.take(n.changed.job.decoded_size + DeflateTable::MARGIN))
            .collect();
        let gathered = self.allocate(parts.end)?;
        let inputs = places.into_iter().map(|at| gathered + at);
        let launch = self.launch(batch, inputs, gathered + fill)?;

        let mut parts = Parts::default();
        let fills_at = parts.take(launch.fills.size() as u64);
        let places_at = parts.take(launch.places.size() as u64);
        let checksums_at = parts.take(launch.checksums.size() as u64);
        let deflate_at = parts.take(launch.deflate.size() as u64);
        let uploaded = parts.end as usize;
        let fill_at = parts.take(self.bound.plan.file_element()) as usize;
        if parts.end > SLOT as u64 {
            return Err(Error::new(
                Kind::Internal,
                "the tables of a batch exceed their slot",
            ));
        }
        let checksum_work = parts.take(launch.checksums.work_size() as u64);
        let work = parts.take(self.kernels.deflate_work_size(&launch.deflate));
        let output = parts.take(launch.deflate.output_bound());
        let ends = parts.take(launch.deflate.ends_size() as u64);
        let memory = self.allocate(parts.end)?;
        let at = |offset: u64| memory + offset;
        let deflate = DeflateMemory {
            table: at(deflate_at),
            work: at(work),
            checksums: at(checksum_work) + launch.checksums.verdicts_offset() as u64,
            output: at(output),
            ends: at(ends),
        };

        // SAFETY: the slot is this worker's own, and no copy of it is in progress.
        let bytes = unsafe { std::slice::from_raw_parts_mut(slot, SLOT) };
        launch.fills.write(&mut bytes[fills_at as usize..]);
        launch.places.write(&mut bytes[places_at as usize..]);
        launch.checksums.write(&mut bytes[checksums_at as usize..]);
        launch.deflate.write(&mut bytes[deflate_at as usize..]);
        let value = &mut bytes[fill_at..][..self.bound.plan.file_element() as usize];
        match self.bound.plan.fill() {
            Some(fill) => value.copy_from_slice(fill),
            None => value.fill(0),
        }
        let value_size = value.len() as u64;

        let ends_size = launch.deflate.ends_size();
        let (context, kernels) = (self.lent.context(), self.kernels);
        let failed = |e| gpu_error(context, &e);
        let counters = self.share.counters();
        let queue = self.lent.queue()?;
        let stream = queue.raw_stream();
        // SAFETY: the slot is not touched until the queue has finished. All other memory is scratch,
        // which is freed after that, or the caller's, which guarantees its validity; the tables have
        // checked its ranges. The context is current on this worker.
        unsafe {
            counters.copy();
            queue.copy(Direction::ToGpu, slot, memory, uploaded as u64)?;
            if !launch.fills.is_empty() {
                counters.copy();
                let from = slot.add(fill_at);
                queue.copy(Direction::ToGpu, from, gathered + fill, value_size)?;
            }
            kernels
                .place(&launch.fills, at(fills_at), stream)
                .map_err(failed)?;
            kernels
                .place(&launch.places, at(places_at), stream)
                .map_err(failed)?;
            let (table, sums) = (at(checksums_at), at(checksum_work));
            kernels
                .checksum(&launch.checksums, table, sums, stream)
                .map_err(failed)?;
            kernels
                .deflate(&launch.deflate, &deflate, stream)
                .map_err(failed)?;
            counters.copy();
            queue.copy(Direction::FromGpu, slot, at(ends), ends_size as u64)?;
        }
        queue.finish()?;
        // SAFETY: as above; the copies have finished.
        let bytes = unsafe { std::slice::from_raw_parts(slot, ends_size) };
        let ends: Vec<u64> = DeflateTable::ends(bytes).collect();
        let streams = self.download(slot, at(output), &ends)?;
        streams
            .into_iter()
            .map(|stream| self.with_checksum(stream))
            .collect()
    }

    /// Returns the start of this worker's pinned slot, which has [`SLOT`] bytes.
    fn slot(&mut self) -> Result<*mut u8> {
        let slot = match self.slot.take() {
            Some(slot) => slot,
            None => {
                let context = self.lent.context();
                self.share.ring().slot(SLOT as u64, Some(context))?
            }
        };
        Ok(self.slot.insert(slot).start())
    }

    fn allocate(&mut self, bytes: u64) -> Result<u64> {
        let scratch = Scratch::new(self.lent.queue()?, bytes)?;
        self.scratch.push(scratch);
        Ok(scratch.address)
    }

    /// Describes the work for chunks that are gathered to `inputs`; the fill value is at `fill`.
    fn launch(
        &self,
        batch: &[Numbered],
        inputs: impl Iterator<Item = u64>,
        fill: u64,
    ) -> Result<Launch> {
        let plan = &self.bound.plan;
        let shuffles = Shuffles {
            source: 0,
            target: self.encoding.filters.shuffled,
        };
        let table = |conversion, length| PlaceTable::new(conversion, length, shuffles);
        let places = table(self.bound.conversion, plan.element().length);
        let mut launch = Launch {
            fills: table(TypeConversion::Copy, plan.file_element()).map_err(internal)?,
            places: places.map_err(internal)?,
            checksums: ChecksumTable::new(Checksum::Adler32),
            deflate: DeflateTable::new(),
        };
        for (numbered, address) in batch.iter().zip(inputs) {
            let Changed { job, before, .. } = &numbered.changed;
            let length = job.decoded_size;
            let chunk = Side {
                address,
                length,
                offset: 0,
                shuffled: match self.encoding.filters.shuffled {
                    1 => 0,
                    size => length / u64::from(size),
                },
            };
            if *before == Before::Fill {
                push_value(&mut launch.fills, fill, plan.file_element(), chunk)?;
            }
            for strided in job.boxes(plan) {
                let element = &plan.element();
                push_gathered(&mut launch.places, element, &strided, self.memory, chunk)?;
            }
            launch.checksums.push(address, length, None);
            launch.deflate.push(address, length);
        }
        Ok(launch)
    }

    /// Copies the streams, which lie one after the other, to host memory, through the halves of the
    /// slot in turn.
    fn download(&mut self, slot: *mut u8, output: u64, ends: &[u64]) -> Result<Vec<Vec<u8>>> {
        const HALF: usize = SLOT / 2;
        let total = ends.last().copied().unwrap_or(0) as usize;
        let half_of = |from: usize| from / HALF % 2;
        let counters = self.share.counters();
        let queue = self.lent.queue()?;
        let fetch = |queue: &mut CopyQueue, from: usize| -> Result<()> {
            if from >= total {
                return Ok(());
            }
            let bytes = HALF.min(total - from) as u64;
            counters.copy();
            // SAFETY: the half of the slot is not read meanwhile, and the output has these bytes; both
            // stay valid until the queue has finished.
            unsafe {
                let to = slot.add(half_of(from) * HALF);
                queue.copy(Direction::FromGpu, to, output + from as u64, bytes)?;
            }
            queue.mark(half_of(from))
        };
        fetch(queue, 0)?;
        let mut streams = Vec::with_capacity(ends.len());
        let mut stream = Vec::new();
        let mut ends = ends.iter().map(|end| *end as usize).peekable();
        for from in (0..total).step_by(HALF) {
            fetch(queue, from + HALF)?;
            queue.wait(half_of(from))?;
            let until = total.min(from + HALF);
            let mut at = from;
            while at < until {
                let Some(&end) = ends.peek() else { break };
                if stream.is_empty() {
                    reserve(&mut stream, end - at)?;
                }
                let stop = end.min(until);
                // SAFETY: the copy to this half has finished, and the range lies inside it.
                let bytes = unsafe {
                    let start = slot.add(half_of(from) * HALF + at - from);
                    std::slice::from_raw_parts(start, stop - at)
                };
                stream.extend_from_slice(bytes);
                at = stop;
                if at == end {
                    streams.push(std::mem::take(&mut stream));
                    ends.next();
                }
            }
        }
        Ok(streams)
    }

    /// Adds the checksum of the last filter, if there is one.
    fn with_checksum(&self, stream: Vec<u8>) -> Result<Vec<u8>> {
        let Some(at) = self.encoding.filters.fletcher else {
            return Ok(stream);
        };
        let filter = &self.bound.plan.pipeline().filters[at];
        let absent = || Error::new(Kind::Internal, "there is no checksum filter");
        let known = codec(filter.id).ok_or_else(absent)?;
        let mut stored = Vec::new();
        reserve(&mut stored, stream.len() + 4)?;
        known
            .encode(&filter.values, &stream, &mut stored)
            .map_err(internal)?;
        Ok(stored)
    }
}

/// Sets every element of a chunk to the value at `value`.
fn push_value(table: &mut PlaceTable, value: u64, element: u64, chunk: Side) -> Result<()> {
    let source = Side {
        address: value,
        length: element,
        offset: 0,
        shuffled: 0,
    };
    let all = PlaceAxis {
        count: chunk.length / element,
        source_stride: 0,
        target_stride: element as i64,
    };
    table.push(source, chunk, &[all]).map_err(internal)
}

fn reserve(bytes: &mut Vec<u8>, length: usize) -> Result<()> {
    bytes.try_reserve_exact(length).map_err(|error| {
        let what = format!("no memory for an encoded chunk of {length} bytes: {error}");
        Error::new(Kind::Memory, what)
    })
}
