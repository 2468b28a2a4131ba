//! BloscLZ, Blosc's own LZ77 format.
//!
//! A control byte below 32 starts a run of `control + 1` literals. Any other starts a match. Its top
//! three bits are the length less 2; if they are 7, bytes that add to it follow, the last of them
//! below 255. Its low five bits and the next byte are the distance less 1; if they are all ones, two
//! more bytes, big-endian, hold the distance less 8192. The first control byte always starts
//! literals; its top three bits are ignored. A stream ends with literals.

const MAX_LITERALS: usize = 32;
const MIN_MATCH: usize = 3;
/// Distances from here on take two more bytes.
const FAR: usize = 8192;
const MAX_DISTANCE: usize = FAR + 65535;
/// The shortest match that saves bytes despite a far distance.
const MIN_FAR_MATCH: usize = 6;
const HASH_BITS: u32 = 13;
/// Bytes at the end of the input that are always literals, so that hashing never reads past it.
const TAIL: usize = 8;

/// Fills `output` exactly; `None` for a damaged stream or one of another size.
pub(super) fn decompress(input: &[u8], output: &mut [u8]) -> Option<()> {
    let mut input = input.iter();
    let mut control = usize::from(*input.next()?) & 31;
    let mut filled = 0;
    loop {
        if control < 32 {
            let count = control + 1;
            let (literals, rest) = input.as_slice().split_at_checked(count)?;
            output
                .get_mut(filled..filled + count)?
                .copy_from_slice(literals);
            filled += count;
            input = rest.iter();
        } else {
            let mut length = (control >> 5) + 2;
            let high = (control & 31) << 8;
            if length == 9 {
                loop {
                    let more = *input.next()?;
                    length += usize::from(more);
                    if more != 255 {
                        break;
                    }
                }
            }
            let low = usize::from(*input.next()?);
            let distance = if (high, low) == (31 << 8, 255) {
                let far = [*input.next()?, *input.next()?];
                usize::from(u16::from_be_bytes(far)) + FAR
            } else {
                high + low + 1
            };
            let end = filled.checked_add(length)?;
            if distance > filled || end > output.len() {
                return None;
            }
            copy_match(output, filled, distance, end);
            filled = end;
        }
        match input.next() {
            Some(next) => control = usize::from(*next),
            None => return (filled == output.len()).then_some(()),
        }
    }
}

/// Fills `from..end` with the bytes `distance` before them; source and target may overlap.
fn copy_match(output: &mut [u8], from: usize, distance: usize, end: usize) {
    let source = from - distance;
    let mut filled = from;
    while filled < end {
        let step = (filled - source).min(end - filled);
        output.copy_within(source..source + step, filled);
        filled += step;
    }
}

/// The greatest length of the stream for `len` bytes.
pub(super) fn most_encoded(len: usize) -> usize {
    // Only literals take more room than they fill: a byte for each run.
    len + len / MAX_LITERALS + 1
}

/// Appends the stream. It may be longer than `input`.
pub(super) fn compress(input: &[u8], output: &mut Vec<u8>) {
    let start = output.len();
    let mut table = [0_u32; 1 << HASH_BITS];
    let matchable = input.len().saturating_sub(TAIL);
    // The first literal not yet written.
    let mut anchor = 0;
    let mut at = 1;
    while at < matchable {
        let word = word(input, at);
        let slot = &mut table[(word.wrapping_mul(0x9E37_79B1) >> (32 - HASH_BITS)) as usize];
        let candidate = std::mem::replace(slot, at as u32) as usize;
        let distance = at - candidate;
        let length = if distance <= MAX_DISTANCE && self::word(input, candidate) == word {
            common(&input[candidate..matchable], &input[at..matchable])
        } else {
            0
        };
        let worthwhile = if distance < FAR { 4 } else { MIN_FAR_MATCH };
        if length < worthwhile {
            at += 1;
            continue;
        }
        put_literals(&input[anchor..at], output);
        put_match(length, distance, output);
        at += length;
        anchor = at;
    }
    put_literals(&input[anchor..], output);
    // This bit marks the stream as BloscLZ's; decoders ignore it.
    if let Some(first) = output.get_mut(start) {
        *first |= 32;
    }
}

fn word(input: &[u8], at: usize) -> u32 {
    input[at..]
        .first_chunk::<4>()
        .map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn common(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(l, r)| l == r).count()
}

fn put_literals(literals: &[u8], output: &mut Vec<u8>) {
    for run in literals.chunks(MAX_LITERALS) {
        output.push(run.len() as u8 - 1);
        output.extend_from_slice(run);
    }
}

fn put_match(length: usize, distance: usize, output: &mut Vec<u8>) {
    let (near, far) = if distance < FAR {
        (distance - 1, None)
    } else {
        (FAR - 1, Some((distance - FAR) as u16))
    };
    let coded = length - MIN_MATCH + 1;
    output.push((coded.min(7) << 5 | near >> 8) as u8);
    if coded >= 7 {
        let mut more = coded - 7;
        while more >= 255 {
            output.push(255);
            more -= 255;
        }
        output.push(more as u8);
    }
    output.push(near as u8);
    if let Some(far) = far {
        output.extend_from_slice(&far.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(data: &[u8]) {
        let mut packed = Vec::new();
        compress(data, &mut packed);
        assert!(packed.len() < data.len());
        let mut back = vec![0; data.len()];
        decompress(&packed, &mut back).expect("valid");
        assert_eq!(back, data);
    }

    #[test]
    fn runs_matches_and_far_matches_round_trip() {
        round_trip(&[7; 1000]);
        round_trip(&(0..5000u32).map(|i| (i % 251) as u8).collect::<Vec<_>>());
        let mut noise = 1u32;
        let mut far: Vec<u8> = (0..30_000)
            .map(|_| {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (noise >> 24) as u8
            })
            .collect();
        far.extend_from_within(..);
        round_trip(&far);
    }

    #[test]
    fn distances_before_the_start_are_refused() {
        assert_eq!(decompress(&[0, 65, 0x20, 1, 0, 66], &mut [0; 5]), None);
    }
}
