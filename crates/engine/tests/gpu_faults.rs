//! A GPU that fails: one error, after which nothing touches the caller's memory or file, nothing
//! is left behind, and the next request works.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::scene::*;
use common::standin::standin;
use common::{Place, Sandbox, eventually, options, pattern};
use penstock_engine::allocate;
use penstock_engine::error::{Error, Kind};
use penstock_engine::file::position::Operation;
use penstock_engine::gpu::{Direction, OwnContext};
use penstock_engine::memory::Memory;
use penstock_engine::options::Options;
use penstock_engine::report::Path;

/// The engine's context for GPU memory at this address.
fn own_context(address: usize) -> Arc<OwnContext> {
    let context = Memory::at(address).unwrap().context.unwrap();
    Arc::clone(context.own().unwrap())
}

fn gpu_ways(operation: Operation) -> Vec<Way> {
    let mut ways = ways(operation);
    ways.retain(|w| w.place == Place::Device);
    ways
}

#[test]
fn failed_allocation_of_device_memory_is_an_error() {
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
    assert_eq!(report.bytes_by(Path::StagedBuffered), SIZE);
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

/// Makes each of the calls fail in transfers of each kind. The error has this code of the driver, and the
/// next request works.
fn check_failing_copies(calls: &[&str], code: i32, check: impl Fn(&Error, Way)) {
    let _alone = alone();
    let Some(standin) = standin() else { return };
    for operation in BOTH {
        for way in gpu_ways(operation) {
            for call in calls {
                let scene = Scene::new(way, operation);
                scene.works();
                // Only io_uring's and the threads' slots are marked by events.
                if way.text == MAPPED && call.starts_with("record") {
                    continue;
                }
                let path = scene.sandbox.path("scene.bin");
                let error = {
                    let _failing = standin.fail(call);
                    scene.transfer(SETTINGS, None).unwrap_err()
                };
                assert_eq!(error.kind(), Kind::Gpu, "{way:?} {call}: {error}");
                assert_eq!(error.gpu_code(), code, "{way:?} {call}: {error}");
                assert_eq!(error.path(), Some(&*path), "{way:?} {call}: {error}");
                check(&error, way);
                scene.works();
            }
        }
    }
}

#[test]
fn a_copy_that_the_driver_refuses_is_an_error_and_the_next_request_works() {
    let calls = ["copy:1", "copy:4", "copy:9+", "record:2", "synchronize:1"];
    check_failing_copies(&calls, 999, |_, _| {});
}

#[test]
fn a_copy_of_a_small_read_that_fails_names_the_file_and_the_range() {
    let _alone = alone();
    let Some(standin) = standin() else { return };
    let sandbox = Sandbox::new();
    let file = sandbox.file("small.bin", &pattern(300_000, 5));
    let memory = Place::Device.aligned(200_000);
    let read = || {
        let extents = [(4096, 200_000, 0)];
        memory.transfer(&file, Operation::Read, &extents, Options::default())
    };
    let report = read().unwrap();
    assert_eq!(report.threads, 1);
    let error = {
        let _failing = standin.fail("copy:1");
        read().unwrap_err()
    };
    assert_eq!(error.kind(), Kind::Gpu, "{error}");
    assert_eq!(error.path(), Some(file.path()), "{error}");
    assert_eq!((error.offset(), error.length()), (4096, 200_000), "{error}");
    read().unwrap();
}

#[test]
fn blocks_that_a_caller_names_are_used_for_cached_data() {
    let _alone = alone();
    let Some(_) = standin() else { return };
    let sandbox = Sandbox::new();
    let file = sandbox.file("cached.bin", &pattern(2 << 20, 5));
    let memory = Place::Device.aligned(2 << 20);
    let read = |text| {
        let whole = [(0, 2 << 20, 0)];
        memory.transfer(&file, Operation::Read, &whole, options(text))
    };
    assert_eq!(read("").unwrap().block, 2 << 20);
    assert_eq!(read("block=1MiB").unwrap().block, 1 << 20);
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
    let calls = ["copyexec:1", "copyexec:6", "copyexec:2+"];
    check_failing_copies(&calls, 700, |error, way| {
        assert!(error.remedy_text().contains("compute-sanitizer"), "{error}");
        // One for each worker, of those that found nothing to do.
        assert!(standin().unwrap().alive().streams <= 4, "{way:?}");
    });
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
                let broken = eventually(|| {
                    scene.transfer("threads=1;block=64KiB", None).unwrap_err();
                    standin.alive().streams == 0
                });
                assert!(broken, "{way:?} {call}");
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
fn idle_memory_that_could_not_be_freed_is_freed_later() {
    let _alone = alone();
    let Some(standin) = standin() else { return };
    let memory = Place::Device.memory(1, 0);
    let context = own_context(memory.address());
    let mut queues = Vec::new();
    {
        let entered = context.enter().unwrap();
        let mut queue = context.queue().unwrap();
        let address = queue.allocate(1 << 20).unwrap();
        queue.finish().unwrap();
        queues.push(queue);
        assert!(context.keep_memory(address, 1 << 20));
        drop(entered);
    }
    let before = standin.alive().allocations;
    {
        let _failing = standin.fail("stream:*");
        let _entered = context.enter().unwrap();
        while let Ok(queue) = context.queue() {
            queues.push(queue);
        }
        std::thread::sleep(Duration::from_secs(3));
        assert_eq!(standin.alive().allocations, before);
    }
    assert!(eventually(|| standin.alive().allocations < before));
}

#[test]
fn a_queue_that_is_dropped_without_its_context_leaves_no_stream() {
    let _alone = alone();
    let Some(standin) = standin() else { return };
    let memory = Place::Device.memory(1, 0);
    let context = own_context(memory.address());
    let mut queues = Vec::new();
    {
        let _entered = context.enter().unwrap();
        let before = standin.alive().streams;
        while standin.alive().streams == before {
            queues.push(context.queue().unwrap());
        }
    }
    let before = standin.alive().streams;
    let all = queues.len();
    drop(queues);
    assert_eq!(standin.alive().streams, before - all);
}

#[test]
fn a_queue_that_is_dropped_without_its_context_has_moved_all_bytes() {
    const BYTES: usize = 256 << 20;
    let _alone = alone();
    if standin().is_none() {
        return;
    }
    let memory = Place::Device.memory(BYTES, 0);
    memory.fill(&vec![7; BYTES]);
    let context = own_context(memory.address());
    let target = Place::Pinned.memory(BYTES, 0);
    let (host, gpu) = (target.address() as *mut u8, memory.address() as u64);
    let entered = context.enter().unwrap();
    let mut queue = context.queue().unwrap();
    // SAFETY: both memories outlive the queue, which waits for the copy.
    unsafe {
        queue
            .copy(Direction::FromGpu, host, gpu, BYTES as u64)
            .unwrap();
    }
    drop(entered);
    drop(queue);
    assert!(target.bytes(BYTES).iter().all(|byte| *byte == 7));
}

#[test]
fn memory_of_unknown_kind_is_not_taken_for_host_memory() {
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
