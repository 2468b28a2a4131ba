//! Decoders return a chunk or an error for any bytes, and never more than the caller allows.

use crate::common::{filter, filters, sample};
use penstock_codec::{Filter, Pipeline, Scratch, fuzz_one};
use proptest::prelude::*;

/// Every filter, including LZF, which does not encode every chunk.
fn all() -> Vec<Filter> {
    let mut all = filters(4);
    all.push(filter(32000, &[4, 0x105, 4000]));
    all
}

fn error(filter: &Filter, stored: &[u8], size: usize) -> String {
    let pipeline = Pipeline {
        filters: vec![filter.clone()],
    };
    let mut output = vec![0; size];
    match pipeline.decode(0, stored, &mut output, &mut Scratch::default()) {
        Ok(()) => panic!("{filter:?} decoded damaged bytes"),
        Err(e) => e.to_string(),
    }
}

/// The input of `fuzz_one` that makes one filter decode `stored`.
fn fuzz_input(filter: &Filter, limit: u16, stored: &[u8]) -> Vec<u8> {
    let mut input = filter.id.to_le_bytes().to_vec();
    input.extend(limit.to_le_bytes());
    input.push(filter.values.len() as u8);
    input.extend(filter.values.iter().flat_map(|value| value.to_le_bytes()));
    input.extend(stored);
    input
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_bytes_never_break_a_decoder(
        stored in prop::collection::vec(any::<u8>(), 0..600),
        limit in 0..5000_u16,
    ) {
        for filter in all() {
            fuzz_one(&fuzz_input(&filter, limit, &stored));
        }
    }

    #[test]
    fn random_client_values_never_break_a_decoder(
        stored in prop::collection::vec(any::<u8>(), 0..100),
        values in prop::collection::vec(prop_oneof![any::<u32>(), 0..40_u32], 0..12),
        limit in 0..5000_u16,
    ) {
        for f in all() {
            fuzz_one(&fuzz_input(&filter(f.id, &values), limit, &stored));
        }
    }

    #[test]
    fn flipped_bits_never_break_a_decoder(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u8), 1..6),
        near_start in any::<bool>(),
        limit in prop_oneof![Just(4000_u16), 0..5000_u16],
    ) {
        let data = sample(1000, 4);
        for filter in all() {
            let pipeline = Pipeline { filters: vec![filter.clone()] };
            let (mut stored, _) = pipeline.encode(&data, &mut Scratch::default()).unwrap();
            let within = if near_start { stored.len().min(24) } else { stored.len() };
            for (at, bit) in &flips {
                stored[at.index(within)] ^= 1 << bit;
            }
            fuzz_one(&fuzz_input(&filter, limit, &stored));
        }
    }

    #[test]
    fn a_chunk_that_is_cut_off_is_an_error(cut in any::<prop::sample::Index>()) {
        let data = sample(1000, 4);
        for filter in all() {
            let pipeline = Pipeline { filters: vec![filter.clone()] };
            let (stored, _) = pipeline.encode(&data, &mut Scratch::default()).unwrap();
            error(&filter, &stored[..cut.index(stored.len())], data.len());
        }
    }
}

#[test]
fn a_decompression_bomb_stops_at_the_size_of_the_chunk() {
    let data = vec![0; 1 << 21];
    for filter in all() {
        let alone = Pipeline {
            filters: vec![filter.clone()],
        };
        let (stored, _) = alone.encode(&data, &mut Scratch::default()).unwrap();
        // Alone, and before a filter whose encoded size is not known in advance.
        error(&filter, &stored, 1000);
        let under = Pipeline {
            filters: vec![crate::common::filter(32015, &[3]), filter],
        };
        let result = under.decode(0, &stored, &mut [0; 1000], &mut Scratch::default());
        assert!(result.is_err(), "{under:?}");
    }
}

#[test]
fn lz4_refuses_blocks_of_zero_bytes() {
    let mut stored = 100_u64.to_be_bytes().to_vec();
    stored.extend([0; 8]);
    let message = error(&filter(32004, &[0]), &stored, 100);
    assert_eq!(message, "filter lz4: the block size is 0");
}

#[test]
fn lz4_does_not_return_previous_contents_of_the_output() {
    // A match of 100 bytes at distance 0 would copy the output onto itself.
    let block = [0x1f, b'a', 0, 0, 81];
    let mut stored = 101_u64.to_be_bytes().to_vec();
    stored.extend(101_u32.to_be_bytes());
    stored.extend((block.len() as u32).to_be_bytes());
    stored.extend(block);
    assert!(error(&filter(32004, &[0]), &stored, 101).contains("LZ4"));
}

#[test]
fn lzf_refuses_a_match_before_the_first_byte() {
    let message = error(&filter(32000, &[]), &[0, b'a', 0x20, 1], 4);
    assert_eq!(
        message,
        "filter lzf: a match starts before the chunk's first byte"
    );
}

#[test]
fn bitshuffle_refuses_a_block_that_is_not_a_multiple_of_eight() {
    let mut stored = 400_u64.to_be_bytes().to_vec();
    stored.extend(28_u32.to_be_bytes());
    let message = error(&filter(32008, &[0, 4, 4, 0, 2]), &stored, 400);
    assert_eq!(
        message,
        "filter bitshuffle: a block of 7 elements is not a multiple of 8"
    );
}

#[test]
fn sizes_beyond_the_address_space_are_an_error() {
    for f in [filter(32004, &[0]), filter(32008, &[0, 4, 4, 0, 2])] {
        let mut stored = u64::MAX.to_be_bytes().to_vec();
        stored.extend([0x7f, 0xff, 0xff, 0xe0, 0, 0, 0, 1, 0]);
        error(&f, &stored, 400);
        fuzz_one(&fuzz_input(&f, 400, &stored));
    }
}

#[test]
fn deflate_has_no_level_ten() {
    let pipeline = Pipeline {
        filters: vec![filter(1, &[10])],
    };
    let error = pipeline
        .encode(&[0; 8], &mut Scratch::default())
        .unwrap_err();
    assert_eq!(error.to_string(), "filter deflate: there is no level 10");
}
