//! Order between requests and the caller's streams, and the end of waiting where a stream fails.

mod common;

use std::time::Duration;

use common::pending::*;
use common::standin::standin;
use common::stream::CallerStream;
use common::{Extras, Place, options, pattern, plain};
use penstock_engine::error::Kind;
use penstock_engine::fault::Fault;
use penstock_engine::file::position::Operation;
use penstock_engine::request::Request;
use penstock_engine::{Stream, StreamOrder};

/// Whether there is a GPU; then with a stream of the caller's.
fn stream() -> Option<CallerStream> {
    common::has_gpu().then(CallerStream::new)
}

fn ordered(order: StreamOrder) -> Extras {
    Extras {
        stream: Some(order),
        ..Extras::default()
    }
}

#[test]
fn a_request_after_a_stream_starts_when_the_work_before_it_is_done() {
    let _alone = alone();
    for place in places() {
        let Some(stream) = stream() else { return };
        let scene = Scene::new(place);
        let gate = stream.close_gate();
        let request = scene.read("", ordered(stream.then()));
        assert!(request.wait(Some(A_WHILE)).finished().is_none());
        assert_eq!(request.moved(), 0);
        // It has not touched the file yet.
        let late = pattern(SIZE as usize, 200);
        std::fs::write(scene.file.path(), &late).unwrap();
        gate.open();
        request.wait(None).finished().unwrap().unwrap();
        assert!(scene.memory.bytes(SIZE as usize) == late, "{place:?}");
    }
}

#[test]
fn a_request_after_the_legacy_stream_comes_after_the_blocking_streams() {
    let _alone = alone();
    for place in places() {
        if !common::has_gpu() {
            return;
        }
        let blocking = CallerStream::blocking();
        let scene = Scene::new(place);
        let gate = blocking.close_gate();
        let after_legacy = StreamOrder {
            // SAFETY: null is the legacy default stream.
            stream: unsafe { Stream::from_raw(std::ptr::null_mut()) },
            after: true,
            before: false,
        };
        let request = scene.read("", ordered(after_legacy));
        assert!(request.wait(Some(A_WHILE)).finished().is_none());
        assert_eq!(request.moved(), 0);
        gate.open();
        request.wait(None).finished().unwrap().unwrap();
    }
}

#[test]
fn a_stream_may_be_destroyed_as_soon_as_a_request_after_it_is_submitted() {
    let _alone = alone();
    for place in places() {
        let Some(stream) = stream() else { return };
        let scene = Scene::new(place);
        let gate = stream.close_gate();
        let request = scene.read("", ordered(stream.then()));
        // Its work continues. A driver may crash in a query of a stream that no longer exists.
        drop(stream);
        // While no thread has to watch streams.
        std::thread::sleep(5 * A_WHILE);
        assert!(request.test().finished().is_none());
        gate.open();
        request.wait(None).finished().unwrap().unwrap();
        scene.assert_read();
    }
}

#[test]
fn later_work_of_a_held_stream_sees_the_bytes_of_the_request() {
    let _alone = alone();
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
                faults: Some(latch.0.at_call(3)),
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
        assert!(request.wait(None).finished().unwrap().is_ok());
    }
}

#[test]
fn a_write_between_two_kernels_writes_what_the_first_one_made() {
    let _alone = alone();
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
    assert!(request.wait(None).finished().unwrap().is_ok());
}

#[test]
fn requests_in_a_row_on_one_stream_run_in_that_order() {
    let _alone = alone();
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
    second.wait(None).finished().unwrap().unwrap();
    assert!(first.test().finished().unwrap().is_ok());
    assert!(plain(back.file.path()) == pattern(SIZE as usize, 5));
    stream.synchronize();
}

#[test]
fn a_stream_can_be_held_later_and_several_can() {
    let _alone = alone();
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
    assert!(request.wait(None).finished().unwrap().is_ok());
}

#[test]
fn a_finished_request_holds_no_stream() {
    let _alone = alone();
    let Some(stream) = stream() else { return };
    let scene = Scene::new(Place::Device);
    let request = scene.read("", Extras::default());
    request.wait(None).finished().unwrap().unwrap();
    request.hold_stream(stream.raw()).unwrap();
    assert!(common::eventually(|| stream.is_idle()));
}

#[test]
fn a_failed_request_lets_its_stream_continue() {
    let _alone = alone();
    for cancels in [false, true] {
        let Some(stream) = stream() else { return };
        let scene = Scene::new(Place::Device);
        let latch = Latched(Latch::default());
        let decide = latch.0.at_call(1);
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
        assert!(request.wait(None).finished().unwrap().is_err());
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
    // A request after an idle stream needs nothing of the driver.
    let gate = stream.close_gate();
    let refused = {
        let _failing = standin.fail("launch:1");
        let set = options(SETTINGS);
        scene
            .memory
            .start_with(&scene.file, Operation::Read, &WHOLE, set, extras)
    };
    assert_eq!(refused.err().unwrap().kind(), Kind::Gpu);
    assert_eq!(dropped.try_recv(), Ok(()));
    gate.open();
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
fn a_request_after_a_stream_that_fails_fails_as_well() {
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
        .finished()
        .expect("it hangs")
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.gpu_code()),
        (Kind::Gpu, 700),
        "{error}"
    );
    assert_eq!(dropped.try_recv(), Ok(()));
    assert!(request.test().finished().unwrap().is_err());
}

#[test]
fn polling_finds_that_the_stream_before_a_request_broke() {
    let _alone = alone();
    if standin().is_none() {
        return;
    }
    let scene = Scene::new(Place::Device);
    let (request, _failing) = request_after_broken_stream(&scene, Extras::default());
    assert!(common::eventually(|| request.test().finished().is_some()));
    assert_eq!(
        request.test().finished().unwrap().unwrap_err().kind(),
        Kind::Gpu
    );
}

#[test]
fn mapped_requests_that_hold_each_others_streams_finish() {
    let _alone = alone();
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
        let outcome = request.wait(Some(Duration::from_secs(20))).finished();
        outcome.expect("a deadlock").unwrap();
        scene.assert_read();
    }
    first.synchronize();
    second.synchronize();
}
