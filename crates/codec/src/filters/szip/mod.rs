//! Szip (filter 4): the extended Rice coding of CCSDS 121.0-B, as HDF5 wraps it.
//!
//! The stored form: the decoded size (u32, little-endian), then one bit stream. A chunk is divided
//! into scanlines and each scanline into blocks; the last block of a scanline is padded. Elements of
//! 32 and 64 bits are shuffled first, and each byte is a sample of 8 bits.

mod decoder;
mod encoder;

use super::shuffle::{shuffle, unshuffle};
use super::{Codec, wrong_size, zeros};
use crate::error::{CodecError, Result};

pub(crate) struct Szip;

const NAME: &str = "szip";
const HEADER: usize = 4;
/// Bits of the options mask, as in HDF5's `H5Ppublic.h`.
const MSB_OPTION: u32 = 16;
const NN_OPTION: u32 = 32;
/// HDF5's own limits.
const MAX_PIXELS_PER_BLOCK: u32 = 32;
const MAX_BLOCKS_PER_SCANLINE: usize = 128;

fn error(cause: impl Into<String>) -> CodecError {
    CodecError::new(NAME, cause)
}

/// The validated client data, in the terms of the coder.
struct Parameters {
    /// Whether samples are differences from their left neighbour.
    differences: bool,
    big_endian: bool,
    /// Bits of a sample: 1 to 24.
    bits: u32,
    /// Bytes of a sample in memory: 1, 2 or 4.
    sample: usize,
    /// Samples in a block, an even number.
    block: usize,
    /// Samples in a scanline, and blocks that hold them.
    scanline: usize,
    blocks: usize,
    /// Bytes of an element if elements are shuffled, or 1.
    planes: usize,
}

impl Parameters {
    fn new(values: &[u32]) -> Result<Self> {
        let &[options, block, pixel_bits, scanline] = values else {
            return Err(error(format!("{} parameters instead of 4", values.len())));
        };
        if block == 0 || block % 2 != 0 || block > MAX_PIXELS_PER_BLOCK {
            return Err(error(format!("{block} pixels per block")));
        }
        let blocks = scanline.div_ceil(block) as usize;
        if blocks == 0 || blocks > MAX_BLOCKS_PER_SCANLINE {
            return Err(error(format!("{scanline} pixels per scanline")));
        }
        let (bits, planes) = match pixel_bits {
            1..=24 => (pixel_bits, 1),
            32 | 64 => (8, pixel_bits as usize / 8),
            _ => return Err(error(format!("{pixel_bits} bits per pixel"))),
        };
        Ok(Parameters {
            differences: options & NN_OPTION != 0,
            big_endian: options & MSB_OPTION != 0,
            bits,
            sample: match bits {
                1..=8 => 1,
                9..=16 => 2,
                _ => 4,
            },
            block: block as usize,
            scanline: scanline as usize,
            blocks,
            planes,
        })
    }

    /// Bits of the identifier of a block's coding.
    fn id_bits(&self) -> u32 {
        match self.sample {
            1 => 3,
            2 => 4,
            _ => 5,
        }
    }

    /// The largest sample.
    fn max(&self) -> u32 {
        (1 << self.bits) - 1
    }

    /// Samples of a scanline with its padding.
    fn interval(&self) -> usize {
        self.blocks * self.block
    }

    fn check_size(&self, bytes: usize) -> Result<()> {
        let unit = self.sample.max(self.planes);
        if bytes.is_multiple_of(unit) {
            Ok(())
        } else {
            Err(error(format!(
                "{bytes} bytes are not a whole number of elements of {unit} bytes"
            )))
        }
    }

    /// Loads samples from memory, with one loop for each width and byte order.
    fn load(&self, line: &[u8], samples: &mut [u32]) {
        match (self.sample, self.big_endian) {
            (1, _) => load_each(line, samples, |[byte]: &[u8; 1]| u32::from(*byte)),
            (2, false) => load_each(line, samples, |b| u32::from(u16::from_le_bytes(*b))),
            (2, true) => load_each(line, samples, |b| u32::from(u16::from_be_bytes(*b))),
            (_, false) => load_each(line, samples, |b| u32::from_le_bytes(*b)),
            (_, true) => load_each(line, samples, |b| u32::from_be_bytes(*b)),
        }
    }

    fn store(&self, samples: &[u32], line: &mut [u8]) {
        match (self.sample, self.big_endian) {
            (1, _) => store_each(samples, line, |value| [value as u8]),
            (2, false) => store_each(samples, line, |value| (value as u16).to_le_bytes()),
            (2, true) => store_each(samples, line, |value| (value as u16).to_be_bytes()),
            (_, false) => store_each(samples, line, u32::to_le_bytes),
            (_, true) => store_each(samples, line, u32::to_be_bytes),
        }
    }
}

fn load_each<const N: usize>(line: &[u8], samples: &mut [u32], load: impl Fn(&[u8; N]) -> u32) {
    for (sample, bytes) in samples.iter_mut().zip(line.as_chunks().0) {
        *sample = load(bytes);
    }
}

fn store_each<const N: usize>(samples: &[u32], line: &mut [u8], store: impl Fn(u32) -> [u8; N]) {
    for (bytes, value) in line.as_chunks_mut().0.iter_mut().zip(samples) {
        *bytes = store(*value);
    }
}

/// Maps differences to non-negative codes: small differences have small codes, and the codes cover
/// exactly the values that are possible after the left neighbour.
mod difference {
    /// The distance from `left` to the nearer end of the range.
    fn reach(left: u32, max: u32) -> u32 {
        left.min(max.wrapping_sub(left))
    }

    pub(super) fn code(left: u32, value: u32, max: u32) -> u32 {
        let reach = reach(left, max);
        let distance = value.abs_diff(left);
        if distance > reach {
            reach + distance
        } else if value >= left {
            2 * distance
        } else {
            2 * distance - 1
        }
    }

    /// Every `code` has a value: one from a damaged stream wraps around.
    pub(super) fn value(left: u32, code: u32, max: u32) -> u32 {
        let half = code.div_ceil(2);
        if half <= reach(left, max) {
            if code.is_multiple_of(2) {
                left.wrapping_add(half)
            } else {
                left.wrapping_sub(half)
            }
        } else if left > max / 2 {
            max.wrapping_sub(code)
        } else {
            code
        }
    }
}

/// The decoded size and the bit stream.
fn split_header(input: &[u8]) -> Result<(usize, &[u8])> {
    let (size, stream) = input
        .split_first_chunk::<HEADER>()
        .ok_or_else(|| error("the stored chunk ends inside its header"))?;
    Ok((u32::from_le_bytes(*size) as usize, stream))
}

impl Codec for Szip {
    fn name(&self) -> &'static str {
        NAME
    }

    fn decoded_size(&self, _values: &[u32], input: &[u8]) -> Result<usize> {
        Ok(split_header(input)?.0)
    }

    fn decode_into(&self, values: &[u32], input: &[u8], output: &mut [u8]) -> Result<()> {
        let parameters = Parameters::new(values)?;
        let (bytes, stream) = split_header(input)?;
        if bytes != output.len() {
            return Err(wrong_size(NAME, bytes, output.len()));
        }
        parameters.check_size(bytes)?;
        if parameters.planes == 1 {
            return decoder::decode(&parameters, stream, output);
        }
        let mut split = zeros(NAME, bytes)?;
        decoder::decode(&parameters, stream, &mut split)?;
        unshuffle(parameters.planes, &split, output);
        Ok(())
    }

    fn must_shrink(&self) -> bool {
        true
    }

    fn encode(&self, values: &[u32], input: &[u8], output: &mut Vec<u8>) -> Result<()> {
        let parameters = Parameters::new(values)?;
        parameters.check_size(input.len())?;
        let bytes = u32::try_from(input.len()).map_err(|_| error("the chunk has 4 GiB or more"))?;
        output.extend_from_slice(&bytes.to_le_bytes());
        if parameters.planes == 1 {
            encoder::encode(&parameters, input, output)?;
        } else {
            let mut split = zeros(NAME, input.len())?;
            shuffle(parameters.planes, input, &mut split);
            encoder::encode(&parameters, &split, output)?;
        }
        // HDF5's own encoder fails in this case, too: it has no more output memory.
        if output.len() - HEADER > input.len() {
            return Err(error("the chunk would grow"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn codes_of_differences_cover_the_range_of_samples() {
        let max = 31;
        for left in 0..=max {
            let mut seen = 0u64;
            for value in 0..=max {
                let code = difference::code(left, value, max);
                assert!(code <= max);
                assert_eq!(difference::value(left, code, max), value);
                seen |= 1 << code;
            }
            assert_eq!(seen, (1 << (max + 1)) - 1);
        }
    }
}
