//! The life of a request: waiting, cancelling, telling that it is finished.

mod common;

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use common::pending::*;
use common::stream::CallerStream;
use common::{Extras, Memory, Place, Sandbox, options, pattern, plain};
use penstock_engine::error::Kind;
use penstock_engine::fault::{Decide, Fault};
use penstock_engine::file::position::Operation;
use penstock_engine::request::{Request, Waited, submit_save};

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
        assert!(request.test().finished().is_none());
        assert!(request.report().is_none());
        latch.0.lift();
        request.wait(None).finished().unwrap().unwrap();
        assert!(request.test().finished().unwrap().is_ok());
        assert_eq!(request.moved(), SIZE);
        assert_eq!(request.report().unwrap().bytes(), SIZE);
        scene.assert_read();
    }
}

#[test]
fn a_wait_with_a_limit_ends_at_the_limit() {
    let _sharing = sharing();
    let scene = Scene::new(Place::Host);
    let (request, latch) = scene.latched(0, "");
    let start = Instant::now();
    assert!(request.wait(Some(Duration::ZERO)).finished().is_none());
    assert!(request.wait(Some(A_WHILE)).finished().is_none());
    assert!(start.elapsed() >= A_WHILE);
    latch.0.lift();
    let long = Duration::from_secs(3600);
    assert!(request.wait(Some(long)).finished().unwrap().is_ok());
    // Longer than the clock can count.
    assert!(
        request
            .wait(Some(Duration::MAX))
            .finished()
            .unwrap()
            .is_ok()
    );
    assert!(
        request
            .wait(Some(Duration::ZERO))
            .finished()
            .unwrap()
            .is_ok()
    );
}

#[test]
fn every_waiter_gets_the_outcome() {
    let _sharing = sharing();
    let scene = Scene::new(Place::Host);
    let (request, latch) = scene.latched(0, "");
    let request = Arc::new(request);
    let waiters: Vec<_> = (0..8)
        .map(|i| {
            let request = Arc::clone(&request);
            let limit = (i % 2 == 0).then_some(Duration::from_secs(60));
            std::thread::spawn(move || request.wait(limit).finished().unwrap())
        })
        .collect();
    latch.0.lift();
    for waiter in waiters {
        assert!(waiter.join().unwrap().is_ok());
    }
}

#[test]
fn a_dropped_request_continues() {
    let _sharing = sharing();
    for place in places() {
        let scene = Scene::new(place);
        let latch = Latched(Latch::default());
        let (owner, dropped) = owner();
        drop(scene.read(
            "",
            Extras {
                faults: Some(latch.0.at_call(2)),
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
fn the_owner_is_dropped_when_the_buffers_are_free_and_before_the_outcome_is_published() {
    let _sharing = sharing();
    for place in places() {
        for fails in [false, true] {
            let scene = Scene::new(place);
            let latch = Latched(Latch::default());
            let decide = latch.0.at_call(2);
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
            assert_eq!(request.wait(None).finished().unwrap().is_err(), fails);
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
fn draining_waits_for_requests_without_waiters() {
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

#[test]
fn a_drain_before_the_wait_does_the_share_of_the_waiter() {
    let _alone = alone();
    let scene = Scene::new(Place::Host);
    let (before, latch) = scene.latched(0, "");
    let drain = std::thread::spawn(|| penstock_engine::drain().unwrap());
    std::thread::sleep(A_WHILE);
    let other = Scene::new(Place::Host);
    let (owner, dropped) = owner();
    let extras = Extras {
        owner,
        waiter_shares: true,
        ..Extras::default()
    };
    let request = other.read("threads=1", extras);
    assert_eq!(dropped.recv_timeout(Duration::from_secs(10)), Ok(()));
    latch.0.lift();
    drain.join().unwrap();
    request.finish().unwrap();
    before.finish().unwrap();
    other.assert_read();
}

#[test]
fn a_wait_ends_in_time_although_its_thread_shares_the_work() {
    let _sharing = sharing();
    for place in places() {
        let scene = Scene::new(place);
        let calls = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&calls);
        let slow: Box<Decide> = Box::new(move |_, _| {
            counted.fetch_add(1, Relaxed);
            std::thread::sleep(Duration::from_millis(20));
            Fault::None
        });
        let extras = Extras {
            faults: Some(slow),
            waiter_shares: true,
            ..Extras::default()
        };
        let request = scene.read("threads=1", extras);
        let first = request.wait(Some(Duration::from_millis(20)));
        assert!(matches!(first, Waited::Pending));
        let so_far = calls.load(Relaxed);
        request.finish().unwrap();
        assert!(
            so_far < calls.load(Relaxed) / 2,
            "the wait carried out {so_far} calls"
        );
        scene.assert_read();
    }
}

#[test]
fn draining_does_not_wait_for_requests_that_are_submitted_meanwhile() {
    let _alone = alone();
    let scene = Scene::new(Place::Host);
    let (before, first) = scene.latched(0, "");
    let (tell, is_drained) = std::sync::mpsc::channel();
    let drain = std::thread::spawn(move || {
        penstock_engine::drain().unwrap();
        tell.send(()).unwrap();
    });
    std::thread::sleep(A_WHILE);
    let other = Scene::new(Place::Host);
    let (meanwhile, second) = other.latched(0, "");
    first.0.lift();
    before.finish().unwrap();
    let drained = is_drained.recv_timeout(Duration::from_secs(10));
    second.0.lift();
    meanwhile.finish().unwrap();
    drain.join().unwrap();
    assert_eq!(drained, Ok(()));
}

#[test]
fn a_finished_request_keeps_no_file_open_although_workers_have_not_begun() {
    let _alone = alone();
    // All workers are kept busy by others, which hang.
    let busy: Vec<Scene> = (0..40).map(|_| Scene::new(Place::Host)).collect();
    let hanging: Vec<_> = busy.iter().map(|scene| scene.latched(0, "")).collect();
    let scene = Scene::new(Place::Host);
    let set = options("threads=4").or(options(SETTINGS));
    let (file, memory) = (&scene.file, &scene.memory);
    let report = memory.transfer(file, Operation::Read, &WHOLE, set);
    assert_eq!(report.unwrap().bytes(), SIZE);
    assert_eq!(Arc::strong_count(file), 1);
    for (request, latch) in hanging {
        latch.0.lift();
        request.finish().unwrap();
    }
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
        assert!(
            request.test().finished().is_none(),
            "a call is still under way"
        );
        latch.0.lift();
        let error = request.wait(None).finished().unwrap().unwrap_err();
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
    request.wait(None).finished().unwrap().unwrap();
    request.cancel();
    assert!(request.test().finished().unwrap().is_ok());
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
    assert_eq!(
        request.wait(None).finished().unwrap().unwrap_err().kind(),
        Kind::Io
    );
    request.cancel();
    assert_eq!(
        request.test().finished().unwrap().unwrap_err().kind(),
        Kind::Io
    );
}

#[test]
fn a_request_that_waits_for_a_stream_can_be_cancelled_before_it_starts() {
    let _alone = alone();
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
    let outcome = request.wait(Some(Duration::from_secs(10))).finished();
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
    let _alone = alone();
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
            (scene.memory.address(), SIZE),
            options(""),
            false,
            stream,
            None,
        )
        .unwrap()
    };
    request.cancel();
    let error = request.wait(None).finished().unwrap().unwrap_err();
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
        assert!(request.test().finished().unwrap().is_ok());
        // It stays readable for every poll.
        assert!(is_readable(fd, Duration::ZERO));
    }
}

#[test]
fn a_descriptor_requested_after_the_end_is_readable() {
    let _sharing = sharing();
    let scene = Scene::new(Place::Host);
    let request = scene.read("", Extras::default());
    request.wait(None).finished().unwrap().unwrap();
    let fd = request.descriptor().unwrap();
    assert!(is_readable(fd, Duration::from_secs(10)));
}

#[test]
fn the_descriptor_of_a_failed_request_is_readable() {
    let _sharing = sharing();
    let scene = Scene::new(Place::Host);
    let latch = Latched(Latch::default());
    let decide = latch.0.at_call(0);
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
    assert!(request.test().finished().unwrap().is_err());
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
    // Host memory has one route only, whatever the options name.
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
                submit_save(
                    &target,
                    (memory.address(), length as u64),
                    set,
                    false,
                    None,
                    None,
                )
                .unwrap()
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
                    one.request.wait(None).finished().unwrap().unwrap();
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
