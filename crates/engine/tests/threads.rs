//! Where no thread can be started every operation runs in the calling thread, at the latest when it
//! is waited for.

mod common;

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{self, ThreadId};
use std::time::Duration;

use common::pending::{SETTINGS, SIZE, Scene, WHOLE, owner};
use common::process::run_case;
use common::standin::standin;
use common::stream::CallerStream;
use common::{Extras, Place, has_gpu, options, pattern, plain};
use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::options::RouteName;
use penstock_engine::report;
use penstock_engine::request::{
    Remaining, Request, Share, Task, TaskOrder, save, submit_save, submit_task,
};

/// From now on the system has no more threads for this program.
static NO_MORE: AtomicBool = AtomicBool::new(false);

type Create = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    extern "C" fn(*mut c_void) -> *mut c_void,
    *mut c_void,
) -> c_int;

/// The object that code lies in.
fn object_of(code: *const c_void) -> *mut c_void {
    // SAFETY: all zeros are a valid value; dladdr only looks the address up.
    unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        libc::dladdr(code, &mut found);
        found.dli_fbase
    }
}

/// Takes the place of the C library's. A driver of the GPU has the threads that it needs.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    let is_ours = object_of(start as *const c_void) == object_of(object_of as *const c_void);
    if NO_MORE.load(SeqCst) && is_ours {
        return libc::EAGAIN;
    }
    // SAFETY: the next function of this name has this signature, and gets what this one got.
    unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr());
        let create: Create = std::mem::transmute(next);
        create(thread, attributes, start, argument)
    }
}

fn no_more_threads() {
    NO_MORE.store(true, SeqCst);
    assert!(thread::Builder::new().spawn(|| ()).is_err());
}

fn places() -> Vec<Place> {
    common::pending::places()
}

#[test]
#[ignore = "a case"]
fn transfers_alone() {
    no_more_threads();
    for place in places() {
        let scene = Scene::new(place);
        let set = options(SETTINGS);
        let (file, memory) = (&scene.file, &scene.memory);
        memory.transfer(file, Operation::Read, &WHOLE, set).unwrap();
        scene.assert_read();
        let target = scene.sandbox.path("saved.bin");
        // SAFETY: the buffer outlives both.
        let request = unsafe {
            save(&target, memory.address(), SIZE, set).unwrap();
            assert!(plain(&target) == scene.content);
            let there = memory.address();
            submit_save(&target, (there, SIZE / 2), set, false, None, None).unwrap()
        };
        request.finish().unwrap();
        assert!(plain(&target) == scene.content[..SIZE as usize / 2]);
    }
}

#[test]
fn without_threads_transfers_that_are_waited_for_succeed() {
    run_case("transfers_alone", &[]);
}

#[test]
#[ignore = "a case"]
fn requests_alone() {
    no_more_threads();
    type End = fn(Request, &Scene);
    let ends: [End; 5] = [
        |request, _| request.finish().unwrap(),
        |request, _| {
            let a_moment = Some(Duration::from_millis(1));
            let mut outcome = request.wait(a_moment).finished();
            while outcome.is_none() {
                outcome = request.wait(a_moment).finished();
            }
            outcome.unwrap().unwrap();
        },
        |request, _| {
            assert!(common::eventually(|| request.test().finished().is_some()));
        },
        |request, scene| {
            drop(request);
            scene.file.wait_until_unused();
        },
        |request, _| {
            let mut readable = libc::pollfd {
                fd: request.descriptor().unwrap(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one entry.
            assert_eq!(unsafe { libc::poll(&mut readable, 1, 10_000) }, 1);
        },
    ];
    for place in places() {
        for end in ends {
            let scene = Scene::new(place);
            let (owner, dropped) = owner();
            let extras = Extras {
                owner,
                ..Extras::default()
            };
            end(scene.read("", extras), &scene);
            scene.assert_read();
            dropped.try_recv().unwrap();
        }
    }
    // The same after a stream, which is not there yet when the request is submitted.
    for end in ends.into_iter().filter(|_| has_gpu()) {
        let stream = CallerStream::new();
        let scene = Scene::new(Place::Device);
        let gate = stream.close_gate();
        let late = pattern(SIZE as usize, 99);
        let extras = Extras {
            stream: Some(stream.then()),
            ..Extras::default()
        };
        let request = scene.read("", extras);
        std::fs::write(scene.file.path(), &late).unwrap();
        gate.open();
        end(request, &scene);
        assert!(scene.memory.bytes(SIZE as usize) == late);
    }
}

#[test]
fn without_threads_requests_succeed_however_they_are_waited_for() {
    run_case("requests_alone", &[]);
}

#[test]
#[ignore = "a case"]
fn streams_alone() {
    if !has_gpu() {
        return;
    }
    no_more_threads();
    let stream = CallerStream::new();
    for (after, later) in [(false, false), (true, false), (true, true)] {
        let scene = Scene::new(Place::Device);
        let copy = Place::Pinned.memory(SIZE as usize, 0);
        let extras = Extras {
            stream: Some(stream.order(after, !later)),
            ..Extras::default()
        };
        let request = scene.read("", extras);
        if later {
            request.hold_stream(stream.raw()).unwrap();
        }
        // SAFETY: both live until the stream is idle.
        unsafe { stream.copy(copy.address(), scene.memory.address(), SIZE as usize) };
        stream.synchronize();
        assert!(copy.bytes(SIZE as usize) == scene.content, "{after}");
        request.finish().unwrap();
    }
}

#[test]
fn without_threads_a_stream_that_is_held_sees_the_bytes() {
    run_case("streams_alone", &[]);
}

#[test]
#[ignore = "a case"]
fn broken_stream_alone() {
    let Some(standin) = standin() else { return };
    // There is a worker, but no thread that watches streams.
    let scene = Scene::new(Place::Device);
    scene.read("", Extras::default()).finish().unwrap();
    no_more_threads();
    let stream = CallerStream::new();
    let gate = stream.close_gate();
    let source = Place::Pinned.memory(64, 0);
    let _failing = standin.fail("copyexec:*");
    // SAFETY: the copy fails; both live until the end of the process.
    unsafe { stream.copy(scene.memory.address(), source.address(), 64) };
    let extras = Extras {
        stream: Some(stream.then()),
        ..Extras::default()
    };
    let request = scene.read("", extras);
    gate.open();
    assert!(request.finish().is_err());
    std::mem::forget((stream, source, scene));
}

#[test]
fn without_a_thread_that_watches_streams_waiters_find_a_failed_one() {
    run_case("broken_stream_alone", &[]);
}

/// Workers make items, one at a time for lack of room; a step takes each away.
struct Factory {
    made: AtomicUsize,
    taken: AtomicUsize,
    wanted: usize,
    thread: ThreadId,
}

impl Task for Factory {
    fn serve(&self, _: &Share<'_>) -> Result<()> {
        assert_eq!(self.thread, thread::current().id());
        if self.made.load(SeqCst) == self.taken.load(SeqCst) {
            self.made.fetch_add(1, SeqCst);
        }
        Ok(())
    }
    fn step(&self, _: &Share<'_>) -> Result<Remaining> {
        self.taken.store(self.made.load(SeqCst), SeqCst);
        Ok(match self.taken.load(SeqCst) == self.wanted {
            true => Remaining::Nothing,
            false => Remaining::Workers(2),
        })
    }
    fn named(&self, error: Error) -> Error {
        error.in_file(Path::new("/factory"))
    }
    fn operation(&self) -> Operation {
        Operation::Write
    }
}

#[test]
#[ignore = "a case"]
fn turns_alone() {
    no_more_threads();
    let order = TaskOrder {
        task: Box::new(Factory {
            made: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            wanted: 5,
            thread: thread::current().id(),
        }),
        path: "/factory".into(),
        workers: 3,
        context: None,
        requested: RouteName::Auto,
        block: 0,
        has_steps: true,
        waiter_shares: false,
        moved: 0,
        moved_by: report::Path::HostBuffered,
        note: None,
    };
    // SAFETY: the task touches no memory but its own.
    let request = Arc::new(unsafe { submit_task(order, None, None).unwrap() });
    request.finish().unwrap();
}

#[test]
fn without_threads_the_steps_of_a_request_do_the_work() {
    run_case("turns_alone", &[]);
}
