//! Fast filters against the plain statement of what they do.

use crate::common::{filter, noise};
use penstock_codec::{Pipeline, Scratch};
use proptest::prelude::*;

fn encode(id: u32, values: &[u32], data: &[u8]) -> Vec<u8> {
    let pipeline = Pipeline {
        filters: vec![filter(id, values)],
    };
    pipeline.encode(data, &mut Scratch::default()).unwrap().0
}

fn decode(id: u32, stored: &[u8], size: usize) -> penstock_codec::Result<Vec<u8>> {
    let pipeline = Pipeline {
        filters: vec![filter(id, &[])],
    };
    let mut output = vec![0; size];
    pipeline.decode(0, stored, &mut output, &mut Scratch::default())?;
    Ok(output)
}

fn shuffled(size: usize, data: &[u8]) -> Vec<u8> {
    let count = data.len() / size;
    let planes = (0..size).flat_map(|k| (0..count).map(move |i| data[i * size + k]));
    planes.chain(data[count * size..].iter().copied()).collect()
}

/// The sums of HDF5's format specification, with a carry folded back at each step.
fn fletcher32(data: &[u8], word: fn([u8; 2]) -> u16) -> u32 {
    let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let (mut first, mut second) = (0_u32, 0_u32);
    for pair in data.chunks(2) {
        let pair = [pair[0], pair.get(1).copied().unwrap_or(0)];
        first = fold(first + u32::from(word(pair)));
        second = fold(second + first);
    }
    second << 16 | first
}

fn bits(size: usize, data: &[u8]) -> Vec<u8> {
    let count = data.len() / size;
    let mut output = vec![0; data.len()];
    for (i, element) in data.chunks(size).enumerate() {
        for bit in 0..8 * size {
            let value = element[bit / 8] >> (bit % 8) & 1;
            output[bit * count / 8 + i / 8] |= value << (i % 8);
        }
    }
    output
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn shuffle_makes_one_plane_of_each_byte(
        size in 1..20_usize,
        data in prop::collection::vec(any::<u8>(), 0..2000),
    ) {
        prop_assert_eq!(encode(2, &[size as u32], &data), shuffled(size, &data));
    }

    #[test]
    fn the_checksum_is_fletchers(data in prop::collection::vec(any::<u8>(), 0..3000)) {
        let stored = encode(3, &[], &data);
        let (copy, sum) = stored.split_last_chunk().unwrap();
        prop_assert_eq!(copy, &data);
        prop_assert_eq!(u32::from_le_bytes(*sum), fletcher32(&data, u16::from_be_bytes));
    }

    #[test]
    fn bitshuffle_makes_one_plane_of_each_bit(size in 1..20_usize, groups in 1..40_usize) {
        let data = noise(8 * groups, size);
        let values = [0, 4, size as u32, 8 * groups as u32, 0];
        prop_assert_eq!(encode(32008, &values, &data), bits(size, &data));
    }

    #[test]
    fn a_checksum_with_the_swapped_bytes_of_old_versions_counts(
        data in prop::collection::vec(any::<u8>(), 1..500),
    ) {
        let even = &data[..data.len() / 2 * 2];
        let mut stored = even.to_vec();
        stored.extend(fletcher32(even, u16::from_le_bytes).to_le_bytes());
        prop_assert_eq!(decode(3, &stored, even.len()).unwrap(), even);
    }

    #[test]
    fn a_changed_byte_fails_the_checksum(
        data in prop::collection::vec(any::<u8>(), 1..500),
        at in any::<prop::sample::Index>(),
        flip in 1..=254_u8,
    ) {
        let mut stored = encode(3, &[], &data);
        stored[at.index(data.len())] ^= flip;
        prop_assert!(decode(3, &stored, data.len()).unwrap_err().cause.contains("checksum"));
    }
}

#[test]
fn the_checksum_of_long_runs_of_ones_does_not_overflow() {
    for size in [8191, 8192, 1 << 20, (1 << 20) + 37] {
        let data = vec![0xff; size];
        let stored = encode(3, &[], &data);
        let (_, sum) = stored.split_last_chunk().unwrap();
        assert_eq!(
            u32::from_le_bytes(*sum),
            fletcher32(&data, u16::from_be_bytes)
        );
    }
}
