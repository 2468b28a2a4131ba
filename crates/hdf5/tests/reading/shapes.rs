//! Datasets and selections of unusual size and order, however many workers there are.

use std::path::{Path, PathBuf};

use crate::common::{Locked, lock};
use crate::recipe::{DEFLATE, LZ4, Recipe, SHUFFLE, ZSTD, element, write};
use crate::repetitions::or_more;
use crate::scene::{FRAME, Memory, Place, Select, Wanted, ways};

/// A file with one dataset.
struct Sample {
    file: PathBuf,
    recipe: Recipe,
    _folder: tempfile::TempDir,
}

impl Sample {
    fn new(locked: &Locked, recipe: Recipe) -> Sample {
        let folder = tempfile::tempdir().unwrap();
        let all = [recipe.clone()];
        let file = write(locked.setting, folder.path(), &[("sample.h5", &all)]).remove(0);
        Sample {
            file,
            recipe,
            _folder: folder,
        }
    }

    fn file(&self) -> &Path {
        &self.file
    }

    fn all(&self) -> Wanted<'_> {
        Wanted::all(self.file(), &self.recipe.name, &self.recipe.shape)
    }
}

/// The ways, and those of few and many workers.
fn all_ways() -> Vec<(Place, &'static str)> {
    let mut all = ways();
    all.extend([(Place::Host, "threads=1"), (Place::Host, "threads=32")]);
    if crate::has_gpu() {
        all.extend([
            (Place::Device, "decode=cpu;threads=1"),
            (Place::Device, "decode=auto;threads=32"),
            (Place::Device, "decode=gpu;threads=32"),
            (Place::Device, "decode=gpu;threads=4;scratch=1MiB"),
        ]);
    }
    all
}

fn check(locked: &Locked, wanted: &Wanted<'_>, length: usize, right: &[u8]) {
    check_in(&all_ways(), locked, wanted, length, right);
}

fn check_in(
    ways: &[(Place, &str)],
    locked: &Locked,
    wanted: &Wanted<'_>,
    length: usize,
    right: &[u8],
) {
    for (place, options) in ways.iter().copied() {
        let memory = Memory::new(place, length);
        let what = format!("{} {place:?} {options}", wanted.name);
        wanted
            .read(locked, &memory, options)
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(memory.bytes() == right, "{what} differs");
    }
}

#[test]
fn tens_of_thousands_of_tiny_chunks_are_read() {
    let Some(locked) = lock() else { return };
    let rows = or_more(200, 1000);
    let recipe = Recipe::honest("tiny", &[rows, 400], &[2, 2], &[SHUFFLE, DEFLATE]);
    assert_eq!(recipe.chunks.len() as u64, rows * 100);
    let sample = Sample::new(&locked, recipe);
    let content = sample.recipe.content();
    check_in(&ways(), &locked, &sample.all(), content.len(), &content);
}

#[test]
fn a_large_chunk_is_read() {
    let Some(locked) = lock() else { return };
    let all = [&[SHUFFLE, DEFLATE][..], &[ZSTD]];
    // Of 16 or 64 MiB: each filter and each chunk takes many seconds without optimization. The second
    // chunk is one that the dataset does not fill.
    let few = or_more(1, all.len());
    let side = or_more(2048, 4096);
    let rows = or_more(side, side + 4);
    for filters in &all[..few] {
        let recipe = Recipe::honest("huge", &[rows, side], &[side, side], filters);
        let sample = Sample::new(&locked, recipe);
        let content = sample.recipe.content();
        check_in(&ways(), &locked, &sample.all(), content.len(), &content);
    }
}

#[test]
fn scattered_points_are_read_in_their_order() {
    let Some(locked) = lock() else { return };
    let recipe = Recipe::honest("points", &[512, 700], &[64, 50], &[SHUFFLE, DEFLATE]);
    let sample = Sample::new(&locked, recipe);
    let total = 512 * 700;
    // Each once, far from each other.
    let numbers: Vec<u64> = (0..10_000).map(|i| i * 100_003 % total).collect();
    let points: Vec<u64> = numbers.iter().flat_map(|n| [n / 700, n % 700]).collect();
    check_points(&locked, &sample, &points, &numbers);
}

/// Checks that a read of points gives the elements of these numbers.
fn check_points(locked: &Locked, sample: &Sample, points: &[u64], numbers: &[u64]) {
    let bytes = |number: &u64| element(*number).to_le_bytes();
    let right: Vec<u8> = numbers.iter().flat_map(bytes).collect();
    let wanted = Wanted {
        shape: &[numbers.len() as u64],
        select: Select::Points(points),
        ..sample.all()
    };
    check(locked, &wanted, right.len(), &right);
}

#[test]
fn every_other_element_as_single_points_is_read() {
    let Some(locked) = lock() else { return };
    let recipe = Recipe::honest("mask", &[300_000], &[25_000], &[SHUFFLE, DEFLATE]);
    let sample = Sample::new(&locked, recipe);
    let points: Vec<u64> = (0..150_000).map(|i| i * 2 + i % 3 / 2).collect();
    check_points(&locked, &sample, &points, &points);
}

#[test]
fn an_array_with_strides_of_either_sign_gets_its_elements_and_no_other() {
    let Some(locked) = lock() else { return };
    let recipe = Recipe::honest("turned", &[90, 110], &[32, 40], &[SHUFFLE, DEFLATE]);
    let sample = Sample::new(&locked, recipe);
    // Columns backwards, 3 bytes between elements, transposed.
    let (rows, columns, item) = (90i64, 110i64, 7i64);
    let length = (rows * columns * item) as usize;
    let strides = [item, -(rows * item)];
    let first = (columns - 1) * rows * item;
    let mut right = vec![FRAME; length];
    for row in 0..rows {
        for column in 0..columns {
            let at = (first + row * strides[0] + column * strides[1]) as usize;
            let bytes = element((row * columns + column) as u64).to_le_bytes();
            right[at..at + 4].copy_from_slice(&bytes);
        }
    }
    let wanted = Wanted {
        strides: Some(&strides),
        first,
        ..sample.all()
    };
    check(&locked, &wanted, length, &right);
}

#[test]
fn a_box_at_odd_places_is_read() {
    let Some(locked) = lock() else { return };
    let recipe = Recipe::honest("box", &[200, 300], &[33, 47], &[SHUFFLE, DEFLATE]);
    let sample = Sample::new(&locked, recipe);
    let right: Vec<u8> = (31..31 + 137u64)
        .flat_map(|row| (5..5 + 251u64).map(move |column| row * 300 + column))
        .flat_map(|number| element(number).to_le_bytes())
        .collect();
    let wanted = Wanted {
        shape: &[137, 251],
        select: Select::Box(&[31, 5], &[137, 251]),
        ..sample.all()
    };
    check(&locked, &wanted, right.len(), &right);
}

#[test]
fn chunks_that_were_never_written_are_filled_whatever_the_strides() {
    let Some(locked) = lock() else { return };
    let mut recipe = Recipe::honest("holes", &[512, 512], &[16, 16], &[SHUFFLE, DEFLATE]);
    let is_there = |chunk: &[u64]| (chunk[0] * 5 + chunk[1] * 3).is_multiple_of(11);
    recipe.chunks.retain(|chunk| is_there(&chunk.coordinates));
    let mut none = recipe.named("nothing".to_owned());
    none.chunks.clear();
    for recipe in [recipe, none] {
        let is_empty = recipe.chunks.is_empty();
        let sample = Sample::new(&locked, recipe);
        let mut right = vec![0; 512 * 512 * 4];
        for number in 0..512 * 512u64 {
            let (row, column) = (number / 512, number % 512);
            let value = match !is_empty && is_there(&[row / 16, column / 16]) {
                true => element(number),
                false => 0,
            };
            let at = ((column * 512 + row) * 4) as usize;
            right[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let wanted = Wanted {
            strides: Some(&[4, 2048]),
            ..sample.all()
        };
        check(&locked, &wanted, right.len(), &right);
    }
}

#[test]
fn small_lz4_blocks_of_odd_sizes_are_read() {
    let Some(locked) = lock() else { return };
    // Each block is stored in a number of bytes that leaves most of its padding empty.
    let mut recipe = Recipe::honest("blocks", &[64 * 8192], &[8192], &[LZ4]);
    for chunk in &mut recipe.chunks {
        chunk.stored.clear();
        chunk.stored.extend(32768u64.to_be_bytes());
        chunk.stored.extend(1024u32.to_be_bytes());
        for _ in 0..32 {
            let block = lz4_zeros();
            chunk.stored.extend((block.len() as u32).to_be_bytes());
            chunk.stored.extend(&block);
        }
    }
    let sample = Sample::new(&locked, recipe);
    check(&locked, &sample.all(), 64 * 32768, &vec![0; 64 * 32768]);
}

/// 1024 zeros as an LZ4 block of 17 bytes: four literals, a match of 19 + 3 * 255 + 231 bytes at
/// distance 1, five literals.
fn lz4_zeros() -> Vec<u8> {
    vec![
        0x4f, 0, 0, 0, 0, 1, 0, 255, 255, 255, 231, 0x50, 0, 0, 0, 0, 0,
    ]
}
