//! cudaDeviceReset: the context is gone, with all that was in it, although it was retained.

mod common;

use common::pending::{A_WHILE, Scene};
use common::process::run_case;
use common::standin::standin;
use common::stream::{CallerStream, driver_function};
use common::{Extras, Place, has_gpu};
use penstock_engine::error::Kind;

/// What cudaDeviceReset does.
fn reset() {
    let reset = driver_function(c"cuDevicePrimaryCtxReset_v2");
    // SAFETY: the function has this signature.
    let reset: extern "C" fn(i32) -> i32 = unsafe { std::mem::transmute(reset) };
    assert_eq!(reset(0), 0);
}

/// By each route, and by a stream that waits for a request.
fn use_everything() {
    for route in ["route=staged", "route=mapped", "route=staged;io=uring"] {
        let stream = CallerStream::new();
        let scene = Scene::new(Place::Device);
        let extras = Extras {
            stream: Some(stream.order(true, true)),
            ..Extras::default()
        };
        scene.read(route, extras).finish().unwrap();
        stream.synchronize();
        scene.assert_read();
    }
}

#[test]
#[ignore = "a case"]
fn a_reset_between_requests() {
    if !has_gpu() {
        return;
    }
    for _ in 0..3 {
        use_everything();
        reset();
    }
}

#[test]
fn requests_after_a_reset_of_the_device_work() {
    run_case("a_reset_between_requests", &[]);
}

#[test]
#[ignore = "a case"]
fn a_reset_before_a_request_begins() {
    // The reset of a real driver (580, on an H200) waits for work that is held, as this is.
    if standin().is_none() {
        return;
    }
    let stream = CallerStream::new();
    let scene = Scene::new(Place::Device);
    let gate = stream.close_gate();
    let extras = Extras {
        stream: Some(stream.then()),
        ..Extras::default()
    };
    let request = scene.read("", extras);
    std::thread::sleep(A_WHILE);
    reset();
    let error = request.finish().unwrap_err();
    assert_eq!(error.kind(), Kind::Gpu, "{error}");
    // The gate's word and the memory have gone with the context.
    std::mem::forget((gate, scene, stream));
}

#[test]
fn a_request_that_waits_for_a_stream_fails_when_the_device_is_reset() {
    run_case("a_reset_before_a_request_begins", &[]);
}
