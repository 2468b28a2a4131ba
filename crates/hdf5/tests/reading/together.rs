//! Several reads at a time, and reads that are given up.

use std::path::PathBuf;
use std::sync::OnceLock;

use penstock_engine::error::Kind;
use penstock_engine::request::StreamOrder;
use penstock_engine::{Stream, drain};

use crate::common::{Locked, lock};
use crate::process::run_case;
use crate::recipe::{DEFLATE, Recipe, SHUFFLE, write};
use crate::repetitions::or_more;
use crate::scene::{LIMIT, Memory, Place, Select, Wanted, finish, start, ways};

const SHAPE: [u64; 2] = [512, 512];

fn sample(locked: &Locked, folder: &tempfile::TempDir, names: &[String]) -> PathBuf {
    let good = Recipe::honest("", &SHAPE, &[32, 32], &[SHUFFLE, DEFLATE]);
    let recipes: Vec<Recipe> = names.iter().map(|name| good.named(name.clone())).collect();
    write(locked.setting, folder.path(), &[("together.h5", &recipes)]).remove(0)
}

fn content() -> &'static [u8] {
    static CONTENT: OnceLock<Vec<u8>> = OnceLock::new();
    CONTENT.get_or_init(|| crate::recipe::elements(SHAPE.iter().product()))
}

#[test]
fn a_cancelled_read_ends_soon_and_the_next_one_works() {
    let Some(locked) = lock() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = sample(&locked, &folder, &["data".to_owned()]);
    let wanted = Wanted::all(&file, "data", &SHAPE);
    for (place, options) in ways() {
        let memory = Memory::new(place, content().len());
        let rounds = or_more(10, 30) as u64;
        for round in 0..rounds {
            memory.clear();
            let request = wanted.start(&locked, &memory, options, None).unwrap();
            // Earlier and later on its way.
            std::thread::sleep(std::time::Duration::from_micros(round * 4500 / rounds));
            request.cancel();
            match request.wait(Some(LIMIT)).finished() {
                Some(Ok(())) => assert!(memory.bytes() == content(), "{place:?} {options}"),
                Some(Err(error)) => assert_eq!(error.kind(), Kind::Cancelled, "{error}"),
                None => panic!("{place:?} {options}: a cancelled request hangs"),
            }
            // Nothing touches the memory any more: the margins are checked and it stays as it is.
            let found = memory.bytes();
            std::thread::sleep(std::time::Duration::from_micros(500));
            assert!(memory.bytes() == found, "{place:?} {options}");
        }
        memory.clear();
        wanted.read(&locked, &memory, options).unwrap();
        assert!(memory.bytes() == content(), "{place:?} {options}");
    }
}

#[test]
fn a_read_whose_handle_is_dropped_goes_on() {
    let Some(locked) = lock() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = sample(&locked, &folder, &["data".to_owned()]);
    let wanted = Wanted::all(&file, "data", &SHAPE);
    for (place, options) in ways() {
        let memory = Memory::new(place, content().len());
        drop(wanted.start(&locked, &memory, options, None).unwrap());
        drain().unwrap();
        assert!(memory.bytes() == content(), "{place:?} {options}");
    }
}

#[test]
fn two_reads_fill_the_halves_of_one_destination() {
    let Some(locked) = lock() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = sample(&locked, &folder, &["data".to_owned()]);
    let half = [SHAPE[0] / 2, SHAPE[1]];
    let lower = [half[0], 0];
    for (place, options) in ways() {
        let memory = Memory::new(place, content().len());
        let part = |from, first| Wanted {
            first,
            select: Select::Box(from, &half),
            ..Wanted::all(&file, "data", &half)
        };
        let bytes = (half[0] * half[1] * 4) as i64;
        for _ in 0..or_more(4, 10) {
            memory.clear();
            let one = part(&[0, 0], 0).start(&locked, &memory, options, None);
            let other = part(&lower, bytes).start(&locked, &memory, options, None);
            finish(&one.unwrap()).unwrap();
            finish(&other.unwrap()).unwrap();
            assert!(memory.bytes() == content(), "{place:?} {options}");
        }
    }
}

#[test]
fn eight_threads_read_different_datasets_at_a_time() {
    let Some(locked) = lock() else { return };
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..8).map(|i| format!("data{i}")).collect();
    let file = sample(&locked, &folder, &names);
    for (place, options) in ways() {
        for _ in 0..or_more(2, 4) {
            let prepared: Vec<_> = names
                .iter()
                .map(|name| {
                    let memory = Memory::new(place, content().len());
                    let wanted = Wanted::all(&file, name, &SHAPE);
                    (wanted.prepare(&locked, &memory, options).unwrap(), memory)
                })
                .collect();
            std::thread::scope(|scope| {
                for (prepared, memory) in prepared {
                    scope.spawn(move || {
                        finish(&start(prepared, &memory, 0, options, None).unwrap()).unwrap();
                        assert!(memory.bytes() == content(), "{place:?} {options}");
                    });
                }
            });
        }
    }
}

#[test]
fn a_stream_that_waits_for_a_read_finds_it_done() {
    if !crate::has_gpu() {
        return;
    }
    let Some(locked) = lock() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = sample(&locked, &folder, &["data".to_owned()]);
    let row = SHAPE[1] as i64 * 4;
    // Whole chunks, boxes of them, and rows backwards, which copies alone must bring to their places.
    for (strides, first) in [([row, 4], 0), ([-row, 4], (SHAPE[0] as i64 - 1) * row)] {
        for options in ["threads=1", "threads=8;decode=gpu"] {
            let memory = Memory::new(Place::Device, content().len());
            let wanted = Wanted {
                strides: Some(&strides),
                first,
                ..Wanted::all(&file, "data", &SHAPE)
            };
            let order = StreamOrder {
                // SAFETY: the legacy default stream is always there.
                stream: unsafe { Stream::from_raw(std::ptr::null_mut()) },
                after: true,
                before: true,
            };
            let request = wanted
                .start(&locked, &memory, options, Some(order))
                .unwrap();
            finish(&request).unwrap();
            let mut right = content().to_vec();
            if first > 0 {
                right = right
                    .chunks_exact(row as usize)
                    .rev()
                    .flatten()
                    .copied()
                    .collect();
            }
            assert!(memory.bytes() == right, "{options} {strides:?}");
        }
    }
}

/// Less than a slot for each worker.
const SMALL_RING: (&str, &str) = ("PENSTOCK_RING", "8MiB");

#[test]
fn workers_that_wait_for_slots_do_not_wait_for_each_other() {
    run_case("together::reads_with_few_slots", &[SMALL_RING]);
}

/// In a process whose ring is made so.
#[test]
#[ignore = "run by workers_that_wait_for_slots_do_not_wait_for_each_other"]
fn reads_with_few_slots() {
    assert_eq!(std::env::var(SMALL_RING.0).as_deref(), Ok(SMALL_RING.1));
    eight_threads_read_different_datasets_at_a_time();
    two_reads_fill_the_halves_of_one_destination();
}
