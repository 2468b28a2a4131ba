//! Filter 2, shuffle: the first bytes of all elements, then all second bytes, and so on. Bytes
//! after the last whole element stay where they are.

use std::array::from_fn;

use super::lanes::{LANES, Row, evens_and_odds, interleave};
use super::{Codec, append_zeros, wrong_size};
use crate::error::{CodecError, Result};

const NAME: &str = "shuffle";

pub(crate) struct Shuffle;

impl Codec for Shuffle {
    fn name(&self) -> &'static str {
        NAME
    }

    fn most_growth(&self) -> Option<u64> {
        Some(1)
    }

    fn decoded_size(&self, _values: &[u32], input: &[u8]) -> Result<usize> {
        Ok(input.len())
    }

    fn decode_into(&self, values: &[u32], input: &[u8], output: &mut [u8]) -> Result<()> {
        if input.len() != output.len() {
            return Err(wrong_size(NAME, input.len(), output.len()));
        }
        unshuffle(element_size(values)?, input, output);
        Ok(())
    }

    fn encoded_size(&self, _values: &[u32], decoded: usize) -> Option<usize> {
        Some(decoded)
    }

    fn encode(&self, values: &[u32], input: &[u8], output: &mut Vec<u8>) -> Result<()> {
        let size = element_size(values)?;
        shuffle(
            size,
            input,
            append_zeros(NAME, output, input.len(), input.len())?,
        );
        Ok(())
    }
}

fn element_size(values: &[u32]) -> Result<usize> {
    match values {
        &[size] if size != 0 => Ok(size as usize),
        _ => Err(CodecError::new(
            NAME,
            "the client data are not one value, the size of an element",
        )),
    }
}

/// Splits elements of `size` bytes into planes, one for each byte of an element. `output` is as
/// long as `input`.
pub(super) fn shuffle(size: usize, input: &[u8], output: &mut [u8]) {
    let count = input.len() / size.max(1);
    let (elements, rest) = input.split_at(count * size);
    let (planes, tail) = output.split_at_mut(count * size);
    tail.copy_from_slice(rest);
    match size {
        0 | 1 => planes.copy_from_slice(elements),
        2 => split::<2>(elements, planes, count),
        4 => split::<4>(elements, planes, count),
        8 => split::<8>(elements, planes, count),
        16 => split::<16>(elements, planes, count),
        _ => each_run(count, |run| {
            for (k, plane) in planes.chunks_exact_mut(count).enumerate() {
                let from = elements[run.start * size..run.end * size].chunks_exact(size);
                for (to, element) in plane[run.clone()].iter_mut().zip(from) {
                    *to = element[k];
                }
            }
        }),
    }
}

/// The inverse of [`shuffle`].
pub(super) fn unshuffle(size: usize, input: &[u8], output: &mut [u8]) {
    let count = input.len() / size.max(1);
    let (planes, rest) = input.split_at(count * size);
    let (elements, tail) = output.split_at_mut(count * size);
    tail.copy_from_slice(rest);
    match size {
        0 | 1 => elements.copy_from_slice(planes),
        2 => join::<2>(planes, elements, count),
        4 => join::<4>(planes, elements, count),
        8 => join::<8>(planes, elements, count),
        16 => join::<16>(planes, elements, count),
        _ => each_run(count, |run| {
            for (k, plane) in planes.chunks_exact(count).enumerate() {
                let to = elements[run.start * size..run.end * size].chunks_exact_mut(size);
                for (element, from) in to.zip(&plane[run.clone()]) {
                    element[k] = *from;
                }
            }
        }),
    }
}

/// Calls `body` for runs of elements that stay in the cache over one pass per byte of an element.
fn each_run(count: usize, mut body: impl FnMut(std::ops::Range<usize>)) {
    const RUN: usize = 256;
    for start in (0..count).step_by(RUN) {
        body(start..(start + RUN).min(count));
    }
}

/// Turns 16 elements, in `S` rows, into 16 bytes of each of `S` planes. Each of log2(S) rounds moves
/// the even bytes of neighbouring rows to the first half and the odd ones to the second.
fn split<const S: usize>(elements: &[u8], planes: &mut [u8], count: usize) {
    let whole = count / LANES * LANES;
    for (block, from) in elements.chunks_exact(LANES * S).enumerate() {
        let (source, _) = from.as_chunks::<LANES>();
        let mut rows: [Row; S] = from_fn(|k| source[k]);
        for _ in 0..S.ilog2() {
            let mut next = rows;
            for k in 0..S / 2 {
                (next[k], next[k + S / 2]) = evens_and_odds(rows[2 * k], rows[2 * k + 1]);
            }
            rows = next;
        }
        for (k, row) in rows.iter().enumerate() {
            planes[k * count + block * LANES..][..LANES].copy_from_slice(row);
        }
    }
    for i in whole..count {
        for k in 0..S {
            planes[k * count + i] = elements[i * S + k];
        }
    }
}

/// The inverse of [`split`]: each of log2(S) rounds interleaves the first half with the second.
fn join<const S: usize>(planes: &[u8], elements: &mut [u8], count: usize) {
    let whole = count / LANES * LANES;
    for (block, to) in elements.chunks_exact_mut(LANES * S).enumerate() {
        let mut rows: [Row; S] = from_fn(|k| {
            let mut row = [0; LANES];
            row.copy_from_slice(&planes[k * count + block * LANES..][..LANES]);
            row
        });
        for _ in 0..S.ilog2() {
            let mut next = rows;
            for k in 0..S / 2 {
                (next[2 * k], next[2 * k + 1]) = interleave(rows[k], rows[k + S / 2]);
            }
            rows = next;
        }
        let (target, _) = to.as_chunks_mut::<LANES>();
        for (slot, row) in target.iter_mut().zip(rows) {
            *slot = row;
        }
    }
    for i in whole..count {
        for k in 0..S {
            elements[i * S + k] = planes[k * count + i];
        }
    }
}
