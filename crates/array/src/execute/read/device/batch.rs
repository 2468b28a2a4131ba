//! A batch of chunks that the GPU decodes: its memory, and what loading finds in it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use penstock_codec::gpu::PlaceTable;
use penstock_engine::Recover;
use penstock_engine::error::Error;
use penstock_engine::gpu::{CopyQueue, Holding, QueueLease};

use super::gpu_filters::{GpuFilters, stored_room, stride};
use super::plans::DevicePlans;
use crate::ChunkJob;
use crate::execute::device::ALIGNMENT;
use crate::execute::device::scratch::Scratch;

/// Mark on a batch's queue after its memory is allocated.
pub(super) const ALLOCATED: usize = 0;
/// Mark on a batch's queue after all its chunks are decoded and placed.
pub(super) const DECODED: usize = 1;

/// A batch that workers load.
pub(super) struct GpuBatch {
    /// Number of the plan.
    pub plan: usize,
    pub filters: GpuFilters,
    pub jobs: Vec<ChunkJob>,
    /// Destinations of the decoded bytes, by job.
    pub outputs: Vec<Output>,
    /// Memory for the stored bytes.
    pub stored: Scratch,
    /// Bytes of `stored` that are taken.
    pub taken: AtomicU64,
    decoded: Scratch,
    pub queue: Mutex<CopyQueue>,
    /// Dropped after the queue, which waits for the release of the memory.
    _holding: Holding,
    /// Number of jobs whose loading has begun.
    pub next: AtomicUsize,
    /// Number of jobs that are loaded.
    pub loaded: AtomicUsize,
    pub found: Mutex<Found>,
}

/// The memory to which the GPU decodes a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Output {
    pub address: u64,
    /// Whether this is the chunk's place in the destination, where it may still have to be
    /// unshuffled or converted.
    pub in_place: bool,
}

/// The results of loading.
#[derive(Default)]
pub(super) struct Found {
    pub entries: Vec<Entry>,
    /// Jobs that the CPU must decode.
    pub again: Vec<usize>,
    /// Tables for the kernel that places elements, for jobs that are not decoded in place.
    pub places: Vec<PlaceTable>,
    /// Number of elements of all jobs except those that the CPU must decode.
    pub elements: u64,
}

/// A piece of a chunk that the GPU decodes. Addresses are on the GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub job: usize,
    pub input: u64,
    pub input_size: u64,
    pub output: u64,
    pub room: u64,
    /// Address of the chunk's Adler-32 checksum, in the entry of its first piece.
    pub checksum: Option<u64>,
}

impl GpuBatch {
    /// Allocates the memory of a batch. Returns the jobs with the error if that fails.
    pub(super) fn new(
        plans: &DevicePlans,
        plan: usize,
        filters: GpuFilters,
        jobs: Vec<ChunkJob>,
        lent: &QueueLease<'_>,
    ) -> std::result::Result<GpuBatch, (Error, Vec<ChunkJob>)> {
        let stored = jobs.iter().map(|j| stored_room(j.stored_size)).sum();
        let mut decoded = 0;
        let mut outputs: Vec<Output> = jobs
            .iter()
            .map(|job| match filters.place(job, plans.bound(plan)) {
                Some(place) => Output {
                    address: plans.target.start + place,
                    in_place: true,
                },
                None => {
                    let address = decoded;
                    decoded += stride(job.decoded_size);
                    Output {
                        address,
                        in_place: false,
                    }
                }
            })
            .collect();
        let holding = lent.context().hold_memory();
        let made = lent.context().queue().and_then(|mut queue| {
            let stored = Scratch::new(&mut queue, stored)?;
            match Scratch::new(&mut queue, decoded) {
                Ok(decoded) => Ok((queue, stored, decoded)),
                Err(error) => {
                    stored.release(&mut queue);
                    Err(error)
                }
            }
        });
        match made {
            Ok((mut queue, stored, decoded)) => {
                // Loaders copy on their own queues, which must wait for this allocation.
                if let Err(error) = queue.mark(ALLOCATED) {
                    stored.release(&mut queue);
                    decoded.release(&mut queue);
                    return Err((error, jobs));
                }
                for output in outputs.iter_mut().filter(|o| !o.in_place) {
                    output.address += decoded.address;
                }
                Ok(GpuBatch {
                    outputs,
                    plan,
                    filters,
                    jobs,
                    stored,
                    taken: AtomicU64::new(0),
                    decoded,
                    queue: Mutex::new(queue),
                    _holding: holding,
                    next: AtomicUsize::new(0),
                    loaded: AtomicUsize::new(0),
                    found: Mutex::default(),
                })
            }
            Err(error) => Err((error, jobs)),
        }
    }

    /// Returns the decoded size of a chunk.
    pub(super) fn chunk(&self) -> u64 {
        self.jobs.first().map_or(1, |job| job.decoded_size)
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, CopyQueue> {
        self.queue.lock().recover()
    }

    pub(super) fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().recover()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.stored.bytes + self.decoded.bytes
    }

    /// Releases the memory once all queued work has finished.
    pub(super) fn release(&self) {
        let mut queue = self.queue();
        self.stored.release(&mut queue);
        self.decoded.release(&mut queue);
    }

    /// Takes room in the memory for stored bytes; `None` if there is not enough.
    pub(super) fn take(&self, bytes: u64) -> Option<u64> {
        let bytes = bytes.next_multiple_of(ALIGNMENT as u64);
        let at = self.taken.fetch_add(bytes, Relaxed);
        (at + bytes <= self.stored.bytes).then_some(self.stored.address + at)
    }
}
