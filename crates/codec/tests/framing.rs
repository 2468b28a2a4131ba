//! The pieces of stored chunks for nvCOMP, compared with what the CPU's filters decode.

use libdeflater::{Decompressor, adler32};
use penstock_codec::filters::codec;
use penstock_codec::gpu::framing::{Piece, split};
use penstock_codec::gpu::nvcomp::Method;
use proptest::prelude::*;

fn encoded(method: Method, values: &[u32], chunk: &[u8]) -> Vec<u8> {
    let mut stored = Vec::new();
    let filter = codec(method.filter()).unwrap();
    filter.encode(values, chunk, &mut stored).unwrap();
    stored
}

/// Decodes one piece on the CPU as nvCOMP is expected to do on the GPU.
fn decode_piece(method: Method, input: &[u8], output: &mut [u8]) -> Option<usize> {
    match method {
        Method::Deflate => Decompressor::new().deflate_decompress(input, output).ok(),
        Method::Lz4 => lz4_flex::block::decompress_into(input, output).ok(),
        Method::Zstd => zstd::bulk::decompress_to_buffer(input, output).ok(),
    }
}

fn decode_pieces(method: Method, stored: &[u8], pieces: &[Piece], decoded: usize) -> Vec<u8> {
    let mut chunk = vec![0; decoded];
    for piece in pieces {
        let input = &stored[piece.offset..][..piece.length];
        let output = &mut chunk[piece.decoded_offset..][..piece.decoded_length];
        if piece.raw {
            output.copy_from_slice(input);
        } else {
            assert_eq!(
                decode_piece(method, input, output),
                Some(piece.decoded_length)
            );
        }
    }
    chunk
}

fn assert_pieces_fill(pieces: &[Piece], stored: usize, decoded: usize) {
    let mut end = 0;
    for piece in pieces {
        assert_eq!(piece.decoded_offset, end);
        assert!(piece.decoded_length > 0 && piece.length > 0);
        assert!(piece.offset + piece.length <= stored);
        end += piece.decoded_length;
    }
    assert_eq!(end, decoded);
}

fn any_method() -> impl Strategy<Value = Method> {
    prop::sample::select(Method::ALL.to_vec())
}

/// Bytes that shrink by varying amounts.
fn any_chunk() -> impl Strategy<Value = Vec<u8>> {
    (1_usize..40_000, 1_u8..=255, any::<u32>()).prop_map(|(size, kinds, seed)| {
        let mut state = seed | 1;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..size).map(|_| next() % kinds).collect()
    })
}

fn client_values(method: Method, block_size: u32) -> Vec<u32> {
    match method {
        Method::Deflate | Method::Zstd => vec![3],
        Method::Lz4 => vec![block_size],
    }
}

proptest! {
    #[test]
    fn pieces_decode_to_what_the_filter_encoded(
        method in any_method(),
        chunk in any_chunk(),
        block_size in prop::sample::select(vec![0_u32, 1024, 4096, 10_000]),
    ) {
        let stored = encoded(method, &client_values(method, block_size), &chunk);
        let mut pieces = Vec::new();
        let checksum = split(method, &stored, chunk.len(), &mut pieces).unwrap();
        assert_pieces_fill(&pieces, stored.len(), chunk.len());
        prop_assert_eq!(decode_pieces(method, &stored, &pieces, chunk.len()), &chunk[..]);
        let expected = (method == Method::Deflate).then(|| adler32(&chunk));
        prop_assert_eq!(checksum, expected);
    }

    #[test]
    fn pieces_of_arbitrary_bytes_lie_inside_them(
        method in any_method(),
        stored in prop::collection::vec(any::<u8>(), 0..200),
        decoded in 0_usize..10_000,
    ) {
        let mut pieces = Vec::new();
        match split(method, &stored, decoded, &mut pieces) {
            Ok(_) => assert_pieces_fill(&pieces, stored.len(), decoded),
            Err(_) => prop_assert!(pieces.is_empty()),
        }
    }

    #[test]
    fn pieces_of_damaged_chunks_lie_inside_them(
        method in any_method(),
        chunk in any_chunk(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut stored = encoded(method, &client_values(method, 1024), &chunk);
        for (place, value) in damage {
            let place = place.index(stored.len());
            stored[place] = value;
        }
        for length in [stored.len(), cut.index(stored.len())] {
            let mut pieces = Vec::new();
            match split(method, &stored[..length], chunk.len(), &mut pieces) {
                Ok(_) => assert_pieces_fill(&pieces, length, chunk.len()),
                Err(_) => prop_assert!(pieces.is_empty()),
            }
        }
    }
}

#[test]
fn several_frames_of_zstd_are_left_to_the_cpu() {
    let mut stored = encoded(Method::Zstd, &[3], &[1; 500]);
    stored.extend(encoded(Method::Zstd, &[3], &[2; 500]));
    let reason = split(Method::Zstd, &stored, 500, &mut Vec::new()).unwrap_err();
    assert_eq!(reason.0, "the chunk has more than one Zstd frame");
}

#[test]
fn a_frame_of_another_size_is_left_to_the_cpu() {
    let stored = encoded(Method::Zstd, &[3], &[1; 500]);
    for decoded in [499, 501, 500 + (1 << 16)] {
        assert!(split(Method::Zstd, &stored, decoded, &mut Vec::new()).is_err());
    }
}

#[test]
fn a_zlib_stream_with_a_dictionary_is_left_to_the_cpu() {
    let mut stored = encoded(Method::Deflate, &[6], &[1; 500]);
    stored[1] = 0x20;
    stored[1] += 31 - (u16::from_be_bytes([stored[0], stored[1]]) % 31) as u8;
    let reason = split(Method::Deflate, &stored, 500, &mut Vec::new()).unwrap_err();
    assert_eq!(reason.0, "the zlib stream needs a dictionary");
}

#[test]
fn a_chunk_of_many_tiny_blocks_is_left_to_the_cpu() {
    let stored = encoded(Method::Lz4, &[8], &[1; 50_000]);
    let mut pieces = Vec::new();
    assert!(split(Method::Lz4, &stored, 50_000, &mut pieces).is_err());
    assert!(pieces.is_empty());
}

#[test]
fn pieces_of_earlier_chunks_stay_when_a_chunk_is_refused() {
    let stored = encoded(Method::Lz4, &[1024], &[1; 5000]);
    let mut pieces = Vec::new();
    split(Method::Lz4, &stored, 5000, &mut pieces).unwrap();
    let before = pieces.clone();
    let cut = &stored[..stored.len() - 1];
    assert!(split(Method::Lz4, cut, 5000, &mut pieces).is_err());
    assert_eq!(pieces, before);
}
