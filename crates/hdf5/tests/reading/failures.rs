//! A GPU that fails: an error or what is right, nothing left behind, and the next read works.

use std::sync::Arc;
use std::time::Duration;

use penstock_engine::allocate;
use penstock_engine::error::{Kind, Result};
use penstock_engine::gpu::Context;
use penstock_engine::report::Report;
use penstock_engine::request::Request;

use crate::common::{Locked, lock};
use crate::process::run_case;
use crate::recipe::{DEFLATE, FLETCHER32, LZ4, Recipe, SHUFFLE, write};
use crate::repetitions::or_more;
use crate::scene::{Memory, Place, Wanted, finish};
use crate::standin::standin;

const SHAPE: [u64; 2] = [160, 192];
const CHUNK: [u64; 2] = [16, 64];

const OPTIONS: [&str; 4] = [
    "decode=gpu;threads=1",
    "decode=gpu;threads=4;scratch=1MiB",
    "decode=gpu;threads=4",
    "decode=cpu;threads=2",
];

struct Bench {
    locked: Locked,
    file: std::path::PathBuf,
    _folder: tempfile::TempDir,
    memory: Memory,
    expected: Vec<u8>,
}

impl Bench {
    fn new(filters: &[u32]) -> Option<Bench> {
        let locked = lock()?;
        let folder = tempfile::tempdir().unwrap();
        let recipe = Recipe::honest("data", &SHAPE, &CHUNK, filters);
        let all = [recipe.clone()];
        let file = write(locked.setting, folder.path(), &[("data.h5", &all)]).remove(0);
        let content = recipe.content();
        let rows = content.chunks_exact(SHAPE[1] as usize * 4);
        Some(Bench {
            memory: Memory::new(Place::Device, content.len()),
            expected: rows.rev().collect::<Vec<_>>().concat(),
            locked,
            file,
            _folder: folder,
        })
    }

    /// Reads all of it in the other order of rows, so that kernels have to place it.
    fn read(&self, options: &str) -> Result<()> {
        self.report(options).map(drop)
    }

    fn report(&self, options: &str) -> Result<Report> {
        finish(&self.start(options)?)
    }

    fn start(&self, options: &str) -> Result<Request> {
        let row = SHAPE[1] as i64 * 4;
        let wanted = Wanted {
            strides: Some(&[-row, 4]),
            first: (SHAPE[0] as i64 - 1) * row,
            ..Wanted::all(&self.file, "data", &SHAPE)
        };
        wanted.start(&self.locked, &self.memory, options, None)
    }

    fn context(&self) -> Arc<Context> {
        let memory = penstock_engine::memory::Memory::at(self.memory.address()).unwrap();
        memory.context.unwrap()
    }

    /// Frees what is kept for the next reads, so that they must allocate.
    fn keep_none(&self) {
        let context = self.context();
        for megabytes in 1..=16 {
            while let Some(address) = context.own().unwrap().spare(megabytes << 20) {
                // SAFETY: the memory is ours, and nothing uses it.
                unsafe { allocate::device_free(address).unwrap() };
            }
        }
    }

    fn works(&self, options: &str, what: &str) {
        self.memory.clear();
        self.read(options).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(self.memory.bytes() == self.expected, "{what}: differs");
    }
}

/// Each read with each failure ends well or with an error, and leaves nothing behind.
fn try_all(failures: &[&str]) {
    try_with(&[SHUFFLE, DEFLATE, FLETCHER32], failures);
}

fn try_with(filters: &[u32], failures: &[&str]) {
    let Some(standin) = standin() else { return };
    let Some(bench) = Bench::new(filters) else {
        return;
    };
    // What a context had that failed is lost with it.
    let is_fatal = failures.iter().any(|failure| failure.contains("exec"));
    for options in OPTIONS {
        // Slots, queues and spare memory are made once and kept.
        for _ in 0..5 {
            bench.works(options, "before");
        }
        let before = standin.alive();
        // Each failure several times, since workers race.
        let reads = or_more(2 * failures.len(), 60);
        for failure in failures.iter().cycle().take(reads) {
            let what = format!("{options} {failure}");
            bench.memory.clear();
            let outcome = {
                let _failing = standin.fail(failure);
                bench.read(options)
            };
            // The margins are checked, too.
            let is_right = bench.memory.bytes() == bench.expected;
            assert!(
                is_right || outcome.is_err(),
                "{what}: wrong without an error"
            );
            bench.works(options, &what);
        }
        let after = standin.alive();
        // Workers may have cached files and memory for later reads, a few each.
        let is_kept = after.streams <= before.streams + 8 && after.events <= before.events + 24;
        let is_freed = is_fatal || after.allocations <= before.allocations + 12;
        assert!(
            is_kept && is_freed,
            "{options} {failures:?}: {before:?} {after:?}"
        );
    }
}

#[test]
fn a_refused_copy_is_an_error_or_does_no_harm() {
    try_all(&[
        "copy:1", "copy:2", "copy:3", "copy:4", "copy:5", "copy:6", "copy:8", "copy:3+",
    ]);
}

#[test]
fn a_copy_that_fails_on_the_gpu_is_an_error_or_does_no_harm() {
    try_all(&["copyexec:1", "copyexec:2", "copyexec:3", "copyexec:5"]);
}

#[test]
fn a_kernel_that_fails_is_an_error_or_does_no_harm() {
    try_all(&[
        "kernel:1", "kernel:2", "kernel:3", "kernel:*", "memset:1", "memset:*",
    ]);
    try_all(&["kernelexec:1", "kernelexec:2", "kernelexec:*"]);
}

#[test]
fn memory_that_is_not_to_be_had_is_an_error_or_does_no_harm() {
    try_all(&[
        "alloc:1", "alloc:2", "alloc:3", "alloc:4", "alloc:5", "alloc:2+", "alloc:*",
    ]);
    try_all(&["hostregister:1", "hostregister:*", "hostalloc:*"]);
}

#[test]
fn a_batch_for_which_memory_is_short_is_left_to_the_cpu() {
    let Some(standin) = standin() else { return };
    for filters in [[SHUFFLE, DEFLATE], [SHUFFLE, LZ4]] {
        let Some(bench) = Bench::new(&filters) else {
            return;
        };
        for failure in ["alloc:1", "alloc:2", "alloc:3", "alloc:4", "alloc:5"] {
            let _failing = standin.fail(failure);
            bench.works("decode=gpu;threads=1", failure);
        }
    }
}

#[test]
fn workers_without_memory_wait_until_others_return_theirs() {
    let Some(standin) = standin() else { return };
    let Some(bench) = Bench::new(&[SHUFFLE, DEFLATE]) else {
        return;
    };
    for options in OPTIONS {
        bench.memory.clear();
        bench.keep_none();
        let holding = bench.context().own().unwrap().hold_memory();
        let failing = standin.fail("alloc:*");
        let request = bench.start(options).unwrap();
        let waited = request.wait(Some(Duration::from_millis(100)));
        assert!(waited.finished().is_none(), "{options}: it did not wait");
        drop(failing);
        drop(holding);
        finish(&request).unwrap_or_else(|e| panic!("{options}: {e}"));
        assert!(bench.memory.bytes() == bench.expected, "{options}: differs");
    }
}

#[test]
fn a_request_whose_workers_wait_for_memory_can_be_cancelled() {
    let Some(standin) = standin() else { return };
    let Some(bench) = Bench::new(&[SHUFFLE, DEFLATE]) else {
        return;
    };
    for options in OPTIONS {
        bench.keep_none();
        let _holding = bench.context().own().unwrap().hold_memory();
        let _failing = standin.fail("alloc:*");
        let request = bench.start(options).unwrap();
        assert!(
            request
                .wait(Some(Duration::from_millis(30)))
                .finished()
                .is_none()
        );
        request.cancel();
        let error = finish(&request).unwrap_err();
        assert_eq!(error.kind(), Kind::Cancelled, "{options}: {error}");
    }
}

#[test]
fn memory_that_nobody_returns_is_not_waited_for() {
    let Some(standin) = standin() else { return };
    let Some(bench) = Bench::new(&[SHUFFLE, DEFLATE]) else {
        return;
    };
    for options in OPTIONS {
        bench.keep_none();
        let _failing = standin.fail("alloc:*");
        let error = bench.read(options).unwrap_err();
        assert_eq!(error.kind(), Kind::Memory, "{options}: {error}");
    }
}

#[test]
fn nvcomp_that_fails_does_no_harm() {
    let lz4 = [SHUFFLE, LZ4, FLETCHER32];
    try_with(&lz4, &["nvcomp:1", "nvcomp:2", "nvcomp:3", "nvcomp:*"]);
    try_with(&lz4, &["nvcompchunk:1", "nvcompchunk:7", "nvcompchunk:*"]);
}

#[test]
fn streams_and_events_that_fail_are_errors_or_do_no_harm() {
    try_all(&[
        "stream:1", "stream:2", "stream:*", "event:1", "event:2", "event:*",
    ]);
    try_all(&[
        "record:1", "record:2", "record:3", "record:4", "record:5", "record:*",
    ]);
    try_all(&[
        "synchronize:1",
        "synchronize:2",
        "synchronize:3",
        "pointer:1",
        "pointer:*",
    ]);
}

const NO_MODULE: (&str, &str) = ("CUDASIM_FAIL", "module:*");

#[test]
fn without_kernels_copies_do_it_unless_the_gpu_is_asked_for() {
    if standin().is_some() {
        run_case("failures::read_without_kernels", &[NO_MODULE]);
    }
}

/// In a process that has not loaded them yet.
#[test]
#[ignore = "run by without_kernels_copies_do_it_unless_the_gpu_is_asked_for"]
fn read_without_kernels() {
    assert_eq!(std::env::var(NO_MODULE.0).as_deref(), Ok(NO_MODULE.1));
    let Some(bench) = Bench::new(&[SHUFFLE, DEFLATE]) else {
        return;
    };
    for options in ["threads=1", "decode=cpu;threads=4"] {
        bench.works(options, options);
        let report = bench.report(options).unwrap();
        assert!(report.note.contains("no kernels"), "{report:?}");
    }
    let error = bench.read("decode=gpu").unwrap_err();
    assert!(error.to_string().contains("cuModule"), "{error}");
}
