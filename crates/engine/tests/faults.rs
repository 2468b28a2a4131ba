//! A failed, short or interrupted system call, or a file that changes: one error or none, after
//! which nothing touches the caller's memory or file, nothing is left behind, and the next request
//! works.

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::scene::*;
use common::standin::standin;
use common::{Extras, Place, Sandbox, options, pattern};
use penstock_engine::error::Kind;
use penstock_engine::fault::{Decide, Fault};
use penstock_engine::file::position::{Call, Operation};

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
        for outcome in [
            request.wait(None).finished(),
            request.test().finished(),
            request.wait(None).finished(),
        ] {
            let error = outcome.unwrap().unwrap_err();
            assert_eq!(error.os_errno(), libc::EIO, "{way:?}: {error}");
        }
        assert!(request.report().is_some());
    });
}

#[test]
fn short_calls_are_continued() {
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
fn a_full_medium_and_a_broken_one_are_different_errors() {
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
fn a_file_that_grows_while_it_is_read_gives_the_requested_bytes() {
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

#[test]
fn rows_are_complete_although_calls_are_short_or_interrupted() {
    let _alone = alone();
    if !common::has_gpu() {
        return;
    }
    for gap in [100, 6000] {
        let step = 700 + gap;
        let pieces: Vec<_> = (0..1500).map(|row| (row * step, 700, row * 700)).collect();
        let sandbox = Sandbox::new();
        let content = pattern(1500 * step as usize, 3);
        let file = sandbox.file("rows", &content);
        let memory = Place::Device.memory(1500 * 700 + 16, 1);
        let extras = Extras {
            faults: Some(Box::new(|n, _| match n % 3 {
                0 => Fault::Short(100),
                1 => Fault::Errno(libc::EINTR),
                _ => Fault::None,
            })),
            ..Extras::default()
        };
        let set = options("route=staged;io=threads;direct=no;threads=3;block=64KiB");
        let request = memory
            .start_with(&file, Operation::Read, &pieces, set, extras)
            .unwrap();
        request.wait(None).finished().unwrap().unwrap();
        let wanted = content.chunks(step as usize).flat_map(|row| &row[..700]);
        assert!(memory.bytes(1500 * 700).iter().eq(wanted), "{gap}");
    }
}
