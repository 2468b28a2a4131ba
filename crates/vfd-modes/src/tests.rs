//! Tests that each mode moves exactly the requested bytes and reports errors.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use penstock_engine::allocate;
use penstock_engine::error::Kind as ErrorKind;
use penstock_engine::file::Access;
use penstock_engine::file::position::{Call, Gate, Operation};

use crate::buffer::Buffer;

use super::*;

const BOTH: [Operation; 2] = [Operation::Read, Operation::Write];
const SIZE: u64 = 600_001;
/// Whole pages, unaligned heads and tails, parts of one page, and the whole file.
const RANGES: [(u64, u64); 6] = [
    (0, SIZE),
    (4096, 8192),
    (5000, 300_001),
    (1, 1),
    (4095, 2),
    (SIZE - 10, 10),
];

fn has_gpu() -> bool {
    let there = allocate::device_count().is_ok_and(|count| count > 0);
    if !there {
        eprintln!("SKIPPED: no CUDA driver; run under scripts/standin-gpu");
    }
    there
}

fn pattern(length: u64, seed: u64) -> Vec<u8> {
    (0..length)
        .map(|i| (i * 31 + i / 251 * 7 + seed) as u8)
        .collect()
}

/// Device memory with known content.
struct OnGpu {
    address: u64,
    length: u64,
}

impl OnGpu {
    fn new(content: &[u8]) -> OnGpu {
        let length = content.len() as u64;
        let address = allocate::device_alloc(0, length).unwrap();
        // SAFETY: both ranges have that length.
        unsafe { allocate::copy(address as usize, content.as_ptr() as usize, length).unwrap() };
        OnGpu { address, length }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut all = vec![0; self.length as usize];
        let to = all.as_mut_ptr() as usize;
        // SAFETY: both ranges have that length.
        unsafe { allocate::copy(to, self.address as usize, self.length).unwrap() };
        all
    }
}

impl Drop for OnGpu {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, and unused now.
        unsafe { allocate::device_free(self.address).unwrap() };
    }
}

/// A file with known content, and the counts of its transfers.
struct Scene {
    _folder: tempfile::TempDir,
    file: Arc<File>,
    content: Vec<u8>,
    /// The path and the bytes of each recorded call.
    recorded: Mutex<Vec<(&'static str, u64)>>,
}

impl Scene {
    fn new() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scene.h5");
        let content = pattern(SIZE, 7);
        std::fs::write(&path, &content).unwrap();
        let access = Access {
            read: true,
            write: true,
            ..Access::default()
        };
        Scene {
            file: Arc::new(File::open(&path, access, Options::default()).unwrap()),
            _folder: folder,
            content,
            recorded: Mutex::default(),
        }
    }

    fn go(
        &self,
        mode: &dyn Mode,
        operation: Operation,
        extents: &[Extent],
        gate: Option<&dyn Gate>,
    ) -> Result<()> {
        self.go_on(Side::Gpu, mode, operation, extents, gate)
    }

    fn go_on(
        &self,
        side: Side,
        mode: &dyn Mode,
        operation: Operation,
        extents: &[Extent],
        gate: Option<&dyn Gate>,
    ) -> Result<()> {
        let options = Options::parse("threads=3;block=64KiB").unwrap();
        let record = |way: Way<'_>, bytes, _| {
            let name = match way {
                Way::Buffer(Kind::Pageable) => "pageable",
                Way::Buffer(Kind::Pinned) => "pinned",
                Way::Host => "host",
                Way::Engine(_) => "engine",
            };
            self.recorded.lock().unwrap().push((name, bytes));
        };
        let mut transfer = Transfer::new(&self.file, operation, options, &record);
        transfer.gate = gate;
        // SAFETY: the tests pass memory that holds the ranges.
        unsafe { mode.run(&transfer, side, extents) }
    }

    /// Returns the modes that the file system of the tests supports, without cuFile.
    fn ways(&self) -> Vec<&'static dyn Mode> {
        let is_here = |mode: &&dyn Mode| match mode.name() {
            "gds" => false,
            name => self.file.has_direct() || !name.starts_with("direct"),
        };
        MODES.into_iter().filter(is_here).collect()
    }

    fn plain(&self) -> Vec<u8> {
        std::fs::read(self.file.path()).unwrap()
    }
}

/// Returns one range of the file at byte 3 of GPU memory.
fn extent(memory: &OnGpu, (offset, length): (u64, u64)) -> Extent {
    Extent {
        offset,
        length,
        memory: memory.address as usize + 3,
    }
}

#[test]
fn each_mode_reads_ranges_of_any_alignment_and_no_other_bytes() {
    if !has_gpu() {
        return;
    }
    let scene = Scene::new();
    for way in scene.ways() {
        for range in RANGES {
            let length = range.1 as usize;
            let mut expected = pattern(range.1 + 10, 99);
            let memory = OnGpu::new(&expected);
            let ranges = [extent(&memory, range)];
            scene.go(way, Operation::Read, &ranges, None).unwrap();
            expected[3..3 + length].copy_from_slice(&scene.content[range.0 as usize..][..length]);
            assert!(memory.bytes() == expected, "{way:?} {range:?}");
        }
    }
}

#[test]
fn each_mode_writes_ranges_of_any_alignment_and_no_other_bytes() {
    if !has_gpu() {
        return;
    }
    for way in Scene::new().ways() {
        for range in RANGES {
            let scene = Scene::new();
            let source = pattern(range.1 + 3, 50);
            let memory = OnGpu::new(&source);
            let ranges = [extent(&memory, range)];
            scene.go(way, Operation::Write, &ranges, None).unwrap();
            let mut expected = scene.content.clone();
            expected[range.0 as usize..][..range.1 as usize].copy_from_slice(&source[3..]);
            assert!(scene.plain() == expected, "{way:?} {range:?}");
        }
    }
}

#[test]
fn each_mode_writes_past_the_end_of_the_file() {
    if !has_gpu() {
        return;
    }
    for way in Scene::new().ways() {
        let scene = Scene::new();
        let source = pattern(20_003, 50);
        let memory = OnGpu::new(&source);
        let ranges = [extent(&memory, (SIZE + 5000, 20_000))];
        scene.go(way, Operation::Write, &ranges, None).unwrap();
        let mut expected = scene.content.clone();
        expected.resize(SIZE as usize + 5000, 0);
        expected.extend(&source[3..]);
        assert!(scene.plain() == expected, "{way:?}");
    }
}

#[test]
fn each_mode_moves_many_ranges_in_several_allocations() {
    if !has_gpu() {
        return;
    }
    let scene = Scene::new();
    for way in scene.ways() {
        let memories: Vec<_> = RANGES
            .iter()
            .map(|range| OnGpu::new(&pattern(range.1 + 3, 0)))
            .collect();
        let ranges: Vec<_> = memories
            .iter()
            .zip(RANGES)
            .map(|(memory, range)| extent(memory, range))
            .collect();
        scene.go(way, Operation::Read, &ranges, None).unwrap();
        for (memory, (offset, length)) in memories.iter().zip(RANGES) {
            let expected = &scene.content[offset as usize..][..length as usize];
            assert!(memory.bytes()[3..] == *expected, "{way:?} {offset}");
        }
    }
}

#[test]
fn each_mode_reads_the_latest_write_of_another_descriptor() {
    if !has_gpu() {
        return;
    }
    let scene = Scene::new();
    let plain = std::fs::OpenOptions::new()
        .write(true)
        .open(scene.file.path())
        .unwrap();
    for (seed, way) in scene.ways().into_iter().enumerate() {
        let new = pattern(10_000, seed as u64);
        plain.write_all_at(&new, 5000).unwrap();
        let memory = OnGpu::new(&pattern(10_003, 0));
        let ranges = [extent(&memory, (5000, 10_000))];
        scene.go(way, Operation::Read, &ranges, None).unwrap();
        assert!(memory.bytes()[3..] == new, "{way:?}");
    }
}

#[test]
fn the_buffer_kind_of_each_call_is_recorded() {
    if !has_gpu() {
        return;
    }
    for way in Scene::new().ways() {
        let scene = Scene::new();
        let memory = OnGpu::new(&pattern(300_003, 0));
        let ranges = [extent(&memory, (0, 300_000))];
        scene.go(way, Operation::Read, &ranges, None).unwrap();
        let name = if way.name().ends_with("pinned") {
            "pinned"
        } else {
            "pageable"
        };
        let recorded = scene.recorded.into_inner().unwrap();
        assert_eq!(recorded, [(name, 300_000)], "{way:?}");
    }
}

#[test]
fn several_threads_move_host_memory_without_a_buffer() {
    let scene = Scene::new();
    let mode = find("posix-mt").unwrap();
    let mut memory = vec![0u8; SIZE as usize];
    let whole = [Extent {
        offset: 0,
        length: SIZE,
        memory: memory.as_mut_ptr() as usize,
    }];
    let go = |operation| {
        let result = scene.go_on(Side::Host, mode, operation, &whole, None);
        result.unwrap();
    };
    go(Operation::Read);
    assert!(memory == scene.content);
    memory.reverse();
    go(Operation::Write);
    assert!(scene.plain() == memory);
    assert_eq!(*scene.recorded.lock().unwrap(), [("host", SIZE); 2]);
}

/// Makes system calls fail from the given one on, or transfer only short pieces.
struct Faults {
    calls: AtomicU64,
    first: u64,
    errno: Option<i32>,
}

impl Gate for Faults {
    fn before(&self, call: Call) -> io::Result<u64> {
        let number = self.calls.fetch_add(1, SeqCst);
        match self.errno {
            Some(code) if number >= self.first => Err(io::Error::from_raw_os_error(code)),
            Some(_) => Ok(call.length),
            // Whole pages, as O_DIRECT requires.
            None => Ok(call.length.min(8192)),
        }
    }
}

fn failing(first: u64, code: i32) -> Faults {
    Faults {
        calls: AtomicU64::new(0),
        first,
        errno: Some(code),
    }
}

#[test]
fn a_failed_system_call_is_an_error_that_names_file_range_and_errno() {
    if !has_gpu() {
        return;
    }
    for operation in BOTH {
        for way in Scene::new().ways() {
            let scene = Scene::new();
            let memory = OnGpu::new(&pattern(300_004, 0));
            let ranges = [extent(&memory, (5000, 300_001))];
            // The first call, and the second if there are several.
            for first in [0, 1] {
                let faults = failing(first, libc::EIO);
                let result = scene.go(way, operation, &ranges, Some(&faults));
                if faults.calls.load(SeqCst) <= first {
                    result.unwrap();
                    continue;
                }
                let error = result.unwrap_err();
                assert_eq!(error.os_errno(), libc::EIO, "{way:?} {operation:?}");
                assert_eq!(error.path(), Some(scene.file.path()));
                assert!(error.length() > 0, "{way:?} {operation:?}: {error}");
                assert!(error.offset() < 305_001, "{way:?} {operation:?}: {error}");
            }
        }
    }
}

#[test]
fn a_full_disk_is_reported_as_no_space() {
    if !has_gpu() {
        return;
    }
    let scene = Scene::new();
    let memory = OnGpu::new(&pattern(300_004, 0));
    for way in scene.ways() {
        let ranges = [extent(&memory, (0, 300_001))];
        let faults = failing(0, libc::ENOSPC);
        let error = scene
            .go(way, Operation::Write, &ranges, Some(&faults))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{way:?}");
    }
}

#[test]
fn short_system_calls_are_continued() {
    if !has_gpu() {
        return;
    }
    for way in Scene::new().ways() {
        let scene = Scene::new();
        let short = Faults {
            calls: AtomicU64::new(0),
            first: 0,
            errno: None,
        };
        let memory = OnGpu::new(&pattern(SIZE + 3, 0));
        let ranges = [extent(&memory, (0, SIZE))];
        scene
            .go(way, Operation::Read, &ranges, Some(&short))
            .unwrap();
        assert!(memory.bytes()[3..] == scene.content, "{way:?}");
        assert!(short.calls.load(SeqCst) > SIZE / 8192, "{way:?}");
    }
}

#[test]
fn reading_a_truncated_file_is_an_error() {
    if !has_gpu() {
        return;
    }
    for way in Scene::new().ways() {
        let scene = Scene::new();
        scene.file.truncate(100_000).unwrap();
        let memory = OnGpu::new(&pattern(SIZE + 3, 0));
        let ranges = [extent(&memory, (0, SIZE))];
        let error = scene.go(way, Operation::Read, &ranges, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::EndOfFile, "{way:?}");
        assert!(error.cause().contains("100000"), "{error}");
    }
}

#[test]
fn missing_direct_io_is_an_error_and_not_a_fallback() {
    if !has_gpu() {
        return;
    }
    // Files of sysfs report a length of one page.
    let path = std::path::Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
    let access = Access {
        read: true,
        ..Access::default()
    };
    let Ok(file) = File::open(path, access, Options::default()) else {
        eprintln!("SKIPPED: no sysfs here");
        return;
    };
    let mut scene = Scene::new();
    scene.file = Arc::new(file);
    let memory = OnGpu::new(&pattern(100, 0));
    let ranges = [extent(&memory, (0, 16))];
    for way in ["direct", "direct+pinned"].map(|name| find(name).unwrap()) {
        let error = scene.go(way, Operation::Read, &ranges, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.remedy_text().contains("mode=sec2"), "{error}");
    }
}

#[test]
fn a_released_buffer_is_reused() {
    let first = Buffer::new(Kind::Pageable, 123 << 20).unwrap();
    let start = first.start();
    drop(first);
    let second = Buffer::new(Kind::Pageable, 122 << 20).unwrap();
    assert_eq!(second.start(), start);
    // SAFETY: the buffer has at least that many bytes.
    unsafe { second.start().add((122 << 20) - 1).write(1) };
    let third = Buffer::new(Kind::Pageable, 122 << 20).unwrap();
    assert_ne!(third.start(), start);
}
