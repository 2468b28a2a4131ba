//! Data of many kinds for the encoders and decoders.

use crate::device::noise;

/// Float32 values of a smooth field with two decimals, their bytes shuffled as HDF5's filter does.
pub fn field(elements: usize, seed: u64) -> Vec<u8> {
    let rough = noise(elements * 2, seed);
    let values: Vec<[u8; 4]> = (0..elements)
        .map(|i| {
            let rough = f32::from(u16::from_le_bytes([rough[2 * i], rough[2 * i + 1]])) / 65536.0;
            let value = (i as f32 * 0.001).sin() * 100.0 + rough;
            ((value * 100.0).round() / 100.0).to_le_bytes()
        })
        .collect();
    (0..4)
        .flat_map(|plane| values.iter().map(move |value| value[plane]))
        .collect()
}

/// Data of one length, from constant to random.
pub fn kinds(length: usize) -> Vec<Vec<u8>> {
    let text = b"the water falls through the penstock onto the turbine; ";
    let skewed = noise(length, 3)
        .into_iter()
        .map(|byte| byte.leading_zeros() as u8);
    let mut planes = field(length.div_ceil(4), 4);
    planes.truncate(length);
    let far = noise(30_000, 9);
    vec![
        vec![0; length],
        text.iter().copied().cycle().take(length).collect(),
        (0..length).map(|i| (i / 3 % 7 * 40) as u8).collect(),
        skewed.collect(),
        noise(length, 2)
            .into_iter()
            .map(|byte| byte & 0x3f)
            .collect(),
        far.into_iter().cycle().take(length).collect(),
        noise(length, 5),
        planes,
    ]
}

/// Bytes for which an optimal code needs codes of every length, up to more than deflate has.
pub fn with_long_codes() -> Vec<u8> {
    // Byte frequencies that are Fibonacci numbers lead to codes of up to 15 bits.
    let (mut frequency, mut after) = (1_usize, 1);
    let mut data = Vec::new();
    for byte in 0..24_u8 {
        data.extend(std::iter::repeat_n(byte, frequency));
        (frequency, after) = (after, frequency + after);
    }
    let order = noise(data.len() * 3, 11);
    for i in (1..data.len()).rev() {
        let [a, b, c] = [order[3 * i], order[3 * i + 1], order[3 * i + 2]];
        data.swap(i, u32::from_le_bytes([a, b, c, 0]) as usize % (i + 1));
    }
    data
}
