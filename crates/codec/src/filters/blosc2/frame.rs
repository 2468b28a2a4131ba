//! The contiguous frame: a header in MessagePack, chunks, a chunk of their offsets, a trailer.
//!
//! Up to the metadata, the header's fields are big-endian numbers at fixed offsets. The metadata are
//! a map of names to offsets in the header.

use super::{NAME, error};
use crate::error::Result;
use crate::filters::append_zeros;
use crate::filters::blosc::chunk::Chunk;
use crate::filters::blosc::encode::Settings;

const MAGIC: &[u8] = b"b2frame\0";
/// Offsets in the header.
mod at {
    pub(super) const MAGIC: usize = 2;
    pub(super) const HEADER_LEN: usize = 11;
    pub(super) const FRAME_LEN: usize = 16;
    pub(super) const FLAGS: usize = 25;
    pub(super) const KIND: usize = 26;
    pub(super) const LEN: usize = 30;
    pub(super) const CHUNKS_LEN: usize = 39;
    pub(super) const TYPESIZE: usize = 48;
    pub(super) const BLOCK_LEN: usize = 53;
    pub(super) const CHUNK_LEN: usize = 58;
    pub(super) const METADATA: usize = 87;
}
/// The newest format version known.
const VERSION: u8 = 3;
/// The format version that this module writes, for old readers.
const WRITTEN_VERSION: u8 = 2;
const OFFSETS_OF_64_BITS: u8 = 0x10;
const VARIABLE_BLOCKS: u8 = 0x80;
/// The bit of an offset which says that the chunk has a special value and is not stored.
const SPECIAL: u64 = 0x80 << 56;

pub(super) struct Frame<'a> {
    bytes: &'a [u8],
    header_len: usize,
    /// Stored bytes of all chunks.
    chunks_len: usize,
    /// Decoded bytes of all chunks, of a chunk, and of a block.
    len: usize,
    chunk_len: usize,
    block_len: usize,
    typesize: usize,
}

/// Reads MessagePack sequentially.
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self
            .0
            .split_at_checked(count)
            .ok_or_else(|| error("the frame's metadata end early"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    /// A number of `size` bytes after its `marker`.
    pub(super) fn number(&mut self, marker: u8, size: usize) -> Result<usize> {
        if self.byte()? != marker {
            return Err(error("the frame's metadata are damaged"));
        }
        big_endian(self.take(size)?)
    }
}

fn big_endian(bytes: &[u8]) -> Result<usize> {
    let value = bytes
        .iter()
        .fold(0u64, |value, byte| value << 8 | u64::from(*byte));
    usize::try_from(value).map_err(|_| error("a size in the frame overflows"))
}

impl<'a> Frame<'a> {
    pub(super) fn parse(input: &'a [u8]) -> Result<Self> {
        let header = input
            .get(..at::METADATA)
            .filter(|header| header[at::MAGIC..].starts_with(MAGIC))
            .ok_or_else(|| error("the stored chunk is not a Blosc2 frame"))?;
        let flags = header[at::FLAGS];
        if flags & 0x0f > VERSION || flags & 0x30 != OFFSETS_OF_64_BITS {
            return Err(error(format!("frame format {flags:#04x} is not supported")).unsupported());
        }
        if flags & VARIABLE_BLOCKS != 0 {
            return Err(error("blocks of variable length are not supported").unsupported());
        }
        if header[at::KIND] & 0x0f != 0 {
            return Err(error("a sparse frame is not supported").unsupported());
        }
        let len = big_endian(&header[at::FRAME_LEN..][..8])?;
        let bytes = input.get(..len).ok_or_else(|| {
            error(format!(
                "the frame claims {len} bytes, but {} are stored",
                input.len()
            ))
        })?;
        let frame = Frame {
            bytes,
            header_len: big_endian(&header[at::HEADER_LEN..][..4])?,
            chunks_len: big_endian(&header[at::CHUNKS_LEN..][..8])?,
            len: big_endian(&header[at::LEN..][..8])?,
            chunk_len: big_endian(&header[at::CHUNK_LEN..][..4])?,
            block_len: big_endian(&header[at::BLOCK_LEN..][..4])?,
            typesize: big_endian(&header[at::TYPESIZE..][..4])?,
        };
        if frame.header_len < at::METADATA || frame.header_len > len || frame.typesize == 0 {
            return Err(error("the frame's header is damaged"));
        }
        Ok(frame)
    }

    pub(super) fn typesize(&self) -> usize {
        self.typesize
    }

    /// The metadata of this name.
    pub(super) fn metadata(&self, name: &str) -> Result<Option<&'a [u8]>> {
        let header = &self.bytes[..self.header_len];
        let mut map = Cursor(&header[at::METADATA..]);
        if map.0.is_empty() {
            return Ok(None);
        }
        if map.byte()? != 0x93 {
            return Err(error("the frame's metadata are damaged"));
        }
        map.number(0xcd, 2)?;
        for _ in 0..map.number(0xde, 2)? {
            let len = map.byte()? & 0x1f;
            let key = map.take(len.into())?;
            let place = map.number(0xd2, 4)?;
            if key == name.as_bytes() {
                let mut value = Cursor(header.get(place..).unwrap_or_default());
                let len = value.number(0xc6, 4)?;
                return value.take(len).map(Some);
            }
        }
        Ok(None)
    }

    /// The offsets of the chunks, at most `limit`.
    pub(super) fn offsets(&self, limit: usize) -> Result<Vec<u64>> {
        let index = self
            .header_len
            .checked_add(self.chunks_len)
            .and_then(|start| self.bytes.get(start..))
            .ok_or_else(|| error("the frame's chunks reach past its end"))?;
        let index = Chunk::parse(NAME, index)?;
        let mut bytes = Vec::new();
        index.decode_into(append_zeros(
            NAME,
            &mut bytes,
            index.len(),
            limit.saturating_mul(8),
        )?)?;
        let (offsets, rest) = bytes.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(error("the frame's offsets are truncated"));
        }
        Ok(offsets
            .iter()
            .map(|offset| u64::from_le_bytes(*offset))
            .collect())
    }

    /// The chunk at one of [`Self::offsets`].
    pub(super) fn chunk(&self, offset: u64) -> Result<Chunk<'a>> {
        if offset & SPECIAL != 0 {
            let special = (offset >> 56 & 7) as u8;
            let len = self.chunk_len.min(self.len);
            return Chunk::unstored(NAME, special, self.typesize, len, self.block_len);
        }
        let chunk = usize::try_from(offset)
            .ok()
            .filter(|offset| *offset < self.chunks_len)
            .and_then(|offset| self.header_len.checked_add(offset))
            .and_then(|start| self.bytes.get(start..))
            .ok_or_else(|| error("a chunk starts past its frame"))?;
        Chunk::parse(NAME, chunk)
    }
}

/// More bytes than [`write()`] appends to those of the chunk.
pub(super) const OVERHEAD: usize = 256;

/// Appends a frame of one chunk, which decodes to `len` bytes.
pub(super) fn write(settings: &Settings, len: usize, chunk: &[u8], output: &mut Vec<u8>) {
    let start = output.len();
    // A MessagePack number is a marker and big-endian bytes.
    let int32 = |value: usize| [&[0xd2][..], &(value as u32).to_be_bytes()].concat();
    let int64 = |value: usize| [&[0xd3][..], &(value as u64).to_be_bytes()].concat();
    let no_metadata = [0x93, 0xcd, 0, 6, 0xde, 0, 0, 0xdc, 0, 0];

    output.extend_from_slice(&[0x9e, 0xa8]);
    output.extend_from_slice(MAGIC);
    output.extend_from_slice(&int32(at::METADATA + no_metadata.len()));
    output.push(0xcf);
    let frame_len = output.len();
    output.extend_from_slice(&[0; 8]);
    let codec = (settings.level as u8) << 4 | settings.compressor;
    let forward_compatible_split = 3;
    output.extend_from_slice(&[0xa4, WRITTEN_VERSION | OFFSETS_OF_64_BITS, 0]);
    output.extend_from_slice(&[codec, forward_compatible_split]);
    output.extend_from_slice(&int64(len));
    output.extend_from_slice(&int64(chunk.len()));
    output.extend_from_slice(&int32(settings.element()));
    output.extend_from_slice(&int32(settings.block_len(len)));
    output.extend_from_slice(&int32(len));
    let one_thread = [0xd1, 0, 1];
    output.extend_from_slice(&one_thread);
    output.extend_from_slice(&one_thread);
    let no_trailing_metadata = 0xc2;
    output.extend_from_slice(&[no_trailing_metadata, 0xd8, 6]);
    let filters = output.len();
    output.extend_from_slice(&[0; 16]);
    output[filters..filters + 6].copy_from_slice(&settings.filters());
    output.extend_from_slice(&no_metadata);

    output.extend_from_slice(chunk);
    // The chunk of offsets: the only offset, 0, as a repeated value.
    output.extend_from_slice(&[5, 1, 0x15, 8, 8, 0, 0, 0, 8, 0, 0, 0, 32, 0, 0, 0]);
    output.extend_from_slice(&[0; 15]);
    output.push(1 << 4);

    output.extend_from_slice(&[0x94, 1]);
    output.extend_from_slice(&no_metadata);
    let trailer_len = 2 + no_metadata.len() as u32 + 5 + 18;
    output.push(0xce);
    output.extend_from_slice(&trailer_len.to_be_bytes());
    output.push(0xd8);
    let no_fingerprint = [0; 17];
    output.extend_from_slice(&no_fingerprint);

    let len = (output.len() - start) as u64;
    output[frame_len..frame_len + 8].copy_from_slice(&len.to_be_bytes());
}
