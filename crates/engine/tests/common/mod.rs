//! Files, memory of each kind, and oracles for the engine's tests.
#![allow(dead_code, reason = "each test program uses its own share")]

pub mod pending;
pub mod process;
pub mod scene;
pub mod standin;
pub mod stream;
pub mod ways;

pub mod repetitions;

use std::any::Any;
use std::ffi::c_void;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_engine::allocate;
use penstock_engine::error::Result;
use penstock_engine::fault::Decide;
use penstock_engine::file::position::Operation;
use penstock_engine::file::{Access, File};
use penstock_engine::options::Options;
use penstock_engine::report::Report;
use penstock_engine::request::{Order, Request, run, submit};
use penstock_engine::{Extent, StreamOrder};
use proptest::prelude::*;

/// Whether there is a GPU, real or stand-in; prints a message once if not.
pub fn has_gpu() -> bool {
    static ANSWER: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *ANSWER.get_or_init(|| {
        let there = allocate::device_count().is_ok_and(|n| n > 0);
        if !there {
            eprintln!("SKIPPED: no CUDA driver; run under scripts/standin-gpu");
        }
        there
    })
}

/// Bytes that differ at each position and repeat with no power of two.
pub fn pattern(length: usize, seed: u8) -> Vec<u8> {
    // It repeats after this many bytes. A copy is far cheaper than a loop in code that is not
    // optimized.
    const PERIOD: usize = 251 * 64;
    let period: Vec<u8> = (0..PERIOD.min(length))
        .map(|i| ((i * 31 + i / 251 * 7) as u8).wrapping_add(seed))
        .collect();
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let left = length - bytes.len();
        bytes.extend_from_slice(&period[..left.min(PERIOD)]);
    }
    bytes
}

/// The file as other programs see it.
pub fn plain(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

/// A folder for the files of one test, removed at its end. PENSTOCK_TEST_DIR names its parent.
pub struct Sandbox(tempfile::TempDir);

impl Sandbox {
    pub fn new() -> Sandbox {
        Sandbox::within(&Sandbox::parent())
    }

    pub fn parent() -> PathBuf {
        std::env::var_os("PENSTOCK_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
    }

    pub fn within(parent: &Path) -> Sandbox {
        Sandbox(tempfile::tempdir_in(parent).unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A file with this content, open for reading and writing.
    pub fn file(&self, name: &str, content: &[u8]) -> Arc<File> {
        let path = self.path(name);
        std::fs::File::create(&path)
            .unwrap()
            .write_all(content)
            .unwrap();
        open(&path)
    }
}

pub fn open(path: &Path) -> Arc<File> {
    let access = Access {
        read: true,
        write: true,
        ..Access::default()
    };
    Arc::new(File::open(path, access, Options::default()).unwrap())
}

/// Where memory of a test lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Host,
    Pinned,
    Managed,
    Device,
}

/// Polls a condition for at most five seconds.
pub fn eventually(mut is_true: impl FnMut() -> bool) -> bool {
    let start = std::time::Instant::now();
    while start.elapsed() < std::time::Duration::from_secs(5) {
        if is_true() {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    is_true()
}

pub fn options(text: &str) -> Options {
    Options::parse(text).unwrap()
}

pub fn gpu_places() -> impl Strategy<Value = Place> {
    prop::sample::select(vec![Place::Device, Place::Device, Place::Pinned])
}

/// A buffer that starts `shift` bytes into an allocation, which is filled with a known byte.
pub struct Memory {
    place: Place,
    start: usize,
    shift: usize,
    length: usize,
}

const FRAME: u8 = 0xA5;

impl Place {
    /// `length` bytes of which the first `shift` are not used.
    pub fn memory(self, length: usize, shift: usize) -> Memory {
        let bytes = length as u64;
        let start = match self {
            Place::Host => {
                Box::into_raw(vec![FRAME; length].into_boxed_slice()).cast::<u8>() as usize
            }
            Place::Pinned => allocate::host_alloc(bytes).unwrap() as usize,
            Place::Managed => stream::managed(length),
            Place::Device => allocate::device_alloc(0, bytes).unwrap() as usize,
        };
        let memory = Memory {
            place: self,
            start,
            shift,
            length,
        };
        let frame = vec![FRAME; length];
        // SAFETY: both have `length` bytes.
        unsafe { allocate::copy(start, frame.as_ptr() as usize, bytes).unwrap() };
        memory
    }
}

impl Place {
    /// At least `length` bytes, and the buffer is page-aligned, as O_DIRECT requires.
    pub fn aligned(self, length: usize) -> Memory {
        let page = penstock_engine::file::page_size() as usize;
        let mut memory = self.memory(length + page, 0);
        memory.shift = memory.start.next_multiple_of(page) - memory.start;
        memory
    }
}

impl Memory {
    pub fn address(&self) -> usize {
        self.start + self.shift
    }

    pub fn fill(&self, content: &[u8]) {
        assert!(self.shift + content.len() <= self.length);
        // SAFETY: checked just now.
        unsafe {
            allocate::copy(
                self.address(),
                content.as_ptr() as usize,
                content.len() as u64,
            )
            .unwrap();
        }
    }

    /// All of the allocation, as the CPU sees it.
    fn whole(&self) -> Vec<u8> {
        let mut all = vec![0; self.length];
        // SAFETY: both have `length` bytes.
        unsafe {
            allocate::copy(all.as_mut_ptr() as usize, self.start, self.length as u64).unwrap();
        }
        all
    }

    pub fn bytes(&self, length: usize) -> Vec<u8> {
        self.whole()[self.shift..self.shift + length].to_vec()
    }

    /// Whether the bytes before and behind the buffer are as they were.
    pub fn frame_is_intact(&self, length: usize) -> bool {
        let all = self.whole();
        let (head, rest) = all.split_at(self.shift);
        head.iter().chain(&rest[length..]).all(|b| *b == FRAME)
    }

    fn extents(&self, pieces: &[(u64, u64, u64)]) -> Vec<Extent> {
        pieces
            .iter()
            .map(|&(offset, length, at)| Extent {
                offset,
                length,
                memory: self.address().wrapping_add(at as usize),
            })
            .collect()
    }

    /// Moves (file offset, length, place in the buffer) pieces and waits for the end.
    pub fn transfer(
        &self,
        file: &Arc<File>,
        operation: Operation,
        pieces: &[(u64, u64, u64)],
        options: Options,
    ) -> Result<Report> {
        self.faulty(file, operation, pieces, options, None)
    }

    pub fn faulty(
        &self,
        file: &Arc<File>,
        operation: Operation,
        pieces: &[(u64, u64, u64)],
        options: Options,
        faults: Option<Box<Decide>>,
    ) -> Result<Report> {
        let extents = self.extents(pieces);
        let mut order = Order::new(operation, &extents, options);
        order.faults = faults;
        // SAFETY: the buffer is this one's, which outlives the call.
        unsafe { run(file, order) }
    }

    /// Starts a transfer; the buffer must outlive it.
    pub fn start(
        &self,
        file: &Arc<File>,
        operation: Operation,
        pieces: &[(u64, u64, u64)],
        options: Options,
        stream: Option<StreamOrder>,
    ) -> Result<Request> {
        self.start_with(
            file,
            operation,
            pieces,
            options,
            Extras {
                stream,
                ..Extras::default()
            },
        )
    }

    /// As [`start`](Self::start), with what few tests need.
    pub fn start_with(
        &self,
        file: &Arc<File>,
        operation: Operation,
        pieces: &[(u64, u64, u64)],
        options: Options,
        extras: Extras,
    ) -> Result<Request> {
        let extents = self.extents(pieces);
        let mut order = Order::new(operation, &extents, options);
        order.faults = extras.faults;
        order.waiter_shares = extras.waiter_shares;
        // SAFETY: the test keeps the buffer until it has waited.
        unsafe { submit(file, order, extras.stream, extras.owner) }
    }
}

/// What may come with a request.
#[derive(Default)]
pub struct Extras {
    pub faults: Option<Box<Decide>>,
    pub stream: Option<StreamOrder>,
    pub owner: Option<Box<dyn Any + Send>>,
    pub waiter_shares: bool,
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `Place::memory`, and no transfer is under way any more.
        unsafe {
            match self.place {
                Place::Host => drop(Vec::from_raw_parts(
                    self.start as *mut u8,
                    self.length,
                    self.length,
                )),
                Place::Pinned => allocate::host_free(self.start as *mut c_void).unwrap(),
                Place::Managed | Place::Device => {
                    allocate::device_free(self.start as u64).unwrap();
                }
            }
        }
    }
}
