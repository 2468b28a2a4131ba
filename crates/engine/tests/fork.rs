//! Fork: a child of a process that had used the engine gets an error, and never hangs.

mod common;

use common::process::run_case;
use common::ways::assert_reads;
use common::{Place, Sandbox, open, options, pattern};
use penstock_engine::Extent;
use penstock_engine::allocate;
use penstock_engine::error::Kind;
use penstock_engine::file::position::Operation;
use penstock_engine::request::{Order, run, save, submit};

/// Runs `body` in a forked child; false unless it ends well within ten seconds.
fn in_child(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs `body` only and leaves without unwinding into the test.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let body = std::panic::AssertUnwindSafe(body);
        let went_well = std::panic::catch_unwind(body).unwrap_or(false);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!went_well)) };
    }
    assert!(child > 0);
    let mut status = 0;
    // SAFETY: waits for the child just made.
    let ended = || unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == child;
    if !common::eventually(ended) {
        // SAFETY: the child just made, which has not been waited for.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, &mut status, 0);
        }
        return false;
    }
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

#[test]
#[ignore = "a case"]
fn a_fork_after_use() {
    let sandbox = Sandbox::new();
    let content = pattern(1 << 20, 1);
    let file = sandbox.file("file.bin", &content);
    // Workers, slots, rings, streams and all are there.
    assert_reads(&file, 0, &content);
    let memory = Place::Host.memory(content.len(), 0);
    let set = options("threads=4;block=64KiB");
    let whole = [(0, content.len() as u64, 0)];
    let request = memory
        .start(&file, Operation::Read, &whole, set, None)
        .unwrap();
    let is_forked = |kind: Option<Kind>| kind == Some(Kind::Forked);
    let went_well = in_child(|| {
        let extents = [Extent {
            offset: 0,
            length: 1 << 20,
            memory: memory.address(),
        }];
        let order = || Order::new(Operation::Read, &extents, set);
        // SAFETY: the buffer outlives all of this.
        let (ran, submitted, saved) = unsafe {
            (
                run(&file, order()).err().map(|e| e.kind()),
                submit(&file, order(), None, None).err().map(|e| e.kind()),
                save(&sandbox.path("s"), memory.address(), 9, set)
                    .err()
                    .map(|e| e.kind()),
            )
        };
        let waited = request
            .wait(None)
            .finished()
            .and_then(|o| o.err())
            .map(|e| e.kind());
        let tested = request
            .test()
            .finished()
            .and_then(|o| o.err())
            .map(|e| e.kind());
        let asked = allocate::memory_kind(memory.address()).err();
        let made = allocate::device_alloc(0, 9).err();
        let drained = penstock_engine::drain().err();
        [ran, submitted, saved, waited, tested]
            .into_iter()
            .chain([asked, made, drained].map(|e| e.map(|e| e.kind())))
            .all(is_forked)
    });
    assert!(went_well, "the child got no error, or hung");
    // The parent still works.
    request.wait(None).finished().unwrap().unwrap();
    assert!(memory.bytes(content.len()) == content);
    assert_reads(&file, 0, &content);
}

#[test]
fn a_child_forked_after_use_gets_a_clear_error_and_no_hang() {
    run_case("a_fork_after_use", &[]);
}

#[test]
#[ignore = "a case"]
fn a_fork_before_use() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("file.bin");
    std::fs::write(&path, pattern(1 << 20, 1)).unwrap();
    assert!(in_child(|| {
        assert_reads(&open(&path), 0, &pattern(1 << 20, 1));
        true
    }));
}

#[test]
fn a_child_forked_before_use_works() {
    run_case("a_fork_before_use", &[]);
}
