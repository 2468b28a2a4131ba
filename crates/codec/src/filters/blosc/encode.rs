//! Encodes a chunk.

use super::chunk::{
    FILTERS, HEADER, LONG_HEADER, MAX_STREAMS, MIN_STREAM, VERSION_1, VERSION_2, Version,
    bit_shuffled, delta_size, filter, flag,
};
use super::inner::Inner;
use crate::error::{CodecError, Result};
use crate::filters::bitshuffle::shuffle_bits;
use crate::filters::shuffle::shuffle;
use crate::filters::{append, append_zeros, zeros};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::filters) enum Shuffle {
    None,
    Bytes,
    Bits,
    /// Blosc2 only.
    Delta,
}

/// How a chunk is encoded.
pub(in crate::filters) struct Settings {
    pub(in crate::filters) version: Version,
    pub(in crate::filters) typesize: u32,
    /// 0 to 9; 0 stores the chunk uncompressed.
    pub(in crate::filters) level: u32,
    pub(in crate::filters) shuffle: Shuffle,
    pub(super) inner: Inner,
    /// The compressor's number in the client data.
    pub(in crate::filters) compressor: u8,
}

impl Settings {
    /// The bytes of an element. Elements of over 255 bytes are treated as bytes, as Blosc does.
    pub(in crate::filters) fn element(&self) -> usize {
        match self.typesize {
            size @ 1..=255 => size as usize,
            _ => 1,
        }
    }

    /// The bytes of a block, which fits the L2 cache; strong compressors gain from larger ones.
    pub(in crate::filters) fn block_len(&self, len: usize) -> usize {
        let wanted = match self.inner {
            Inner::BloscLz | Inner::Lz4 => 128 << 10,
            Inner::Zlib | Inner::Zstd => 512 << 10,
        };
        if len <= wanted {
            len
        } else {
            (wanted / self.element() * self.element()).max(self.element())
        }
    }

    fn is_split(&self, block_len: usize) -> bool {
        let element = self.element();
        self.shuffle == Shuffle::Bytes
            && matches!(self.inner, Inner::BloscLz | Inner::Lz4)
            && (2..=MAX_STREAMS).contains(&element)
            && block_len / element >= MIN_STREAM
            && block_len.is_multiple_of(element)
    }

    fn header(&self, flags: u8, len: u32, block_len: u32) -> Vec<u8> {
        let two = self.version == Version::Two;
        let version = if two { VERSION_2 } else { VERSION_1 };
        let shuffle = match self.shuffle {
            Shuffle::None => 0,
            Shuffle::Bytes => flag::SHUFFLE,
            Shuffle::Bits => flag::BIT_SHUFFLE,
            Shuffle::Delta => flag::DELTA,
        };
        let flags = flags | if two { flag::LONG } else { shuffle };
        let mut header = vec![version, 1, flags, self.element() as u8];
        header.extend_from_slice(&len.to_le_bytes());
        header.extend_from_slice(&block_len.to_le_bytes());
        header.resize(if two { LONG_HEADER } else { HEADER }, 0);
        if two {
            header[HEADER..HEADER + FILTERS].copy_from_slice(&self.filters());
        }
        header
    }

    /// The filters as Blosc2's headers list them.
    pub(in crate::filters) fn filters(&self) -> [u8; FILTERS] {
        let last = match self.shuffle {
            Shuffle::None => filter::NONE,
            Shuffle::Bytes => filter::SHUFFLE,
            Shuffle::Bits => filter::BIT_SHUFFLE,
            Shuffle::Delta => filter::DELTA,
        };
        [0, 0, 0, 0, 0, last]
    }
}

/// Appends one chunk to `output`, uncompressed if compression does not shrink it.
pub(in crate::filters) fn encode(
    name: &'static str,
    settings: &Settings,
    input: &[u8],
    output: &mut Vec<u8>,
) -> Result<()> {
    let len = u32::try_from(input.len())
        .ok()
        .filter(|len| *len <= i32::MAX as u32 - LONG_HEADER as u32)
        .ok_or_else(|| CodecError::new(name, "the chunk has 2 GiB or more"))?;
    let block_len = settings.block_len(input.len());
    let origin = output.len();
    if settings.level > 0 && len > 0 {
        let split = settings.is_split(block_len);
        let flags = settings.inner.format() << 5 | if split { 0 } else { flag::ONE_STREAM };
        let header = settings.header(flags, len, block_len as u32);
        let stored = header.len() + input.len();
        append(name, output, &header)?;
        encode_blocks(name, settings, input, block_len, split, origin, output)?;
        if output.len() - origin < stored {
            set_size(output, origin);
            return Ok(());
        }
        output.truncate(origin);
    }
    append(
        name,
        output,
        &settings.header(flag::STORED, len, block_len as u32),
    )?;
    append(name, output, input)?;
    set_size(output, origin);
    Ok(())
}

/// Writes the stored size into the header.
fn set_size(output: &mut [u8], origin: usize) {
    let size = (output.len() - origin) as u32;
    output[origin + 12..origin + 16].copy_from_slice(&size.to_le_bytes());
}

fn encode_blocks(
    name: &'static str,
    settings: &Settings,
    input: &[u8],
    block_len: usize,
    split: bool,
    origin: usize,
    output: &mut Vec<u8>,
) -> Result<()> {
    let table = output.len();
    let table_len = input.len().div_ceil(block_len) * 4;
    append_zeros(name, output, table_len, table_len)?;
    let element = settings.element();
    let mut shuffled = zeros(name, block_len)?;
    let mut planes = zeros(name, block_len)?;
    for (index, block) in input.chunks(block_len).enumerate() {
        let start = ((output.len() - origin) as u32).to_le_bytes();
        output[table + index * 4..][..4].copy_from_slice(&start);
        let shuffled = &mut shuffled[..block.len()];
        match settings.shuffle {
            Shuffle::None => shuffled.copy_from_slice(block),
            Shuffle::Bytes => shuffle(element, block, shuffled),
            Shuffle::Delta => {
                let first = (index > 0).then_some(&input[..block_len]);
                delta(element, first, block, shuffled);
            }
            Shuffle::Bits => {
                let moved = bit_shuffled(settings.version, element, block.len());
                let (to, rest) = shuffled.split_at_mut(moved);
                rest.copy_from_slice(&block[moved..]);
                shuffle_bits(element, &block[..moved], &mut planes[..moved], to);
            }
        }
        let streams = if split && block.len() == block_len {
            element
        } else {
            1
        };
        for stream in shuffled.chunks_exact(block.len() / streams) {
            settings
                .inner
                .compress(name, settings.level, stream, output)?;
        }
    }
    Ok(())
}

/// Combines elements by exclusive or; [`Chunk`](super::chunk::Chunk) undoes it. `first` is the first
/// block, or `None` if `block` is the first.
fn delta(typesize: usize, first: Option<&[u8]>, block: &[u8], to: &mut [u8]) {
    let size = delta_size(typesize);
    let whole = block.len() / size * size;
    to.copy_from_slice(block);
    let (from, to) = match first {
        Some(first) => (first, &mut to[..whole]),
        None => (block, to[..whole].get_mut(size..).unwrap_or_default()),
    };
    for (byte, reference) in to.iter_mut().zip(from) {
        *byte ^= reference;
    }
}
