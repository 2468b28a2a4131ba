//! How many bytes level 1 of deflate takes, beside zlib's.

use penstock_codec::{Pipeline, Scratch};

use crate::common::{filter, noise};
use crate::zlib::{self, Z_DEFAULT_STRATEGY};

const CHUNK: usize = 1 << 16;

/// Bytes of a zlib stream besides the deflate stream.
const FRAME: usize = 6;

/// Numbers of `size` bytes, one for each index.
fn numbers(size: usize, number: impl Fn(u64) -> u64) -> Vec<u8> {
    let count = (CHUNK / size) as u64;
    let all = (0..count).map(|at| number(at).to_le_bytes());
    all.flat_map(|bytes| bytes[..size].to_vec()).collect()
}

fn shuffled(size: usize, data: &[u8]) -> Vec<u8> {
    (0..size)
        .flat_map(|plane| data.iter().skip(plane).step_by(size))
        .copied()
        .collect()
}

fn reversed(size: usize, data: &[u8]) -> Vec<u8> {
    let numbers = data.chunks(size);
    numbers
        .flat_map(|number| number.iter().rev())
        .copied()
        .collect()
}

/// Sums of random steps.
fn walk(size: usize, most: u64) -> Vec<u8> {
    let steps = noise(CHUNK, 1);
    let mut sum = 1_u64 << (8 * size - 2);
    let places: Vec<u64> = steps
        .iter()
        .map(|step| {
            sum = sum
                .wrapping_add(u64::from(*step) % (2 * most + 1))
                .wrapping_sub(most);
            sum
        })
        .collect();
    numbers(size, |at| places[at as usize])
}

fn kinds() -> Vec<(String, Vec<u8>)> {
    let random = noise(CHUNK, 1);
    let byte = |at: u64| u64::from(random[at as usize % CHUNK]);
    let single = |value: f64| u64::from((value as f32).to_bits());
    let mut made = vec![
        ("zeros".to_owned(), vec![0; CHUNK]),
        ("random".to_owned(), random.clone()),
        ("truth values".to_owned(), numbers(1, |at| byte(at) & 1)),
        ("mask".to_owned(), numbers(1, |at| at / 700 % 2)),
        (
            "image".to_owned(),
            numbers(1, |at| (at % 256 + at / 256) / 4 + byte(at) % 3),
        ),
        (
            "counts".to_owned(),
            numbers(1, |at| u64::from((byte(at) as u8).leading_zeros())),
        ),
        (
            "text".to_owned(),
            (0..)
                .flat_map(|at: u64| format!("cell_{at:06} {} ", byte(at) % 30).into_bytes())
                .take(CHUNK)
                .collect(),
        ),
    ];
    for size in [1, 2, 4, 8] {
        let integers = [
            ("ramp", numbers(size, |at| at)),
            ("ramp by 3", numbers(size, |at| at * 3)),
            ("ramp by 1000", numbers(size, |at| at * 1000)),
            ("short teeth", numbers(size, |at| at % 65 * 2)),
            ("teeth", numbers(size, |at| at % 129 + 256)),
            ("stairs", numbers(size, |at| at / 5 * 1001)),
            ("walk", walk(size, 3)),
            ("short walk", walk(size, 1)),
            ("digits", numbers(size, |at| byte(at) % 10)),
            (
                "few",
                numbers(size, |at| if byte(at) < 9 { byte(at + 1) } else { 0 }),
            ),
            ("runs", numbers(size, |at| byte(at / 16))),
        ];
        let floats = [
            ("rising floats", numbers(4, |at| single(at as f64 * 0.01))),
            (
                "smooth floats",
                numbers(4, |at| single((at as f64 * 0.001).sin())),
            ),
            ("whole floats", numbers(4, |at| single(at as f64))),
            (
                "noise",
                numbers(4, |at| {
                    single(f64::from(byte(at) as u32) / 7.0) ^ byte(at + 7)
                }),
            ),
        ];
        let floats = floats.into_iter().filter(|_| size == 4);
        for (name, data) in integers.into_iter().chain(floats) {
            if size > 1 {
                made.push((
                    format!("{name}, {size} bytes, shuffled"),
                    shuffled(size, &data),
                ));
                made.push((
                    format!("{name}, {size} bytes, big-endian"),
                    reversed(size, &data),
                ));
            }
            made.push((format!("{name}, {size} bytes"), data));
        }
    }
    made
}

#[test]
fn level_1_takes_at_most_15_percent_more_than_zlibs() {
    let pipeline = Pipeline {
        filters: vec![filter(1, &[1])],
    };
    let mut scratch = Scratch::default();
    let mut longer = Vec::new();
    for (name, data) in kinds() {
        for chunk in [&data[..], &data[..4096]] {
            let encoded = pipeline
                .encode(chunk, &mut scratch)
                .expect("can be encoded")
                .0;
            let raw = &encoded[2..encoded.len() - 4];
            assert!(
                zlib::inflate(raw, chunk.len()).as_deref() == Some(chunk),
                "{name}: other bytes"
            );
            let theirs = zlib::deflate(chunk, 1, Z_DEFAULT_STRATEGY, 8).len() + FRAME;
            // A few bytes of the header count only in what is tiny.
            let most = theirs * 115 / 100 + 8;
            if encoded.len() > most {
                longer.push(format!("{name}: {} bytes, zlib {theirs}", encoded.len()));
            }
        }
    }
    assert!(longer.is_empty(), "{longer:?}");
}

#[test]
fn level_1_encodes_any_length() {
    let pipeline = Pipeline {
        filters: vec![filter(1, &[1])],
    };
    let mut scratch = Scratch::default();
    for length in (0..40).chain([255, 258, 259, 4095, 32_767, 32_768, 65_535, 70_001, 140_000]) {
        for data in [
            vec![7; length],
            noise(length, 1),
            b"penstock".iter().copied().cycle().take(length).collect(),
        ] {
            let encoded = pipeline
                .encode(&data, &mut scratch)
                .expect("can be encoded")
                .0;
            let raw = &encoded[2..encoded.len() - 4];
            assert!(
                zlib::inflate(raw, length).as_ref() == Some(&data),
                "{length} bytes"
            );
            let mut decoded = vec![0; length];
            let checked = libdeflater::Decompressor::new().zlib_decompress(&encoded, &mut decoded);
            assert_eq!(checked, Ok(length));
        }
    }
}
