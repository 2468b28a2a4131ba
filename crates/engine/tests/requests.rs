//! The life of a request: waiting, cancelling, telling that it is finished, and order with streams.

mod common;

use std::any::Any;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use common::standin::standin;
use common::stream::CallerStream;
use common::{Extras, Memory, Place, Sandbox, options, pattern, plain};
use penstock_engine::error::Kind;
use penstock_engine::fault::{Decide, Fault};
use penstock_engine::file::File;
use penstock_engine::file::position::Operation;
use penstock_engine::report::Path;
use penstock_engine::request::{Request, submit_save};

const SIZE: u64 = (1 << 20) + 99;
const WHOLE: [(u64, u64, u64); 1] = [(0, SIZE, 0)];
const SETTINGS: &str = "block=64KiB;threads=2;direct=no;io=threads";
/// Long enough that whatever can happen has happened.
const A_WHILE: Duration = Duration::from_millis(30);

/// Some tests break the GPU for the whole process; the others share it.
static GPU: RwLock<()> = RwLock::new(());

fn sharing() -> RwLockReadGuard<'static, ()> {
    GPU.read().unwrap_or_else(|e| e.into_inner())
}

fn alone() -> RwLockWriteGuard<'static, ()> {
    GPU.write().unwrap_or_else(|e| e.into_inner())
}

/// Keeps a request from going on: its system calls from the given one on wait until it is lifted.
#[derive(Clone, Default)]
struct Latch {
    lifted: Arc<(Mutex<bool>, Condvar)>,
    calls: Arc<AtomicU64>,
}

impl Latch {
    fn from_call(&self, first: u64) -> Box<Decide> {
        let latch = self.clone();
        Box::new(move |number, _| {
            latch.calls.fetch_add(1, SeqCst);
            if number >= first {
                latch.wait();
            }
            Fault::None
        })
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.lifted.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn wait(&self) {
        let mut lifted = self.lock();
        while !*lifted {
            lifted = self.lifted.1.wait(lifted).unwrap();
        }
    }

    fn lift(&self) {
        *self.lock() = true;
        self.lifted.1.notify_all();
    }

    fn calls(&self) -> u64 {
        self.calls.load(SeqCst)
    }
}

/// Lifts it also when the test fails, so that no worker is left behind.
struct Latched(Latch);

impl Drop for Latched {
    fn drop(&mut self) {
        self.0.lift();
    }
}

/// A read of a whole file.
struct Scene {
    sandbox: Sandbox,
    file: Arc<File>,
    content: Vec<u8>,
    // Freed last, when the latch has been lifted.
    memory: Memory,
}

impl Scene {
    fn new(place: Place) -> Scene {
        let sandbox = Sandbox::new();
        let content = pattern(SIZE as usize, 7);
        Scene {
            file: sandbox.file("scene.bin", &content),
            sandbox,
            content,
            memory: place.memory(SIZE as usize, 0),
        }
    }

    fn read(&self, text: &str, extras: Extras) -> Request {
        self.start(Operation::Read, text, extras)
    }

    fn start(&self, operation: Operation, text: &str, extras: Extras) -> Request {
        let set = options(text).or(options(SETTINGS));
        self.memory
            .start_with(&self.file, operation, &WHOLE, set, extras)
            .unwrap()
    }

    /// A read whose calls from this one on wait for the latch.
    fn latched(&self, first: u64, text: &str) -> (Request, Latched) {
        let latch = Latch::default();
        let extras = Extras {
            faults: Some(latch.from_call(first)),
            ..Extras::default()
        };
        (self.read(text, extras), Latched(latch))
    }

    fn assert_read(&self) {
        assert!(self.memory.bytes(SIZE as usize) == self.content);
    }
}

fn places() -> Vec<Place> {
    match common::has_gpu() {
        true => vec![Place::Host, Place::Pinned, Place::Device],
        false => vec![Place::Host],
    }
}

/// Says when it is dropped.
struct Owner(std::sync::mpsc::Sender<()>);

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

fn owner() -> (Option<Box<dyn Any + Send>>, Receiver<()>) {
    let (sender, receiver) = channel();
    (Some(Box::new(Owner(sender))), receiver)
}

fn is_readable(fd: RawFd, limit: Duration) -> bool {
    let mut asked = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd, of a descriptor that the request keeps open.
    let ready = unsafe { libc::poll(&mut asked, 1, limit.as_millis() as libc::c_int) };
    ready == 1 && asked.revents & libc::POLLIN != 0
}

// -- waiting ------------------------------------------------------------------------------------

#[test]
fn a_request_is_pending_until_its_bytes_are_there() {
    let _sharing = sharing();
    for place in places() {
        let scene = Scene::new(place);
        let (request, latch) = scene.latched(3, "");
        assert!(request.test().is_none());
        assert!(request.report().is_none());
        latch.0.lift();
        request.wait(None).unwrap().unwrap();
        assert!(request.test().unwrap().is_ok());
        assert_eq!(request.moved(), SIZE);
        assert_eq!(request.report().unwrap().bytes(), SIZE);
        scene.assert_read();
    }
}

#[test]
fn waiting_with_a_limit_gives_up_when_it_is_over_and_not_before() {
    let _sharing = sharing();
    let scene = Scene::new(Place::Host);
    let (request, latch) = scene.latched(0, "");
    let start = Instant::now();
    assert!(request.wait(Some(Duration::ZERO)).is_none());
    assert!(request.wait(Some(A_WHILE)).is_none());
    assert!(start.elapsed() >= A_WHILE);
    latch.0.lift();
    let long = Duration::from_secs(3600);
    assert!(request.wait(Some(long)).unwrap().is_ok());
    // Longer than the clock can count.
    assert!(request.wait(Some(Duration::MAX)).unwrap().is_ok());
    assert!(request.wait(Some(Duration::ZERO)).unwrap().is_ok());
}

#[test]
fn all_who_wait_are_told() {
    let _sharing = sharing();
    let scene = Scene::new(Place::Host);
    let (request, latch) = scene.latched(0, "");
    let request = Arc::new(request);
    let waiters: Vec<_> = (0..8)
        .map(|i| {
            let request = Arc::clone(&request);
            let limit = (i % 2 == 0).then_some(Duration::from_secs(60));
            std::thread::spawn(move || request.wait(limit).unwrap())
        })
        .collect();
    latch.0.lift();
    for waiter in waiters {
        assert!(waiter.join().unwrap().is_ok());
    }
}

#[test]
fn a_request_that_is_dropped_goes_on() {
    let _sharing = sharing();
    for place in places() {
        let scene = Scene::new(place);
        let latch = Latched(Latch::default());
        let (owner, dropped) = owner();
        drop(scene.read(
            "",
            Extras {
                faults: Some(latch.0.from_call(2)),
                owner,
                ..Extras::default()
            },
        ));
        latch.0.lift();
        dropped.recv_timeout(Duration::from_secs(10)).unwrap();
        scene.assert_read();
    }
}

#[test]
fn the_owner_is_dropped_when_the_buffers_are_free_and_before_the_outcome_is_told() {
    let _sharing = sharing();
    for place in places() {
        for fails in [false, true] {
            let scene = Scene::new(place);
            let latch = Latched(Latch::default());
            let decide = latch.0.from_call(2);
            let faults: Box<Decide> = Box::new(move |number, call| match decide(number, call) {
                Fault::None if fails && number == 5 => Fault::Errno(libc::EIO),
                fault => fault,
            });
            let (owner, dropped) = owner();
            let request = scene.read(
                "",
                Extras {
                    faults: Some(faults),
                    owner,
                    ..Extras::default()
                },
            );
            assert_eq!(
                dropped.recv_timeout(A_WHILE),
                Err(RecvTimeoutError::Timeout)
            );
            latch.0.lift();
            assert_eq!(request.wait(None).unwrap().is_err(), fails);
            assert_eq!(dropped.try_recv(), Ok(()));
            assert_eq!(dropped.try_recv(), Err(TryRecvError::Disconnected));
        }
    }
}

#[test]
fn a_request_that_is_refused_drops_its_owner() {
    let _sharing = sharing();
    let scene = Scene::new(Place::Host);
    let (owner, dropped) = owner();
    let extras = Extras {
        owner,
        ..Extras::default()
    };
    let beyond = [(1, SIZE, 0)];
    let refused =
        scene
            .memory
            .start_with(&scene.file, Operation::Read, &beyond, options(""), extras);
    assert_eq!(refused.err().unwrap().kind(), Kind::EndOfFile);
    assert_eq!(dropped.try_recv(), Ok(()));
}

#[test]
fn draining_waits_for_requests_that_nobody_waits_for() {
    let _alone = alone();
    let scene = Scene::new(Place::Host);
    let (request, latch) = scene.latched(0, "");
    drop(request);
    let is_drained = Arc::new(AtomicBool::new(false));
    let drain = std::thread::spawn({
        let is_drained = Arc::clone(&is_drained);
        move || {
            penstock_engine::drain().unwrap();
            is_drained.store(true, SeqCst);
        }
    });
    std::thread::sleep(A_WHILE);
    assert!(!is_drained.load(SeqCst));
    latch.0.lift();
    drain.join().unwrap();
    scene.assert_read();
}

// -- cancelling ---------------------------------------------------------------------------------

#[test]
fn a_cancelled_request_stops_midway_and_touches_nothing_afterwards() {
    let _sharing = sharing();
    for place in places() {
        let scene = Scene::new(place);
        let (request, latch) = scene.latched(4, "threads=2");
        assert!(common::eventually(|| latch.0.calls() > 4));
        request.cancel();
        assert!(request.test().is_none(), "a call is still under way");
        latch.0.lift();
        let error = request.wait(None).unwrap().unwrap_err();
        assert_eq!(error.kind(), Kind::Cancelled);
        assert_eq!(error.path(), Some(scene.file.path()));
        assert!(request.moved() < SIZE);
        let (bytes, calls) = (scene.memory.bytes(SIZE as usize), latch.0.calls());
        std::thread::sleep(A_WHILE);
        assert!(scene.memory.bytes(SIZE as usize) == bytes);
        assert_eq!(latch.0.calls(), calls);
    }
}

#[test]
fn cancelling_after_the_end_changes_nothing() {
    let _sharing = sharing();
    let scene = Scene::new(Place::Host);
    let request = scene.read("", Extras::default());
    request.wait(None).unwrap().unwrap();
    request.cancel();
    assert!(request.test().unwrap().is_ok());
    scene.assert_read();
}

#[test]
fn cancelling_a_failed_request_keeps_its_error() {
    let _sharing = sharing();
    let scene = Scene::new(Place::Host);
    let extras = Extras {
        faults: Some(Box::new(|_, _| Fault::Errno(libc::EIO))),
        ..Extras::default()
    };
    let request = scene.read("", extras);
    assert_eq!(request.wait(None).unwrap().unwrap_err().kind(), Kind::Io);
    request.cancel();
    assert_eq!(request.test().unwrap().unwrap_err().kind(), Kind::Io);
}

#[test]
fn a_request_that_waits_for_a_stream_can_be_cancelled_before_it_starts() {
    let _sharing = sharing();
    if !common::has_gpu() {
        return;
    }
    let scene = Scene::new(Place::Device);
    let stream = CallerStream::new();
    let gate = stream.close_gate();
    let (owner, dropped) = owner();
    let extras = Extras {
        stream: Some(stream.then()),
        owner,
        ..Extras::default()
    };
    let before = scene.memory.bytes(SIZE as usize);
    let request = scene.read("", extras);
    request.cancel();
    let outcome = request.wait(Some(Duration::from_secs(10)));
    assert_eq!(outcome.unwrap().unwrap_err().kind(), Kind::Cancelled);
    assert_eq!(dropped.try_recv(), Ok(()));
    // The stream comes to it later, and nothing happens then.
    gate.open();
    stream.synchronize();
    assert_eq!(request.moved(), 0);
    assert!(scene.memory.bytes(SIZE as usize) == before);
}

#[test]
fn a_cancelled_save_leaves_the_old_file_and_nothing_else() {
    let _sharing = sharing();
    if !common::has_gpu() {
        return;
    }
    let scene = Scene::new(Place::Device);
    let target = scene.sandbox.path("saved.bin");
    std::fs::write(&target, b"old").unwrap();
    let stream = CallerStream::new();
    let gate = stream.close_gate();
    // SAFETY: the buffer outlives the request.
    let request = unsafe {
        let stream = Some(stream.then());
        submit_save(
            &target,
            scene.memory.address(),
            SIZE,
            options(""),
            stream,
            None,
        )
        .unwrap()
    };
    request.cancel();
    let error = request.wait(None).unwrap().unwrap_err();
    assert_eq!(error.kind(), Kind::Cancelled);
    assert_eq!(error.path(), Some(&*target));
    assert_eq!(plain(&target), b"old");
    assert_eq!(
        std::fs::read_dir(target.parent().unwrap()).unwrap().count(),
        2
    );
    gate.open();
}

// -- the descriptor -----------------------------------------------------------------------------

#[test]
fn the_descriptor_is_readable_when_the_request_is_finished() {
    let _sharing = sharing();
    for place in places() {
        let scene = Scene::new(place);
        let (request, latch) = scene.latched(1, "");
        let fd = request.descriptor().unwrap();
        assert_eq!(request.descriptor().unwrap(), fd);
        assert!(!is_readable(fd, A_WHILE));
        latch.0.lift();
        assert!(is_readable(fd, Duration::from_secs(10)));
        assert!(request.test().unwrap().is_ok());
        // It stays so, for all who look.
        assert!(is_readable(fd, Duration::ZERO));
    }
}

#[test]
fn a_descriptor_asked_for_after_the_end_is_readable() {
    let _sharing = sharing();
    let scene = Scene::new(Place::Host);
    let request = scene.read("", Extras::default());
    request.wait(None).unwrap().unwrap();
    let fd = request.descriptor().unwrap();
    assert!(is_readable(fd, Duration::from_secs(10)));
}

#[test]
fn the_descriptor_of_a_failed_request_is_readable() {
    let _sharing = sharing();
    let scene = Scene::new(Place::Host);
    let latch = Latched(Latch::default());
    let decide = latch.0.from_call(0);
    let extras = Extras {
        faults: Some(Box::new(move |number, call| {
            decide(number, call);
            Fault::Errno(libc::EIO)
        })),
        ..Extras::default()
    };
    let request = scene.read("", extras);
    let fd = request.descriptor().unwrap();
    assert!(!is_readable(fd, Duration::ZERO));
    latch.0.lift();
    assert!(is_readable(fd, Duration::from_secs(10)));
    assert!(request.test().unwrap().is_err());
}

// -- many ---------------------------------------------------------------------------------------

/// One of many requests that run side by side, and how its end is checked.
struct Running {
    request: Request,
    memory: Memory,
    wanted: Vec<u8>,
    /// What was written, if it was a write.
    written: Option<std::path::PathBuf>,
}

fn start_one(sandbox: &Sandbox, number: usize) -> Running {
    const LENGTH: usize = 300_000;
    let place = places()[number % places().len()];
    let text = [
        "route=auto",
        "io=uring;block=32KiB",
        "threads=4;block=32KiB;direct=yes",
        "route=mapped;block=64KiB",
        "route=staged;io=uring;direct=yes;block=64KiB",
    ][number % 5];
    // The host is reached by one route only, whatever is asked for.
    let text = match place {
        Place::Device => text,
        _ if text.starts_with("route=") => "",
        _ => text,
    };
    let length = LENGTH + number;
    let name = format!("{number}.bin");
    let content = pattern(length, number as u8);
    let memory = place.memory(length, 0);
    let pieces = [
        (10, 1000, 0),
        (5000, length as u64 - 10_000, 1000),
        (length as u64 - 3, 3, length as u64 - 9000),
    ];
    let set = options(text);
    match number % 3 {
        0 => {
            let file = sandbox.file(&name, &content);
            let mut wanted = memory.bytes(length);
            for (offset, bytes, at) in pieces {
                let (offset, bytes, at) = (offset as usize, bytes as usize, at as usize);
                wanted[at..at + bytes].copy_from_slice(&content[offset..offset + bytes]);
            }
            Running {
                request: memory
                    .start(&file, Operation::Read, &pieces, set, None)
                    .unwrap(),
                memory,
                wanted,
                written: None,
            }
        }
        1 => {
            let file = sandbox.file(&name, &vec![0; length]);
            memory.fill(&content);
            let mut wanted = vec![0; length];
            for (offset, bytes, at) in pieces {
                let (offset, bytes, at) = (offset as usize, bytes as usize, at as usize);
                wanted[offset..offset + bytes].copy_from_slice(&content[at..at + bytes]);
            }
            Running {
                request: memory
                    .start(&file, Operation::Write, &pieces, set, None)
                    .unwrap(),
                memory,
                wanted,
                written: Some(sandbox.path(&name)),
            }
        }
        _ => {
            memory.fill(&content);
            let target = sandbox.path(&name);
            // SAFETY: the buffer is kept beside the request until it is finished.
            let request = unsafe {
                submit_save(&target, memory.address(), length as u64, set, None, None).unwrap()
            };
            Running {
                request,
                memory,
                wanted: content,
                written: Some(target),
            }
        }
    }
}

#[test]
fn two_hundred_requests_of_all_kinds_on_eight_threads_are_right() {
    let _sharing = sharing();
    let sandbox = Arc::new(Sandbox::new());
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let sandbox = Arc::clone(&sandbox);
            std::thread::spawn(move || {
                let running: Vec<Running> = (0..25)
                    .map(|i| start_one(&sandbox, thread * 25 + i))
                    .collect();
                for (i, one) in running.into_iter().enumerate() {
                    one.request.wait(None).unwrap().unwrap();
                    let got = match &one.written {
                        Some(path) => plain(path),
                        None => one.memory.bytes(one.wanted.len()),
                    };
                    assert!(got == one.wanted, "request {i} of thread {thread}");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

// -- order with streams -------------------------------------------------------------------------

/// Whether there is a GPU; then with a stream of the caller's.
fn stream() -> Option<CallerStream> {
    common::has_gpu().then(CallerStream::new)
}

fn ordered(order: penstock_engine::StreamOrder) -> Extras {
    Extras {
        stream: Some(order),
        ..Extras::default()
    }
}

#[test]
fn a_request_after_a_stream_starts_when_the_stream_is_there() {
    let _sharing = sharing();
    for place in places() {
        let Some(stream) = stream() else { return };
        let scene = Scene::new(place);
        let gate = stream.close_gate();
        let request = scene.read("", ordered(stream.then()));
        assert!(request.wait(Some(A_WHILE)).is_none());
        assert_eq!(request.moved(), 0);
        // It has not looked at the file yet.
        let late = pattern(SIZE as usize, 200);
        std::fs::write(scene.file.path(), &late).unwrap();
        gate.open();
        request.wait(None).unwrap().unwrap();
        assert!(scene.memory.bytes(SIZE as usize) == late, "{place:?}");
    }
}

#[test]
fn what_a_held_stream_does_next_sees_the_bytes_of_the_request() {
    let _sharing = sharing();
    for text in ["route=staged", "route=staged;io=uring", "route=mapped"] {
        let Some(stream) = stream() else { return };
        let (scene, copy) = (
            Scene::new(Place::Device),
            Place::Pinned.memory(SIZE as usize, 0),
        );
        let latch = Latched(Latch::default());
        let request = scene.read(
            text,
            Extras {
                faults: Some(latch.0.from_call(3)),
                stream: Some(stream.held()),
                ..Extras::default()
            },
        );
        // SAFETY: both live until the stream is idle.
        unsafe { stream.copy(copy.address(), scene.memory.address(), SIZE as usize) };
        std::thread::sleep(A_WHILE);
        assert!(!stream.is_idle(), "{text}");
        latch.0.lift();
        stream.synchronize();
        assert!(copy.bytes(SIZE as usize) == scene.content, "{text}");
        assert!(request.wait(None).unwrap().is_ok());
    }
}

#[test]
fn a_write_between_two_kernels_writes_what_the_first_one_made() {
    let _sharing = sharing();
    let Some(stream) = stream() else { return };
    let scene = Scene::new(Place::Device);
    let made = pattern(SIZE as usize, 61);
    let source = Place::Pinned.memory(SIZE as usize, 0);
    source.fill(&made);
    let gate = stream.close_gate();
    // SAFETY: both live until the stream is idle.
    unsafe { stream.copy(scene.memory.address(), source.address(), SIZE as usize) };
    let order = stream.order(true, true);
    let request = scene.start(Operation::Write, "", ordered(order));
    // SAFETY: as above.
    unsafe { stream.fill(scene.memory.address(), 0, SIZE as usize) };
    gate.open();
    stream.synchronize();
    assert!(plain(scene.file.path()) == made);
    assert!(scene.memory.bytes(SIZE as usize).iter().all(|b| *b == 0));
    assert!(request.wait(None).unwrap().is_ok());
}

#[test]
fn requests_in_a_row_on_one_stream_run_in_that_order() {
    let _sharing = sharing();
    let Some(stream) = stream() else { return };
    let scene = Scene::new(Place::Device);
    let back = Scene::new(Place::Host);
    let gate = stream.close_gate();
    let order = || ordered(stream.order(true, true));
    // The second one writes what the first one has read.
    let first = scene.read("", order());
    let set = options(SETTINGS);
    let second = scene
        .memory
        .start_with(&back.file, Operation::Write, &WHOLE, set, order())
        .unwrap();
    std::fs::write(scene.file.path(), pattern(SIZE as usize, 5)).unwrap();
    gate.open();
    second.wait(None).unwrap().unwrap();
    assert!(first.test().unwrap().is_ok());
    assert!(plain(back.file.path()) == pattern(SIZE as usize, 5));
    stream.synchronize();
}

#[test]
fn a_stream_can_be_held_later_and_several_can() {
    let _sharing = sharing();
    let Some(stream) = stream() else { return };
    let others = [CallerStream::new(), CallerStream::new()];
    let scene = Scene::new(Place::Host);
    let (request, latch) = scene.latched(0, "");
    request.hold_stream(stream.raw()).unwrap();
    for other in &others {
        request.hold_stream(other.raw()).unwrap();
    }
    std::thread::sleep(A_WHILE);
    assert!(!stream.is_idle() && others.iter().all(|o| !o.is_idle()));
    latch.0.lift();
    stream.synchronize();
    others.iter().for_each(CallerStream::synchronize);
    assert!(request.wait(None).unwrap().is_ok());
}

#[test]
fn a_finished_request_holds_no_stream() {
    let _sharing = sharing();
    let Some(stream) = stream() else { return };
    let scene = Scene::new(Place::Device);
    let request = scene.read("", Extras::default());
    request.wait(None).unwrap().unwrap();
    request.hold_stream(stream.raw()).unwrap();
    assert!(common::eventually(|| stream.is_idle()));
}

#[test]
fn a_request_that_does_not_succeed_lets_its_stream_go_on() {
    let _sharing = sharing();
    for cancels in [false, true] {
        let Some(stream) = stream() else { return };
        let scene = Scene::new(Place::Device);
        let latch = Latched(Latch::default());
        let decide = latch.0.from_call(1);
        let request = scene.read(
            "",
            Extras {
                faults: Some(Box::new(move |number, call| {
                    decide(number, call);
                    Fault::Errno(libc::EIO)
                })),
                stream: Some(stream.held()),
                ..Extras::default()
            },
        );
        if cancels {
            request.cancel();
        }
        latch.0.lift();
        assert!(request.wait(None).unwrap().is_err());
        assert!(common::eventually(|| stream.is_idle()));
    }
}

#[test]
fn a_stream_refused_by_the_driver_refuses_the_request() {
    let _alone = alone();
    let Some(standin) = standin() else { return };
    let stream = CallerStream::new();
    let scene = Scene::new(Place::Device);
    let (owner, dropped) = owner();
    let extras = Extras {
        owner,
        ..ordered(stream.order(true, true))
    };
    let refused = {
        let _failing = standin.fail("launch:1");
        let set = options(SETTINGS);
        scene
            .memory
            .start_with(&scene.file, Operation::Read, &WHOLE, set, extras)
    };
    assert_eq!(refused.err().unwrap().kind(), Kind::Gpu);
    assert_eq!(dropped.try_recv(), Ok(()));
    assert!(common::eventually(|| stream.is_idle()));
}

/// A request after a stream that breaks before it comes to the request.
fn request_after_broken_stream(
    scene: &Scene,
    extras: Extras,
) -> (Request, common::standin::Failing) {
    let standin = standin().unwrap();
    let stream = CallerStream::new();
    let gate = stream.close_gate();
    let failing = standin.fail("copyexec:*");
    // SAFETY: the copy fails; both live as long as the stream.
    unsafe { stream.fill(scene.memory.address(), 0, 1) };
    let source = Place::Pinned.memory(64, 0);
    // SAFETY: as above.
    unsafe { stream.copy(scene.memory.address(), source.address(), 64) };
    let extras = Extras {
        stream: Some(stream.then()),
        ..extras
    };
    let request = scene.read("", extras);
    gate.open();
    // The memory is freed and the stream destroyed when the driver works again.
    std::mem::forget((stream, source));
    (request, failing)
}

#[test]
fn a_request_after_a_stream_that_breaks_fails_instead_of_waiting_for_ever() {
    let _alone = alone();
    if standin().is_none() {
        return;
    }
    let scene = Scene::new(Place::Device);
    let (owner, dropped) = owner();
    let extras = Extras {
        owner,
        ..Extras::default()
    };
    let (request, _failing) = request_after_broken_stream(&scene, extras);
    let error = request
        .wait(Some(Duration::from_secs(10)))
        .expect("it hangs")
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.gpu_code()),
        (Kind::Gpu, 700),
        "{error}"
    );
    assert_eq!(dropped.try_recv(), Ok(()));
    assert!(request.test().unwrap().is_err());
}

#[test]
fn polling_finds_that_the_stream_before_a_request_broke() {
    let _alone = alone();
    if standin().is_none() {
        return;
    }
    let scene = Scene::new(Place::Device);
    let (request, _failing) = request_after_broken_stream(&scene, Extras::default());
    assert!(common::eventually(|| request.test().is_some()));
    assert_eq!(request.test().unwrap().unwrap_err().kind(), Kind::Gpu);
}

#[test]
fn pages_are_not_let_go_while_a_stream_is_held() {
    let _alone = alone();
    let Some(standin) = standin() else { return };
    let stream = CallerStream::new();
    let (held, other) = (Scene::new(Place::Device), Scene::new(Place::Device));
    let latch = Latched(Latch::default());
    let request = held.read(
        "route=mapped",
        Extras {
            faults: Some(latch.0.from_call(2)),
            stream: Some(stream.held()),
            ..Extras::default()
        },
    );
    // To unpin pages makes a real driver wait for all streams, so for the held one, too.
    let before = standin.alive().registrations;
    let report = {
        let set = options("route=mapped").or(options(SETTINGS));
        other
            .memory
            .transfer(&other.file, Operation::Read, &WHOLE, set)
            .unwrap()
    };
    assert_eq!(report.bytes_by(Path::Mapped), SIZE);
    other.assert_read();
    assert!(standin.alive().registrations >= before + 17);
    latch.0.lift();
    request.wait(None).unwrap().unwrap();
    held.assert_read();
    stream.synchronize();
    assert!(common::eventually(
        || standin.alive().registrations < before + 2
    ));
}

#[test]
fn mapped_requests_that_hold_each_others_streams_finish() {
    let _sharing = sharing();
    let Some(first) = stream() else { return };
    let second = CallerStream::new();
    let scenes: Vec<Scene> = (0..12).map(|_| Scene::new(Place::Device)).collect();
    let requests: Vec<Request> = scenes
        .iter()
        .enumerate()
        .map(|(i, scene)| {
            let (own, other) = if i % 2 == 0 {
                (&first, &second)
            } else {
                (&second, &first)
            };
            let request = scene.read("route=mapped", ordered(own.order(true, true)));
            request.hold_stream(other.raw()).unwrap();
            request
        })
        .collect();
    for (scene, request) in scenes.iter().zip(requests) {
        let outcome = request.wait(Some(Duration::from_secs(20)));
        outcome.expect("a deadlock").unwrap();
        scene.assert_read();
    }
    first.synchronize();
    second.synchronize();
}
