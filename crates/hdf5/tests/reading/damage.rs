//! Damaged files: an error that says where, and everything else as it was.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use penstock_codec::Scratch;
use penstock_hdf5::dataset::{DatasetInfo, read_chunk_table};
use penstock_sys::hdf5::H5F_ACC_RDONLY;

use crate::common::{Locked, lock};
use crate::recipe::{DEFLATE, FLETCHER32, LZ4, Recipe, SHUFFLE, ZSTD, element, write};
use crate::scene::{FRAME, Memory, Select, Wanted, finish, start, ways};

const SHAPE: [u64; 2] = [128, 150];
const CHUNK: [u64; 2] = [32, 32];
/// The chunk that is damaged.
const VICTIM: [u64; 2] = [2, 3];

const PIPELINES: [&[u32]; 9] = [
    &[DEFLATE],
    &[SHUFFLE, DEFLATE],
    &[DEFLATE, FLETCHER32],
    &[SHUFFLE, DEFLATE, FLETCHER32],
    &[FLETCHER32],
    &[LZ4],
    &[SHUFFLE, LZ4],
    &[ZSTD],
    &[SHUFFLE, ZSTD],
];

/// What is done to the stored bytes of a chunk.
type Harm = (&'static str, fn(&Recipe, &mut Vec<u8>));

/// What the pipeline makes of several copies of the chunk.
fn copies(recipe: &Recipe, parts: usize, of: usize) -> Vec<u8> {
    let chunk = recipe.decoded(&VICTIM);
    let bytes = chunk.repeat(parts.div_ceil(of))[..chunk.len() * parts / of].to_vec();
    let encoded = recipe.pipeline.encode(&bytes, &mut Scratch::default());
    encoded.unwrap().0
}

const HARMS: [Harm; 12] = [
    ("first", |_, bytes| bytes[0] ^= 0x41),
    ("third", |_, bytes| bytes[2] ^= 0xff),
    ("middle", |_, bytes| {
        let at = bytes.len() / 2;
        bytes[at] ^= 0x10;
    }),
    ("last", |_, bytes| *bytes.last_mut().unwrap() ^= 0x80),
    ("ones", |_, bytes| bytes.fill(0xff)),
    ("zeros", |_, bytes| bytes.fill(0)),
    ("half", |_, bytes| bytes.truncate(bytes.len() / 2)),
    ("byte", |_, bytes| bytes.truncate(1)),
    ("longer", |_, bytes| bytes.extend([7; 100])),
    ("more", |recipe, bytes| *bytes = copies(recipe, 4, 1)),
    ("less", |recipe, bytes| *bytes = copies(recipe, 1, 2)),
    ("claim", |_, bytes| {
        // An LZ4 chunk begins with its size; other chunks are only damaged there.
        let end = bytes.len().min(8);
        bytes[..end].fill(0x7f);
    }),
];

fn addresses(locked: &Locked, file: &Path, name: &str) -> BTreeMap<Vec<u64>, (u64, u64)> {
    let opened = locked.setting.open_with(file, name, H5F_ACC_RDONLY);
    // SAFETY: the caller holds the lock.
    let session = unsafe { locked.setting.session() };
    let info = DatasetInfo::read(&session, opened.dataset).unwrap();
    let table = read_chunk_table(&session, opened.dataset, &info).unwrap();
    (0..table.grid().total())
        .filter_map(|number| {
            let stored = table.find(number).unwrap()?;
            let coordinates = table.grid().coordinates(number);
            Some((coordinates, (stored.address, stored.size)))
        })
        .collect()
}

/// The whole dataset, but the victim as these bytes decode.
fn expected(recipe: &Recipe, stored: &[u8]) -> Option<Vec<u8>> {
    let mut chunk = vec![0; recipe.decoded(&VICTIM).len()];
    let decoded = recipe
        .pipeline
        .decode(0, stored, &mut chunk, &mut Scratch::default());
    decoded.ok()?;
    let mut all = recipe.content();
    recipe.each_element(&VICTIM, |inside, number| {
        all[number as usize * 4..][..4].copy_from_slice(&chunk[inside * 4..][..4]);
    });
    Some(all)
}

/// Everything but the victim is right or untouched.
fn assert_others_are_intact(recipe: &Recipe, found: &[u8], what: &str) {
    let mut is_victim = vec![false; found.len() / 4];
    recipe.each_element(&VICTIM, |_, number| is_victim[number as usize] = true);
    for (number, bytes) in found.chunks_exact(4).enumerate() {
        let right = element(number as u64).to_le_bytes();
        assert!(
            is_victim[number] || bytes == right || bytes == [FRAME; 4],
            "{what}: element {number} is {bytes:?}"
        );
    }
}

/// The error names dataset, chunk and place in the file.
fn assert_names(text: &str, name: &str, address: u64, what: &str) {
    for part in [format!("/{name}"), "[2, 3]".to_owned(), address.to_string()] {
        assert!(text.contains(&part), "{what}: no {part} in {text:?}");
    }
}

#[test]
fn a_damaged_chunk_is_named_and_spoils_no_other() {
    let Some(locked) = lock() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut recipes = Vec::new();
    for filters in PIPELINES {
        let good = Recipe::honest("good", &SHAPE, &CHUNK, filters);
        let words: Vec<String> = filters.iter().map(u32::to_string).collect();
        for (harm, apply) in HARMS {
            let mut bad = good.named(format!("{harm}-{}", words.join("-")));
            let mut stored = std::mem::take(&mut bad.at(&VICTIM).stored);
            apply(&good, &mut stored);
            bad.at(&VICTIM).stored = stored;
            recipes.push(bad);
        }
        recipes.push(good.named(format!("good-{}", words.join("-"))));
    }
    let file = write(locked.setting, folder.path(), &[("damaged.h5", &recipes)]).remove(0);
    for (place, options) in ways() {
        let memory = Memory::new(place, recipes[0].content().len());
        for recipe in &recipes {
            let what = format!("{} {place:?} {options}", recipe.name);
            memory.clear();
            let wanted = Wanted::all(&file, &recipe.name, &SHAPE);
            let outcome = wanted.read(&locked, &memory, options);
            let found = memory.bytes();
            let victim = recipe.clone().at(&VICTIM).stored.clone();
            match (expected(recipe, &victim), outcome) {
                (Some(right), Ok(_)) => assert!(found == right, "{what} differs"),
                (None, Err(error)) => {
                    let (address, _) = addresses(&locked, &file, &recipe.name)[&VICTIM[..]];
                    assert_names(&error.to_string(), &recipe.name, address, &what);
                    assert_eq!(error.path(), Some(&*file), "{what}");
                    assert_others_are_intact(recipe, &found, &what);
                }
                (right, outcome) => panic!(
                    "{what}: the CPU decodes it: {}, the read: {outcome:?}",
                    right.is_some()
                ),
            }
        }
    }
}

#[test]
fn a_chunk_behind_the_end_of_the_file_is_named() {
    let Some(locked) = lock() else { return };
    let folder = tempfile::tempdir().unwrap();
    let recipe = Recipe::honest("far", &SHAPE, &CHUNK, &[SHUFFLE, DEFLATE]);
    let recipes = [recipe.clone()];
    let file = write(locked.setting, folder.path(), &[("far.h5", &recipes)]).remove(0);
    let (address, _) = addresses(&locked, &file, "far")[&VICTIM[..]];
    let mut bytes = fs::read(&file).unwrap();
    let far = bytes.len() as u64 + 1000;
    let places: Vec<usize> = bytes
        .windows(8)
        .enumerate()
        .filter(|(_, window)| *window == address.to_le_bytes())
        .map(|(at, _)| at)
        .collect();
    assert_eq!(places.len(), 1, "the address is in the index only");
    bytes[places[0]..][..8].copy_from_slice(&far.to_le_bytes());
    fs::write(&file, bytes).unwrap();
    for (place, options) in ways() {
        let what = format!("{place:?} {options}");
        let memory = Memory::new(place, recipe.content().len());
        let wanted = Wanted::all(&file, "far", &SHAPE);
        let error = wanted.read(&locked, &memory, options).unwrap_err();
        assert_names(&error.to_string(), "far", far, &what);
        assert_eq!(error.path(), Some(&*file), "{what}");
        assert_others_are_intact(&recipe, &memory.bytes(), &what);
    }
}

#[test]
fn a_file_that_is_cut_off_after_planning_is_an_error_that_says_where() {
    let Some(locked) = lock() else { return };
    let folder = tempfile::tempdir().unwrap();
    let recipes = [
        Recipe::honest("deflate", &SHAPE, &CHUNK, &[SHUFFLE, DEFLATE]),
        Recipe::honest("plain", &SHAPE, &CHUNK, &[]),
        Recipe::honest("column", &[4096, 2], &[1024, 1], &[]),
        Recipe::contiguous("contiguous", &SHAPE),
    ];
    for recipe in &recipes {
        for (place, options) in ways() {
            let what = format!("{} {place:?} {options}", recipe.name);
            let all = [recipe.clone()];
            let file = write(locked.setting, folder.path(), &[("cut.h5", &all)]).remove(0);
            let memory = Memory::new(place, recipe.content().len());
            let wanted = Wanted::all(&file, &recipe.name, &recipe.shape);
            let prepared = wanted.prepare(&locked, &memory, options).unwrap();
            let cut = match recipe.chunk.is_empty() {
                true => fs::metadata(&file).unwrap().len() - 1000,
                false => {
                    let places = addresses(&locked, &file, &recipe.name);
                    // In the middle of the last chunk of the file.
                    let (address, size) = places.values().max().unwrap();
                    address + size / 2
                }
            };
            let opened = fs::OpenOptions::new().write(true).open(&file).unwrap();
            opened.set_len(cut).unwrap();
            let error = start(prepared, &memory, 0, options, None)
                .and_then(|request| finish(&request))
                .expect_err(&what);
            let text = error.to_string();
            assert!(text.contains(&cut.to_string()), "{what}: {text}");
            // What is nothing but moving bytes is a plain transfer of the file.
            let is_transfer = recipe.chunk.is_empty();
            let is_named = text.contains(&format!("/{}", recipe.name));
            assert!(is_transfer || is_named, "{what}: {text}");
            assert_eq!(error.path(), Some(&*file), "{what}");
            for (number, bytes) in memory.bytes().chunks_exact(4).enumerate() {
                let is_intact =
                    bytes == element(number as u64).to_le_bytes() || bytes == [FRAME; 4];
                // The part that was cut off may have any contents.
                assert!(is_intact || recipe.chunk.is_empty(), "{what}: {number}");
            }
        }
    }
}

#[test]
fn a_chunk_that_claims_more_than_it_can_hold_takes_no_memory() {
    let Some(locked) = lock() else { return };
    let folder = tempfile::tempdir().unwrap();
    // One element of a chunk of 3 GiB, of which a few bytes are stored.
    let shape = [3 << 28];
    let mut recipes = Vec::new();
    for filters in [
        &[DEFLATE][..],
        &[SHUFFLE, DEFLATE],
        &[LZ4],
        &[ZSTD],
        &[FLETCHER32],
    ] {
        let honest = Recipe::honest(&format!("{filters:?}"), &[8], &[8], filters);
        let mut recipe = honest.named(format!("bomb-{filters:?}"));
        recipes.push(honest);
        recipe.shape = shape.to_vec();
        recipe.chunk = shape.to_vec();
        recipes.push(recipe);
    }
    let file = write(locked.setting, folder.path(), &[("bomb.h5", &recipes)]).remove(0);
    for (place, options) in ways() {
        for pair in recipes.chunks_exact(2) {
            let (honest, recipe) = (&pair[0], &pair[1]);
            let what = format!("{} {place:?} {options}", recipe.name);
            // So that all libraries are loaded, and slots made.
            let memory = Memory::new(place, 32);
            let wanted = Wanted::all(&file, &honest.name, &honest.shape);
            wanted.read(&locked, &memory, options).unwrap();
            assert!(memory.bytes() == honest.content(), "{what}");
            let memory = Memory::new(place, 4);
            let before = resident();
            let wanted = Wanted {
                select: Select::Points(&[5]),
                ..Wanted::all(&file, &recipe.name, &[1])
            };
            let error = wanted.read(&locked, &memory, options).expect_err(&what);
            assert!(error.to_string().contains("[0]"), "{what}: {error}");
            assert!(memory.bytes() == [FRAME; 4], "{what}");
            let grown = resident().saturating_sub(before);
            assert!(grown < 256 << 20, "{what}: took {grown} bytes");
        }
    }
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let mut text = [0; 128];
    let file = fs::File::open("/proc/self/statm").unwrap();
    let length = file.read_at(&mut text, 0).unwrap();
    let text = String::from_utf8_lossy(&text[..length]);
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}
