//! Decoders return a chunk or an error for any bytes and any client values.

use penstock_codec::{Fault, fuzz_one};
use proptest::prelude::*;

use crate::common::{
    ALL, BLOSC, BLOSC2, NBIT, SCALEOFFSET, SZIP, decode, encode, fixture, fixtures,
};
use crate::repetitions::or_more;

/// Decodes `stored` as the fuzzers do.
fn try_decode(id: u32, values: &[u32], stored: &[u8], limit: u16) {
    let mut input = id.to_le_bytes().to_vec();
    input.extend(limit.to_le_bytes());
    input.push(values.len() as u8);
    input.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    input.extend(stored);
    fuzz_one(&input);
}

/// Client values that a decoder does not refuse at once.
fn plausible_values() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(prop_oneof![0..5_u32, 0..70_u32, any::<u32>()], 0..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(or_more(150, 400)))]

    #[test]
    fn random_bytes_and_values_never_break_a_decoder(
        stored in prop::collection::vec(any::<u8>(), 0..300),
        mut values in plausible_values(),
        limit in 0..5000_u16,
    ) {
        for id in ALL {
            if id == NBIT && let Some(length) = values.first().copied() {
                values[0] = values.len() as u32;
                try_decode(id, &values, &stored, limit);
                values[0] = length;
            }
            try_decode(id, &values, &stored, limit);
        }
    }

    #[test]
    fn random_szip_streams_never_break_the_decoder(
        stream in prop::collection::vec(any::<u8>(), 0..300),
        options in 0..256_u32,
        block in 1..17_u32,
        bits in prop_oneof![1..25_u32, Just(32), Just(64)],
        scanline in 0..300_u32,
        size in 0..3000_u16,
    ) {
        let stored = [&u32::from(size).to_le_bytes(), &stream[..]].concat();
        try_decode(SZIP, &[options, 2 * block, bits, scanline], &stored, size);
    }

    #[test]
    fn flipped_bits_never_break_a_decoder(
        which in any::<prop::sample::Index>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u8), 1..6),
        within in prop_oneof![Just(48), Just(200), Just(usize::MAX)],
        limit in any::<u16>(),
    ) {
        for id in ALL {
            let all: Vec<_> = fixtures().filter(|f| f.id == id).collect();
            let f = which.get(&all);
            let mut stored = f.stored.clone();
            let within = stored.len().min(within);
            for (at, bit) in &flips {
                stored[at.index(within)] ^= 1 << bit;
            }
            try_decode(id, &f.values, &stored, limit);
            try_decode(id, &f.values, &stored, u16::try_from(f.size).unwrap_or(u16::MAX));
        }
    }

    #[test]
    fn changed_client_values_never_break_a_decoder(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        value in prop_oneof![0..70_u32, any::<u32>()],
    ) {
        for id in ALL {
            let all: Vec<_> = fixtures().filter(|f| f.id == id).collect();
            let f = which.get(&all);
            let mut values = f.values.clone();
            let at = at.index(values.len());
            values[at] = value;
            try_decode(id, &values, &f.stored, u16::MAX);
        }
    }

    /// Bytes after the last value or block may be missing, but no value and no block.
    #[test]
    fn a_chunk_that_is_cut_off_is_an_error(cut in any::<prop::sample::Index>()) {
        for f in fixtures() {
            let unread = match f.id {
                // Padding of scanlines.
                SZIP => 40,
                // The byte that HDF5 stores after the whole bytes.
                NBIT | SCALEOFFSET => 1,
                // The trailer.
                BLOSC2 => 35,
                _ => 0,
            };
            let end = f.stored.len().saturating_sub(unread);
            // A chunk of one repeated value is only a header.
            if f.id == SCALEOFFSET && f.stored[0] == 0 {
                continue;
            }
            if end > 0 {
                let cut = &f.stored[..cut.index(end)];
                prop_assert!(decode(f.id, &f.values, cut, f.size).is_err(), "{}", f.name);
            }
        }
    }
}

#[test]
fn a_wrong_byte_anywhere_in_a_frame_never_breaks_the_decoder() {
    for name in ["blosc2-tiles", "blosc2-made-nans", "blosc2-zstd-none"] {
        let f = fixture(name);
        for at in 0..f.stored.len().min(400) {
            let values = [0, 1, 0x7f, 0x80, 0xff];
            // Usually two of them at each place, another pair at the next.
            let few = or_more(2, 5);
            for value in values.into_iter().cycle().skip(2 * at % 5).take(few) {
                let mut stored = f.stored.clone();
                stored[at] = value;
                try_decode(f.id, &f.values, &stored, u16::MAX);
            }
        }
    }
}

/// The error for a fixture after `change`.
fn message(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> String {
    let f = fixture(name);
    let mut stored = f.stored.clone();
    change(&mut stored);
    let error = decode(f.id, &f.values, &stored, f.size).expect_err("an error");
    error.to_string()
}

#[test]
fn a_wrong_size_is_named() {
    let larger = message("blosc-i2", |stored| stored[5] += 1);
    assert!(larger.starts_with("filter blosc: the chunk decodes to 2258 bytes instead of 2002"));
    let larger = message("szip-i2", |stored| stored[0] += 2);
    assert_eq!(
        larger,
        "filter szip: the chunk decodes to 1402 bytes instead of 1400"
    );
}

#[test]
fn a_form_that_is_not_supported_is_no_damage() {
    let is_unsupported = |change: fn(&mut Vec<u8>)| {
        let f = fixture("blosc-lz4-bytes");
        let mut stored = f.stored.clone();
        change(&mut stored);
        decode(f.id, &f.values, &stored, f.size).unwrap_err().kind == Fault::Unsupported
    };
    assert!(is_unsupported(|stored| stored[2] = 0x51));
    assert!(!is_unsupported(|stored| stored.truncate(40)));
}

#[test]
fn snappy_and_user_codecs_are_refused_by_name() {
    let snappy = message("blosc-lz4-bytes", |stored| stored[2] = 0x51);
    assert_eq!(
        snappy,
        "filter blosc: the Snappy compressor 2 is not supported"
    );
    // The chunk follows a frame header of 97 bytes.
    let zfp = message("blosc2-zstd-bytes", |stored| {
        stored[97 + 2] = 0xd5;
        stored[97 + 22] = 33;
    });
    assert_eq!(
        zfp,
        "filter blosc2: the user-defined compressor 33 is not supported"
    );
}

#[test]
fn unknown_inner_filters_are_refused_by_number() {
    let text = message("blosc2-zstd-bytes", |stored| stored[97 + 16] = 35);
    assert_eq!(text, "filter blosc2: the inner filter 35 is not supported");
}

#[test]
fn blosc_refuses_a_blosc2_chunk() {
    let f = fixture("blosc2-zstd-bytes");
    let error = decode(BLOSC, &f.values, &f.stored[97..], f.size).unwrap_err();
    assert_eq!(
        error.to_string(),
        "filter blosc: the chunk has the format of Blosc2"
    );
}

/// HDF5 1.14 and 2.0 write such chunks but cannot read them.
#[test]
fn nbit_refuses_members_after_an_array_of_compounds() {
    let compound = [12, 1, 8, 3, 4, 1, 0, 1, 4, 0, 9, 0];
    let member = [4, 1, 4, 0, 9, 0];
    let values = [
        &[28, 0, 1, 3, 12, 2, 0, 2],
        &compound[2..],
        &member,
        &[0; 4],
    ]
    .concat();
    let error = decode(NBIT, &values, &[0; 20], 12).unwrap_err();
    assert_eq!(
        error.to_string(),
        "filter nbit: HDF5 misreads members after an array of arrays or compounds"
    );
}

#[test]
fn nbit_refuses_deeply_nested_types() {
    let mut values = vec![0, 0, 1];
    while values.len() < 60_000 {
        values.extend([2, 4]);
    }
    values[0] = values.len() as u32;
    let error = decode(NBIT, &values, &[0; 8], 4).unwrap_err();
    assert_eq!(
        error.to_string(),
        "filter nbit: types nested more than 64 deep"
    );
}

#[test]
fn a_blosc2_frame_may_have_an_empty_special_chunk() {
    let values = [1, 0, 1, 8, 0, 0, 0];
    let mut stored = encode(BLOSC2, &values, &[7; 8]).unwrap();
    let decoded_size = 30..38;
    stored[decoded_size].fill(0);
    // The chunk of offsets follows the header and the chunk. Its only offset is a value repeated
    // once, whose highest byte says that the chunk is all zeros.
    let offsets = 97 + 40;
    stored[offsets + 12] = 40;
    stored[offsets + 31] = 3 << 4;
    stored[offsets + 32..offsets + 40].copy_from_slice(&(0x81u64 << 56).to_le_bytes());
    assert_eq!(decode(BLOSC2, &values, &stored, 0), Ok(Vec::new()));
}

#[test]
fn scaleoffset_takes_any_number_of_decimals() {
    let single = [0, i32::MIN as u32, 1, 1, 4, 0, 0, 1, 0, 0];
    let result = encode(SCALEOFFSET, &single, &1f32.to_le_bytes());
    assert!(result.is_ok(), "{result:?}");
}
