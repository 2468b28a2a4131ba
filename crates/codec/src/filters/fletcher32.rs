//! Filter 3, fletcher32: the chunk followed by a checksum of four bytes.

use super::{Codec, copy_exactly, reserve};
use crate::error::{CodecError, Result};

const NAME: &str = "fletcher32";

pub(crate) struct Fletcher32;

impl Codec for Fletcher32 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn most_growth(&self) -> Option<u64> {
        Some(1)
    }

    fn decoded_size(&self, _values: &[u32], input: &[u8]) -> Result<usize> {
        Ok(split(input)?.0.len())
    }

    fn decode_into(&self, _values: &[u32], input: &[u8], output: &mut [u8]) -> Result<()> {
        copy_exactly(NAME, verified(input)?, output)
    }

    fn decoded_within<'a>(&self, _values: &[u32], input: &'a [u8]) -> Option<Result<&'a [u8]>> {
        Some(verified(input))
    }

    fn encoded_size(&self, _values: &[u32], decoded: usize) -> Option<usize> {
        decoded.checked_add(4)
    }

    fn encode(&self, _values: &[u32], input: &[u8], output: &mut Vec<u8>) -> Result<()> {
        reserve(NAME, output, input.len() + 4)?;
        output.extend_from_slice(input);
        output.extend_from_slice(&checksum(input).to_le_bytes());
        Ok(())
    }
}

/// The bytes before the checksum, and the checksum.
fn split(input: &[u8]) -> Result<(&[u8], &[u8; 4])> {
    let cause = "the chunk is shorter than its checksum";
    let parts = input.split_last_chunk();
    parts.ok_or_else(|| CodecError::new(NAME, cause))
}

/// The bytes before the checksum, if the checksum is theirs. On little-endian machines, HDF5 before
/// 1.6.3 stored both sums with their bytes swapped; such checksums are accepted.
fn verified(input: &[u8]) -> Result<&[u8]> {
    let (data, stored) = split(input)?;
    let stored = u32::from_le_bytes(*stored);
    let computed = checksum(data);
    if stored == computed || stored == swap_halves(computed) {
        Ok(data)
    } else {
        Err(CodecError::new(
            NAME,
            format!("the checksum is {computed:#010x}, but the stored one is {stored:#010x}"),
        ))
    }
}

fn swap_halves(sums: u32) -> u32 {
    sums.swap_bytes().rotate_left(16)
}

/// Fletcher's checksum over big-endian words of 16 bits, the sum of sums in the high half. A last
/// odd byte is the high byte of a word.
///
/// Both sums are modulo 65535, where swapping the bytes of a word multiplies it by 256. So the sums
/// over little-endian words, which vector instructions can add, are the byte-swapped sums over
/// big-endian words.
fn checksum(data: &[u8]) -> u32 {
    const LANES: usize = 16;
    /// Few enough rows for the weighted sum of a lane to fit in 32 bits.
    const ROWS: usize = 256;
    const MODULUS: u64 = 65535;

    let (mut first, mut second) = (0_u64, 0_u64);
    let mut any = false;
    let rows = data.chunks_exact(2 * LANES);
    let tail = rows.remainder();
    let (rows, _) = data[..data.len() - tail.len()].as_chunks::<{ 2 * LANES }>();
    for block in rows.chunks(ROWS) {
        let (mut sums, mut weighted) = ([0_u32; LANES], [0_u32; LANES]);
        for row in block {
            for lane in 0..LANES {
                sums[lane] += u32::from(u16::from_le_bytes([row[2 * lane], row[2 * lane + 1]]));
                weighted[lane] += sums[lane];
            }
        }
        // The sum of sums counts a word once for each word from it to the end. `words * first`
        // counts the words before this block. `weighted` counts a word of this block as if it were
        // at the start of its row; lane `l` is `l` words later.
        let words = (block.len() * LANES) as u64;
        second += words * first;
        for lane in 0..LANES {
            let sum = u64::from(sums[lane]);
            second += LANES as u64 * u64::from(weighted[lane]) - lane as u64 * sum;
            first += sum;
        }
        any |= first != 0;
        first %= MODULUS;
        second %= MODULUS;
    }
    for word in tail.chunks(2) {
        let word = u16::from_le_bytes([word[0], word.get(1).copied().unwrap_or(0)]);
        first += u64::from(word);
        second += first;
        any |= word != 0;
    }
    // Folding the carries, as the format defines it, never makes a nonzero sum zero.
    let folded = |sum: u64| match sum % MODULUS {
        0 if any => MODULUS as u32,
        rest => rest as u32,
    };
    swap_halves(folded(second) << 16 | folded(first))
}
