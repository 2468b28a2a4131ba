//! Filter 32000, LZF, which h5py registers: liblzf's format without a header.
//!
//! A control byte `c` below 32 precedes `c + 1` literals. Any other starts a match: its upper three
//! bits are the length less 2 (if they are 7, the next byte is added), and its lower five bits and
//! one more byte are the distance less 1.

use std::cell::RefCell;

use super::{Codec, reserve};
use crate::error::{CodecError, Result};

const NAME: &str = "lzf";

const LONGEST_RUN: usize = 1 << 5;
const LONGEST_MATCH: usize = (1 << 8) + (1 << 3);
const SHORTEST_MATCH: usize = 3;
const FARTHEST: usize = 1 << 13;
const TABLE_BITS: u32 = 13;

thread_local! {
    /// The last position of three bytes with a given hash.
    static TABLE: RefCell<Vec<u32>> = RefCell::new(vec![0; 1 << TABLE_BITS]);
}

pub(crate) struct Lzf;

impl Codec for Lzf {
    fn name(&self) -> &'static str {
        NAME
    }

    fn most_growth(&self) -> Option<u64> {
        // Three bytes encode a match of up to 264.
        Some(88)
    }

    fn decoded_size(&self, _values: &[u32], input: &[u8]) -> Result<usize> {
        let mut size = 0_usize;
        each_token(input, |token| {
            size = size.saturating_add(token.len());
            Ok(())
        })?;
        Ok(size)
    }

    fn decode_into(&self, _values: &[u32], input: &[u8], output: &mut [u8]) -> Result<()> {
        decompress(input, output)
    }

    fn must_shrink(&self) -> bool {
        true
    }

    fn encode(&self, _values: &[u32], input: &[u8], output: &mut Vec<u8>) -> Result<()> {
        if u32::try_from(input.len()).is_err() {
            return Err(CodecError::new(NAME, "the chunk has 4 GiB or more"));
        }
        // Only literals take more room than they fill: a byte for each run.
        reserve(NAME, output, input.len() + input.len() / LONGEST_RUN + 1)?;
        TABLE.with_borrow_mut(|table| {
            table.fill(0);
            compress(input, output, table);
        });
        Ok(())
    }
}

enum Token<'a> {
    Literal(&'a [u8]),
    Match { distance: usize, length: usize },
}

impl Token<'_> {
    fn len(&self) -> usize {
        match self {
            Token::Literal(bytes) => bytes.len(),
            Token::Match { length, .. } => *length,
        }
    }
}

#[inline(always)]
fn each_token<'a>(mut rest: &'a [u8], mut body: impl FnMut(Token<'a>) -> Result<()>) -> Result<()> {
    while let Some((token, after)) = next_token(rest) {
        body(token)?;
        rest = after;
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err(CodecError::new(NAME, "the chunk is truncated"))
    }
}

#[inline(always)]
fn next_token(input: &[u8]) -> Option<(Token<'_>, &[u8])> {
    let (&control, rest) = input.split_first()?;
    let control = usize::from(control);
    if control < LONGEST_RUN {
        let (bytes, rest) = rest.split_at_checked(control + 1)?;
        return Some((Token::Literal(bytes), rest));
    }
    let (longer, rest) = match control >> 5 {
        7 => rest
            .split_first()
            .map(|(&more, rest)| (usize::from(more), rest))?,
        _ => (0, rest),
    };
    let (&low, rest) = rest.split_first()?;
    let token = Token::Match {
        distance: ((control & 31) << 8 | usize::from(low)) + 1,
        length: (control >> 5) + 2 + longer,
    };
    Some((token, rest))
}

fn decompress(input: &[u8], output: &mut [u8]) -> Result<()> {
    let mut at = 0;
    each_token(input, |token| {
        let end = at + token.len();
        if end > output.len() {
            return Err(CodecError::new(
                NAME,
                format!("the chunk decodes to more than {} bytes", output.len()),
            ));
        }
        match token {
            Token::Literal(bytes) => output[at..end].copy_from_slice(bytes),
            Token::Match { distance, length } => {
                let start = at.checked_sub(distance).ok_or_else(|| {
                    CodecError::new(NAME, "a match starts before the chunk's first byte")
                })?;
                if distance >= length {
                    output.copy_within(start..start + length, at);
                } else {
                    // The match overlaps the bytes that it produces.
                    for i in at..end {
                        output[i] = output[i - distance];
                    }
                }
            }
        }
        at = end;
        Ok(())
    })?;
    if at == output.len() {
        Ok(())
    } else {
        Err(super::wrong_size(NAME, at, output.len()))
    }
}

fn compress(input: &[u8], output: &mut Vec<u8>, table: &mut [u32]) {
    let mut literals = 0;
    let mut at = 0;
    while let Some(three) = input.get(at..at + SHORTEST_MATCH) {
        let word = u32::from_le_bytes([three[0], three[1], three[2], 0]);
        let slot = &mut table[(word.wrapping_mul(0x9e37_79b1) >> (32 - TABLE_BITS)) as usize];
        let candidate = std::mem::replace(slot, at as u32) as usize;
        let distance = at - candidate;
        if distance == 0 || distance > FARTHEST || input[candidate..candidate + 3] != *three {
            at += 1;
            continue;
        }
        let length = input[at..]
            .iter()
            .zip(&input[candidate..])
            .take(LONGEST_MATCH)
            .take_while(|(a, b)| a == b)
            .count();
        push_literals(&input[literals..at], output);
        push_match(distance, length, output);
        at += length;
        literals = at;
    }
    push_literals(&input[literals..], output);
}

fn push_literals(bytes: &[u8], output: &mut Vec<u8>) {
    for run in bytes.chunks(LONGEST_RUN) {
        output.push((run.len() - 1) as u8);
        output.extend_from_slice(run);
    }
}

fn push_match(distance: usize, length: usize, output: &mut Vec<u8>) {
    let behind = distance - 1;
    let high = (behind >> 8) as u8;
    let length = length - 2;
    if length < 7 {
        output.push((length << 5) as u8 | high);
    } else {
        output.extend_from_slice(&[7 << 5 | high, (length - 7) as u8]);
    }
    output.push(behind as u8);
}
