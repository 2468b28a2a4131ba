//! Encodes samples to the bit stream, each block in its shortest coding.

use super::decoder::SEGMENT;
use super::{NAME, Parameters, difference, error};
use crate::error::Result;
use crate::filters::bits::BitWriter;

/// Pairs with a larger sum have no code.
const MAX_PAIR_SUM: u32 = 12;

pub(super) fn encode(parameters: &Parameters, input: &[u8], output: &mut Vec<u8>) -> Result<()> {
    let mut writer = BitWriter::new(output);
    let mut samples = vec![0; parameters.interval()];
    for line in input.chunks(parameters.scanline * parameters.sample) {
        // A sample takes at most its own bits, and a block fewer than a byte more.
        writer.reserve(NAME, samples.len() * (size_of::<u32>() + 1))?;
        load_scanline(parameters, line, &mut samples)?;
        encode_scanline(parameters, &samples, &mut writer);
    }
    writer.finish();
    Ok(())
}

/// Loads a scanline and pads it with zeros, which have the shortest code.
fn load_scanline(parameters: &Parameters, line: &[u8], samples: &mut [u32]) -> Result<()> {
    let present = line.len() / parameters.sample;
    parameters.load(line, samples);
    if samples[..present].iter().any(|s| *s > parameters.max()) {
        return Err(error(format!(
            "a value has more than {} bits",
            parameters.bits
        )));
    }
    samples[present..].fill(0);
    if parameters.differences {
        let mut left = samples[0];
        for sample in &mut samples[1..present] {
            let value = *sample;
            *sample = difference::code(left, value, parameters.max());
            left = value;
        }
    }
    Ok(())
}

fn encode_scanline(parameters: &Parameters, samples: &[u32], writer: &mut BitWriter) {
    let mut zero_blocks = 0;
    let mut zero_reference = None;
    for (index, block) in samples.chunks_exact(parameters.block).enumerate() {
        let (reference, coded) = if index == 0 && parameters.differences {
            (Some(block[0]), &block[1..])
        } else {
            (None, block)
        };
        let zero = coded.iter().all(|sample| *sample == 0);
        if zero {
            if zero_blocks == 0 {
                zero_reference = reference;
            }
            zero_blocks += 1;
        }
        let segment_ends = index + 1 == parameters.blocks || (index + 1) % SEGMENT == 0;
        if zero_blocks > 0 && (!zero || segment_ends) {
            let to_segment_end = zero && segment_ends;
            put_zero_blocks(
                parameters,
                zero_blocks,
                to_segment_end,
                zero_reference,
                writer,
            );
            zero_blocks = 0;
        }
        if !zero {
            put_block(parameters, reference, coded, writer);
        }
    }
}

fn put_zero_blocks(
    parameters: &Parameters,
    count: u32,
    to_segment_end: bool,
    reference: Option<u32>,
    writer: &mut BitWriter,
) {
    writer.put(0, parameters.id_bits() + 1);
    put_reference(parameters, reference, writer);
    // Five means the rest of the segment, so the codes of higher counts are shifted by one.
    writer.put_unary(match count {
        1..=4 => count - 1,
        _ if to_segment_end => 4,
        _ => count,
    });
}

fn put_reference(parameters: &Parameters, reference: Option<u32>, writer: &mut BitWriter) {
    if let Some(reference) = reference {
        writer.put(u64::from(reference), parameters.bits);
    }
}

/// The code of a pair, if it has one.
fn pair_code(first: u32, second: u32) -> Option<u32> {
    let sum = first.checked_add(second)?;
    (sum <= MAX_PAIR_SUM).then(|| sum * (sum + 1) / 2 + second)
}

/// The codes of a block's pairs. A zero takes the place of a reference sample in the first pair.
fn pairs(reference: Option<u32>, coded: &[u32]) -> impl Iterator<Item = Option<u32>> {
    let (head, rest) = coded.split_at(usize::from(reference.is_some()));
    let first = head.first().map(|second| pair_code(0, *second));
    first
        .into_iter()
        .chain(rest.chunks_exact(2).map(|pair| pair_code(pair[0], pair[1])))
}

fn put_block(
    parameters: &Parameters,
    reference: Option<u32>,
    coded: &[u32],
    writer: &mut BitWriter,
) {
    let id_bits = parameters.id_bits();
    let last_id = (1u32 << id_bits) - 1;
    let count = coded.len() as u64;

    let raw_cost = count * u64::from(parameters.bits);
    let (split_cost, low_bits) = (0..last_id - 1)
        .map(|low_bits| {
            let high: u64 = coded.iter().map(|s| u64::from(s >> low_bits)).sum();
            (high + count * u64::from(low_bits + 1), low_bits)
        })
        .min()
        .unwrap_or((u64::MAX, 0));
    let pair_cost = pairs(reference, coded)
        .try_fold(1, |cost, code| Some(cost + u64::from(code?) + 1))
        .unwrap_or(u64::MAX);

    if raw_cost <= split_cost && raw_cost <= pair_cost {
        writer.put(u64::from(last_id), id_bits);
        put_reference(parameters, reference, writer);
        for sample in coded {
            writer.put(u64::from(*sample), parameters.bits);
        }
    } else if pair_cost < split_cost {
        writer.put(1, id_bits + 1);
        put_reference(parameters, reference, writer);
        for code in pairs(reference, coded).flatten() {
            writer.put_unary(code);
        }
    } else {
        writer.put(u64::from(low_bits + 1), id_bits);
        put_reference(parameters, reference, writer);
        for sample in coded {
            writer.put_unary(sample >> low_bits);
        }
        for sample in coded {
            writer.put(u64::from(*sample), low_bits);
        }
    }
}
