//! The filters that the GPU undoes, and the GPU memory that a chunk with them needs.

use penstock_codec::Filter;
use penstock_codec::filters::id;
use penstock_codec::gpu::nvcomp::Method;

use crate::ChunkJob;
use crate::execute::bound::BoundPlan;
use crate::execute::device::ALIGNMENT;

/// The filters of a plan of which the GPU undoes all but the checksum.
#[derive(Clone, Copy, Debug)]
pub(super) struct GpuFilters {
    pub method: Method,
    method_at: usize,
    pub is_shuffled: bool,
    /// Position of the checksum filter, which the CPU verifies while it loads.
    pub fletcher: Option<usize>,
}

impl GpuFilters {
    /// Accepts, in order of encoding: an optional shuffle, a filter that the GPU decodes, an
    /// optional checksum.
    pub(super) fn of(filters: &[Filter]) -> Option<GpuFilters> {
        let mut rest = filters.iter().enumerate().peekable();
        // The kernel that places the elements undoes the shuffle.
        let shuffle = rest.next_if(|(_, f)| f.id == id::SHUFFLE);
        let (method_at, method) = rest.next()?;
        let fletcher = rest.next_if(|(_, f)| f.id == id::FLETCHER32);
        if rest.next().is_some() {
            return None;
        }
        Some(GpuFilters {
            method: Method::of_filter(method.id)?,
            method_at,
            is_shuffled: shuffle.is_some(),
            fletcher: fletcher.map(|(at, _)| at),
        })
    }

    /// Returns whether the chunk has a checksum, which the filter mask may skip.
    pub(super) fn has_fletcher(&self, job: &ChunkJob) -> bool {
        self.fletcher.is_some_and(|at| job.mask >> at & 1 == 0)
    }

    /// Returns the GPU memory that a chunk needs; `None` if the CPU must decode it.
    pub(super) fn needs(&self, job: &ChunkJob, bound: &BoundPlan) -> Option<u64> {
        let most = self.method.max_decodable() as u64;
        let boxes = job.box_count();
        let fits = !job.is_plain
            && boxes <= MOST_BOXES
            && job.mask >> self.method_at & 1 == 0
            && job.decoded_size <= most
            && job.stored_size <= most;
        // nvCOMP needs temporary memory of this size in addition.
        let temp = match self.method {
            Method::Zstd => 3 * job.decoded_size,
            Method::Deflate | Method::Lz4 => 0,
        };
        let decoded = match self.place(job, bound) {
            Some(_) => 0,
            None => stride(job.decoded_size),
        };
        fits.then(|| stored_room(job.stored_size) + decoded + temp + boxes * TABLES)
    }

    /// Returns the place in the destination to which a chunk is decoded directly. Only Penstock's
    /// own kernel never writes outside the place, even for a damaged chunk.
    pub(super) fn place(&self, job: &ChunkJob, bound: &BoundPlan) -> Option<u64> {
        let fits = self.method == Method::Deflate
            && job.decoded_size >= IN_PLACE_FROM
            && bound.conversion.size_after(job.decoded_size as usize) as u64 == job.decoded_size;
        fits.then(|| job.whole(&bound.plan)).flatten()
    }
}

/// Chunks with more boxes are left to the CPU, which uploads their tables in parts.
const MOST_BOXES: u64 = 64;
/// Approximate size of a box in the tables.
const TABLES: u64 = 128;

/// Smallest chunk that is decoded directly into its place: the GPU needs many chunks at a time, and
/// large ones would take too much memory.
const IN_PLACE_FROM: u64 = 128 << 10;

/// Returns the room for a chunk's stored bytes, including the alignment of its pieces.
pub(super) fn stored_room(stored: u64) -> u64 {
    (stored + ALIGNMENT as u64).next_multiple_of(ALIGNMENT as u64)
}

/// Returns the room for a decoded chunk.
pub(super) fn stride(decoded: u64) -> u64 {
    decoded.next_multiple_of(ALIGNMENT as u64)
}
