//! Large cached reads into a GPU, whose workers and blocks follow what is measured. The controllers
//! are those of the process, so each case has a process of its own.

mod common;

use std::sync::Arc;

use common::pending::{Latch, Latched};
use common::process::run_case;
use common::{Extras, Memory, Place, Sandbox, has_gpu, options, pattern};
use penstock_engine::describe::describe;
use penstock_engine::error::Kind;
use penstock_engine::fault::Fault;
use penstock_engine::file::File;
use penstock_engine::file::position::Operation::Read;
use penstock_engine::request::Waited;
use serde_json::Value;

const SIZE: u64 = (100 << 20) + 4321;
const WHOLE: [(u64, u64, u64); 1] = [(0, SIZE, 0)];

struct Scene {
    file: Arc<File>,
    content: Vec<u8>,
    memory: Memory,
    _sandbox: Sandbox,
}

fn scene() -> Option<Scene> {
    has_gpu().then(|| {
        let sandbox = Sandbox::new();
        let content = pattern(SIZE as usize, 3);
        Scene {
            file: sandbox.file("file.bin", &content),
            content,
            memory: Place::Device.memory(SIZE as usize + 64, 32),
            _sandbox: sandbox,
        }
    })
}

/// Keeps this thread, and those that it starts, on the first processors.
fn keep_processors(count: usize) {
    // SAFETY: the calls get the length of the sets, and all zeros is an empty set.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        let length = size_of::<libc::cpu_set_t>();
        assert_eq!(libc::sched_getaffinity(0, length, &raw mut all), 0);
        let mut kept: libc::cpu_set_t = std::mem::zeroed();
        let processors = 0..libc::CPU_SETSIZE as usize;
        for processor in processors.filter(|p| libc::CPU_ISSET(*p, &all)).take(count) {
            libc::CPU_SET(processor, &mut kept);
        }
        assert_eq!(libc::sched_setaffinity(0, length, &raw const kept), 0);
    }
}

impl Scene {
    /// Reads the whole file, and compares its bytes.
    fn read(&self, text: &str) -> penstock_engine::report::Report {
        let set = options("route=staged").or(options(text));
        let report = self.memory.transfer(&self.file, Read, &WHOLE, set).unwrap();
        assert_eq!(report.bytes(), SIZE);
        assert!(self.memory.bytes(SIZE as usize) == self.content);
        report
    }
}

/// The controller of the only GPU and length of requests that were used.
fn controller() -> Option<Value> {
    let staging = describe(None)["staging"].take();
    staging.as_array()?.first().cloned()
}

#[test]
#[ignore = "a case"]
fn measured_reads() {
    let Some(scene) = scene() else { return };
    let reports: Vec<_> = (0..6).map(|_| scene.read("")).collect();
    let found = controller().unwrap();
    let windows = found["windows"].as_array().unwrap();
    assert!(windows.len() >= 2, "{found}");
    assert!(windows.iter().all(|w| w["rate"].as_f64().unwrap() > 0.0));
    let cores = penstock_engine::cores().unwrap();
    assert!(
        found["threads"].as_u64().unwrap() <= cores as u64,
        "{found}"
    );
    for report in reports {
        assert!([1, 2, 3, 4].map(|m| m << 20).contains(&report.block));
        assert!(report.threads >= 1 && report.threads <= cores as u32);
    }
    assert!(scene.memory.frame_is_intact(SIZE as usize));
}

#[test]
fn a_large_read_is_measured_and_reports_the_setting_that_was_chosen() {
    run_case("measured_reads", &[]);
}

#[test]
fn an_empty_setting_counts_as_unset() {
    run_case("measured_reads", &[("PENSTOCK_STAGING", "")]);
}

#[test]
#[ignore = "a case"]
fn reads_with_options() {
    let Some(scene) = scene() else { return };
    for text in ["threads=2", "block=1MiB", "slots=3", "io=uring"] {
        scene.read(text);
        assert!(controller().is_none(), "{text}");
    }
}

#[test]
fn a_read_whose_options_name_threads_block_or_slots_is_not_measured() {
    run_case("reads_with_options", &[]);
}

#[test]
#[ignore = "a case"]
fn fixed_reads() {
    let Some(scene) = scene() else { return };
    scene.read("");
    assert!(controller().is_none());
}

#[test]
fn fixed_staging_measures_nothing() {
    run_case("fixed_reads", &[("PENSTOCK_STAGING", "fixed")]);
}

#[test]
#[ignore = "a case"]
fn parts_at_once() {
    let Some(scene) = scene() else { return };
    let third = SIZE / 2;
    // The last one begins and ends at odd offsets.
    let parts = [(0, third, 0), (third, SIZE - third, third)];
    let both: Vec<_> = parts
        .iter()
        .map(|part| {
            let set = options("route=staged");
            let extras = Extras {
                waiter_shares: true,
                ..Extras::default()
            };
            let started = scene
                .memory
                .start_with(&scene.file, Read, &[*part], set, extras);
            started.unwrap()
        })
        .collect();
    for request in both {
        request.finish().unwrap();
    }
    assert!(scene.memory.bytes(SIZE as usize) == scene.content);
    assert!(scene.memory.frame_is_intact(SIZE as usize));
}

#[test]
fn requests_at_the_same_time_share_the_workers_of_the_gpu() {
    run_case("parts_at_once", &[]);
}

#[test]
#[ignore = "a case"]
fn long_ranges() {
    let Some(scene) = scene() else { return };
    let (third, last) = (33 << 20, SIZE - (66 << 20));
    let ranges = [
        (0, third, 0),
        (third, third, third),
        (2 * third, last, 2 * third),
    ];
    let mut counted = [0, 0];
    for text in ["", "", "", "", "", "", "threads=2", "block=1MiB;slots=3"] {
        let set = options("route=staged").or(options(text));
        let started = scene
            .memory
            .start_with(&scene.file, Read, &ranges, set, Extras::default());
        let request = started.unwrap();
        let mut before = 0;
        while matches!(request.peek(), Waited::Pending) {
            let arrived = request.arrived();
            assert!(arrived >= before && arrived <= request.moved());
            if arrived > before {
                let found = scene.memory.bytes(arrived as usize);
                assert!(
                    found[before as usize..] == scene.content[before as usize..arrived as usize]
                );
            }
            before = arrived;
        }
        request.finish().unwrap();
        assert_eq!(request.arrived(), SIZE);
        assert!(scene.memory.bytes(SIZE as usize) == scene.content);
        counted[usize::from(text.is_empty())] += before;
    }
    assert!(counted.iter().all(|bytes| *bytes > 0), "{counted:?}");
    assert!(
        !controller().unwrap()["windows"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    assert!(scene.memory.frame_is_intact(SIZE as usize));
}

#[test]
fn a_read_of_long_ranges_is_measured_and_counts_what_has_arrived() {
    run_case("long_ranges", &[]);
}

#[test]
#[ignore = "a case"]
fn a_cancelled_waiter() {
    // With more processors, the workers of the first request would take all threads.
    keep_processors(2);
    let Some(scene) = scene() else { return };
    let latch = Latch::default();
    let extras = Extras {
        faults: Some(latch.at_call(0)),
        ..Extras::default()
    };
    let set = options("route=staged");
    let start = |extras| {
        scene
            .memory
            .start_with(&scene.file, Read, &WHOLE, set, extras)
    };
    let first = start(extras).unwrap();
    let latched = Latched(latch);
    assert!(common::eventually(|| latched.0.calls() >= 1));
    let second = start(Extras::default()).unwrap();
    second.cancel();
    let outcome = second.wait(None);
    let Waited::Finished(Err(error)) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(error.kind(), Kind::Cancelled);
    latched.0.lift();
    first.finish().unwrap();
    assert!(scene.memory.bytes(SIZE as usize) == scene.content);
}

#[test]
fn a_request_that_waits_for_workers_of_another_one_can_be_cancelled() {
    run_case("a_cancelled_waiter", &[]);
}

#[test]
#[ignore = "a case"]
fn a_failing_read() {
    let Some(scene) = scene() else { return };
    let set = options("route=staged");
    let decide = Box::new(|number, _| {
        if number == 9 {
            Fault::Errno(5)
        } else {
            Fault::None
        }
    });
    let failed = scene
        .memory
        .faulty(&scene.file, Read, &WHOLE, set, Some(decide));
    let error = failed.unwrap_err().to_string();
    assert!(
        error.contains("file.bin") && error.contains("offset"),
        "{error}"
    );
    // All workers have left, so that the next ones may enter.
    scene.read("");
}

#[test]
fn a_failed_read_names_its_range_and_does_not_block_later_ones() {
    run_case("a_failing_read", &[]);
}

#[test]
#[ignore = "a case"]
fn many_reads() {
    let Some(scene) = scene() else { return };
    let text = options("route=staged");
    for _ in 0..400 {
        scene
            .memory
            .transfer(&scene.file, Read, &WHOLE, text)
            .unwrap();
        if controller().unwrap()["settled"] == true {
            return;
        }
    }
    panic!("it did not settle: {}", controller().unwrap());
}

#[test]
#[ignore = "a case"]
fn a_later_process() {
    let Some(scene) = scene() else { return };
    scene.read("");
    assert_eq!(controller().unwrap()["settled"], true);
}

#[test]
fn a_kept_setting_is_that_with_which_a_later_process_begins() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let settings = [
        ("PENSTOCK_STAGING", "keep"),
        ("PENSTOCK_PROFILE_DIR", place),
    ];
    run_case("many_reads", &settings);
    run_case("a_later_process", &settings);
}
