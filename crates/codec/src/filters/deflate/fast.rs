//! Level 1: the matches of zlib's level 1, for which the stream is about as long.
//!
//! zlib's hash, the number of places that it compares and those that it leaves out happen to suit numbers that
//! rise evenly, for which other fast encoders take up to 2.4 times as many bytes. So this encoder has the same:
//! docs/decisions/0027-level-1-of-deflate-is-our-own.md. Only within a run of literals does it compare fewer places.

use super::block::{LONGEST, Output, Symbols};

const HASHES: usize = 1 << 15;
const WINDOW: usize = 1 << 15;

/// Bytes that are loaded at a time, and the length of a match for which no longer one is sought.
const LOADED: usize = 8;
/// The longest match all of whose places are remembered.
const REMEMBERED: usize = 4;

/// The memory of an encoder.
pub(super) struct Encoder {
    places: Box<Places>,
    symbols: Symbols,
}

impl Encoder {
    pub(super) fn new() -> Encoder {
        Encoder {
            places: Box::new(Places {
                latest: [0; HASHES],
                before: [0; WINDOW],
            }),
            symbols: Symbols::new(),
        }
    }

    /// Writes a zlib stream; returns its length, or `None` if it does not fit. The last bytes of the memory,
    /// [`Output::SLACK`], stay unused.
    pub(super) fn encode(&mut self, input: &[u8], memory: &mut [u8]) -> Option<usize> {
        let Encoder { places, symbols } = self;
        places.latest.fill(0);
        symbols.clear();
        let mut out = Output::new(memory);
        out.bytes(&[0x78, 0x01])?;
        // Where the next byte, the block and the literals since the last match begin.
        let (mut at, mut block, mut literals) = (0, 0, 0);
        // No match begins where fewer bytes are left than are loaded.
        while let Some(key) = load(input, at) {
            let place = places.remember(key, at);
            let (distance, length) = places.longest(input, at, key, place, at > literals);
            if length == 0 {
                symbols.literal(key as u8);
                at += 1;
            } else {
                symbols.repeat(at - literals, distance, length);
                if length <= REMEMBERED {
                    for inner in 1..length {
                        places.remember(key >> (8 * inner), at + inner);
                    }
                }
                at += length;
                literals = at;
            }
            if symbols.are_full(at - literals) {
                symbols.flush(&input[block..at], at == input.len(), &mut out)?;
                (block, literals) = (at, at);
            }
        }
        if block < input.len() || input.is_empty() {
            input[at..].iter().for_each(|byte| symbols.literal(*byte));
            symbols.flush(&input[block..], true, &mut out)?;
        }
        out.finish(libdeflater::adler32(input))
    }
}

/// Where the bytes of a hash were, modulo 2^16: a wrong place costs a comparison.
struct Places {
    latest: [u16; HASHES],
    before: [u16; WINDOW],
}

impl Places {
    /// Notes the place of some bytes; returns the one before with the same hash.
    fn remember(&mut self, key: u64, at: usize) -> u16 {
        let place = std::mem::replace(&mut self.latest[hash(key)], at as u16);
        self.before[at % WINDOW] = place;
        place
    }

    /// Returns distance and length of the longest match among four places; 0 if there is none. After a
    /// literal, the first two places decide whether there is one.
    fn longest(
        &self,
        input: &[u8],
        at: usize,
        key: u64,
        mut place: u16,
        is_after_literal: bool,
    ) -> (usize, usize) {
        // The first byte of a chunk begins no match, as in zlib: unused places look like its place.
        let limit = at.min(WINDOW);
        let (mut found, mut best, mut last) = (0, 2, 0);
        // Without branches, which would be predicted wrong too often.
        let mut compare = |found: &mut usize, best: &mut usize| {
            let distance = usize::from((at as u16).wrapping_sub(place));
            let other = load(input, at - distance.min(at)).unwrap_or(0);
            let length = (key ^ other).trailing_zeros() as usize / 8;
            let is_better = (length > *best) & (distance > last) & (distance < limit);
            *found = if is_better { distance } else { *found };
            *best = if is_better { length } else { *best };
            last = distance;
            place = self.before[usize::from(place) % WINDOW];
        };
        compare(&mut found, &mut best);
        compare(&mut found, &mut best);
        if found == 0 && is_after_literal {
            return (0, 0);
        }
        compare(&mut found, &mut best);
        compare(&mut found, &mut best);
        if found == 0 {
            return (0, 0);
        }
        if best == LOADED {
            let wanted = &input[at..][..LONGEST.min(input.len() - at)];
            best = common(&input[at - found..], wanted);
        }
        (found, best)
    }
}

/// Loads the bytes at a place; the first is the lowest.
fn load(input: &[u8], at: usize) -> Option<u64> {
    let bytes = input.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

/// zlib's hash of the first three bytes.
fn hash(key: u64) -> usize {
    let (a, b, c) = (key & 0x1f, key >> 8 & 0xff, key >> 16 & 0xff);
    (a << 10 ^ b << 5 ^ c) as usize
}

/// Returns how many bytes of `wanted` are the same as those of `place`, which is longer.
fn common(place: &[u8], wanted: &[u8]) -> usize {
    let mut length = 0;
    while let (Some(a), Some(b)) = (
        place[length..].first_chunk::<8>(),
        wanted[length..].first_chunk::<8>(),
    ) {
        let different = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if different != 0 {
            return length + different.trailing_zeros() as usize / 8;
        }
        length += 8;
    }
    let rest = place[length..].iter().zip(&wanted[length..]);
    length + rest.take_while(|(a, b)| a == b).count()
}
