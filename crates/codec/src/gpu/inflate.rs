//! Tables of deflate streams for the kernel that decodes them.

use penstock_sys::cuda::CUdeviceptr;

use super::{Plain, bytes_of};

/// The result for one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inflated {
    /// The stream decoded to the expected size.
    Done,
    /// The input ends before the stream does.
    Truncated,
    /// A block has the reserved type.
    BadBlock,
    /// The length of a stored block contradicts its complement.
    BadStored,
    /// The code lengths of a block do not form a prefix code.
    BadCodes,
    /// Some bits are not a code, or are a reserved one.
    BadSymbol,
    /// A distance points before the start of the output.
    BadDistance,
    /// The stream decodes to more than the expected size.
    TooLong,
    /// The stream decodes to less than the expected size.
    TooShort,
    /// The kernel did not write a known result.
    Unknown,
}

/// `InflateStream` of inflate.cuh.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Stream {
    input: u64,
    output: u64,
    length: u32,
    room: u32,
}

/// `InflateLaunch` of inflate.cuh.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct InflateLaunch {
    streams: u64,
    verdicts: u64,
    count: u32,
    reserved: u32,
}

const _: () = assert!(size_of::<Stream>() == 24);
const _: () = assert!(size_of::<InflateLaunch>() == 24);

// SAFETY: `repr(C)`, integers only, and as large as its members together.
unsafe impl Plain for Stream {}
// SAFETY: as above.
unsafe impl Plain for InflateLaunch {}

/// `INFLATE_WARPS` of inflate_codes.cuh and the lanes of a warp.
const WARPS: u32 = 2;
const LANES: u32 = 32;
const VERDICT_SIZE: usize = 8;

/// Raw deflate streams, without zlib's header and checksum, that one launch decodes. No input,
/// however damaged, makes the kernel access memory outside the input and output of its stream.
#[derive(Debug, Default)]
pub struct InflateTable {
    streams: Vec<Stream>,
}

impl InflateTable {
    /// The threads of a block of the launch.
    pub(super) const THREADS: u32 = WARPS * LANES;

    /// An empty table.
    pub fn new() -> InflateTable {
        InflateTable::default()
    }

    /// Adds a stream of `length` bytes, which must decode to `room` bytes. Both addresses may have
    /// any alignment; outputs at multiples of 32 are written fastest. Input after the end of the
    /// stream is ignored.
    pub fn push(&mut self, input: CUdeviceptr, length: u32, output: CUdeviceptr, room: u32) {
        debug_assert!(self.streams.len() < i32::MAX as usize);
        self.streams.push(Stream {
            input,
            output,
            length,
            room,
        });
    }

    /// The size of the table in bytes.
    pub fn size(&self) -> usize {
        size_of_val(&*self.streams)
    }

    /// Writes the table to `to`, of [`InflateTable::size`] bytes or more, for its upload.
    pub fn write(&self, to: &mut [u8]) {
        let bytes = bytes_of(&self.streams);
        to[..bytes.len()].copy_from_slice(bytes);
    }

    /// The bytes of device memory that the verdicts take, one for each stream.
    pub fn verdicts_size(&self) -> usize {
        self.streams.len() * VERDICT_SIZE
    }

    /// The verdicts in bytes that were copied back from the device. Unless one is
    /// [`Inflated::Done`], the contents of its output are unspecified.
    pub fn verdicts(bytes: &[u8]) -> impl Iterator<Item = Inflated> {
        let (verdicts, _) = bytes.as_chunks::<VERDICT_SIZE>();
        verdicts.iter().map(|verdict| {
            let [a, b, c, d, ..] = *verdict;
            match u32::from_le_bytes([a, b, c, d]) {
                0 => Inflated::Done,
                1 => Inflated::Truncated,
                2 => Inflated::BadBlock,
                3 => Inflated::BadStored,
                4 => Inflated::BadCodes,
                5 => Inflated::BadSymbol,
                6 => Inflated::BadDistance,
                7 => Inflated::TooLong,
                8 => Inflated::TooShort,
                _ => Inflated::Unknown,
            }
        })
    }

    pub(super) fn launch(&self, at: CUdeviceptr, verdicts: CUdeviceptr) -> Option<InflateLaunch> {
        (!self.streams.is_empty()).then_some(InflateLaunch {
            streams: at,
            verdicts,
            count: self.streams.len() as u32,
            reserved: 0,
        })
    }

    /// The grid has a warp for each stream: the block of a short stream ends early and makes room
    /// for the next block.
    pub(super) fn blocks(&self) -> u32 {
        (self.streams.len() as u32).div_ceil(WARPS)
    }
}
