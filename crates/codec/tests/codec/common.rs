//! The data of scripts/make-codec-fixtures.py, by the same formulas.

use penstock_codec::Filter;

pub fn sample(count: usize, size: usize) -> Vec<u8> {
    (0..count as u64)
        .flat_map(|i| {
            let number = (3 * (i / 7) + 31 * (i % 11)).to_le_bytes();
            (0..size).map(move |k| number.get(k).copied().unwrap_or(0))
        })
        .collect()
}

pub fn noise(count: usize, size: usize) -> Vec<u8> {
    let mut x = 1_u32;
    std::iter::repeat_with(|| {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 24) as u8
    })
    .take(count * size)
    .collect()
}

pub fn filter(id: u32, values: &[u32]) -> Filter {
    Filter::new(id, values)
}

/// Filters that encode any bytes, with values as h5py and hdf5plugin set them.
pub fn filters(size: u32) -> Vec<Filter> {
    vec![
        filter(1, &[4]),
        filter(2, &[size]),
        filter(3, &[]),
        filter(32004, &[0]),
        filter(32004, &[100]),
        filter(32015, &[3]),
        filter(32008, &[0, 4, size, 0, 0]),
        filter(32008, &[0, 4, size, 64, 2]),
        filter(32008, &[0, 4, size, 0, 3, 1]),
    ]
}
