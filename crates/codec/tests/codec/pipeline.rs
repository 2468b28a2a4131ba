//! What a pipeline guarantees beyond its filters.

use crate::common::{filter, filters, noise, sample};
use penstock_codec::{Filter, Pipeline, Scratch};

fn gzip_shuffle_checksum() -> Pipeline {
    Pipeline {
        filters: vec![filter(2, &[4]), filter(1, &[4]), filter(3, &[])],
    }
}

#[test]
fn a_filter_in_the_mask_is_not_undone() {
    let data = sample(500, 4);
    let plain = Pipeline {
        filters: vec![filter(2, &[4])],
    };
    let (stored, _) = plain.encode(&data, &mut Scratch::default()).unwrap();
    let mut output = vec![0; data.len()];
    gzip_shuffle_checksum()
        .decode(0b110, &stored, &mut output, &mut Scratch::default())
        .unwrap();
    assert_eq!(output, data);
}

#[test]
fn a_chunk_without_filters_is_copied() {
    let mut output = [0; 3];
    let none = Pipeline::default();
    none.decode(0, &[1, 2, 3], &mut output, &mut Scratch::default())
        .unwrap();
    assert_eq!(output, [1, 2, 3]);
}

#[test]
fn a_stored_chunk_of_another_size_is_an_error() {
    let error = Pipeline::default()
        .decode(0, &[1, 2, 3], &mut [0; 4], &mut Scratch::default())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "filter none: the chunk decodes to 3 bytes instead of 4"
    );
}

#[test]
fn every_filter_refuses_a_chunk_of_another_size() {
    let data = sample(64, 4);
    for filter in filters(4) {
        let pipeline = Pipeline {
            filters: vec![filter],
        };
        let (stored, _) = pipeline.encode(&data, &mut Scratch::default()).unwrap();
        for size in [0, data.len() - 4, data.len() + 4] {
            let mut output = vec![0; size];
            let result = pipeline.decode(0, &stored, &mut output, &mut Scratch::default());
            assert!(result.is_err(), "{pipeline:?} decodes to {size} bytes");
        }
    }
}

#[test]
fn an_optional_filter_that_cannot_encode_is_skipped_and_in_the_mask() {
    let data = noise(100, 4);
    let pipeline = Pipeline {
        filters: vec![
            filter(2, &[4]),
            Filter {
                optional: true,
                ..filter(32000, &[4, 0x105, 400])
            },
            filter(3, &[]),
        ],
    };
    let (stored, mask) = pipeline.encode(&data, &mut Scratch::default()).unwrap();
    assert_eq!((mask, stored.len()), (0b010, data.len() + 4));
}

#[test]
fn of_several_filters_of_varying_length_none_is_skipped_for_a_longer_output() {
    let optional = |id, values: &[u32]| Filter {
        optional: true,
        ..filter(id, values)
    };
    let lzf = || optional(32000, &[4, 0x105, 400]);
    for filters in [vec![optional(1, &[4]), lzf()], vec![lzf(), lzf()]] {
        let pipeline = Pipeline { filters };
        for data in [noise(100, 4), sample(100, 4)] {
            let (stored, mask) = pipeline.encode(&data, &mut Scratch::default()).unwrap();
            assert_eq!(mask, 0, "{pipeline:?}");
            let mut output = vec![0; data.len()];
            pipeline
                .decode(0, &stored, &mut output, &mut Scratch::default())
                .unwrap();
            assert_eq!(output, data);
        }
    }
}

#[test]
fn a_filter_after_nbit_is_the_only_one_of_varying_length() {
    let data = noise(100, 2);
    for (as_is, bits, length) in [(1, 16, data.len()), (0, 12, data.len() * 12 / 16 + 1)] {
        let lzf = Filter {
            optional: true,
            ..filter(32000, &[4, 0x105, 200])
        };
        let nbit = filter(5, &[8, as_is, 100, 1, 2, 0, bits, 0]);
        let pipeline = Pipeline {
            filters: vec![nbit, lzf],
        };
        let (stored, mask) = pipeline.encode(&data, &mut Scratch::default()).unwrap();
        assert_eq!((mask, stored.len()), (0b10, length));
    }
}

#[test]
fn a_required_filter_that_cannot_encode_fails_the_chunk() {
    let pipeline = Pipeline {
        filters: vec![filter(32000, &[]), filter(2, &[])],
    };
    let error = pipeline
        .encode(&noise(100, 4), &mut Scratch::default())
        .unwrap_err();
    assert_eq!(error.filter, "shuffle");
}

#[test]
fn an_unknown_filter_is_named() {
    let pipeline = Pipeline {
        filters: vec![filter(2, &[4]), filter(60000, &[])],
    };
    assert_eq!(pipeline.unknown().map(|f| f.id), Some(60000));
    let error = pipeline
        .decode(0, &[0; 8], &mut [0; 8], &mut Scratch::default())
        .unwrap_err();
    assert!(error.cause.contains("60000"), "{error}");
}

#[test]
fn client_data_with_a_compressor_of_blosc_that_is_lacking_are_unknown() {
    let with = |id, shuffle, compressor| Pipeline {
        filters: vec![filter(id, &[2, 2, 4, 4000, 5, shuffle, compressor])],
    };
    let snappy = with(32001, 1, 3);
    assert_eq!(
        snappy.unknown().map(ToString::to_string).as_deref(),
        Some("filter 32001 (blosc) with the client data [2, 2, 4, 4000, 5, 1, 3]")
    );
    for known in [with(32001, 2, 5), with(32026, 1, 4), with(32026, 3, 0)] {
        assert_eq!((known.unknown(), known.unwritable()), (None, None));
    }
    // A compressor of the user's own.
    assert!(with(32026, 1, 160).unknown().is_some());
    // Truncated precision is decoded, and not encoded.
    let truncated = with(32026, 4, 1);
    assert!(truncated.unknown().is_none() && truncated.unwritable().is_some());
}

#[test]
fn scratch_of_one_pipeline_serves_another() {
    let mut scratch = Scratch::default();
    for size in [5000, 3, 700] {
        let data = sample(size, 4);
        for pipeline in [
            gzip_shuffle_checksum(),
            Pipeline {
                filters: vec![filter(32015, &[3]), filter(1, &[1]), filter(2, &[3])],
            },
        ] {
            let (stored, mask) = pipeline.encode(&data, &mut scratch).unwrap();
            let mut output = vec![0; data.len()];
            pipeline
                .decode(mask, &stored, &mut output, &mut scratch)
                .unwrap();
            assert_eq!(output, data);
        }
    }
}

#[test]
fn an_encoded_chunk_takes_no_more_memory_than_its_bytes() {
    let (stored, _) = gzip_shuffle_checksum()
        .encode(&sample(100_000, 4), &mut Scratch::default())
        .unwrap();
    assert_eq!(stored.capacity(), stored.len());
}
