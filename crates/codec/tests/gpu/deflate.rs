//! What the GPU encodes, zlib, libdeflate and the GPU decode.

use proptest::prelude::*;

use crate::device::{Gpu, gpu, noise};
use crate::repetitions::cases;
use crate::samples::{field, kinds, with_long_codes};
use crate::zlib::{self, Z_DEFAULT_STRATEGY};

/// The bytes of a zlib stream before and after the deflate stream.
const HEADER: usize = 2;
const CHECKSUM: usize = 4;

/// Encodes all chunks in one launch, checks every stream with two decoders, and returns the streams.
fn assert_encoded(gpu: &Gpu, chunks: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let streams = gpu.deflate(chunks);
    assert_eq!(streams.len(), chunks.len());
    for (index, (stream, chunk)) in streams.iter().zip(chunks).enumerate() {
        let what = format!("chunk {index} of {} bytes", chunk.len());
        let raw = &stream[HEADER..stream.len() - CHECKSUM];
        assert!(
            zlib::inflate(raw, chunk.len()).as_ref() == Some(chunk),
            "zlib: {what}"
        );
        let mut decoded = vec![0; chunk.len()];
        let mut decoder = libdeflater::Decompressor::new();
        let length = decoder.zlib_decompress(stream, &mut decoded);
        assert_eq!(length, Ok(chunk.len()), "libdeflate: {what}");
        assert!(decoded == *chunk, "libdeflate: {what}: other bytes");
    }
    streams
}

#[test]
fn chunks_of_any_length_are_encoded() {
    let Some(gpu) = gpu() else { return };
    let mut chunks = Vec::new();
    for length in [
        1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 257, 258, 259, 1000, 32_767, 32_768, 32_769, 65_535,
        65_536, 65_537, 100_000,
    ] {
        chunks.extend(kinds(length));
    }
    assert_encoded(gpu, &chunks);
}

#[test]
fn a_mebibyte_of_each_kind_is_encoded() {
    let Some(gpu) = gpu() else { return };
    assert_encoded(gpu, &kinds(1 << 20));
}

#[test]
fn thousands_of_chunks_are_encoded_in_one_launch() {
    let Some(gpu) = gpu() else { return };
    let chunks: Vec<Vec<u8>> = (1..2000).map(|i| field(i, i as u64)).collect();
    assert_encoded(gpu, &chunks);
}

#[test]
fn codes_are_not_longer_than_deflate_has() {
    let Some(gpu) = gpu() else { return };
    let data = with_long_codes();
    assert_encoded(gpu, &[data[..32_768.min(data.len())].to_vec(), data]);
}

#[test]
fn matches_reach_into_the_segments_before() {
    let Some(gpu) = gpu() else { return };
    let once = noise(30_000, 3);
    let twice = once.repeat(2);
    let [stream] = &assert_encoded(gpu, &[twice])[..] else {
        panic!("one chunk has one stream");
    };
    assert!(stream.len() * 5 < once.len() * 6, "{} bytes", stream.len());
}

#[test]
fn data_without_a_pattern_grow_by_a_few_bytes() {
    let Some(gpu) = gpu() else { return };
    let chunk = noise(100_000, 5);
    let [stream] = &assert_encoded(gpu, std::slice::from_ref(&chunk))[..] else {
        panic!("one chunk has one stream");
    };
    assert!(
        stream.len() <= chunk.len() + 6 + 4 * 5,
        "{} bytes",
        stream.len()
    );
}

#[test]
fn shuffled_numbers_take_at_most_5_percent_more_than_by_zlib_level_1() {
    let Some(gpu) = gpu() else { return };
    let chunks: Vec<Vec<u8>> = (0..4).map(|seed| field(1 << 18, seed)).collect();
    let ours: usize = assert_encoded(gpu, &chunks).iter().map(Vec::len).sum();
    let theirs = chunks
        .iter()
        .map(|chunk| zlib::deflate(chunk, 1, Z_DEFAULT_STRATEGY, 8).len() + HEADER + CHECKSUM);
    let theirs: usize = theirs.sum();
    assert!(ours * 100 <= theirs * 105, "{ours} bytes against {theirs}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(64), ..ProptestConfig::default() })]

    #[test]
    fn pieces_that_repeat_in_any_way_are_encoded(
        pieces in prop::collection::vec((any::<u64>(), 1_usize..5000, 1_usize..20, 1_u16..=256), 1..12),
    ) {
        let Some(gpu) = gpu() else { return Ok(()) };
        let mut chunk = Vec::new();
        for (seed, length, times, values) in pieces {
            let piece = noise(length, seed).into_iter().map(|byte| (u16::from(byte) % values) as u8);
            let piece: Vec<u8> = piece.collect();
            (0..times).for_each(|_| chunk.extend_from_slice(&piece));
        }
        assert_encoded(gpu, &[chunk]);
    }
}
