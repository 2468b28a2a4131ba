//! What the GPU's decoders are given of a stored chunk: pieces inside it, in order, and of all of it.

use penstock_codec::gpu::framing::{self, Piece, SMALLEST_BLOCK};
use penstock_codec::gpu::nvcomp::{ALIGNMENT, Method};

/// `data` is the method (one byte), the decoded size (two, little-endian), and the stored chunk.
pub fn fuzz_framing(data: &[u8]) {
    let Some((&[method, low, high], stored)) = data.split_first_chunk() else {
        return;
    };
    let method = Method::ALL[usize::from(method) % Method::ALL.len()];
    let decoded = usize::from(u16::from_le_bytes([low, high]));
    let mut pieces = Vec::new();
    let Ok(checksum) = framing::split(method, stored, decoded, &mut pieces) else {
        assert!(pieces.is_empty());
        return;
    };
    assert_eq!(checksum.is_some(), method == Method::Deflate);
    check_pieces(&pieces, stored.len(), decoded);
}

fn check_pieces(pieces: &[Piece], stored: usize, decoded: usize) {
    assert!(pieces.len() <= decoded.div_ceil(SMALLEST_BLOCK));
    let (mut from, mut to) = (0, 0);
    for piece in pieces {
        assert!(piece.length > 0 && from <= piece.offset);
        assert_eq!(piece.decoded_offset, to);
        assert!(piece.decoded_offset.is_multiple_of(ALIGNMENT));
        assert!(!piece.raw || piece.length == piece.decoded_length);
        from = piece.offset + piece.length;
        to += piece.decoded_length;
    }
    assert!(from <= stored);
    assert_eq!(to, decoded);
}
