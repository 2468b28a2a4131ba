//! The GPU decodes what zlib encoded, and damaged streams do no harm.

use penstock_codec::gpu::{InflateTable, Inflated};
use proptest::prelude::*;

use crate::device::{Buffer, Gpu, gpu, noise};
use crate::repetitions::cases;
use crate::samples::{field, kinds, with_long_codes};
use crate::zlib::{
    Z_DEFAULT_STRATEGY, Z_FILTERED, Z_FIXED, Z_HUFFMAN_ONLY, Z_RLE, deflate, inflate,
};

/// Bytes around each output that must stay as they are.
const GUARD: usize = 64;
const BEFORE: u8 = 0xa5;

/// Decodes each stream into an output of the given size, all in one launch, at many alignments.
/// Panics if bytes around an output were changed.
fn inflated<T: AsRef<[u8]>>(gpu: &Gpu, streams: &[(T, usize)]) -> Vec<(Inflated, Vec<u8>)> {
    let mut table = InflateTable::new();
    let mut buffers: Vec<(Buffer, Buffer)> = Vec::new();
    for (index, (stream, room)) in streams.iter().enumerate() {
        let stream = stream.as_ref();
        let input = gpu.buffer(stream, index % 9);
        let output = gpu.buffer(&vec![BEFORE; GUARD + room + GUARD], index % 5 * 7);
        let (length, to) = (stream.len() as u32, output.address + GUARD as u64);
        table.push(input.address, length, to, *room as u32);
        buffers.push((input, output));
    }
    let verdicts = gpu.inflate(&table);
    assert_eq!(verdicts.len(), streams.len());
    let outputs = buffers.iter().zip(verdicts).zip(streams);
    let outputs = outputs.map(|(((_, output), verdict), (_, room))| {
        let bytes = output.bytes();
        let untouched = |guard: &[u8]| guard.iter().all(|&byte| byte == BEFORE);
        assert!(untouched(&bytes[..GUARD]), "written before the room");
        assert!(untouched(&bytes[GUARD + room..]), "written after the room");
        (verdict, bytes[GUARD..GUARD + room].to_vec())
    });
    outputs.collect()
}

fn assert_inflated(gpu: &Gpu, expected: &[Vec<u8>], streams: Vec<Vec<u8>>) {
    let rooms = expected.iter().map(Vec::len);
    let streams: Vec<(Vec<u8>, usize)> = streams.into_iter().zip(rooms).collect();
    for (index, (verdict, bytes)) in inflated(gpu, &streams).into_iter().enumerate() {
        assert_eq!(verdict, Inflated::Done, "stream {index}");
        assert!(bytes == expected[index], "stream {index}: other bytes");
    }
}

/// Fails unless the GPU accepts exactly what zlib accepts, with the same bytes.
fn assert_as_zlib(stream: &[u8], verdict: Inflated, bytes: &[u8]) {
    let expected = inflate(stream, bytes.len());
    assert_eq!(verdict == Inflated::Done, expected.is_some(), "{verdict:?}");
    if let Some(expected) = expected {
        assert!(bytes == expected, "other bytes than zlib's");
    }
}

#[test]
fn every_level_and_strategy_of_zlib_is_decoded() {
    let Some(gpu) = gpu() else { return };
    let strategies = [
        Z_DEFAULT_STRATEGY,
        Z_FILTERED,
        Z_HUFFMAN_ONLY,
        Z_RLE,
        Z_FIXED,
    ];
    let data = kinds(40_000);
    for strategy in strategies {
        for level in 0..=9 {
            let streams = data.iter().map(|data| deflate(data, level, strategy, 8));
            assert_inflated(gpu, &data, streams.collect());
        }
    }
}

#[test]
fn streams_of_any_length_are_decoded() {
    let Some(gpu) = gpu() else { return };
    let mut data = Vec::new();
    for length in [
        0, 1, 2, 3, 4, 7, 8, 31, 32, 33, 63, 64, 65, 257, 258, 259, 1000, 65_535, 65_536, 262_144,
    ] {
        data.extend(kinds(length));
    }
    let streams = data
        .iter()
        .map(|data| deflate(data, 6, Z_DEFAULT_STRATEGY, 8));
    assert_inflated(gpu, &data, streams.collect());
}

#[test]
fn a_mebibyte_of_each_kind_is_decoded() {
    let Some(gpu) = gpu() else { return };
    let data = kinds(1 << 20);
    for level in [1, 4, 6] {
        let streams = data
            .iter()
            .map(|data| deflate(data, level, Z_DEFAULT_STRATEGY, 8));
        assert_inflated(gpu, &data, streams.collect());
    }
}

#[test]
fn many_short_blocks_are_decoded() {
    let Some(gpu) = gpu() else { return };
    let data = kinds(100_000);
    let streams = data
        .iter()
        .map(|data| deflate(data, 5, Z_DEFAULT_STRATEGY, 1));
    assert_inflated(gpu, &data, streams.collect());
}

#[test]
fn what_libdeflate_encodes_is_decoded() {
    let Some(gpu) = gpu() else { return };
    let data = kinds(150_000);
    for level in [0, 1, 3, 6, 9, 12] {
        let level = libdeflater::CompressionLvl::new(level).unwrap();
        let streams = data.iter().map(|data| {
            let mut encoder = libdeflater::Compressor::new(level);
            let mut stream = vec![0; encoder.deflate_compress_bound(data.len())];
            let length = encoder.deflate_compress(data, &mut stream).unwrap();
            stream.truncate(length);
            stream
        });
        assert_inflated(gpu, &data, streams.collect());
    }
}

#[test]
fn thousands_of_streams_are_decoded_in_one_launch() {
    let Some(gpu) = gpu() else { return };
    let data: Vec<Vec<u8>> = (0..2000).map(|i| field(i, i as u64)).collect();
    let streams = data
        .iter()
        .map(|data| deflate(data, 4, Z_DEFAULT_STRATEGY, 8));
    assert_inflated(gpu, &data, streams.collect());
}

#[test]
fn codes_of_all_lengths_are_decoded() {
    let Some(gpu) = gpu() else { return };
    let data = with_long_codes();
    let streams = [Z_HUFFMAN_ONLY, Z_DEFAULT_STRATEGY].map(|s| deflate(&data, 9, s, 9));
    assert_inflated(gpu, &[data.clone(), data], streams.to_vec());
}

#[test]
fn bytes_after_the_end_are_ignored() {
    let Some(gpu) = gpu() else { return };
    let data = field(3000, 1);
    let mut stream = deflate(&data, 4, Z_DEFAULT_STRATEGY, 8);
    stream.extend_from_slice(&[0xff; 300]);
    assert_inflated(gpu, &[data], vec![stream]);
}

#[test]
fn a_stream_that_is_truncated_anywhere_is_an_error() {
    let Some(gpu) = gpu() else { return };
    for (data, level) in [(field(500, 1), 4), (noise(700, 1), 0), (field(500, 2), 9)] {
        let stream = deflate(&data, level, Z_DEFAULT_STRATEGY, 8);
        let cuts: Vec<(&[u8], usize)> = (0..stream.len())
            .map(|length| (&stream[..length], data.len()))
            .collect();
        for (length, (verdict, _)) in inflated(gpu, &cuts).into_iter().enumerate() {
            // The zeros after the end can complete the last code, so other errors occur too.
            assert_ne!(verdict, Inflated::Done, "{length} bytes");
        }
    }
}

#[test]
fn a_stream_of_another_size_stays_inside_its_room() {
    let Some(gpu) = gpu() else { return };
    for data in kinds(50_000) {
        let stream = deflate(&data, 6, Z_DEFAULT_STRATEGY, 8);
        let rooms = [
            0, 1, 31, 32, 33, 100, 32_768, 49_999, 50_000, 50_001, 60_000,
        ];
        let streams = rooms.map(|room| (&stream, room));
        for (room, (verdict, _)) in rooms.iter().zip(inflated(gpu, &streams)) {
            let expected = match room.cmp(&data.len()) {
                std::cmp::Ordering::Less => Inflated::TooLong,
                std::cmp::Ordering::Equal => Inflated::Done,
                std::cmp::Ordering::Greater => Inflated::TooShort,
            };
            assert_eq!(verdict, expected, "room for {room}");
        }
    }
}

#[test]
fn a_decompression_bomb_stops_at_its_room() {
    let Some(gpu) = gpu() else { return };
    let bomb = deflate(&vec![0; 50 << 20], 9, Z_DEFAULT_STRATEGY, 8);
    let [(verdict, _)] = &inflated(gpu, &[(bomb, 1000)])[..] else {
        panic!("one stream has one verdict");
    };
    assert_eq!(*verdict, Inflated::TooLong);
}

/// Packs numbers of the given bits, least significant bit first.
fn bits(fields: &[(u32, u32)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut place = 0;
    for &(value, count) in fields {
        for bit in 0..count {
            if place % 8 == 0 {
                bytes.push(0);
            }
            *bytes.last_mut().unwrap() |= ((value >> bit & 1) as u8) << (place % 8);
            place += 1;
        }
    }
    bytes
}

#[test]
fn each_error_has_its_own_verdict() {
    let Some(gpu) = gpu() else { return };
    // The header of a dynamic block: counts of literals, distances, and code lengths of three bits
    // in the order 16, 17, 18, 0, 8, ...
    let dynamic = |sizes: &[u32]| {
        let mut fields = vec![(1, 1), (2, 2), (0, 5), (0, 5), (sizes.len() as u32 - 4, 4)];
        fields.extend(sizes.iter().map(|&size| (size, 3)));
        fields
    };
    let all_zero = |last: &[(u32, u32)]| {
        // Code 0 is the length 0. Code 1 is 18: 11 zeros, plus the number in the next seven bits.
        let mut fields = dynamic(&[0, 0, 1, 1]);
        fields.extend_from_slice(last);
        bits(&fields)
    };
    let cases = [
        (vec![], Inflated::Truncated),
        (bits(&[(1, 1), (3, 2)]), Inflated::BadBlock),
        (
            bits(&[(1, 1), (0, 2), (0, 5), (5, 16), (5, 16)]),
            Inflated::BadStored,
        ),
        (
            bits(&[(1, 1), (0, 2), (0, 5), (5, 16), (0xfffa, 16), (7, 32)]),
            Inflated::Truncated,
        ),
        // 32 distance codes; 287 literal codes.
        (
            bits(&[(1, 1), (2, 2), (0, 5), (31, 5), (0, 4), (0, 32)]),
            Inflated::BadCodes,
        ),
        (
            bits(&[(1, 1), (2, 2), (30, 5), (0, 5), (0, 4), (0, 32)]),
            Inflated::BadCodes,
        ),
        // An oversubscribed code, an incomplete one, an empty one.
        (bits(&dynamic(&[1, 1, 1, 0])), Inflated::BadCodes),
        (bits(&dynamic(&[2, 1, 0, 0])), Inflated::BadCodes),
        (bits(&dynamic(&[0, 0, 0, 0])), Inflated::BadCodes),
        // No code for the end of the block; a repetition beyond the last length.
        (
            all_zero(&[(1, 1), (127, 7), (1, 1), (109, 7)]),
            Inflated::BadCodes,
        ),
        (
            all_zero(&[(1, 1), (127, 7), (1, 1), (127, 7)]),
            Inflated::BadCodes,
        ),
        // A repetition without a previous length.
        (
            bits(&[dynamic(&[1, 0, 0, 1]), vec![(1, 1)]].concat()),
            Inflated::BadCodes,
        ),
        // The fixed code: length 3 at distance 1, with nothing before it; symbol 286; a literal and
        // then distance 30.
        (
            bits(&[(1, 1), (1, 2), (0x40, 7), (0, 5)]),
            Inflated::BadDistance,
        ),
        (
            bits(&[(1, 1), (1, 2), (0x63, 8), (0, 9)]),
            Inflated::BadSymbol,
        ),
        (
            bits(&[(1, 1), (1, 2), (0x0c, 8), (0x40, 7), (0x0f, 5), (0, 32)]),
            Inflated::BadSymbol,
        ),
        (bits(&[(1, 1), (1, 2), (0, 7)]), Inflated::TooShort),
    ];
    let streams: Vec<(&[u8], usize)> = cases.iter().map(|(bytes, _)| (&bytes[..], 100)).collect();
    for (index, (verdict, _)) in inflated(gpu, &streams).into_iter().enumerate() {
        assert_eq!(verdict, cases[index].1, "stream {index}");
    }
}

#[test]
fn an_empty_table_launches_nothing() {
    let Some(gpu) = gpu() else { return };
    assert!(gpu.inflate(&InflateTable::new()).is_empty());
}

/// A stream with random damage, from flipped bits to truncation.
fn damaged(stream: &[u8], seed: u64) -> Vec<u8> {
    let random = noise(64, seed);
    let mut bytes = stream.to_vec();
    let place =
        |i: usize| u32::from_le_bytes([random[i], random[i + 1], random[i + 2], 0]) as usize;
    for change in 0..1 + usize::from(random[0] % 4) {
        // Mostly near the beginning, where the codes are.
        let reach = if random[1].is_multiple_of(2) {
            100
        } else {
            bytes.len()
        };
        let at = place(4 + 8 * change) % reach.min(bytes.len());
        bytes[at] ^= 1 << (random[8 + 8 * change] % 8);
        if random[9 + 8 * change].is_multiple_of(4) {
            bytes[at] = random[10 + 8 * change];
        }
    }
    if random[2].is_multiple_of(8) {
        bytes.truncate(place(60) % bytes.len());
    }
    bytes
}

#[test]
fn damaged_streams_decode_as_on_the_cpu_and_do_not_affect_their_neighbours() {
    let Some(gpu) = gpu() else { return };
    for (round, data) in kinds(6000).into_iter().enumerate() {
        let level = [1, 4, 6, 9][round % 4];
        let stream = deflate(&data, level, Z_DEFAULT_STRATEGY, 8);
        let streams: Vec<(Vec<u8>, usize)> = (0..200)
            .map(|seed| match seed % 4 {
                0 => (stream.clone(), data.len()),
                _ => (damaged(&stream, 1 + seed + 1000 * round as u64), data.len()),
            })
            .collect();
        let done = inflated(gpu, &streams);
        for (index, (verdict, bytes)) in done.into_iter().enumerate() {
            if index % 4 == 0 {
                assert!(verdict == Inflated::Done && bytes == data, "neighbour");
            } else {
                assert_as_zlib(&streams[index].0, verdict, &bytes);
            }
        }
    }
}

#[test]
fn random_bytes_decode_as_on_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let streams: Vec<(Vec<u8>, usize)> = (0..600)
        .map(|seed| (noise(1 + seed as usize % 300, seed), 1000 + seed as usize))
        .collect();
    let done = inflated(gpu, &streams);
    for ((stream, _), (verdict, bytes)) in streams.iter().zip(done) {
        assert_as_zlib(stream, verdict, &bytes);
    }
}

fn any_data() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        (any::<u8>(), 0..3000_usize).prop_map(|(byte, times)| vec![byte; times]),
        (prop::collection::vec(any::<u8>(), 1..40), 1..100_usize)
            .prop_map(|(bytes, times)| bytes.repeat(times)),
        (any::<u64>(), 0..2000_usize).prop_map(|(seed, elements)| field(elements, seed)),
    ];
    prop::collection::vec(part, 0..5).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    #[test]
    fn any_data_round_trips(
        data in any_data(),
        level in 0..10,
        strategy in 0..5,
        memory in 1..10,
        trailing in 0..40_usize,
    ) {
        if let Some(gpu) = gpu() {
            let mut stream = deflate(&data, level, strategy, memory);
            stream.extend(noise(trailing, 1));
            assert_inflated(gpu, &[data], vec![stream]);
        }
    }

    #[test]
    fn any_damage_is_detected_as_on_the_cpu(
        data in any_data(),
        level in 1..10,
        strategy in 0..5,
        seeds in prop::collection::vec(any::<u64>(), 20),
    ) {
        if let Some(gpu) = gpu() {
            let stream = deflate(&data, level, strategy, 8);
            let streams: Vec<(Vec<u8>, usize)> =
                seeds.iter().map(|&seed| (damaged(&stream, seed), data.len())).collect();
            let done = inflated(gpu, &streams);
            for ((stream, _), (verdict, bytes)) in streams.iter().zip(done) {
                assert_as_zlib(stream, verdict, &bytes);
            }
        }
    }
}
