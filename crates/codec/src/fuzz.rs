//! The entry of fuzzers and of the tests with hostile input.

use crate::filters::codec;

/// Lets one decoder loose on `data`: the filter's number (four bytes, little-endian), the limit
/// (two), the count of client values (one), the values, and the rest is the stored chunk.
///
/// Panics if the decoder breaks its contract, that is, if it gives more than the limit, or if its
/// ways to decode disagree.
pub fn fuzz_one(data: &[u8]) {
    let Some((case, stored)) = parse(data) else {
        return;
    };
    let Some(codec) = codec(case.id) else {
        return;
    };
    let mut decoded = Vec::new();
    let result = codec.decode(&case.values, stored, &mut decoded, case.limit);
    assert!(
        result.is_err() || decoded.len() <= case.limit,
        "{} gave {} bytes where {} are allowed",
        codec.name(),
        decoded.len(),
        case.limit
    );
    let size = if result.is_ok() {
        decoded.len()
    } else {
        case.limit
    };
    // Whatever the memory held before must not shine through.
    let mut outputs = [vec![0; size], vec![0xff; size]];
    let both = outputs
        .each_mut()
        .map(|output| codec.decode_into(&case.values, stored, output).is_ok());
    assert_eq!(both[0], both[1], "{} depends on old bytes", codec.name());
    if both[0] {
        assert!(
            outputs[0] == outputs[1],
            "{} leaves bytes out",
            codec.name()
        );
    }
    if result.is_ok() {
        assert!(
            both[0],
            "{} decodes only without a given size",
            codec.name()
        );
        assert!(
            outputs[0] == decoded,
            "{} disagrees with itself",
            codec.name()
        );
    }
    if let Some(Ok(within)) = codec.decoded_within(&case.values, stored) {
        assert!(within.len() > case.limit || within == decoded);
    }
}

struct Case {
    id: u32,
    limit: usize,
    values: Vec<u32>,
}

fn parse(data: &[u8]) -> Option<(Case, &[u8])> {
    let (id, rest) = data.split_first_chunk()?;
    let (limit, rest) = rest.split_first_chunk()?;
    let (&count, rest) = rest.split_first()?;
    let (values, stored) = rest.split_at_checked(4 * usize::from(count))?;
    let (values, _) = values.as_chunks();
    let case = Case {
        id: u32::from_le_bytes(*id),
        limit: usize::from(u16::from_le_bytes(*limit)),
        values: values
            .iter()
            .map(|value| u32::from_le_bytes(*value))
            .collect(),
    };
    Some((case, stored))
}
