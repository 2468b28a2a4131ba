//! Every route, kind of memory, alignment and size moves the same bytes as pread and pwrite.
//!
//! GPU memory comes from the CUDA driver that the process finds: in CI that is the stand-in, which
//! `scripts/standin-gpu` names. Without one those cases are skipped, and say so.

mod common;

use common::{Place, Sandbox, pattern, plain};
use penstock_engine::error::Kind;
use penstock_engine::file::position::Operation;
use penstock_engine::options::Options;
use proptest::prelude::*;

fn host_options() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "route=auto",
        "route=host;io=threads;direct=no",
        "route=host;io=threads;direct=yes",
        "route=host;io=mmap;direct=no",
        "route=host;io=uring;direct=no",
        "route=host;io=uring;direct=yes;queue_depth=3",
    ])
    .prop_map(str::to_owned)
}

fn gpu_options() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "route=auto",
        "route=auto;threads=1",
        "route=staged;io=threads;direct=no",
        "route=staged;io=threads;direct=yes",
        "route=staged;io=mmap;direct=no",
        "route=staged;io=uring;direct=no",
        "route=staged;io=uring;direct=yes;queue_depth=4",
        "route=mapped",
        "route=gds",
        "route=gds;direct=yes",
    ])
    .prop_map(str::to_owned)
}

/// Lengths around the corners of pages and blocks.
fn length() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        1u64..5000,
        Just(4096),
        60_000u64..70_000,
        (1u64 << 20)..(3 << 20),
    ]
}

fn settings() -> impl Strategy<Value = String> {
    (1u32..6, prop::sample::select(vec!["4KiB", "64KiB", "1MiB"]))
        .prop_map(|(threads, block)| format!("threads={threads};block={block}"))
}

fn parse(route: &str, settings: &str) -> Options {
    // The options of the route come last and win.
    Options::parse(route)
        .unwrap()
        .or(Options::parse(settings).unwrap())
}

fn check_read(place: Place, options: Options, offset: u64, length: u64, shift: usize) {
    let sandbox = Sandbox::new();
    let content = pattern((offset + length + 1000) as usize, 7);
    let file = sandbox.file("read.bin", &content);
    let memory = place.memory(length as usize + shift + 16, shift);
    let report = memory
        .transfer(&file, Operation::Read, &[(offset, length, 0)], options)
        .unwrap();
    let wanted = &content[offset as usize..(offset + length) as usize];
    assert!(memory.bytes(length as usize) == wanted, "wrong bytes");
    assert_eq!(report.bytes(), length);
    assert!(memory.frame_is_intact(length as usize), "wrote outside");
}

fn check_write(place: Place, options: Options, offset: u64, length: u64, shift: usize) {
    let sandbox = Sandbox::new();
    let before = pattern((offset + length / 2) as usize, 3);
    let file = sandbox.file("write.bin", &before);
    let content = pattern(length as usize, 11);
    let memory = place.memory(length as usize + shift + 16, shift);
    memory.fill(&content);
    let report = memory
        .transfer(&file, Operation::Write, &[(offset, length, 0)], options)
        .unwrap();
    let mut wanted = before;
    if length > 0 {
        wanted.resize(wanted.len().max((offset + length) as usize), 0);
        wanted[offset as usize..(offset + length) as usize].copy_from_slice(&content);
    }
    assert!(plain(file.path()) == wanted, "wrong bytes in the file");
    assert_eq!(report.bytes(), length);
}

fn check_vectored(place: Place, options: Options, ranges: &[(u64, u64)], operation: Operation) {
    let mut at = 0;
    let pieces: Vec<(u64, u64, u64)> = ranges
        .iter()
        .map(|&(offset, length)| {
            let piece = (offset, length, at);
            at += length + 3;
            piece
        })
        .collect();
    check_pieces(place, options, 4 << 20, pieces, operation);
}

/// Pieces have an offset in the file, a length, and an offset in memory.
fn check_pieces(
    place: Place,
    options: Options,
    size: usize,
    pieces: Vec<(u64, u64, u64)>,
    operation: Operation,
) {
    let sandbox = Sandbox::new();
    let content = pattern(size, 5);
    let file = sandbox.file("vectored.bin", &content);
    let total = pieces.iter().map(|piece| piece.2 + piece.1).max();
    let total = total.unwrap_or(0) + 3;
    let memory = place.memory(total as usize + 16, 1);
    let source = pattern(total as usize, 9);
    memory.fill(&source);
    memory.transfer(&file, operation, &pieces, options).unwrap();
    let (mut in_memory, mut in_file) = (source.clone(), content.clone());
    for (offset, length, at) in pieces {
        let file_range = offset as usize..(offset + length) as usize;
        let memory_range = at as usize..(at + length) as usize;
        match operation {
            Operation::Read => in_memory[memory_range].copy_from_slice(&content[file_range]),
            Operation::Write => in_file[file_range].copy_from_slice(&source[memory_range]),
        }
    }
    assert!(memory.bytes(total as usize) == in_memory, "wrong memory");
    assert!(plain(file.path()) == in_file, "wrong file");
}

/// Ranges in any order; for a write they are made not to overlap.
fn ranges() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((0u64..200, 0u64..9000, 1u64..9000), 0..40).prop_map(|raw| {
        let mut cells = std::collections::BTreeSet::new();
        raw.into_iter()
            .filter(|(cell, ..)| cells.insert(*cell))
            .map(|(cell, start, length)| (cell * 20_000 + start, length))
            .collect()
    })
}

/// The columns of some matrices in a file, as pieces, and the size of a file that ends with the last of
/// them.
fn columns() -> impl Strategy<Value = (usize, Vec<(u64, u64, u64)>)> {
    let few = (0u64..60, 1u64..9000, 0u64..40_000, 0u64..5000);
    let many = (
        1000u64..1500,
        1u64..600,
        prop_oneof![0u64..600, 0u64..9000],
        0u64..100,
    );
    let dense = (
        1000u64..1500,
        1u64..3000,
        prop_oneof![Just(0), 1u64..5000],
        Just(0),
    );
    let matrix = (0u64..20_000, prop_oneof![few, many, dense]);
    prop::collection::vec(matrix, 1..5).prop_map(|matrices| {
        let (mut end, mut at, mut pieces) = (0, 0, Vec::new());
        for (before, (rows, length, gap, apart)) in matrices {
            for row in 0..rows {
                let skipped = if row == 0 { before } else { gap };
                pieces.push((end + skipped, length, at));
                (end, at) = (end + skipped + length, at + length + apart);
            }
        }
        (end as usize, pieces)
    })
}

#[test]
fn a_read_of_columns_is_one_copy_a_block() {
    if !common::has_gpu() {
        return;
    }
    let pieces: Vec<_> = (0..2000)
        .map(|row| (100 + row * 3000, 1000, row * 1000))
        .collect();
    let sandbox = Sandbox::new();
    let content = pattern(100 + 3000 * 2000, 5);
    let file = sandbox.file("columns.bin", &content);
    let memory = Place::Device.memory(2_000_016, 1);
    let options = Options::parse("route=staged;direct=no;threads=1;block=1MiB").unwrap();
    let report = memory
        .transfer(&file, Operation::Read, &pieces, options)
        .unwrap();
    let wanted = pieces.iter().flat_map(|&(offset, length, _)| {
        content[offset as usize..(offset + length) as usize].iter()
    });
    assert!(memory.bytes(2_000_000).iter().eq(wanted), "wrong bytes");
    assert_eq!(
        (report.bytes(), report.io_calls, report.copies),
        (2_000_000, 6, 6)
    );
}

#[test]
fn a_file_that_ends_within_the_last_row_is_an_error() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("short.bin", &pattern(2_999_999, 5));
    let pieces: Vec<_> = (0..2000)
        .map(|row| (500 + row * 1500, 1000, row * 1000))
        .collect();
    for place in [Place::Host, Place::Device] {
        if place == Place::Host || common::has_gpu() {
            let memory = place.memory(2_000_000, 0);
            let read = memory.transfer(&file, Operation::Read, &pieces, Options::default());
            let error = read.unwrap_err();
            assert_eq!((error.kind(), error.offset()), (Kind::EndOfFile, 2_999_000));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(common::repetitions::cases(60)))]

    #[test]
    fn a_read_into_host_memory_gives_the_bytes_of_the_file(
        route in host_options(), set in settings(),
        offset in 0u64..10_000, length in length(), shift in 0usize..64,
    ) {
        check_read(Place::Host, parse(&route, &set), offset, length, shift);
    }

    #[test]
    fn a_write_from_host_memory_gives_the_file_its_bytes(
        route in host_options(), set in settings(),
        offset in 0u64..10_000, length in length(), shift in 0usize..64,
    ) {
        check_write(Place::Host, parse(&route, &set), offset, length, shift);
    }

    #[test]
    fn a_vectored_transfer_of_host_memory_moves_each_range(
        route in host_options(), set in settings(), ranges in ranges(), write: bool,
    ) {
        let operation = if write { Operation::Write } else { Operation::Read };
        check_vectored(Place::Host, parse(&route, &set), &ranges, operation);
    }

    #[test]
    fn a_read_into_gpu_memory_gives_the_bytes_of_the_file(
        place in common::gpu_places(), route in gpu_options(), set in settings(),
        offset in 0u64..10_000, length in length(), shift in 0usize..64,
    ) {
        if common::has_gpu() {
            check_read(place, parse(&route, &set), offset, length, shift);
        }
    }

    #[test]
    fn a_write_from_gpu_memory_gives_the_file_its_bytes(
        place in common::gpu_places(), route in gpu_options(), set in settings(),
        offset in 0u64..10_000, length in length(), shift in 0usize..64,
    ) {
        if common::has_gpu() {
            check_write(place, parse(&route, &set), offset, length, shift);
        }
    }

    #[test]
    fn columns_in_host_memory_are_those_of_the_file(
        route in host_options(), set in settings(), columns in columns(), write: bool,
    ) {
        let operation = if write { Operation::Write } else { Operation::Read };
        check_pieces(Place::Host, parse(&route, &set), columns.0, columns.1, operation);
    }

    #[test]
    fn columns_in_gpu_memory_are_those_of_the_file(
        place in common::gpu_places(), route in gpu_options(), set in settings(),
        columns in columns(), write: bool,
    ) {
        let operation = if write { Operation::Write } else { Operation::Read };
        if common::has_gpu() {
            check_pieces(place, parse(&route, &set), columns.0, columns.1, operation);
        }
    }

    #[test]
    fn a_vectored_transfer_of_gpu_memory_moves_each_range(
        route in gpu_options(), set in settings(), ranges in ranges(), write: bool,
    ) {
        let operation = if write { Operation::Write } else { Operation::Read };
        if common::has_gpu() {
            check_vectored(Place::Device, parse(&route, &set), &ranges, operation);
        }
    }
}
