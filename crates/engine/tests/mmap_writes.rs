//! Large writes through mappings of the file, against the same writes by `pwrite`.

mod common;

use std::sync::Arc;

use common::pending::places;
use common::{Place, Sandbox, options, pattern, plain};
use penstock_engine::file::File;
use penstock_engine::file::position::Operation;
use proptest::prelude::*;

const UNIT: u64 = 2 << 20;

/// Ranges of up to four units with gaps between, in any order.
fn ranges() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let range = (0..2 * UNIT, 1..4 * UNIT);
    prop::collection::vec(range, 1..4)
        .prop_map(|raw| {
            let mut at = 0;
            let next = |(gap, length)| {
                let start = at + gap;
                at = start + length;
                (start, length)
            };
            raw.into_iter().map(next).collect::<Vec<_>>()
        })
        .prop_shuffle()
}

/// Writes the ranges, and checks the bytes of the file. The calls of `pwrite` are returned.
fn check(place: Place, there: u64, ranges: &[(u64, u64)], text: &str) -> u64 {
    check_one_of(1, place, there, ranges, text)
}

/// As `check`, for one of several processes.
fn check_one_of(
    processes: usize,
    place: Place,
    there: u64,
    ranges: &[(u64, u64)],
    text: &str,
) -> u64 {
    let sandbox = Sandbox::new();
    let before = pattern(there as usize, 3);
    let file = sandbox.file("mapped.bin", &before);
    file.set_writers(processes);
    file.let_rows_be_mapped();
    file.sync().unwrap();
    check_in(&file, before, place, ranges, text)
}

fn check_in(
    file: &Arc<File>,
    before: Vec<u8>,
    place: Place,
    ranges: &[(u64, u64)],
    text: &str,
) -> u64 {
    let total: u64 = ranges.iter().map(|(_, length)| length).sum();
    let source = pattern(total as usize, 9);
    let memory = place.memory(total as usize, 0);
    memory.fill(&source);
    let (mut wanted, mut pieces, mut at) = (before, Vec::new(), 0);
    for &(offset, length) in ranges {
        let (start, end) = (offset as usize, (offset + length) as usize);
        wanted.resize(wanted.len().max(end), 0);
        wanted[start..end].copy_from_slice(&source[at as usize..(at + length) as usize]);
        pieces.push((offset, length, at));
        at += length;
    }
    let report = memory
        .transfer(file, Operation::Write, &pieces, options(text))
        .unwrap();
    assert_eq!(report.bytes(), total);
    assert!(plain(file.path()) == wanted, "wrong bytes in the file");
    report.io_calls
}

/// Whether the system of the tests reports holes and takes mappings.
fn maps() -> bool {
    let sandbox = Sandbox::new();
    ["ext4", "xfs", "btrfs"].contains(&sandbox.file("mapped.bin", b"").system().name())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(common::repetitions::cases(6)))]

    #[test]
    fn rows_that_are_written_through_mappings_leave_what_is_between_them(
        there in 0..UNIT, start in 0..2 * UNIT, row in 512_u64..9000, gap in 1_u64..9000,
        threads in 1..5,
    ) {
        let count = 5 * UNIT / (row + gap.min(row));
        let rows: Vec<_> = (0..count).map(|i| (start + i * (row + gap.min(row)), row)).collect();
        for place in places() {
            let text = format!("io=mmap;threads={threads}");
            check_one_of(2, place, there, &rows, &text);
        }
    }

    #[test]
    fn a_write_through_mappings_leaves_the_bytes_that_pwrite_leaves(
        there in 0..6 * UNIT, ranges in ranges(), threads in 1..5,
    ) {
        for place in places() {
            check(place, there, &ranges, &format!("io=mmap;threads={threads}"));
        }
    }
}

#[test]
fn a_write_through_mappings_is_on_the_medium_when_a_durable_write_returns() {
    for place in places() {
        check(place, 0, &[(0, 3 * UNIT)], "io=mmap;durable=yes;direct=no");
    }
}

#[test]
fn new_data_go_through_mappings_from_each_kind_of_memory() {
    if !maps() {
        eprintln!("SKIPPED: the file system of the tests is none that takes mappings");
        return;
    }
    for place in places() {
        let calls = check(place, 0, &[(1000, 4 * UNIT)], "io=mmap;threads=2");
        assert!(calls <= 8, "{place:?}: {calls} calls of pwrite");
    }
}

#[test]
fn the_rows_of_one_process_go_through_mappings_from_each_kind_of_memory() {
    if !maps() {
        eprintln!("SKIPPED: the file system of the tests is none that takes mappings");
        return;
    }
    let rows: Vec<_> = (0..4 * UNIT / 4096).map(|i| (i * 4096, 2048)).collect();
    for place in places() {
        let calls = check_one_of(2, place, 0, &rows, "io=mmap;threads=2");
        // The rows of the last unit, which is not whole.
        assert!(calls <= 512, "{place:?}: {calls} calls of pwrite");
    }
}

#[test]
fn rows_that_leave_wide_gaps_or_overwrite_others_or_are_short_are_not_mapped() {
    let rows = |step: u64, length: u64| -> Vec<_> {
        (0..8 * UNIT / step).map(|i| (i * step, length)).collect()
    };
    for (processes, there, step, length) in [
        (2, 0, 10_000, 2048),
        (2, 8 * UNIT, 4096, 2048),
        (2, 0, 1024, 500),
        (1, 0, 8192, 2048),
    ] {
        let rows = rows(step, length);
        let calls = check_one_of(processes, Place::Host, there, &rows, "io=mmap;threads=2");
        assert_eq!(calls, rows.len() as u64);
    }
}

#[test]
fn processes_map_a_file_whose_rows_they_fill_together() {
    if !maps() {
        eprintln!("SKIPPED: the file system of the tests is none that takes mappings");
        return;
    }
    let sandbox = Sandbox::new();
    let file = sandbox.file("mapped.bin", b"");
    file.set_writers(4);
    file.let_rows_be_mapped();
    let mut before = Vec::new();
    for process in 0..4 {
        let rows: Vec<_> = (0..1024)
            .map(|i| (i * 8192 + process * 2048, 2048))
            .collect();
        let calls = check_in(&file, before, Place::Host, &rows, "io=mmap;threads=2");
        // Those of the first and the last unit, which are not whole.
        assert!(calls <= 512, "process {process}: {calls} calls of pwrite");
        before = plain(file.path());
    }
}

/// HDF5's metadata are at the start of the file, in the block in which the first rows begin.
#[test]
fn rows_that_begin_in_a_block_with_other_data_are_mapped() {
    if !maps() {
        eprintln!("SKIPPED: the file system of the tests is none that takes mappings");
        return;
    }
    let rows: Vec<_> = (0..2048).map(|i| (2848 + i * 4096, 2048)).collect();
    let calls = check_one_of(2, Place::Host, 4096, &rows, "io=mmap;threads=2");
    assert!(calls <= 1024, "{calls} calls of pwrite");
}

/// A process that bypasses the page cache would lose bytes to the page cache of another one.
#[test]
fn rows_are_not_mapped_where_the_page_cache_may_be_bypassed() {
    let rows: Vec<_> = (0..2048).map(|i| (i * 4096, 2048)).collect();
    for text in ["direct=no;durable=yes", "direct=yes", "direct=no;route=gds"] {
        let calls = check_one_of(2, Place::Host, 0, &rows, &format!("io=mmap;{text}"));
        assert!(calls >= 2048, "{text}: {calls} calls of pwrite");
    }
    let sandbox = Sandbox::new();
    let file = sandbox.file("mapped.bin", b"");
    file.set_writers(2); // without the agreement of the processes
    let calls = check_in(&file, Vec::new(), Place::Host, &rows, "io=mmap");
    assert!(calls >= 2048, "{calls} calls of pwrite");
}
