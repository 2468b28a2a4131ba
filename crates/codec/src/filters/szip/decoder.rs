//! Decodes the bit stream to samples.

use super::{Parameters, difference, error};
use crate::error::{CodecError, Result};
use crate::filters::bits::BitReader;

/// The run length that means all zero blocks up to the end of the segment.
const REST_OF_SEGMENT: usize = 5;
pub(super) const SEGMENT: usize = 64;
/// The largest pair code of the second extension option: the sum of a pair is at most 12.
const MAX_PAIR: u32 = 90;

/// Decodes as many samples as `output` holds.
pub(super) fn decode(parameters: &Parameters, stream: &[u8], output: &mut [u8]) -> Result<()> {
    let mut reader = BitReader::new(stream);
    let mut samples = vec![0; parameters.interval()];
    for line in output.chunks_mut(parameters.scanline * parameters.sample) {
        let wanted = line.len() / parameters.sample;
        decode_scanline(parameters, &mut reader, wanted, &mut samples)?;
        parameters.store(&samples, line);
    }
    Ok(())
}

fn short() -> CodecError {
    error("the bit stream ends early")
}

/// Decodes blocks until `wanted` samples are decoded; the stream may lack the rest of the last
/// scanline.
fn decode_scanline(
    parameters: &Parameters,
    reader: &mut BitReader,
    wanted: usize,
    samples: &mut [u32],
) -> Result<()> {
    let size = parameters.block;
    let last_id = (1 << parameters.id_bits()) - 1;
    let mut block = 0;
    while block * size < wanted {
        let from = block * size;
        let id = reader.take(parameters.id_bits()).ok_or_else(short)? as u32;
        let low_entropy = id == 0;
        let pairs = low_entropy && reader.take(1).ok_or_else(short)? == 1;

        // The first sample of a scanline of differences is a reference, stored as it is.
        let reference = usize::from(block == 0 && parameters.differences);
        if reference == 1 && id != last_id {
            samples[0] = reader.take(parameters.bits).ok_or_else(short)? as u32;
        }
        let coded = from + reference..from + size;
        if low_entropy && !pairs {
            let run = zero_blocks(parameters, reader, block)?;
            samples[coded.start..from + run * size].fill(0);
            block += run;
            continue;
        }
        if pairs {
            decode_pairs(reader, &mut samples[from..from + size], reference)?;
        } else if id == last_id {
            for sample in &mut samples[from..from + size] {
                *sample = reader.take(parameters.bits).ok_or_else(short)? as u32;
            }
        } else {
            let low_bits = id - 1;
            for sample in &mut samples[coded.clone()] {
                *sample = reader.take_unary().ok_or_else(short)? << low_bits;
            }
            for sample in &mut samples[coded] {
                *sample |= reader.take(low_bits).ok_or_else(short)? as u32;
            }
        }
        block += 1;
    }
    if parameters.differences {
        let mut left = samples[0];
        for sample in &mut samples[1..wanted] {
            left = difference::value(left, *sample, parameters.max());
            *sample = left;
        }
    }
    Ok(())
}

/// Takes the number of zero blocks from `block` on.
fn zero_blocks(parameters: &Parameters, reader: &mut BitReader, block: usize) -> Result<usize> {
    let left = parameters.blocks - block;
    let code = reader.take_unary().ok_or_else(short)? as usize + 1;
    let run = match code {
        REST_OF_SEGMENT => left.min(SEGMENT - block % SEGMENT),
        6.. => code - 1,
        _ => code,
    };
    if run > left {
        return Err(error(format!("{run} zero blocks where {left} are left")));
    }
    Ok(run)
}

/// Decodes pairs of samples. A pair with the sum `s` has the code `s(s+1)/2` plus the second sample.
fn decode_pairs(reader: &mut BitReader, block: &mut [u32], reference: usize) -> Result<()> {
    for (index, pair) in block.chunks_exact_mut(2).enumerate() {
        let code = reader.take_unary().ok_or_else(short)?;
        if code > MAX_PAIR {
            return Err(error(format!("{code} is not the code of a pair")));
        }
        let mut sum = 0;
        while (sum + 1) * (sum + 2) / 2 <= code {
            sum += 1;
        }
        let second = code - sum * (sum + 1) / 2;
        if index > 0 || reference == 0 {
            pair[0] = sum - second;
        }
        pair[1] = second;
    }
    Ok(())
}
