//! What goes wrong is one error, after which nothing touches the caller's memory or file, nothing
//! is left behind, and the next request works.

mod common;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use common::process::{self, run_case};
use common::standin::{Alive, Standin, standin};
use common::{Extras, Memory, Place, Sandbox, options, pattern, plain};
use penstock_engine::allocate;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::fault::{Decide, Fault};
use penstock_engine::file::File;
use penstock_engine::file::position::{Call, Operation};
use penstock_engine::options::Options;
use penstock_engine::report;
use penstock_engine::request::save;

/// A way for bytes to travel.
#[derive(Clone, Copy, Debug)]
struct Way {
    place: Place,
    text: &'static str,
}

const HOST: [&str; 4] = [
    "io=threads;direct=no",
    "io=threads;direct=yes",
    "io=uring;direct=no",
    "io=uring;direct=yes",
];
const GPU: [&str; 5] = [
    "route=staged;io=threads;direct=no",
    "route=staged;io=threads;direct=yes",
    "route=staged;io=uring;direct=no",
    "route=staged;io=uring;direct=yes",
    // The last one: it only reads.
    MAPPED,
];
const MAPPED: &str = "route=mapped";

const SIZE: u64 = (1 << 20) + 777;
/// Blocks of the whole file, and so calls at least.
const BLOCKS: u64 = 17;
const SETTINGS: &str = "block=64KiB;threads=4";

/// Failures, counts and descriptors are those of the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|e| e.into_inner())
}

fn ways(operation: Operation) -> Vec<Way> {
    let way = |place| move |text: &&'static str| Way { place, text };
    let gpu = if common::has_gpu() { &GPU[..] } else { &[] };
    HOST.iter()
        .map(way(Place::Host))
        .chain(gpu.iter().map(way(Place::Device)))
        .filter(|w| operation == Operation::Read || w.text != MAPPED)
        .filter(|w| can_go(w))
        .collect()
}

/// Whether the file system of the tests has direct I/O, where the way asks for it.
fn can_go(way: &Way) -> bool {
    let sandbox = Sandbox::new();
    let there = sandbox.file("direct.bin", b"").system().direct.is_some();
    if !there && way.text.contains("direct=yes") {
        eprintln!("SKIPPED: {}: no direct I/O in the tests' folder", way.text);
        return false;
    }
    true
}

/// A file, a buffer of the same size, and one whole transfer between them.
struct Scene {
    sandbox: Sandbox,
    file: Arc<File>,
    content: Vec<u8>,
    memory: Memory,
    way: Way,
    operation: Operation,
}

impl Scene {
    fn new(way: Way, operation: Operation) -> Scene {
        let sandbox = Sandbox::new();
        let content = pattern(SIZE as usize, 7);
        let file = sandbox.file("scene.bin", &content);
        let memory = way.place.aligned(SIZE as usize);
        Scene {
            sandbox,
            file,
            content,
            memory,
            way,
            operation,
        }
    }

    fn transfer(&self, settings: &str, faults: Option<Box<Decide>>) -> Result<report::Report> {
        let options = options(self.way.text).or(options(settings));
        let whole = [(0, SIZE, 0)];
        self.memory
            .faulty(&self.file, self.operation, &whole, options, faults)
    }

    fn fails(&self, settings: &str, decide: Box<Decide>) -> Error {
        match self.transfer(settings, Some(decide)) {
            Err(error) => error,
            Ok(report) => panic!("{:?} {:?}: {report:?}", self.way, self.operation),
        }
    }

    /// Moves all bytes without faults, and looks at each.
    fn works(&self) {
        let fresh = pattern(SIZE as usize, 99);
        std::fs::write(self.file.path(), &fresh).unwrap();
        let filled = pattern(SIZE as usize, 42);
        self.memory.fill(&filled);
        self.transfer(SETTINGS, None).unwrap();
        let (got, wanted) = match self.operation {
            Operation::Read => (self.memory.bytes(SIZE as usize), fresh),
            Operation::Write => (plain(self.file.path()), filled),
        };
        assert!(got == wanted, "{:?} {:?}", self.way, self.operation);
    }

    /// What a transfer may have changed.
    fn target(&self) -> Vec<u8> {
        match self.operation {
            Operation::Read => self.memory.bytes(SIZE as usize),
            Operation::Write => plain(self.file.path()),
        }
    }
}

fn each(operations: &[Operation], check: impl Fn(Way, Operation)) {
    for operation in operations {
        for way in ways(*operation) {
            check(way, *operation);
        }
    }
}

const BOTH: [Operation; 2] = [Operation::Read, Operation::Write];

/// The call of this number fails; those behind it are slow, so that siblings are at it when the
/// failure is found.
fn fail_call(
    number: u64,
    errno: i32,
    calls: Arc<AtomicU64>,
    failed: Arc<Mutex<Option<Call>>>,
) -> Box<Decide> {
    Box::new(move |n, call| {
        calls.fetch_add(1, SeqCst);
        if n == number {
            *failed.lock().unwrap() = Some(call);
            return Fault::Errno(errno);
        }
        if n > number {
            std::thread::sleep(Duration::from_millis(2));
        }
        Fault::None
    })
}

fn always(fault: Fault) -> Box<Decide> {
    Box::new(move |_, _| fault)
}

fn nth(number: u64, fault: Fault) -> Box<Decide> {
    Box::new(move |n, _| if n == number { fault } else { Fault::None })
}

#[test]
fn a_failed_system_call_is_an_error_that_names_file_range_and_errno() {
    let _alone = alone();
    each(&BOTH, |way, operation| {
        for number in [0, 5] {
            let scene = Scene::new(way, operation);
            let (calls, failed) = (Arc::default(), Arc::new(Mutex::new(None)));
            let error = scene.fails(
                SETTINGS,
                fail_call(number, libc::EIO, calls, Arc::clone(&failed)),
            );
            let call = failed.lock().unwrap().take().unwrap();
            assert_eq!(error.kind(), Kind::Io, "{way:?}: {error}");
            assert_eq!(error.os_errno(), libc::EIO, "{way:?}: {error}");
            assert_eq!(error.path(), Some(scene.file.path()), "{way:?}");
            let range = error.offset()..error.offset() + error.length();
            assert!(range.contains(&call.offset), "{way:?}: {error}, {call:?}");
        }
    });
}

#[test]
fn after_an_error_nothing_touches_memory_or_file_any_more() {
    let _alone = alone();
    each(&BOTH, |way, operation| {
        let scene = Scene::new(way, operation);
        let (calls, failed) = (Arc::new(AtomicU64::new(0)), Arc::default());
        scene.fails(
            SETTINGS,
            fail_call(3, libc::EIO, Arc::clone(&calls), failed),
        );
        let (target, made) = (scene.target(), calls.load(SeqCst));
        std::thread::sleep(Duration::from_millis(15));
        assert!(
            scene.target() == target,
            "{way:?} {operation:?}: late bytes"
        );
        assert_eq!(
            calls.load(SeqCst),
            made,
            "{way:?} {operation:?}: late calls"
        );
        assert!(scene.memory.frame_is_intact(SIZE as usize), "{way:?}");
    });
}

#[test]
fn every_waiter_of_a_failed_request_gets_the_same_error() {
    let _alone = alone();
    each(&BOTH, |way, operation| {
        let scene = Scene::new(way, operation);
        let extras = Extras {
            // Every call fails, each with another errno: only the first one counts.
            faults: Some(Box::new(|n, _| {
                Fault::Errno(if n == 0 { libc::EIO } else { libc::ENOSPC })
            })),
            ..Extras::default()
        };
        let set = options(way.text).or(options("threads=1;block=64KiB"));
        let request = scene
            .memory
            .start_with(&scene.file, operation, &[(0, SIZE, 0)], set, extras)
            .unwrap();
        for outcome in [request.wait(None), request.test(), request.wait(None)] {
            let error = outcome.unwrap().unwrap_err();
            assert_eq!(error.os_errno(), libc::EIO, "{way:?}: {error}");
        }
        assert!(request.report().is_some());
    });
}

#[test]
fn short_calls_are_gone_on_with() {
    let _alone = alone();
    each(&BOTH, |way, operation| {
        // The kernel ends direct calls early only at multiples of its own blocks.
        let most = if way.text.contains("direct=yes") {
            4096
        } else {
            1000
        };
        let scene = Scene::new(way, operation);
        let wanted = match operation {
            Operation::Read => scene.content.clone(),
            Operation::Write => pattern(SIZE as usize, 42),
        };
        if operation == Operation::Write {
            scene.memory.fill(&wanted);
        }
        let report = scene
            .transfer(SETTINGS, Some(always(Fault::Short(most))))
            .unwrap();
        assert!(scene.target() == wanted, "{way:?} {operation:?}");
        assert_eq!(report.bytes(), SIZE);
    });
}

#[test]
fn interrupted_calls_are_made_again() {
    let _alone = alone();
    each(&BOTH, |way, operation| {
        // Mapping a file is not interrupted.
        if way.text == MAPPED {
            return;
        }
        let scene = Scene::new(way, operation);
        scene.memory.fill(&scene.content);
        let decide = Box::new(|n, _| match n % 3 {
            0 => Fault::None,
            _ => Fault::Errno(libc::EINTR),
        });
        scene.transfer(SETTINGS, Some(decide)).unwrap();
        assert!(scene.target() == scene.content, "{way:?} {operation:?}");
    });
}

#[test]
fn a_full_medium_is_told_apart_from_a_broken_one() {
    let _alone = alone();
    each(&[Operation::Write], |way, operation| {
        for errno in [libc::ENOSPC, libc::EDQUOT] {
            let scene = Scene::new(way, operation);
            let error = scene.fails(SETTINGS, nth(4, Fault::Errno(errno)));
            assert_eq!((error.kind(), error.os_errno()), (Kind::NoSpace, errno));
            assert!(error.remedy_text().contains("quota"), "{error}");
        }
    });
}

#[test]
fn a_ragged_end_that_cannot_be_written_is_an_error() {
    let _alone = alone();
    each(&[Operation::Write], |way, operation| {
        if !way.text.contains("direct=yes") {
            return;
        }
        let scene = Scene::new(way, operation);
        let ragged = |_, call: Call| match call.length {
            777 => Fault::Errno(libc::EIO),
            _ => Fault::None,
        };
        let error = scene.fails(SETTINGS, Box::new(ragged));
        assert_eq!(error.os_errno(), libc::EIO, "{way:?}: {error}");
        assert_eq!((error.offset(), error.length()), (1 << 20, 777), "{way:?}");
        scene.works();
    });
}

#[test]
fn a_file_cut_off_while_it_is_read_is_an_end_of_file() {
    let _alone = alone();
    each(&[Operation::Read], |way, operation| {
        // At the last call, most blocks are done or under way already.
        for (number, length) in [(2, 1000), (BLOCKS - 2, 1000), (1, 0)] {
            let scene = Scene::new(way, operation);
            let path = scene.file.path().to_owned();
            let decide = Box::new(move |n, _| {
                if n == number {
                    let file = std::fs::OpenOptions::new().write(true).open(&path);
                    file.unwrap().set_len(length).unwrap();
                }
                Fault::None
            });
            let error = scene.fails(SETTINGS, decide);
            assert_eq!(error.kind(), Kind::EndOfFile, "{way:?}: {error}");
            assert_eq!(error.path(), Some(scene.file.path()));
            assert!(error.offset() + error.length() > length, "{error}");
        }
    });
}

#[test]
fn a_file_that_grows_while_it_is_read_is_read_as_asked() {
    let _alone = alone();
    each(&[Operation::Read], |way, operation| {
        let scene = Scene::new(way, operation);
        let path = scene.file.path().to_owned();
        let decide = Box::new(move |_, _| {
            use std::io::Write;
            let file = std::fs::OpenOptions::new().append(true).open(&path);
            file.unwrap().write_all(&[1; 5000]).unwrap();
            Fault::None
        });
        scene.transfer(SETTINGS, Some(decide)).unwrap();
        assert!(scene.target() == scene.content, "{way:?}");
    });
}

/// All that a request could leave behind.
#[derive(Debug)]
struct Remains {
    descriptors: usize,
    files: usize,
    gpu: Option<Alive>,
}

fn remains(sandbox: &Sandbox, standin: Option<&Standin>) -> Remains {
    Remains {
        descriptors: entries(Path::new("/proc/self/fd")),
        files: entries(sandbox.path("x").parent().unwrap()),
        gpu: standin.map(Standin::alive),
    }
}

fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// A lane of either mechanism then has two stages at most.
const TWO_STAGES: &str = "block=64KiB;queue_depth=2";

/// Nothing is left but what `lanes` lanes may have come to keep for reuse: a copy queue, two slots
/// and two events each, and the descriptors of an io_uring.
fn assert_nothing_left(before: &Remains, after: &Remains, lanes: usize, what: &str) {
    let grown = |after: usize, before: usize| after.saturating_sub(before);
    assert_eq!(after.files, before.files, "{what}");
    assert!(
        grown(after.descriptors, before.descriptors) <= lanes,
        "{what}: {after:?} {before:?}"
    );
    if let (Some(before), Some(after)) = (before.gpu, after.gpu) {
        assert_eq!(after.allocations, before.allocations, "{what}");
        assert!(grown(after.streams, before.streams) <= lanes, "{what}");
        assert!(grown(after.events, before.events) <= 2 * lanes, "{what}");
        assert!(
            grown(after.registrations, before.registrations) <= 2 * lanes,
            "{what}"
        );
    }
}

#[test]
fn failed_requests_leave_nothing_behind() {
    let _alone = alone();
    each(&BOTH, |way, operation| {
        for (lanes, last_call) in [(1, 15), (4, 9)] {
            let scene = Scene::new(way, operation);
            let settings = format!("{TWO_STAGES};threads={lanes}");
            scene.transfer(&settings, None).unwrap();
            let before = remains(&scene.sandbox, standin());
            for attempt in 0..20 {
                let number = [0, 1, 2, 6, last_call][attempt % 5];
                scene.fails(&settings, nth(number, Fault::Errno(libc::EIO)));
            }
            // A worker's last hold of the file may end a moment after the request.
            let descriptors = || entries(Path::new("/proc/self/fd"));
            common::eventually(|| descriptors() <= before.descriptors + lanes);
            let after = remains(&scene.sandbox, standin());
            assert_nothing_left(&before, &after, lanes, &format!("{way:?} {operation:?}"));
            scene.works();
        }
    });
}

// -- the GPU fails ------------------------------------------------------------------------------

fn gpu_ways(operation: Operation) -> Vec<Way> {
    let mut ways = ways(operation);
    ways.retain(|w| w.place == Place::Device);
    ways
}

#[test]
fn device_memory_that_is_not_to_be_had_is_an_error() {
    let _alone = alone();
    let Some(standin) = standin() else { return };
    let before = standin.alive();
    let error = {
        let _failing = standin.fail("alloc:1,hostalloc:1");
        assert!(allocate::host_alloc(4096).is_err());
        allocate::device_alloc(0, 4096).unwrap_err()
    };
    assert_eq!(error.kind(), Kind::Memory);
    assert!(
        error.cause().contains("CUDA_ERROR_OUT_OF_MEMORY"),
        "{error}"
    );
    assert_eq!(standin.alive(), before);
}

#[test]
fn a_slot_that_cannot_be_pinned_is_an_error_and_the_next_request_works() {
    let _alone = alone();
    let Some(standin) = standin() else { return };
    for (way, block) in gpu_ways(Operation::Write).into_iter().zip([2, 4, 8, 16]) {
        // A size that no other test uses, so that the slot has to be made.
        let length: u64 = (block << 20) + 1;
        let sandbox = Sandbox::new();
        let content = pattern(length as usize, 3);
        let file = sandbox.file("slot.bin", &content);
        let memory = way.place.aligned(length as usize);
        let set = options(way.text).or(Options {
            block: Some(block << 20),
            threads: Some(1),
            ..Options::default()
        });
        let read = || memory.transfer(&file, Operation::Read, &[(0, length, 0)], set);
        let before = remains(&sandbox, Some(standin));
        {
            let _failing = standin.fail("hostregister:*");
            let error = read().unwrap_err();
            assert_eq!(error.kind(), Kind::Memory, "{way:?}: {error}");
            assert_eq!(error.path(), Some(file.path()));
        }
        let after = remains(&sandbox, Some(standin)).gpu.unwrap();
        assert_eq!(after.registrations, before.gpu.unwrap().registrations);
        read().unwrap();
        assert!(memory.bytes(length as usize) == content, "{way:?}");
    }
}

#[test]
fn pages_that_may_not_be_pinned_are_staged() {
    let _alone = alone();
    let Some(standin) = standin() else { return };
    let scene = Scene::new(
        Way {
            place: Place::Device,
            text: MAPPED,
        },
        Operation::Read,
    );
    // So that the slots are there already.
    scene
        .memory
        .faulty(
            &scene.file,
            Operation::Read,
            &[(0, SIZE, 0)],
            options("route=staged;block=64KiB;threads=1"),
            None,
        )
        .unwrap();
    let report = {
        let _failing = standin.fail("hostregister:*:801");
        scene.transfer("block=64KiB;threads=1", None).unwrap()
    };
    assert_eq!(report.bytes_by(report::Path::StagedBuffered), SIZE);
    assert!(report.note.contains("cannot be pinned"), "{report:?}");
    assert!(scene.target() == scene.content);
}

#[test]
fn memory_that_runs_out_while_pages_are_pinned_is_an_error() {
    let _alone = alone();
    let Some(standin) = standin() else { return };
    let way = Way {
        place: Place::Device,
        text: MAPPED,
    };
    let scene = Scene::new(way, Operation::Read);
    let before = standin.alive().registrations;
    let error = {
        let _failing = standin.fail("hostregister:3");
        scene.transfer("block=64KiB;threads=1", None).unwrap_err()
    };
    assert_eq!(error.kind(), Kind::Memory, "{error}");
    assert_eq!(standin.alive().registrations, before);
    scene.works();
}

#[test]
fn a_copy_that_the_driver_refuses_is_an_error_and_the_next_request_works() {
    let _alone = alone();
    let Some(standin) = standin() else { return };
    for operation in BOTH {
        for way in gpu_ways(operation) {
            let scene = Scene::new(way, operation);
            scene.works();
            for call in ["copy:1", "copy:4", "copy:9+", "record:2", "synchronize:1"] {
                // Only io_uring's and the threads' slots are marked by events.
                if way.text == MAPPED && call.starts_with("record") {
                    continue;
                }
                let before = scene.sandbox.path("scene.bin");
                let error = {
                    let _failing = standin.fail(call);
                    scene.transfer(SETTINGS, None).unwrap_err()
                };
                assert_eq!(error.kind(), Kind::Gpu, "{way:?} {call}: {error}");
                assert_eq!(error.gpu_code(), 999, "{way:?} {call}: {error}");
                assert_eq!(error.path(), Some(&*before), "{way:?} {call}: {error}");
                scene.works();
            }
        }
    }
}

#[test]
fn after_a_refused_copy_nothing_touches_device_memory_any_more() {
    let _alone = alone();
    let Some(standin) = standin() else { return };
    for way in gpu_ways(Operation::Read) {
        let scene = Scene::new(way, Operation::Read);
        scene.works();
        let target = {
            let _failing = standin.fail("copy:7:1");
            scene.transfer(SETTINGS, None).unwrap_err();
            // A copy into host memory would fail, too, if the whole context had.
            scene.target()
        };
        std::thread::sleep(Duration::from_millis(15));
        assert!(scene.target() == target, "{way:?}: late bytes");
    }
}

#[test]
fn a_copy_that_fails_on_the_gpu_is_an_error_and_never_a_hang() {
    let _alone = alone();
    let Some(standin) = standin() else { return };
    for operation in BOTH {
        for way in gpu_ways(operation) {
            for call in ["copyexec:1", "copyexec:6", "copyexec:2+"] {
                let scene = Scene::new(way, operation);
                scene.works();
                let streams = standin.alive().streams;
                let error = {
                    let _failing = standin.fail(call);
                    scene.transfer(SETTINGS, None).unwrap_err()
                };
                assert_eq!(error.kind(), Kind::Gpu, "{way:?} {call}: {error}");
                assert_eq!(error.gpu_code(), 700, "{way:?} {call}: {error}");
                assert!(error.remedy_text().contains("compute-sanitizer"), "{error}");
                assert!(standin.alive().streams <= streams, "{way:?}");
                scene.works();
            }
        }
    }
}

#[test]
fn broken_contexts_leave_nothing_behind() {
    let _alone = alone();
    let Some(standin) = standin() else { return };
    for operation in BOTH {
        for way in gpu_ways(operation) {
            let scene = Scene::new(way, operation);
            let settings = &format!("{TWO_STAGES};threads=1");
            let attempt = |call: &str| {
                let _failing = standin.fail(call);
                scene.transfer(settings, None).unwrap_err();
            };
            // A broken context takes idle streams along; the slots are there then.
            while standin.alive().streams > 0 {
                attempt("copyexec:*");
            }
            scene.transfer(settings, None).unwrap();
            attempt("copyexec:3");
            let before = remains(&scene.sandbox, Some(standin));
            for call in ["copyexec:1", "copyexec:2", "copyexec:9"].repeat(3) {
                attempt(call);
            }
            let after = remains(&scene.sandbox, Some(standin));
            assert_nothing_left(&before, &after, 1, &format!("{way:?} {operation:?}"));
            scene.works();
        }
    }
}

#[test]
fn streams_and_events_that_cannot_be_made_are_errors() {
    let _alone = alone();
    let Some(standin) = standin() else { return };
    for way in gpu_ways(Operation::Write) {
        for call in ["stream:*", "event:*"] {
            let scene = Scene::new(way, Operation::Read);
            {
                // A broken context takes idle streams along, so that new ones have to be made.
                let _failing = standin.fail("copyexec:*");
                while standin.alive().streams > 0 {
                    scene.transfer("threads=1;block=64KiB", None).unwrap_err();
                }
            }
            let error = {
                let _failing = standin.fail(call);
                scene.transfer(SETTINGS, None).unwrap_err()
            };
            assert_eq!(error.kind(), Kind::Memory, "{way:?} {call}: {error}");
            scene.works();
        }
    }
}

#[test]
fn memory_that_the_driver_cannot_tell_about_is_not_taken_for_host_memory() {
    let _alone = alone();
    let Some(standin) = standin() else { return };
    let scene = Scene::new(
        Way {
            place: Place::Device,
            text: "route=auto",
        },
        Operation::Read,
    );
    let error = {
        let _failing = standin.fail("pointer:*");
        scene.transfer(SETTINGS, None).unwrap_err()
    };
    assert_eq!(error.kind(), Kind::Gpu, "{error}");
    scene.works();
}

// -- saving -------------------------------------------------------------------------------------

fn save_from(memory: &Memory, length: usize, target: &Path, text: &str) -> Result<report::Report> {
    // SAFETY: the buffer outlives the call.
    unsafe { save(target, memory.address(), length as u64, options(text)) }
}

/// The old contents are there, and nothing else is in the folder.
fn assert_untouched(sandbox: &Sandbox, old: &[u8]) {
    assert!(
        plain(&sandbox.path("saved.bin")) == old,
        "the old file has changed"
    );
    assert_eq!(entries(sandbox.path("x").parent().unwrap()), 1);
}

#[test]
fn a_save_whose_copy_fails_leaves_the_old_file_and_nothing_else() {
    let _alone = alone();
    let Some(standin) = standin() else { return };
    let sandbox = Sandbox::new();
    let target = sandbox.path("saved.bin");
    std::fs::write(&target, b"old").unwrap();
    let memory = Place::Device.memory(SIZE as usize, 0);
    for call in ["copy:1", "copyexec:3", "copy:5+"] {
        let error = {
            let _failing = standin.fail(call);
            let text = "block=64KiB;threads=4;direct=no;route=staged";
            save_from(&memory, SIZE as usize, &target, text).unwrap_err()
        };
        assert_eq!(error.kind(), Kind::Gpu);
        assert_eq!(error.path(), Some(&*target), "{error}");
        assert_untouched(&sandbox, b"old");
    }
}

#[test]
#[ignore = "a case"]
fn a_save_beyond_the_limit_of_file_sizes() {
    let sandbox = Sandbox::new();
    let target = sandbox.path("saved.bin");
    std::fs::write(&target, b"old").unwrap();
    let memory = Place::Host.memory(SIZE as usize, 0);
    let limit = libc::rlimit {
        rlim_cur: 300_000,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: changes this process only, which runs nothing else.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
    for text in HOST {
        let text = format!("{text};{SETTINGS}");
        let error = save_from(&memory, SIZE as usize, &target, &text).unwrap_err();
        assert_eq!(error.os_errno(), libc::EFBIG, "{text}: {error}");
        assert_eq!(error.path(), Some(&*target), "{text}: {error}");
        assert_untouched(&sandbox, b"old");
    }
}

#[test]
fn a_save_that_the_system_refuses_leaves_the_old_file_and_nothing_else() {
    run_case("a_save_beyond_the_limit_of_file_sizes", &[]);
}

#[test]
fn a_save_into_a_missing_folder_is_not_found() {
    let sandbox = Sandbox::new();
    let target = sandbox.path("missing/saved.bin");
    let memory = Place::Host.memory(10, 0);
    let error = save_from(&memory, 10, &target, "").unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    assert_eq!(error.path(), Some(&*target));
}

#[test]
#[ignore = "a case"]
fn writes_that_fill_a_file_system() {
    let sandbox = Sandbox::new();
    let memory = Place::Host.memory(SIZE as usize, 0);
    for io in ["io=threads", "io=uring"] {
        let text = format!("{io};{SETTINGS}");
        let file = sandbox.file("full.bin", b"");
        let error = memory
            .transfer(&file, Operation::Write, &[(0, SIZE, 0)], options(&text))
            .unwrap_err();
        assert_eq!(error.kind(), Kind::NoSpace, "{text}: {error}");
        file.truncate(0).unwrap();
        std::fs::remove_file(file.path()).unwrap();

        let target = sandbox.path("saved.bin");
        std::fs::write(&target, b"old").unwrap();
        let error = save_from(&memory, SIZE as usize, &target, &text).unwrap_err();
        assert_eq!(error.kind(), Kind::NoSpace, "{text}: {error}");
        assert_untouched(&sandbox, b"old");
    }
}

#[test]
fn a_file_system_that_is_really_full_is_an_error() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("small");
    std::fs::create_dir(&folder).unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--mount", "sh", "-c"])
        .arg("mount -t tmpfs -o size=512k tmpfs \"$0\" || { echo no mount; exit 1; }; exec \"$@\"")
        .arg(&folder)
        .arg(std::env::current_exe().unwrap())
        .args(process::case_arguments("writes_that_fill_a_file_system"))
        .env("PENSTOCK_TEST_DIR", &folder);
    if Command::new("unshare").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no unshare(1) to mount a small file system with");
        return;
    }
    let (passed, text) = process::run(command);
    if text.contains("no mount") || text.contains("unshare: ") {
        eprintln!("SKIPPED: may not mount a small file system: {text}");
        return;
    }
    assert!(passed, "{text}");
}

#[test]
fn an_overlapping_write_is_refused_before_anything_is_written() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("file.bin", &[1; 100]);
    let memory = Place::Host.memory(100, 0);
    let pieces = [(0, 10, 0), (9, 10, 50)];
    let error = memory
        .transfer(&file, Operation::Write, &pieces, options(""))
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert_eq!(plain(file.path()), [1; 100]);
}
