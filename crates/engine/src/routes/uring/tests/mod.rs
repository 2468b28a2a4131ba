//! io_uring on host memory, by whole requests; and the guarantees of its parts about memory when
//! they are dropped in the middle. Where the kernel does not allow io_uring, the requests are
//! tested with threads instead, and the parts are skipped.

mod parts;
mod requests;

use std::io::Write;
use std::ops::RangeInclusive;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::availability;
use crate::error::Result;
use crate::file::position::{Call, Operation};
use crate::file::{Access, File};
use crate::options::Options;
use crate::plan::Extent;
use crate::report::Report;
use crate::request::{Order, run};
use crate::routes::fault::{Decide, Fault};

const MIB: usize = 1 << 20;
const SENTINEL: u8 = 0xA5;

/// Bytes from which their place in a file can be recognised.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u64)
        .map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
        .collect()
}

/// The file of a test, which is removed with this value.
struct Sample {
    file: Arc<File>,
    path: PathBuf,
    contents: Vec<u8>,
    _folder: tempfile::TempDir,
}

impl Sample {
    fn new(bytes: usize) -> Sample {
        Sample::within(&std::env::temp_dir(), pattern(bytes))
    }

    fn within(parent: &FilePath, contents: Vec<u8>) -> Sample {
        let folder = tempfile::tempdir_in(parent).unwrap();
        let path = folder.path().join("sample");
        let mut made = std::fs::File::create(&path).unwrap();
        made.write_all(&contents).unwrap();
        made.sync_all().unwrap();
        let access = Access {
            read: true,
            write: true,
            ..Access::default()
        };
        Sample {
            file: Arc::new(File::open(&path, access, Options::default()).unwrap()),
            path,
            contents,
            _folder: folder,
        }
    }

    fn on_medium(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }
}

/// Memory at a chosen distance from a page's start, with a guard on both sides.
struct Buffer {
    room: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Buffer {
    fn new(bytes: usize, shift: usize) -> Buffer {
        let room = vec![SENTINEL; bytes + 3 * 4096];
        let page = room.as_ptr().align_offset(4096);
        Buffer {
            start: page + 4096 + shift,
            bytes,
            room,
        }
    }

    fn address(&mut self) -> usize {
        self.room.as_mut_ptr() as usize + self.start
    }

    fn extent(&mut self, offset: u64) -> Extent {
        Extent {
            offset,
            length: self.bytes as u64,
            memory: self.address(),
        }
    }

    fn inside(&self) -> &[u8] {
        &self.room[self.start..self.start + self.bytes]
    }

    fn fill(&mut self, bytes: &[u8]) {
        self.room[self.start..self.start + self.bytes].copy_from_slice(bytes);
    }

    fn guards_are_whole(&self) -> bool {
        let end = self.start + self.bytes;
        let mut around = self.room[..self.start].iter().chain(&self.room[end..]);
        around.all(|b| *b == SENTINEL)
    }
}

fn uring(text: &str) -> Options {
    Options::parse(&format!("io=uring;{text}")).unwrap()
}

fn transfer(
    file: &Arc<File>,
    operation: Operation,
    extents: &[Extent],
    options: Options,
    faults: Option<Box<Decide>>,
) -> Result<Report> {
    let mut order = Order::new(operation, extents, options);
    order.faults = faults;
    // SAFETY: each test keeps the buffers of its extents to itself until the call returns.
    unsafe { run(file, order) }
}

fn read(sample: &Sample, offset: u64, buffer: &mut Buffer, options: &str) -> Result<Report> {
    let extent = buffer.extent(offset);
    transfer(
        &sample.file,
        Operation::Read,
        &[extent],
        uring(options),
        None,
    )
}

/// Moves the start of the file, with faults.
fn faulty(
    operation: Operation,
    sample: &Sample,
    buffer: &mut Buffer,
    options: &str,
    faults: impl Fn(u64, Call) -> Fault + Send + Sync + 'static,
) -> Result<Report> {
    let (extent, options) = (buffer.extent(0), uring(options));
    transfer(
        &sample.file,
        operation,
        &[extent],
        options,
        Some(Box::new(faults)),
    )
}

/// Reads by io_uring with this many calls in flight, or by threads, as the report shows.
#[track_caller]
fn assert_served(report: &Report, depth: RangeInclusive<u32>) {
    if has_uring() {
        assert_eq!(report.note, "");
        assert!(depth.contains(&report.queue_depth));
    } else {
        assert!(report.note.starts_with("io_uring is not available here ("));
    }
}

fn has_uring() -> bool {
    let there = availability();
    if let Err(why) = &there {
        eprintln!("SKIPPED what needs io_uring: {why}");
    }
    there.is_ok()
}

#[track_caller]
fn assert_read(
    sample: &Sample,
    offset: usize,
    bytes: usize,
    shift: usize,
    options: &str,
) -> Report {
    let mut buffer = Buffer::new(bytes, shift);
    let report = read(sample, offset as u64, &mut buffer, options).unwrap();
    assert!(buffer.inside() == &sample.contents[offset..offset + bytes]);
    assert!(buffer.guards_are_whole());
    assert_eq!(report.bytes(), bytes as u64);
    assert_served(&report, 1..=256);
    report
}

/// Whether memory stays as it is during the time in which late writes would arrive.
fn stays_untouched(buffer: &mut Buffer) -> bool {
    let bytes = buffer.bytes;
    buffer.fill(&vec![SENTINEL; bytes]);
    std::thread::sleep(Duration::from_millis(30));
    buffer.inside().iter().all(|b| *b == SENTINEL)
}
