//! What nvCOMP is given of a stored chunk: pieces inside it, in order, and of all of it.

use penstock_codec::filters::codec;
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

    // Put together again they are the same chunk. Each block of LZ4 but the last has one size.
    let block = pieces[0].decoded_length as u32;
    let parts: Vec<&[u8]> = pieces
        .iter()
        .map(|piece| &stored[piece.offset..piece.offset + piece.length])
        .collect();
    let mut again = Vec::new();
    let checksum = checksum.unwrap_or(0);
    if framing::enclose(method, &[block], decoded, &parts, checksum, &mut again).is_ok() {
        let Some(codec) = codec(method.filter()) else {
            panic!("{method:?} has no codec");
        };
        let [one, other] = [stored, &again].map(|stored| {
            let mut output = vec![0; decoded];
            let result = codec.decode_into(&[block], stored, &mut output);
            result.is_ok().then_some(output)
        });
        assert!(one.is_none() || one == other, "{method:?} is another chunk");
    }
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
