//! What `mapped` leaves to `staged`: what would use up the mappings of the process, and what the
//! driver would have the CPU read.

mod common;

use std::os::unix::fs::FileExt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use common::process::run_case;
use common::{Place, Sandbox, has_gpu, open, options, pattern};
use penstock_engine::error::Kind;
use penstock_engine::fault::{Decide, Fault};
use penstock_engine::file::position::Operation;
use penstock_engine::report::Path;

#[test]
#[ignore = "a case"]
fn many_ranges() {
    if !has_gpu() {
        return;
    }
    const RANGES: u64 = 12_000;
    const STEP: u64 = 128 << 10;
    let sandbox = Sandbox::new();
    let path = sandbox.path("sparse.bin");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(RANGES * STEP).unwrap();
    for range in (0..RANGES).step_by(1000) {
        file.write_at(&pattern(512, range as u8), range * STEP)
            .unwrap();
    }
    let memory = Place::Device.memory(RANGES as usize * 512, 0);
    let pieces: Vec<_> = (0..RANGES).map(|i| (i * STEP, 512, i * 512)).collect();
    let mappings = || {
        let text = std::fs::read_to_string("/proc/self/maps").unwrap();
        text.lines().count()
    };
    let (before, most) = (mappings(), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    let look: Box<Decide> = Box::new(move |number, _| {
        if number % 500 == 0 {
            seen.fetch_max(mappings(), SeqCst);
        }
        Fault::None
    });
    let set = options("route=mapped;threads=1");
    let report = memory
        .faulty(&open(&path), Operation::Read, &pieces, set, Some(look))
        .unwrap();
    assert_eq!(report.bytes(), RANGES * 512);
    let more = most.load(SeqCst) - before;
    assert!(more < 3000, "{more} mappings");
    let bytes = memory.bytes(RANGES as usize * 512);
    for (range, got) in (0..RANGES).zip(bytes.chunks(512)) {
        let is_marked = range % 1000 == 0;
        let wanted = if is_marked {
            pattern(512, range as u8)
        } else {
            vec![0; 512]
        };
        assert!(got == wanted, "range {range}");
    }
}

#[test]
fn ranges_in_many_places_do_not_use_up_the_mappings_of_the_process() {
    let quick = [("CUDASIM_LAUNCH_US", "0"), ("CUDASIM_COPY_GBPS", "0")];
    run_case("many_ranges", &quick);
}

#[test]
fn neighbours_are_mapped_together() {
    if !has_gpu() {
        return;
    }
    let sandbox = Sandbox::new();
    let content = pattern(4 << 20, 5);
    let file = sandbox.file("rows.bin", &content);
    let memory = Place::Device.memory(1000 * 512, 0);
    let pieces: Vec<_> = (0..1000).map(|i| (i * 4096, 512, i * 512)).collect();
    let report = memory
        .transfer(
            &file,
            Operation::Read,
            &pieces,
            options("route=mapped;threads=1"),
        )
        .unwrap();
    assert_eq!(report.bytes_by(Path::Mapped), 1000 * 512, "{}", report.note);
    assert!(report.io_calls < 20, "{} mappings", report.io_calls);
    let bytes = memory.bytes(1000 * 512);
    for (at, got) in bytes.chunks(512).enumerate() {
        assert!(got == &content[at * 4096..at * 4096 + 512], "row {at}");
    }
}

/// Uses up the mappings of the process but for so many.
fn leave_mappings(count: usize) {
    let mut made = Vec::new();
    loop {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // Of two kinds by turns, so that the kernel cannot join them.
        let access = [libc::PROT_NONE, libc::PROT_READ][made.len() % 2];
        // SAFETY: a new mapping at an address of the kernel's choice.
        let page = unsafe { libc::mmap(ptr::null_mut(), 4096, access, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            break;
        }
        made.push(page);
    }
    // Every other one of the last, which are mappings of their own.
    for page in made.iter().rev().take(count) {
        // SAFETY: made above.
        unsafe { libc::munmap(*page, 4096) };
    }
}

#[test]
#[ignore = "a case"]
fn no_mappings_left() {
    if !has_gpu() {
        return;
    }
    const SIZE: usize = 16 << 20;
    let sandbox = Sandbox::new();
    let content = pattern(SIZE, 9);
    let file = sandbox.file("file.bin", &content);
    let memory = Place::Device.memory(SIZE, 0);
    let read = |route: &str, pieces: &[(u64, u64, u64)]| {
        let set = options(route).or(options("block=64KiB;threads=1;direct=no"));
        memory
            .transfer(&file, Operation::Read, pieces, set)
            .unwrap()
    };
    // By both routes, so that what the process keeps for them is there already.
    let whole = [(0, SIZE as u64, 0)];
    read("route=staged", &whole);
    read(
        "route=mapped",
        &[(0, 1, 0), (SIZE as u64 / 2, SIZE as u64 / 2, 1)],
    );
    leave_mappings(40);
    let report = read("route=mapped", &whole);
    assert_eq!(report.bytes(), SIZE as u64);
    assert!(report.bytes_by(Path::StagedBuffered) > 0, "{}", report.note);
    assert!(report.note.contains("too many places"), "{}", report.note);
}

#[test]
fn without_mappings_left_blocks_are_staged() {
    run_case("no_mappings_left", &[]);
}

#[test]
#[ignore = "a case"]
fn single_bytes_of_a_file_that_shrinks() {
    if !has_gpu() {
        return;
    }
    const BYTES: u64 = 4000;
    let sandbox = Sandbox::new();
    let content = pattern(1 << 20, 1);
    let file = sandbox.file("file.bin", &content);
    let memory = Place::Device.memory(BYTES as usize, 0);
    let pieces: Vec<_> = (0..BYTES).map(|i| (2 * i, 1, i)).collect();
    let read = || {
        let set = options("route=mapped;threads=1;direct=no");
        memory.transfer(&file, Operation::Read, &pieces, set)
    };
    let report = read().unwrap();
    assert!(report.note.contains("single bytes"), "{}", report.note);
    let writer = std::fs::OpenOptions::new()
        .write(true)
        .open(file.path())
        .unwrap();
    std::thread::scope(|scope| {
        let shrinks = scope.spawn(|| {
            for _ in 0..200 {
                writer.set_len(0).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(2));
                writer.write_all_at(&content, 0).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        });
        // Each succeeds or finds the end of the file; neither ends the process.
        while !shrinks.is_finished() {
            if let Err(error) = read() {
                assert_eq!(error.kind(), Kind::EndOfFile, "{error}");
            }
        }
    });
    read().unwrap();
}

#[test]
fn single_bytes_of_a_file_that_is_truncated_meanwhile_do_not_kill_the_process() {
    run_case("single_bytes_of_a_file_that_shrinks", &[]);
}
