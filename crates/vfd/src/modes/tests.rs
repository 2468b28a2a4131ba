//! Tests that each mode moves exactly the requested bytes and reports errors.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use penstock_engine::allocate;
use penstock_engine::file::position::{Call, Gate};
use penstock_engine::file::{Access, File};
use penstock_engine::report::Counters;

use super::*;

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

/// A mode with its name.
type Way = (&'static str, Plain);

/// A file with known content.
struct Scene {
    _folder: tempfile::TempDir,
    file: Arc<File>,
    content: Vec<u8>,
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
        }
    }

    fn go(
        &self,
        (_, mode): Way,
        operation: Operation,
        extents: &[Extent],
        gate: Option<&dyn Gate>,
    ) -> Result<()> {
        let options = Options::parse("threads=3;block=64KiB").unwrap();
        let counters = Counters::default();
        let mut side = FileSide::new(&self.file, operation, &counters);
        side.gate = gate;
        // SAFETY: the tests pass memory that holds the ranges.
        unsafe { mode.run(side, options, extents, true) }
    }

    /// Returns the modes that the file system of the tests supports, without cuFile.
    fn ways(&self) -> Vec<Way> {
        let plain = MODES.iter().filter_map(|(name, mode)| match mode {
            Mode::Plain(plain) => Some((*name, *plain)),
            Mode::Auto | Mode::Gds => None,
        });
        plain
            .filter(|(_, plain)| self.file.has_direct() || !plain.is_direct)
            .collect()
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

/// Runs a test with each mode, on a file and GPU memory of its own.
fn with_each_mode(test: impl Fn(&Scene, Way)) {
    if allocate::device_count().is_ok_and(|count| count > 0) {
        for way in Scene::new().ways() {
            test(&Scene::new(), way);
        }
    } else {
        eprintln!("SKIPPED: no CUDA driver; run under scripts/standin-gpu");
    }
}

#[test]
fn each_mode_reads_ranges_of_any_alignment_and_no_other_bytes() {
    with_each_mode(|scene, way| {
        for range in RANGES {
            let length = range.1 as usize;
            let mut expected = pattern(range.1 + 10, 99);
            let memory = OnGpu::new(&expected);
            let ranges = [extent(&memory, range)];
            scene.go(way, Operation::Read, &ranges, None).unwrap();
            expected[3..3 + length].copy_from_slice(&scene.content[range.0 as usize..][..length]);
            assert!(memory.bytes() == expected, "{way:?} {range:?}");
        }
    });
}

#[test]
fn each_mode_writes_ranges_of_any_alignment_and_no_other_bytes() {
    with_each_mode(|scene, way| {
        let mut expected = scene.content.clone();
        // The last one is past the end of the file.
        for (seed, range) in RANGES
            .into_iter()
            .chain([(SIZE + 5000, 20_000)])
            .enumerate()
        {
            let source = pattern(range.1 + 3, seed as u64);
            let memory = OnGpu::new(&source);
            let ranges = [extent(&memory, range)];
            scene.go(way, Operation::Write, &ranges, None).unwrap();
            let end = (range.0 + range.1) as usize;
            expected.resize(expected.len().max(end), 0);
            expected[range.0 as usize..end].copy_from_slice(&source[3..]);
            assert!(scene.plain() == expected, "{way:?} {range:?}");
        }
    });
}

#[test]
fn each_mode_moves_many_ranges_in_several_allocations() {
    with_each_mode(|scene, way| {
        let memories = RANGES.map(|range| OnGpu::new(&pattern(range.1 + 3, 0)));
        let ranges: Vec<_> = std::iter::zip(&memories, RANGES)
            .map(|(memory, range)| extent(memory, range))
            .collect();
        scene.go(way, Operation::Read, &ranges, None).unwrap();
        for (memory, (offset, length)) in memories.iter().zip(RANGES) {
            let expected = &scene.content[offset as usize..][..length as usize];
            assert!(memory.bytes()[3..] == *expected, "{way:?} {offset}");
        }
    });
}

#[test]
fn each_mode_reads_the_latest_write_of_another_descriptor() {
    with_each_mode(|scene, way| {
        let memory = OnGpu::new(&pattern(10_003, 0));
        let ranges = [extent(&memory, (5000, 10_000))];
        let plain = std::fs::OpenOptions::new()
            .write(true)
            .open(scene.file.path())
            .unwrap();
        for seed in [1, 2] {
            let new = pattern(10_000, seed);
            plain.write_all_at(&new, 5000).unwrap();
            scene.go(way, Operation::Read, &ranges, None).unwrap();
            assert!(memory.bytes()[3..] == new, "{way:?}");
        }
    });
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
    with_each_mode(|scene, way| {
        let memory = OnGpu::new(&pattern(300_004, 0));
        let ranges = [extent(&memory, (5000, 300_001))];
        // The first call, and the second if there are several.
        for (operation, first) in [Operation::Read, Operation::Write]
            .into_iter()
            .flat_map(|operation| [(operation, 0), (operation, 1)])
        {
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
        let faults = failing(0, libc::ENOSPC);
        let full = scene.go(way, Operation::Write, &ranges, Some(&faults));
        assert_eq!(full.unwrap_err().kind(), Kind::NoSpace, "{way:?}");
    });
}

#[test]
fn short_system_calls_are_continued() {
    with_each_mode(|scene, way| {
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
    });
}

#[test]
fn reading_a_truncated_file_is_an_error() {
    with_each_mode(|scene, way| {
        scene.file.truncate(100_000).unwrap();
        let memory = OnGpu::new(&pattern(SIZE + 3, 0));
        let ranges = [extent(&memory, (0, SIZE))];
        let error = scene.go(way, Operation::Read, &ranges, None).unwrap_err();
        assert_eq!(error.kind(), Kind::EndOfFile, "{way:?}");
        assert!(error.cause().contains("100000"), "{error}");
    });
}

#[test]
fn missing_direct_io_is_an_error_and_not_a_fallback() {
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
    with_each_mode(|_, way| {
        let memory = OnGpu::new(&pattern(100, 0));
        let ranges = [extent(&memory, (0, 16))];
        if way.1.is_direct {
            let error = scene.go(way, Operation::Read, &ranges, None).unwrap_err();
            assert_eq!(error.kind(), Kind::Unavailable);
            assert!(error.remedy_text().contains("mode=sec2"), "{error}");
        }
    });
}
