//! Tables of buffers for the kernels that compute their checksums.

use penstock_sys::cuda::CUdeviceptr;

use super::{Plain, bytes_of};

/// A kind of checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// The checksum of the decoded bytes, stored big-endian at the end of a zlib stream.
    Adler32 = 0,
    /// HDF5's checksum, stored little-endian after the bytes.
    Fletcher32 = 1,
}

/// The result for one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The checksum of the buffer.
    pub computed: u32,
    /// Whether the stored checksum is equal or none is stored.
    pub sound: bool,
}

/// `ChecksumBuffer` of checksum.cuh.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Buffer {
    first: u64,
    data: u64,
    length: u64,
    stored: u64,
}

/// `ChecksumLaunch` of checksum.cuh.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct ChecksumLaunch {
    buffers: u64,
    sums: u64,
    verdicts: u64,
    stretches: u64,
    pub count: u32,
    kind: u32,
}

const _: () = assert!(size_of::<Buffer>() == 32);
const _: () = assert!(size_of::<ChecksumLaunch>() == 40);

// SAFETY: `repr(C)`, integers only, and as large as its members together.
unsafe impl Plain for Buffer {}
// SAFETY: as above.
unsafe impl Plain for ChecksumLaunch {}

/// `STRETCH`, `GROUP` and `LANES` of checksum.cuh.
const STRETCH: u64 = 32 << 10;
const GROUP: u64 = 16;
const LANES: u32 = 32;
const SUMS_SIZE: usize = 16;

/// The buffers whose checksums one launch computes.
#[derive(Debug)]
pub struct ChecksumTable {
    kind: Checksum,
    buffers: Vec<Buffer>,
    stretches: u64,
}

impl ChecksumTable {
    /// An empty table, for checksums of one kind.
    pub fn new(kind: Checksum) -> ChecksumTable {
        ChecksumTable {
            kind,
            buffers: Vec::new(),
            stretches: 0,
        }
    }

    /// Adds a buffer of `length` bytes. `stored` is the device address, at any alignment, of the four
    /// bytes of the checksum from the file.
    pub fn push(&mut self, data: CUdeviceptr, length: u64, stored: Option<CUdeviceptr>) {
        debug_assert!(self.buffers.len() < u32::MAX as usize);
        self.buffers.push(Buffer {
            first: self.stretches,
            data,
            length,
            stored: stored.unwrap_or(0),
        });
        if length > 0 {
            self.stretches += (data % GROUP + length).div_ceil(STRETCH);
        }
    }

    /// The size of the table in bytes.
    pub fn size(&self) -> usize {
        size_of_val(&*self.buffers)
    }

    /// Writes the table to `to`, of [`ChecksumTable::size`] bytes or more, for its upload.
    pub fn write(&self, to: &mut [u8]) {
        let bytes = bytes_of(&self.buffers);
        to[..bytes.len()].copy_from_slice(bytes);
    }

    /// The bytes of device memory that a launch needs besides the table.
    pub fn work_size(&self) -> usize {
        self.sums_size() + self.verdicts_size()
    }

    /// The offset of the verdicts in that memory, one for each buffer.
    pub fn verdicts_offset(&self) -> usize {
        self.sums_size()
    }

    /// The size of all verdicts in bytes.
    pub fn verdicts_size(&self) -> usize {
        self.buffers.len() * Self::VERDICT
    }

    /// The size of a verdict in bytes.
    pub const VERDICT: usize = 8;

    /// The verdicts in bytes that were copied back from the device.
    pub fn verdicts(bytes: &[u8]) -> impl Iterator<Item = Verdict> {
        let (verdicts, _) = bytes.as_chunks::<{ Self::VERDICT }>();
        verdicts.iter().map(|verdict| {
            let [a, b, c, d, sound @ ..] = *verdict;
            Verdict {
                computed: u32::from_le_bytes([a, b, c, d]),
                sound: u32::from_le_bytes(sound) == 1,
            }
        })
    }

    pub(super) fn sums_size(&self) -> usize {
        self.buffers.len() * SUMS_SIZE
    }

    pub(super) fn launch(&self, at: CUdeviceptr, work: CUdeviceptr) -> Option<ChecksumLaunch> {
        (!self.buffers.is_empty()).then(|| ChecksumLaunch {
            buffers: at,
            sums: work,
            verdicts: work + self.sums_size() as u64,
            stretches: self.stretches,
            count: self.buffers.len() as u32,
            kind: self.kind as u32,
        })
    }

    pub(super) fn blocks(&self, threads: u32) -> u64 {
        self.stretches.div_ceil(u64::from(threads / LANES))
    }
}
