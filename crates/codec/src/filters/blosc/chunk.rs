//! Decodes the chunk format that both versions of Blosc share: a header, a table of block offsets,
//! and the blocks. A block is one compressed stream, or one for each byte of an element.

use super::inner::Inner;
use crate::error::{CodecError, Result};
use crate::filters::bitshuffle::unshuffle_bits;
use crate::filters::shuffle::unshuffle;
use crate::filters::{sized, wrong_size};

pub(super) const HEADER: usize = 16;
/// The size of Blosc2's header, which lists its filters.
pub(super) const LONG_HEADER: usize = 32;
/// The newest format version of Blosc1.
pub(super) const VERSION_1: u8 = 2;
/// The format version of Blosc2 that is written.
pub(super) const VERSION_2: u8 = 5;
/// The newest format version of Blosc2.
const VERSION_2_LAST: u8 = 6;
pub(super) const FILTERS: usize = 6;
/// The limits within which Blosc1 splits a block into streams.
pub(super) const MAX_STREAMS: usize = 16;
pub(super) const MIN_STREAM: usize = 128;

pub(super) mod flag {
    pub(in crate::filters::blosc) const SHUFFLE: u8 = 0x01;
    pub(in crate::filters::blosc) const STORED: u8 = 0x02;
    pub(in crate::filters::blosc) const BIT_SHUFFLE: u8 = 0x04;
    pub(in crate::filters::blosc) const DELTA: u8 = 0x08;
    pub(in crate::filters::blosc) const ONE_STREAM: u8 = 0x10;
    /// Both together mean a long header.
    pub(in crate::filters::blosc) const LONG: u8 = SHUFFLE | BIT_SHUFFLE;
}

/// Blosc2's filter identifiers.
pub(super) mod filter {
    pub(in crate::filters::blosc) const NONE: u8 = 0;
    pub(in crate::filters::blosc) const SHUFFLE: u8 = 1;
    pub(in crate::filters::blosc) const BIT_SHUFFLE: u8 = 2;
    pub(in crate::filters::blosc) const DELTA: u8 = 3;
    pub(in crate::filters::blosc) const TRUNCATE: u8 = 4;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::filters) enum Version {
    One,
    Two,
}

/// A filter to undo in a decompressed block.
#[derive(Clone, Copy)]
enum Undo {
    /// Of elements of this many bytes.
    Shuffle(usize),
    BitShuffle,
}

enum Body<'a> {
    Stored(&'a [u8]),
    /// A repeated special value of this many bytes.
    Repeated([u8; 8], usize),
    /// A repeated value that the chunk stores.
    RepeatedValue(&'a [u8]),
    /// The offset of each block in the chunk.
    Blocks(&'a [[u8; 4]]),
}

/// A parsed header. Of the body, only the size of its table is checked yet.
pub(in crate::filters) struct Chunk<'a> {
    name: &'static str,
    bytes: &'a [u8],
    version: u8,
    len: usize,
    block_len: usize,
    typesize: usize,
    inner: Inner,
    split: bool,
    undo: Vec<Undo>,
    delta: bool,
    body: Body<'a>,
}

/// Memory reused from block to block.
#[derive(Default)]
pub(in crate::filters) struct Scratch {
    first: Vec<u8>,
    second: Vec<u8>,
    planes: Vec<u8>,
}

impl<'a> Chunk<'a> {
    /// `name` is the filter that errors name.
    pub(in crate::filters) fn parse(name: &'static str, bytes: &'a [u8]) -> Result<Self> {
        let error = |cause: String| CodecError::new(name, cause);
        let Some(&[version, _, flags, typesize]) = bytes.first_chunk() else {
            return Err(error("the chunk ends inside its header".into()));
        };
        let field = |at: usize| {
            let bytes = bytes.get(at..at + 4)?.first_chunk::<4>()?;
            usize::try_from(i32::from_le_bytes(*bytes)).ok()
        };
        let (Some(len), Some(block_len), Some(size)) = (field(4), field(8), field(12)) else {
            return Err(error(
                "the chunk's header is truncated or has negative sizes".into(),
            ));
        };
        if !matches!(version, VERSION_1 | 4..=VERSION_2_LAST) {
            return Err(error(format!("chunk format {version} is not supported")).unsupported());
        }
        let long = flags & flag::LONG == flag::LONG && version > VERSION_1;
        let header = if long { LONG_HEADER } else { HEADER };
        let bytes = bytes
            .get(..size)
            .filter(|bytes| bytes.len() >= header)
            .ok_or_else(|| error(format!("the chunk claims to have {size} stored bytes")))?;
        if typesize == 0 || (len > 0 && block_len == 0) {
            return Err(error(format!(
                "elements of {typesize} bytes in blocks of {block_len} are invalid"
            )));
        }
        let mut chunk = Chunk {
            name,
            bytes,
            version,
            len,
            block_len: block_len.min(len),
            typesize: typesize.into(),
            inner: Inner::BloscLz,
            split: flags & flag::ONE_STREAM == 0,
            undo: Vec::new(),
            delta: false,
            body: Body::Stored(&bytes[header..]),
        };
        let mut special = 0;
        if long {
            special = chunk.read_long_header()?;
        } else {
            if flags & flag::LONG == flag::LONG
                || (version == VERSION_1 && flags & flag::DELTA != 0)
            {
                return Err(error(format!("flags {flags:#04x} are not supported")).unsupported());
            }
            chunk.delta = flags & flag::DELTA != 0;
            if flags & flag::SHUFFLE != 0 {
                chunk.undo.push(Undo::Shuffle(chunk.typesize));
            } else if flags & flag::BIT_SHUFFLE != 0 {
                chunk.undo.push(Undo::BitShuffle);
            }
        }
        if special != 0 {
            chunk.body = chunk.special(special)?;
        } else if flags & flag::STORED != 0 {
            if bytes.len() - header != len {
                return Err(error(format!(
                    "{} stored bytes instead of {len}",
                    bytes.len() - header
                )));
            }
        } else {
            let format = flags >> 5;
            chunk.inner = Inner::from_format(format).map_err(|which| {
                let user = if long { bytes[22] } else { 0 };
                let number = if format == 6 { user } else { format };
                error(format!("the {which} compressor {number} is not supported")).unsupported()
            })?;
            let blocks = chunk.blocks();
            let starts = bytes[header..]
                .as_chunks::<4>()
                .0
                .get(..blocks)
                .ok_or_else(|| {
                    error(format!(
                        "the chunk is too short for the offsets of {blocks} blocks"
                    ))
                })?;
            chunk.body = Body::Blocks(starts);
        }
        Ok(chunk)
    }

    /// A chunk of which only its size and the number of its special value are stored.
    pub(in crate::filters) fn unstored(
        name: &'static str,
        special: u8,
        typesize: usize,
        len: usize,
        block_len: usize,
    ) -> Result<Self> {
        let mut chunk = Chunk {
            name,
            bytes: &[],
            version: VERSION_2,
            len,
            block_len: block_len.clamp(len.min(1), len),
            typesize,
            inner: Inner::BloscLz,
            split: false,
            undo: Vec::new(),
            delta: false,
            body: Body::Stored(&[]),
        };
        chunk.body = chunk.special(special)?;
        Ok(chunk)
    }

    /// Reads filters and flags of a long header; returns the number of the special value.
    fn read_long_header(&mut self) -> Result<u8> {
        let header = self.bytes;
        let (filters, meta) = (&header[16..16 + FILTERS], &header[24..24 + FILTERS]);
        let (flags2, flags) = (header[30], header[31]);
        for (bit, what) in [
            (0x01, "a dictionary"),
            (0x08, "a lazy chunk"),
            (0x80, "an instrumented chunk"),
        ] {
            if flags & bit != 0 {
                return Err(self.error(format!("{what} is not supported")).unsupported());
            }
        }
        if flags2 & 1 != 0 {
            return Err(self
                .error("blocks of variable length are not supported")
                .unsupported());
        }
        if self.version == VERSION_2_LAST && flags2 != 0 {
            return Err(self
                .error(format!("flags {flags2:#04x} are not supported"))
                .unsupported());
        }
        for (filter, meta) in filters.iter().zip(meta) {
            match *filter {
                filter::NONE | filter::TRUNCATE => {}
                filter::SHUFFLE if *meta == 0 => self.undo.push(Undo::Shuffle(self.typesize)),
                filter::SHUFFLE => self.undo.push(Undo::Shuffle((*meta).into())),
                filter::BIT_SHUFFLE => self.undo.push(Undo::BitShuffle),
                // Delta refers to decoded elements, so no other filter may be undone after it.
                filter::DELTA if self.undo.is_empty() && !self.delta => self.delta = true,
                filter::DELTA => return Err(self.error("delta is not the first filter")),
                other => {
                    return Err(self
                        .error(format!("the inner filter {other} is not supported"))
                        .unsupported());
                }
            }
        }
        self.undo.reverse();
        Ok(flags >> 4 & 7)
    }

    /// The body of a chunk that repeats a special value.
    fn special(&self, number: u8) -> Result<Body<'a>> {
        let repeated = |value: [u8; 8], size: usize| {
            if self.len.is_multiple_of(size) {
                Ok(Body::Repeated(value, size))
            } else {
                Err(self.error(format!(
                    "{} bytes are not a whole number of elements of {size} bytes",
                    self.len
                )))
            }
        };
        match (number, self.typesize) {
            // Uninitialized values may be anything; zeros make results reproducible.
            (1 | 4, _) => repeated([0; 8], 1),
            (2, 4) => repeated(u64::from(f32::NAN.to_bits()).to_le_bytes(), 4),
            (2, 8) => repeated(f64::NAN.to_bits().to_le_bytes(), 8),
            (2, size) => Err(self.error(format!("no NaN has {size} bytes"))),
            (3, _) => {
                let value = self.bytes.get(LONG_HEADER..).unwrap_or_default();
                if value.is_empty() || !self.len.is_multiple_of(value.len()) {
                    return Err(self.error("the repeated value does not fill the chunk"));
                }
                Ok(Body::RepeatedValue(value))
            }
            _ => Err(self.error(format!("special value {number} is unknown"))),
        }
    }

    fn error(&self, cause: impl Into<String>) -> CodecError {
        CodecError::new(self.name, cause)
    }

    pub(in crate::filters) fn version(&self) -> Version {
        if self.version <= VERSION_1 {
            Version::One
        } else {
            Version::Two
        }
    }

    /// The decoded size.
    pub(in crate::filters) fn len(&self) -> usize {
        self.len
    }

    /// The decoded size of every block but the last.
    pub(in crate::filters) fn block_len(&self) -> usize {
        self.block_len
    }

    fn blocks(&self) -> usize {
        if self.len == 0 {
            0
        } else {
            self.len.div_ceil(self.block_len)
        }
    }

    /// Whether blocks are differences from the first one, which must then be decoded first.
    pub(in crate::filters) fn needs_first_block(&self) -> bool {
        self.delta && matches!(self.body, Body::Blocks(_))
    }

    pub(in crate::filters) fn decode_into(&self, output: &mut [u8]) -> Result<()> {
        if output.len() != self.len {
            return Err(wrong_size(self.name, self.len, output.len()));
        }
        if let Body::Stored(bytes) = self.body {
            output.copy_from_slice(bytes);
            return Ok(());
        }
        let mut scratch = Scratch::default();
        let (first, rest) = output.split_at_mut(self.block_len);
        if self.len > 0 {
            self.decode_block(0, &[], &mut scratch, first)?;
        }
        for (index, block) in rest.chunks_mut(self.block_len.max(1)).enumerate() {
            self.decode_block(index + 1, first, &mut scratch, block)?;
        }
        Ok(())
    }

    /// Decodes block `index` into `output`, which has the block's size. `first` is the decoded first
    /// block if [`Self::needs_first_block`]; decoding the first block itself ignores it.
    pub(in crate::filters) fn decode_block(
        &self,
        index: usize,
        first: &[u8],
        scratch: &mut Scratch,
        output: &mut [u8],
    ) -> Result<()> {
        let from = index * self.block_len;
        let starts = match self.body {
            Body::Stored(bytes) => {
                output.copy_from_slice(&bytes[from..from + output.len()]);
                return Ok(());
            }
            Body::Repeated(value, size) => {
                repeat(&value[..size], from, output);
                return Ok(());
            }
            Body::RepeatedValue(value) => {
                repeat(value, from, output);
                return Ok(());
            }
            Body::Blocks(starts) => starts,
        };
        let start = u32::from_le_bytes(starts[index]) as usize;
        let streams = self
            .bytes
            .get(start..)
            .ok_or_else(|| self.error(format!("block {index} starts past the chunk")))?;

        if let Some((last, earlier)) = self.undo.split_last() {
            let Scratch {
                first,
                second,
                planes,
            } = scratch;
            let mut from = sized(self.name, first, output.len())?;
            let mut to = sized(self.name, second, output.len())?;
            let planes = sized(self.name, planes, output.len())?;
            self.decode_streams(index, streams, from)?;
            for undo in earlier {
                self.undo(*undo, from, planes, to);
                std::mem::swap(&mut from, &mut to);
            }
            self.undo(*last, from, planes, output);
        } else {
            self.decode_streams(index, streams, output)?;
        }
        if self.delta {
            self.undo_delta(index, first, output);
        }
        Ok(())
    }

    /// Whether a block of this size is split into one stream for each byte of an element.
    fn is_split(&self, len: usize) -> bool {
        let full = len == self.block_len;
        let old = self.version <= VERSION_1;
        self.split
            && full
            && (!old || (self.typesize <= MAX_STREAMS && len / self.typesize >= MIN_STREAM))
    }

    fn decode_streams(&self, index: usize, streams: &[u8], output: &mut [u8]) -> Result<()> {
        let damaged = || self.error(format!("block {index} is damaged"));
        let count = if self.is_split(output.len()) {
            self.typesize
        } else {
            1
        };
        if !output.len().is_multiple_of(count) || output.len() < count {
            return Err(damaged());
        }
        let mut rest = streams;
        for stream in output.chunks_exact_mut(output.len() / count) {
            let (size, after) = rest.split_first_chunk::<4>().ok_or_else(damaged)?;
            rest = after;
            let size = i32::from_le_bytes(*size);
            match usize::try_from(size) {
                Ok(0) if self.version > VERSION_1 => stream.fill(0),
                Ok(size) => {
                    let (packed, after) = rest.split_at_checked(size).ok_or_else(damaged)?;
                    rest = after;
                    if size == stream.len() {
                        stream.copy_from_slice(packed);
                    } else {
                        self.inner.decompress(self.name, packed, stream)?;
                    }
                }
                // A run of one byte, whose value is the negated size. A token follows.
                Err(_) => {
                    let (token, after) = rest.split_first().ok_or_else(damaged)?;
                    rest = after;
                    if self.version <= VERSION_1 || token & 1 == 0 || size < -255 {
                        return Err(damaged());
                    }
                    stream.fill(size.unsigned_abs() as u8);
                }
            }
        }
        Ok(())
    }

    fn undo(&self, undo: Undo, from: &[u8], planes: &mut [u8], to: &mut [u8]) {
        match undo {
            Undo::Shuffle(size) => unshuffle(size, from, to),
            Undo::BitShuffle => {
                let moved = bit_shuffled(self.version(), self.typesize, from.len());
                to[moved..].copy_from_slice(&from[moved..]);
                unshuffle_bits(
                    self.typesize,
                    &from[..moved],
                    &mut planes[..moved],
                    &mut to[..moved],
                );
            }
        }
    }

    /// Combines elements by exclusive or: in the first block with the preceding element, in the
    /// others with the element at the same offset of the first block.
    fn undo_delta(&self, index: usize, first: &[u8], output: &mut [u8]) {
        let size = delta_size(self.typesize);
        let whole = output.len() / size * size;
        if index == 0 {
            for at in size..whole {
                output[at] ^= output[at - size];
            }
        } else {
            for (byte, reference) in output[..whole].iter_mut().zip(first) {
                *byte ^= reference;
            }
        }
    }
}

/// The element size that delta uses.
pub(super) fn delta_size(typesize: usize) -> usize {
    match typesize {
        2 | 4 | 8 => typesize,
        _ if typesize.is_multiple_of(8) => 8,
        _ => 1,
    }
}

/// How many bytes of a block a bit shuffle moves: those of whole groups of eight elements; in
/// Blosc1, all or none.
pub(super) fn bit_shuffled(version: Version, element: usize, len: usize) -> usize {
    let count = len / element;
    match version {
        Version::One if !count.is_multiple_of(8) => 0,
        _ => count / 8 * 8 * element,
    }
}

/// Fills `output` with repetitions of `value`, from `offset` bytes after the first repetition's start.
fn repeat(value: &[u8], offset: usize, output: &mut [u8]) {
    if let [byte] = value {
        output.fill(*byte);
        return;
    }
    let (before, from) = value.split_at(offset % value.len());
    let values = from.iter().chain(before).cycle();
    for (to, from) in output.iter_mut().zip(values) {
        *to = *from;
    }
}
