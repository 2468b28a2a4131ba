//! Tables of chunks for the kernels that encode them as zlib streams.

use penstock_sys::cuda::CUdeviceptr;

use super::{Plain, bytes_of};

/// `DeflateChunk` of deflate.cuh.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Chunk {
    first: u64,
    input: u64,
    length: u64,
}

/// `DeflateLaunch` of deflate.cuh.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct DeflateLaunch {
    chunks: u64,
    sizes: u64,
    rooms: u64,
    items: u64,
    count: u32,
    segments: u32,
}

/// `DeflateJoin` of deflate.cuh.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct DeflateJoin {
    chunks: u64,
    sizes: u64,
    rooms: u64,
    checksums: u64,
    output: u64,
    ends: u64,
    count: u32,
    segments: u32,
}

const _: () = assert!(size_of::<Chunk>() == 24);
const _: () = assert!(size_of::<DeflateLaunch>() == 40);
const _: () = assert!(size_of::<DeflateJoin>() == 56);

// SAFETY: `repr(C)`, integers only, and as large as its members together.
unsafe impl Plain for Chunk {}
// SAFETY: as above.
unsafe impl Plain for DeflateLaunch {}
// SAFETY: as above.
unsafe impl Plain for DeflateJoin {}

/// `DEFLATE_WARPS`, `SEGMENT` and `SEGMENT_ROOM` of deflate.cuh, and the lanes of a warp.
const WARPS: u32 = 2;
const SEGMENT: u64 = 32 << 10;
const SEGMENT_ROOM: u64 = SEGMENT + 8;
const LANES: u32 = 32;
/// The bytes of the items of a warp's segment.
const ITEMS: u64 = 2 * SEGMENT;
/// The bytes of a stream besides its blocks, and those that a block has at most besides its segment.
const ZLIB: u64 = 6;
const BLOCK: u64 = 5;
/// The size of the end of a stream.
const END_SIZE: usize = size_of::<u64>();

/// The chunks that one launch encodes, each as a zlib stream (RFC 1950) that any decoder reads. The
/// streams lie one directly after the other in the output.
#[derive(Debug, Default)]
pub struct DeflateTable {
    chunks: Vec<Chunk>,
    segments: u64,
    bound: u64,
}

/// Device memory for one launch. All addresses are multiples of 8.
#[derive(Clone, Copy, Debug)]
pub struct DeflateMemory {
    /// The uploaded table.
    pub table: CUdeviceptr,
    /// [`Kernels::deflate_work_size`](super::Kernels::deflate_work_size) free bytes.
    pub work: CUdeviceptr,
    /// The verdicts of a launch of [`Checksum::Adler32`](super::Checksum::Adler32) for the same chunks,
    /// in the same order.
    pub checksums: CUdeviceptr,
    /// [`DeflateTable::output_bound`] free bytes, which have the streams once the launch completes.
    pub output: CUdeviceptr,
    /// [`DeflateTable::ends_size`] free bytes, which have the end of each stream.
    pub ends: CUdeviceptr,
}

impl DeflateTable {
    /// The threads of a block of the launches.
    pub(super) const THREADS: u32 = WARPS * LANES;
    /// The most segments of a table: each is put behind those before it, whose sizes it adds up.
    pub const MOST_SEGMENTS: u64 = 1 << 14;
    /// The bytes after each chunk that the kernel may read.
    pub const MARGIN: u64 = 16;

    /// An empty table.
    pub fn new() -> DeflateTable {
        DeflateTable::default()
    }

    /// The number of segments in which a chunk of `length` bytes is encoded.
    pub fn segments_of(length: u64) -> u64 {
        length.div_ceil(SEGMENT)
    }

    /// The most bytes of device memory that a chunk of `length` bytes takes during a launch, including
    /// its own.
    pub fn memory_of(length: u64) -> u64 {
        let segments = Self::segments_of(length);
        let work = segments * (SEGMENT_ROOM + ITEMS + 4);
        length + Self::MARGIN + work + length + BLOCK * segments + ZLIB
    }

    /// Adds a chunk of `length` bytes, at least one. The address is a multiple of 8, and
    /// [`DeflateTable::MARGIN`] bytes after the end can be read.
    pub fn push(&mut self, input: CUdeviceptr, length: u64) {
        debug_assert!(length > 0 && input.is_multiple_of(8));
        self.chunks.push(Chunk {
            first: self.segments,
            input,
            length,
        });
        let segments = Self::segments_of(length);
        self.segments += segments;
        self.bound += length + BLOCK * segments + ZLIB;
    }

    /// The size of the table in bytes.
    pub fn size(&self) -> usize {
        size_of_val(&*self.chunks)
    }

    /// Writes the table to `to`, of [`DeflateTable::size`] bytes or more, for its upload.
    pub fn write(&self, to: &mut [u8]) {
        let bytes = bytes_of(&self.chunks);
        to[..bytes.len()].copy_from_slice(bytes);
    }

    /// The largest size of all streams together in bytes.
    pub fn output_bound(&self) -> u64 {
        self.bound
    }

    /// The size of the ends of all streams in bytes.
    pub fn ends_size(&self) -> usize {
        self.chunks.len() * END_SIZE
    }

    /// The ends of the streams in bytes that were copied back from the device.
    pub fn ends(bytes: &[u8]) -> impl Iterator<Item = u64> {
        let (ends, _) = bytes.as_chunks::<END_SIZE>();
        ends.iter().map(|end| u64::from_le_bytes(*end))
    }

    /// The grid has a warp for each segment, but no more blocks than the GPU can run at a time.
    pub(super) fn blocks(&self, most: u32) -> u32 {
        let wanted = self.segments.div_ceil(u64::from(WARPS));
        wanted.clamp(1, u64::from(most)) as u32
    }

    /// The bytes of device memory for the sizes and rooms of all segments and for the items of each
    /// warp of `blocks` blocks.
    pub(super) fn work_size(&self, blocks: u32) -> u64 {
        let warps = u64::from(blocks * WARPS);
        self.sizes_size() + self.segments * SEGMENT_ROOM + warps * ITEMS
    }

    fn sizes_size(&self) -> u64 {
        (4 * self.segments).next_multiple_of(8)
    }

    pub(super) fn launch(&self, memory: &DeflateMemory) -> Option<(DeflateLaunch, DeflateJoin)> {
        if self.chunks.is_empty() {
            return None;
        }
        let (count, segments) = (self.chunks.len() as u32, self.segments as u32);
        let rooms = memory.work + self.sizes_size();
        let launch = DeflateLaunch {
            chunks: memory.table,
            sizes: memory.work,
            rooms,
            items: rooms + self.segments * SEGMENT_ROOM,
            count,
            segments,
        };
        let join = DeflateJoin {
            chunks: memory.table,
            sizes: memory.work,
            rooms,
            checksums: memory.checksums,
            output: memory.output,
            ends: memory.ends,
            count,
            segments,
        };
        Some((launch, join))
    }
}
