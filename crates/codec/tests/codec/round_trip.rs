//! Encoded chunks decode to the same bytes, for all sizes and all orders of filters.

use crate::common::{filter, filters, noise, sample};
use penstock_codec::{Filter, Pipeline, Scratch};
use proptest::prelude::*;

/// Whole elements that shrink well, hardly or not at all.
fn chunk() -> impl Strategy<Value = (u32, Vec<u8>)> {
    let size = prop_oneof![Just(1_u32), Just(2), Just(4), Just(8), Just(16), 1..40_u32];
    (size, 1..3000_usize, 0..4_u8).prop_map(|(size, count, kind)| {
        let data = match kind {
            0 => vec![7; count * size as usize],
            1 => noise(count, size as usize),
            2 => sample(count, size as usize),
            _ => {
                let mut data = sample(count, size as usize);
                let half = data.len() / 2;
                data[half..].copy_from_slice(&noise(count, size as usize)[half..]);
                data
            }
        };
        (size, data)
    })
}

fn round_trip(pipeline: &Pipeline, data: &[u8]) {
    let mut scratch = Scratch::default();
    let (stored, mask) = pipeline.encode(data, &mut scratch).unwrap();
    let mut output = vec![0xee; data.len()];
    pipeline
        .decode(mask, &stored, &mut output, &mut scratch)
        .unwrap();
    assert!(
        output == data,
        "{pipeline:?} changes a chunk of {} bytes",
        data.len()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_filter_round_trips((size, data) in chunk()) {
        for filter in filters(size) {
            round_trip(&Pipeline { filters: vec![filter] }, &data);
        }
    }

    #[test]
    fn lzf_round_trips_or_is_skipped((size, data) in chunk()) {
        let lzf = Filter { optional: true, ..filter(32000, &[4, 0x105, data.len() as u32]) };
        round_trip(&Pipeline { filters: vec![filter(2, &[size]), lzf] }, &data);
    }

    #[test]
    fn any_filters_in_any_order_round_trip(
        (size, data) in chunk(),
        picks in prop::collection::vec((0..6_usize, any::<bool>()), 0..5),
    ) {
        // Without bitshuffle, which encodes only whole elements: a filter before it may not leave them.
        let all = filters(size);
        let filters = picks
            .iter()
            .map(|&(pick, optional)| Filter { optional, ..all[pick].clone() })
            .collect();
        round_trip(&Pipeline { filters }, &data);
    }

    #[test]
    fn bitshuffle_takes_blocks_of_any_multiple_of_eight(
        (size, data) in chunk(),
        block in 1..70_u32,
        compression in prop_oneof![Just(0_u32), Just(2), Just(3)],
    ) {
        let values = [0, 4, size, block * 8, compression];
        round_trip(&Pipeline { filters: vec![filter(32008, &values)] }, &data);
    }

    #[test]
    fn deflate_has_all_levels_of_zlib(level in 0..=9_u32, (_, data) in chunk()) {
        round_trip(&Pipeline { filters: vec![filter(1, &[level])] }, &data);
    }
}

#[test]
fn a_chunk_of_megabytes_round_trips_in_the_usual_pipeline() {
    let data = sample(600_000, 8);
    let filters = vec![filter(2, &[8]), filter(1, &[4]), filter(3, &[])];
    round_trip(&Pipeline { filters }, &data);
}
