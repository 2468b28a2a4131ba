//! Filter 32004, LZ4: the decoded size (eight bytes, big-endian), the size of a block (four), then
//! each block after its encoded size (four). A block that does not shrink is stored unencoded.

use std::cell::RefCell;

use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};

use super::{Codec, append, append_zeros, wrong_size};
use crate::error::{CodecError, Result};

const NAME: &str = "lz4";
const DEFAULT_BLOCK: usize = 1 << 30;
/// The largest block that LZ4 can encode.
const LARGEST_BLOCK: usize = 0x7e00_0000;

thread_local! {
    static TABLE: RefCell<CompressTable> = RefCell::new(CompressTable::default());
}

pub(crate) struct Lz4;

impl Codec for Lz4 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn most_growth(&self) -> Option<u64> {
        // A further length byte adds at most 255 bytes to a match.
        Some(256)
    }

    fn decoded_size(&self, _values: &[u32], input: &[u8]) -> Result<usize> {
        Ok(header(input)?.0)
    }

    fn decode_into(&self, _values: &[u32], input: &[u8], output: &mut [u8]) -> Result<()> {
        let (size, block_size, mut rest) = header(input)?;
        if size != output.len() {
            return Err(wrong_size(NAME, size, output.len()));
        }
        if size == 0 {
            return Ok(());
        }
        if block_size == 0 {
            return Err(CodecError::new(NAME, "the block size is 0"));
        }
        for block in output.chunks_mut(block_size) {
            let encoded = prefixed(NAME, &mut rest)?;
            if encoded.len() == block.len() {
                block.copy_from_slice(encoded);
            } else {
                decompress(NAME, encoded, block)?;
            }
        }
        Ok(())
    }

    fn encode(&self, values: &[u32], input: &[u8], output: &mut Vec<u8>) -> Result<()> {
        let wanted = match values.first() {
            None | Some(0) => DEFAULT_BLOCK,
            Some(&size) => size as usize,
        };
        let block_size = wanted.min(input.len()).min(LARGEST_BLOCK);
        output.extend_from_slice(&(input.len() as u64).to_be_bytes());
        output.extend_from_slice(&(block_size as u32).to_be_bytes());
        for block in input.chunks(block_size.max(1)) {
            let start = output.len();
            compress_prefixed(NAME, block, output)?;
            if output.len() - start - 4 >= block.len() {
                output.truncate(start);
                append(NAME, output, &(block.len() as u32).to_be_bytes())?;
                append(NAME, output, block)?;
            }
        }
        Ok(())
    }
}

fn header(input: &[u8]) -> Result<(usize, usize, &[u8])> {
    let cut = || CodecError::new(NAME, "the chunk is truncated in its header");
    let (size, rest) = input.split_first_chunk().ok_or_else(cut)?;
    let (block_size, rest) = rest.split_first_chunk().ok_or_else(cut)?;
    let size = usize::try_from(u64::from_be_bytes(*size))
        .map_err(|_| CodecError::new(NAME, "the decoded size exceeds the address space"))?;
    Ok((size, u32::from_be_bytes(*block_size) as usize, rest))
}

/// Takes a block and its size (four bytes, big-endian) from the front of `rest`.
pub(super) fn prefixed<'a>(name: &'static str, rest: &mut &'a [u8]) -> Result<&'a [u8]> {
    let cut = || CodecError::new(name, "the chunk is truncated");
    let (size, after) = rest.split_first_chunk().ok_or_else(cut)?;
    let size = u32::from_be_bytes(*size) as usize;
    let (block, after) = after.split_at_checked(size).ok_or_else(cut)?;
    *rest = after;
    Ok(block)
}

/// Decodes one LZ4 block, which must fill `output`. Errors carry the `name` of the calling filter.
pub(super) fn decompress(name: &'static str, input: &[u8], output: &mut [u8]) -> Result<()> {
    match decompress_into(input, output) {
        Ok(size) if size == output.len() => Ok(()),
        Ok(size) => Err(wrong_size(name, size, output.len())),
        Err(e) => Err(CodecError::new(name, format!("damaged LZ4 block: {e}"))),
    }
}

/// Appends the encoded size (four bytes, big-endian) and `block` as one LZ4 block.
pub(super) fn compress_prefixed(
    name: &'static str,
    block: &[u8],
    output: &mut Vec<u8>,
) -> Result<()> {
    let start = output.len();
    let bound = 4 + get_maximum_output_size(block.len());
    let memory = append_zeros(name, output, bound, bound)?;
    let size = TABLE
        .with_borrow_mut(|table| compress_into_with_table(block, &mut memory[4..], table))
        .map_err(|e| CodecError::new(name, e.to_string()))?;
    memory[..4].copy_from_slice(&(size as u32).to_be_bytes());
    output.truncate(start + 4 + size);
    Ok(())
}
