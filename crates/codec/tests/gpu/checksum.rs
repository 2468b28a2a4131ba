//! The checksums of the kernels equal those of the CPU's codecs.

use penstock_codec::gpu::{Checksum, ChecksumTable};
use penstock_codec::{Filter, Pipeline, Scratch};

use crate::device::{Gpu, gpu, noise};

const LENGTHS: [usize; 16] = [
    0, 1, 2, 3, 4, 15, 16, 17, 31, 255, 32_752, 32_767, 32_768, 32_785, 100_001, 300_000,
];

fn adler32(data: &[u8]) -> u32 {
    let mut sums = libdeflater::Adler32::new();
    sums.update(data);
    sums.sum()
}

/// The checksum as the filter stores it after the data.
fn fletcher32(data: &[u8]) -> [u8; 4] {
    let filters = vec![Filter::new(3, &[])];
    let encoded = Pipeline { filters }.encode(data, &mut Scratch::default());
    *encoded.unwrap().0.last_chunk().unwrap()
}

/// Checks the buffers, each at its own alignment and directly followed by its checksum.
fn verdicts(gpu: &Gpu, kind: Checksum, buffers: &[(Vec<u8>, [u8; 4])]) -> Vec<(u32, bool)> {
    let mut table = ChecksumTable::new(kind);
    let mut uploaded = Vec::new();
    for (number, (data, stored)) in buffers.iter().enumerate() {
        let buffer = gpu.buffer(&[&data[..], stored].concat(), number % 18);
        let length = data.len() as u64;
        table.push(buffer.address, length, Some(buffer.address + length));
        uploaded.push(buffer);
    }
    let verdicts = gpu.checksum(&table).into_iter();
    verdicts
        .map(|verdict| (verdict.computed, verdict.sound))
        .collect()
}

/// Checks buffers of all lengths against the checksum that `stored` gives to be stored after them.
fn check_every_buffer(kind: Checksum, stored: fn(&[u8]) -> [u8; 4], number: fn([u8; 4]) -> u32) {
    let Some(gpu) = gpu() else { return };
    let mut buffers = Vec::new();
    for (seed, length) in LENGTHS.into_iter().enumerate() {
        // Words of 65535 are 0 modulo 65535, but their Fletcher checksum is not 0.
        let noise = noise(length, seed as u64);
        for data in [noise, vec![0; length], vec![255; length]] {
            let stored = stored(&data);
            buffers.push((data, stored));
        }
    }
    let found = verdicts(gpu, kind, &buffers);
    for ((data, stored), found) in buffers.iter().zip(found) {
        assert_eq!(found, (number(*stored), true), "{} bytes", data.len());
    }
}

#[test]
fn adler32_of_every_buffer_is_zlibs() {
    let stored = |data: &[u8]| adler32(data).to_be_bytes();
    check_every_buffer(Checksum::Adler32, stored, u32::from_be_bytes);
}

#[test]
fn fletcher32_of_every_buffer_is_the_filters() {
    check_every_buffer(Checksum::Fletcher32, fletcher32, u32::from_le_bytes);
}

#[test]
fn fletcher32_with_the_bytes_of_its_sums_swapped_is_sound() {
    let Some(gpu) = gpu() else { return };
    let data = noise(1000, 5);
    let [a, b, c, d] = fletcher32(&data);
    let found = verdicts(gpu, Checksum::Fletcher32, &[(data, [b, a, d, c])]);
    assert_eq!(found, [(u32::from_le_bytes([a, b, c, d]), true)]);
}

#[test]
fn a_wrong_bit_is_found_only_in_its_own_buffer() {
    let Some(gpu) = gpu() else { return };
    for kind in [Checksum::Adler32, Checksum::Fletcher32] {
        let mut buffers = Vec::new();
        for seed in 0..20 {
            let mut data = noise(5000, seed);
            let stored = match kind {
                Checksum::Adler32 => adler32(&data).to_be_bytes(),
                Checksum::Fletcher32 => fletcher32(&data),
            };
            if seed % 3 == 1 {
                data[seed as usize * 200] ^= 0x10;
            }
            buffers.push((data, stored));
        }
        let found = verdicts(gpu, kind, &buffers);
        for (number, (_, sound)) in found.into_iter().enumerate() {
            assert_eq!(sound, number % 3 != 1, "{kind:?} of buffer {number}");
        }
    }
}

#[test]
fn a_buffer_without_a_stored_checksum_is_sound() {
    let Some(gpu) = gpu() else { return };
    let data = noise(70_000, 8);
    let buffer = gpu.buffer(&data, 3);
    let mut table = ChecksumTable::new(Checksum::Adler32);
    table.push(buffer.address, buffer.length as u64, None);
    let [verdict] = gpu.checksum(&table)[..] else {
        panic!("one buffer has one verdict");
    };
    assert_eq!((verdict.computed, verdict.sound), (adler32(&data), true));
}
