//! Encoded chunks decode to the same bytes.

use proptest::prelude::*;

use crate::common::{BLOSC, BLOSC2, NBIT, SCALEOFFSET, SZIP, decode, encode, fixture};
use crate::repetitions::or_more;

/// Bytes with runs, small numbers and noise, to cover every coding.
fn data(max: usize) -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        (any::<u8>(), 1..400_usize).prop_map(|(byte, count)| vec![byte; count]),
        prop::collection::vec(0..3_u8, 1..100),
        prop::collection::vec(any::<u8>(), 1..60),
    ];
    prop::collection::vec(piece, 1..12).prop_map(move |pieces| {
        let mut data = pieces.concat();
        data.truncate(max);
        data
    })
}

/// Truncates `data` to whole elements.
fn whole(mut data: Vec<u8>, size: usize) -> Vec<u8> {
    data.truncate(data.len() / size * size);
    data
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(or_more(200, 600)))]

    #[test]
    fn szip_round_trips(
        data in data(3000),
        differences in any::<bool>(),
        big_endian in any::<bool>(),
        block in 1..17_u32,
        bits in prop_oneof![1..25_u32, Just(32), Just(64)],
        scanline in 1..600_u32,
    ) {
        let size = match bits { ..=8 => 1, 9..=16 => 2, 17..=32 => 4, _ => 8 };
        let mut data = whole(data, size);
        if bits < 32 {
            for element in data.chunks_exact_mut(size) {
                if big_endian {
                    element.reverse();
                }
                for (i, byte) in element.iter_mut().enumerate() {
                    let used = bits.saturating_sub(8 * i as u32).min(8);
                    *byte &= (0xff_u32 >> (8 - used)) as u8;
                }
                if big_endian {
                    element.reverse();
                }
            }
        }
        let scanline = scanline.min(block * 2 * 128);
        let options = 128 | u32::from(differences) << 5 | u32::from(big_endian) << 4;
        let values = [options, 2 * block, bits, scanline];
        match encode(SZIP, &values, &data) {
            Ok(stored) => {
                prop_assert!(stored.len() <= data.len() + 4);
                prop_assert_eq!(decode(SZIP, &values, &stored, data.len()).unwrap(), data);
            }
            Err(e) => prop_assert_eq!(e.cause, "the chunk would grow"),
        }
    }

    #[test]
    fn blosc_and_blosc2_round_trip(
        data in data(4000),
        typesize in prop_oneof![1..20_u32, Just(255), Just(300)],
        level in 0..10_u32,
        shuffle in 0..3_u32,
        compressor in prop_oneof![0..3_u32, 4..6_u32],
        copies in prop_oneof![Just(1), Just(300_usize)],
    ) {
        let data = data.repeat(copies);
        let mut values = vec![2, 2, typesize, data.len() as u32, level, shuffle, compressor];
        let stored = encode(BLOSC, &values, &data).unwrap();
        prop_assert!(stored.len() <= data.len() + 16);
        prop_assert_eq!(&decode(BLOSC, &values, &stored, data.len()).unwrap(), &data);

        // Blosc2 has one more filter, delta.
        values[5] += u32::from(compressor == 1);
        let stored = encode(BLOSC2, &values, &data).unwrap();
        prop_assert!(stored.len() <= data.len() + 196);
        prop_assert_eq!(decode(BLOSC2, &values, &stored, data.len()).unwrap(), data);
    }

    #[test]
    fn scaleoffset_round_trips_integers(
        data in data(1000),
        log in 0..4_u32,
        signed in 0..2_u32,
        order in 0..2_u32,
        fill in prop_oneof![Just(None), any::<u64>().prop_map(Some), (0..3_u64).prop_map(Some)],
    ) {
        let size = 1 << log;
        let data = whole(data, size);
        prop_assume!(!data.is_empty());
        let values = scaleoffset(2, 0, data.len() / size, 0, size, signed, order, fill);
        let stored = encode(SCALEOFFSET, &values, &data).unwrap();
        prop_assert!(stored.len() <= 22 + data.len());
        prop_assert_eq!(decode(SCALEOFFSET, &values, &stored, data.len()).unwrap(), data);
    }

    #[test]
    fn scaleoffset_keeps_floats_to_the_requested_decimals(
        numbers in prop::collection::vec(-1000.0..1000.0_f64, 1..200),
        decimals in 0..7_u32,
        fill in prop_oneof![Just(None), Just(Some(-9999.0_f64))],
    ) {
        let data: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        let bits = fill.map(f64::to_bits);
        let values = scaleoffset(0, decimals, numbers.len(), 1, 8, 0, 0, bits);
        let stored = encode(SCALEOFFSET, &values, &data).unwrap();
        let decoded = decode(SCALEOFFSET, &values, &stored, data.len()).unwrap();
        let error = 0.5000001 * 10f64.powi(-(decimals as i32));
        for (number, bytes) in numbers.iter().zip(decoded.as_chunks().0) {
            prop_assert!((f64::from_le_bytes(*bytes) - number).abs() <= error);
        }
    }

    #[test]
    fn nbit_round_trips_the_bits_that_the_type_uses(
        data in data(1000),
        size in 1..17_usize,
        order in 0..2_u32,
        low in any::<prop::sample::Index>(),
        high in any::<prop::sample::Index>(),
    ) {
        let data = whole(data, size);
        let low = low.index(8 * size);
        let precision = high.index(8 * size - low) + 1;
        let count = (data.len() / size) as u32;
        let values = [8, 0, count, 1, size as u32, order, precision as u32, low as u32];
        let stored = encode(NBIT, &values, &data).unwrap();
        prop_assert_eq!(stored.len(), count as usize * precision / 8 + 1);
        let decoded = decode(NBIT, &values, &stored, data.len()).unwrap();
        for (at, (decoded, byte)) in decoded.iter().zip(&data).enumerate() {
            let place = at % size;
            let place = if order == 1 { size - 1 - place } else { place };
            let used = (0..8)
                .filter(|bit| (low..low + precision).contains(&(8 * place + bit)))
                .fold(0, |mask, bit| mask | 1 << bit);
            prop_assert_eq!(*decoded, byte & used);
        }
    }
}

#[expect(clippy::too_many_arguments)]
fn scaleoffset(
    scale: u32,
    factor: u32,
    count: usize,
    class: u32,
    size: usize,
    signed: u32,
    order: u32,
    fill: Option<u64>,
) -> Vec<u32> {
    let bits = fill.unwrap_or(0);
    let mut values = vec![
        scale,
        factor,
        count as u32,
        class,
        size as u32,
        signed,
        order,
    ];
    values.extend([u32::from(fill.is_some()), bits as u32, (bits >> 32) as u32]);
    values.resize(20, 0);
    values
}

#[test]
fn scaleoffset_refuses_to_lose_nan() {
    let values = scaleoffset(0, 2, 1, 1, 8, 0, 0, None);
    let error = encode(SCALEOFFSET, &values, &f64::NAN.to_le_bytes()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "filter scaleoffset: a value is not a number"
    );
}

#[test]
fn scaleoffset_keeps_all_bits_of_chunks_with_infinite_values() {
    let values = scaleoffset(0, 2, 2, 1, 8, 0, 0, None);
    let chunk: Vec<u8> = [f64::NEG_INFINITY, 0.123456789]
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let encoded = encode(SCALEOFFSET, &values, &chunk).unwrap();
    assert_eq!(encoded[0], 64);
    assert_eq!(encoded[21..37], chunk);
}

#[test]
fn szip_refuses_values_with_more_bits_than_the_type() {
    let f = fixture("szip-12-bits");
    let mut data = f.decode().unwrap();
    data[1] |= 0x10;
    let error = encode(SZIP, &f.values, &data).unwrap_err();
    assert_eq!(
        error.to_string(),
        "filter szip: a value has more than 12 bits"
    );
}
