//! Measures how fast one core decodes and encodes: `cargo run --release -p penstock-codec --example
//! codec_speed [bytes of a chunk]`. Rates count decoded bytes; the data are a random walk of
//! float32.

use std::time::{Duration, Instant};

use penstock_codec::{Filter, Pipeline, Scratch};

/// A name, and filters by identifier and client values.
type Case = (&'static str, &'static [(u32, &'static [u32])]);

const CASES: &[Case] = &[
    ("shuffle", &[(2, &[4])]),
    ("shuffle of 2 bytes", &[(2, &[2])]),
    ("shuffle of 8 bytes", &[(2, &[8])]),
    ("shuffle of 12 bytes", &[(2, &[12])]),
    ("shuffle of 16 bytes", &[(2, &[16])]),
    ("fletcher32", &[(3, &[])]),
    ("deflate 4", &[(1, &[4])]),
    ("shuffle, deflate 4", &[(2, &[4]), (1, &[4])]),
    (
        "shuffle, deflate 4, fletcher32",
        &[(2, &[4]), (1, &[4]), (3, &[])],
    ),
    ("lz4", &[(32004, &[0])]),
    ("shuffle, lz4", &[(2, &[4]), (32004, &[0])]),
    ("zstd 3", &[(32015, &[3])]),
    ("shuffle, zstd 3", &[(2, &[4]), (32015, &[3])]),
    ("shuffle, lzf", &[(2, &[4]), (32000, &[])]),
    ("bitshuffle", &[(32008, &[0, 4, 4, 0, 0])]),
    ("bitshuffle, lz4", &[(32008, &[0, 4, 4, 0, 2])]),
    ("bitshuffle, zstd", &[(32008, &[0, 4, 4, 0, 3, 3])]),
];

fn random_walk(bytes: usize) -> Vec<u8> {
    let (mut state, mut value) = (88_172_645_463_325_252_u64, 0.0_f32);
    let elements = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        value += (state >> 40) as f32 / (1 << 24) as f32 - 0.5;
        value.to_le_bytes()
    });
    elements.take(bytes / 4).flatten().collect()
}

fn gigabytes_per_second(bytes: usize, mut body: impl FnMut()) -> f64 {
    body();
    let start = Instant::now();
    let mut rounds = 0;
    while start.elapsed() < Duration::from_millis(300) {
        body();
        rounds += 1;
    }
    (bytes * rounds) as f64 / start.elapsed().as_secs_f64() / 1e9
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let size = match std::env::args().nth(1) {
        Some(size) => size.parse()?,
        None => 1 << 20,
    };
    let data = random_walk(size);
    let mut scratch = Scratch::default();
    let mut output = vec![0; data.len()];
    println!(
        "{:32} {:>6} {:>12} {:>12}",
        "filters", "ratio", "decode GB/s", "encode GB/s"
    );
    for (name, filters) in CASES {
        let filters = filters.iter().map(|(id, values)| Filter {
            id: *id,
            optional: true,
            values: values.to_vec(),
        });
        let pipeline = Pipeline {
            filters: filters.collect(),
        };
        let (stored, mask) = pipeline.encode(&data, &mut scratch)?;
        pipeline.decode(mask, &stored, &mut output, &mut scratch)?;
        if output != data {
            return Err(format!("{name}: the decoded chunk differs").into());
        }
        let decode = gigabytes_per_second(data.len(), || {
            let _ = pipeline.decode(mask, &stored, &mut output, &mut scratch);
        });
        let encode = gigabytes_per_second(data.len(), || {
            let _ = pipeline.encode(&data, &mut scratch);
        });
        let ratio = data.len() as f64 / stored.len() as f64;
        println!("{name:32} {ratio:6.2} {decode:12.2} {encode:12.2}");
    }
    Ok(())
}
