//! Filter 32008, bitshuffle: in blocks of elements, the first bits of all elements, then all second
//! bits, and so on; each block may be compressed.
//!
//! Trailing elements that do not fill a group of eight stay as they are. With compression, a header
//! precedes the blocks: the decoded size (eight bytes, big-endian) and the size of a block in bytes
//! (four).

use std::cell::RefCell;

use super::shuffle::{shuffle, unshuffle};
use super::{Codec, append, lz4, sized, wrong_size, zstd};
use crate::error::{CodecError, Result};

const NAME: &str = "bitshuffle";

thread_local! {
    /// Scratch memory of one block each: bit planes and byte planes.
    static BLOCKS: RefCell<(Vec<u8>, Vec<u8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

pub(crate) struct Bitshuffle;

impl Codec for Bitshuffle {
    fn name(&self) -> &'static str {
        NAME
    }

    fn decoded_size(&self, values: &[u32], input: &[u8]) -> Result<usize> {
        Ok(Stored::parse(values, input)?.size)
    }

    fn decode_into(&self, values: &[u32], input: &[u8], output: &mut [u8]) -> Result<()> {
        let Stored {
            options,
            size,
            mut body,
        } = Stored::parse(values, input)?;
        if size != output.len() {
            return Err(wrong_size(NAME, size, output.len()));
        }
        let grouped = options.grouped(size)?;
        let (blocks, tail) = output.split_at_mut(grouped);
        BLOCKS.with_borrow_mut(|(bits, planes)| {
            let block_bytes = options.block_bytes(grouped)?;
            let planes = sized(NAME, planes, block_bytes)?;
            let bits = match options.compression {
                Compression::None => &mut [],
                _ => sized(NAME, bits, block_bytes)?,
            };
            for block in blocks.chunks_mut(block_bytes.max(1)) {
                let planes = &mut planes[..block.len()];
                let decompress = match options.compression {
                    Compression::None => {
                        let source = take(&mut body, block.len())?;
                        unshuffle_bits(options.element, source, planes, block);
                        continue;
                    }
                    Compression::Lz4 => lz4::decompress,
                    Compression::Zstd => zstd::decompress,
                };
                let bits = &mut bits[..block.len()];
                decompress(NAME, lz4::prefixed(NAME, &mut body)?, bits)?;
                unshuffle_bits(options.element, bits, planes, block);
            }
            tail.copy_from_slice(take(&mut body, tail.len())?);
            Ok(())
        })
    }

    fn encoded_size(&self, values: &[u32], decoded: usize) -> Option<usize> {
        match Options::parse(values).ok()?.compression {
            Compression::None => Some(decoded),
            _ => None,
        }
    }

    fn encode(&self, values: &[u32], input: &[u8], output: &mut Vec<u8>) -> Result<()> {
        let options = Options::parse(values)?;
        let grouped = options.grouped(input.len())?;
        let (blocks, tail) = input.split_at(grouped);
        if options.compression != Compression::None {
            let block_bytes = u32::try_from(options.block * options.element)
                .map_err(|_| CodecError::new(NAME, "a block has 4 GiB or more"))?;
            append(NAME, output, &(input.len() as u64).to_be_bytes())?;
            append(NAME, output, &block_bytes.to_be_bytes())?;
        }
        BLOCKS.with_borrow_mut(|(bits, planes)| {
            let block_bytes = options.block_bytes(grouped)?;
            let (bits, planes) = (
                sized(NAME, bits, block_bytes)?,
                sized(NAME, planes, block_bytes)?,
            );
            for block in blocks.chunks(block_bytes.max(1)) {
                let bits = &mut bits[..block.len()];
                shuffle_bits(options.element, block, &mut planes[..block.len()], bits);
                match options.compression {
                    Compression::None => append(NAME, output, bits)?,
                    Compression::Lz4 => lz4::compress_prefixed(NAME, bits, output)?,
                    Compression::Zstd => {
                        let start = output.len();
                        append(NAME, output, &[0; 4])?;
                        zstd::compress(NAME, options.level, bits, output)?;
                        let size = (output.len() - start - 4) as u32;
                        output[start..start + 4].copy_from_slice(&size.to_be_bytes());
                    }
                }
            }
            append(NAME, output, tail)
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Compression {
    None,
    Lz4,
    Zstd,
}

#[derive(Clone, Copy)]
struct Options {
    /// Bytes of an element.
    element: usize,
    /// Elements of a block, a multiple of eight.
    block: usize,
    compression: Compression,
    level: i32,
}

impl Options {
    /// The values are the filter's major and minor version, the size of an element, the elements of
    /// a block (0 for the default), the compression, and its level.
    fn parse(values: &[u32]) -> Result<Options> {
        let element = match values.get(2) {
            Some(&size) if size != 0 => size as usize,
            _ => {
                return Err(CodecError::new(
                    NAME,
                    "the third client value, the size of an element, is missing or 0",
                ));
            }
        };
        Options {
            element,
            block: 0,
            compression: match values.get(4) {
                Some(2) => Compression::Lz4,
                Some(3) => Compression::Zstd,
                _ => Compression::None,
            },
            level: zstd::level(values.get(5)),
        }
        .with_block(values.get(3).map_or(0, |&block| block as usize))
    }

    fn with_block(self, block: usize) -> Result<Options> {
        if !block.is_multiple_of(8) {
            return Err(CodecError::new(
                NAME,
                format!("a block of {block} elements is not a multiple of 8"),
            ));
        }
        let block = match block {
            0 => (8192 / self.element / 8 * 8).max(128),
            _ => block,
        };
        Ok(Options { block, ..self })
    }

    /// How many of `size` bytes belong to whole groups of eight elements.
    fn grouped(&self, size: usize) -> Result<usize> {
        if !size.is_multiple_of(self.element) {
            return Err(CodecError::new(
                NAME,
                format!(
                    "{size} bytes are not a whole number of elements of {} bytes",
                    self.element
                ),
            ));
        }
        Ok(size / self.element / 8 * 8 * self.element)
    }

    /// The size of a block in bytes, at most `grouped`.
    fn block_bytes(&self, grouped: usize) -> Result<usize> {
        let bytes = self.block.checked_mul(self.element);
        Ok(bytes.map_or(grouped, |bytes| bytes.min(grouped)))
    }
}

/// A stored chunk. Its options and size come from the header or, without compression, from the
/// client values and the length.
struct Stored<'a> {
    options: Options,
    size: usize,
    body: &'a [u8],
}

impl<'a> Stored<'a> {
    fn parse(values: &[u32], input: &'a [u8]) -> Result<Stored<'a>> {
        let options = Options::parse(values)?;
        if options.compression == Compression::None {
            return Ok(Stored {
                options,
                size: input.len(),
                body: input,
            });
        }
        let mut body = input;
        let size = take(&mut body, 8)?
            .iter()
            .fold(0, |n, &b| n << 8 | u64::from(b));
        let block = take(&mut body, 4)?
            .iter()
            .fold(0, |n, &b| n << 8 | usize::from(b));
        Ok(Stored {
            options: options.with_block(block / options.element)?,
            size: usize::try_from(size)
                .map_err(|_| CodecError::new(NAME, "the decoded size exceeds the address space"))?,
            body,
        })
    }
}

fn take<'a>(rest: &mut &'a [u8], size: usize) -> Result<&'a [u8]> {
    let (taken, after) = rest
        .split_at_checked(size)
        .ok_or_else(|| CodecError::new(NAME, "the chunk is truncated"))?;
    *rest = after;
    Ok(taken)
}

/// Turns a block into bit planes: splits it into byte planes, transposes every eight bytes of a
/// plane as an 8x8 bit matrix, and splits each plane again. `planes` is scratch memory of the
/// block's size.
pub(super) fn shuffle_bits(element: usize, input: &[u8], planes: &mut [u8], output: &mut [u8]) {
    let plane_size = (input.len() / element).max(1);
    shuffle(element, input, planes);
    transpose_bits(planes);
    let planes = planes.chunks_exact(plane_size);
    for (plane, rows) in planes.zip(output.chunks_exact_mut(plane_size)) {
        shuffle(8, plane, rows);
    }
}

/// The inverse of [`shuffle_bits`].
pub(super) fn unshuffle_bits(element: usize, input: &[u8], planes: &mut [u8], output: &mut [u8]) {
    let plane_size = (input.len() / element).max(1);
    let rows = input.chunks_exact(plane_size);
    for (rows, plane) in rows.zip(planes.chunks_exact_mut(plane_size)) {
        unshuffle(8, rows, plane);
    }
    transpose_bits(planes);
    unshuffle(element, planes, output);
}

/// Transposes every eight bytes as an 8x8 bit matrix: swaps squares of one, two and four bits
/// across the diagonal.
fn transpose_bits(bytes: &mut [u8]) {
    let (groups, _) = bytes.as_chunks_mut::<8>();
    for group in groups {
        let mut x = u64::from_le_bytes(*group);
        let t = (x ^ (x >> 7)) & 0x00aa_00aa_00aa_00aa;
        x ^= t ^ (t << 7);
        let t = (x ^ (x >> 14)) & 0x0000_cccc_0000_cccc;
        x ^= t ^ (t << 14);
        let t = (x ^ (x >> 28)) & 0x0000_0000_f0f0_f0f0;
        x ^= t ^ (t << 28);
        *group = x.to_le_bytes();
    }
}
