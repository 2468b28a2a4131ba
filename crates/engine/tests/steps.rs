//! Requests with steps: what only the submitter's thread may do, between and after the workers.

mod common;

use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use common::pending::{A_WHILE, Latch, Latched, owner};
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::options::RouteName;
use penstock_engine::report;
use penstock_engine::request::{Remaining, Request, Share, Task, TaskOrder, Waited, submit_task};

const LONG: Duration = Duration::from_secs(20);

/// Workers make items, at most `room` of them at a time; steps take them away.
struct Factory {
    items: usize,
    room: usize,
    most: usize,
    seen: Arc<Seen>,
    latch: Latch,
    worker_fails_at: Option<usize>,
    step_fails_at: Option<usize>,
}

/// Records of what happened.
#[derive(Default)]
struct Seen {
    begun: AtomicUsize,
    made: AtomicUsize,
    taken: AtomicUsize,
    inside: AtomicUsize,
    workers: AtomicUsize,
    ended: AtomicUsize,
    wrong_thread: AtomicBool,
    touched_late: AtomicBool,
    submitter: std::sync::Mutex<Option<ThreadId>>,
}

impl Seen {
    fn on_submitter(&self) {
        let submitter = self.submitter.lock().unwrap();
        if submitter.is_some_and(|id| id != thread::current().id()) {
            self.wrong_thread.store(true, SeqCst);
        }
    }
}

fn io(text: &str) -> Error {
    Error::new(Kind::Io, text)
}

impl Task for Factory {
    fn serve(&self, share: &Share<'_>) -> Result<()> {
        let seen = &self.seen;
        seen.inside.fetch_add(1, SeqCst);
        self.latch.wait();
        let outcome = loop {
            let is_full = seen.made.load(SeqCst) >= seen.taken.load(SeqCst) + self.room;
            if share.stopping() || is_full {
                break Ok(());
            }
            let number = seen.begun.fetch_add(1, SeqCst);
            if number >= self.items {
                break Ok(());
            }
            if self.worker_fails_at == Some(number) {
                break Err(io("a worker failed"));
            }
            seen.made.fetch_add(1, SeqCst);
            if number.is_multiple_of(3) {
                share.ask_step();
            }
        };
        seen.workers.fetch_sub(1, SeqCst);
        seen.inside.fetch_sub(1, SeqCst);
        outcome
    }

    fn step(&self, _share: &Share<'_>) -> Result<Remaining> {
        let seen = &self.seen;
        seen.on_submitter();
        let made = seen.made.load(SeqCst);
        if self.step_fails_at.is_some_and(|at| made > at) {
            return Err(io("a step failed"));
        }
        seen.taken.store(made, SeqCst);
        if made == self.items {
            return Ok(Remaining::Nothing);
        }
        let missing = self.most - seen.workers.load(SeqCst);
        if missing == 0 {
            return Ok(Remaining::Steps);
        }
        seen.workers.fetch_add(missing, SeqCst);
        Ok(Remaining::Workers(missing))
    }

    fn end_steps(&self) {
        self.seen.on_submitter();
        self.seen.ended.fetch_add(1, SeqCst);
        if self.seen.inside.load(SeqCst) > 0 && self.seen.made.load(SeqCst) < self.items {
            self.seen.touched_late.store(true, SeqCst);
        }
    }

    fn named(&self, error: Error) -> Error {
        error.in_file(Path::new("/factory"))
    }

    fn operation(&self) -> Operation {
        Operation::Write
    }
}

fn factory(items: usize) -> Factory {
    let latch = Latch::default();
    latch.lift();
    Factory {
        items,
        room: 5,
        most: 3,
        seen: Arc::default(),
        latch,
        worker_fails_at: None,
        step_fails_at: None,
    }
}

fn start(factory: Factory, owner: Option<Box<dyn std::any::Any + Send>>) -> (Request, Arc<Seen>) {
    let seen = Arc::clone(&factory.seen);
    seen.workers.store(factory.most, SeqCst);
    let order = TaskOrder {
        workers: factory.most,
        task: Box::new(factory),
        path: PathBuf::from("/factory"),
        context: None,
        requested: RouteName::Host,
        block: 0,
        has_steps: true,
        waiter_shares: false,
        moved: 0,
        moved_by: report::Path::HostBuffered,
        note: None,
    };
    // SAFETY: the task touches nothing but what it owns.
    (unsafe { submit_task(order, None, owner) }.unwrap(), seen)
}

/// Takes steps until the request is finished; fails the test if it hangs.
fn finish(request: &Request) -> Result<()> {
    loop {
        match request.wait(Some(LONG)) {
            Waited::Finished(outcome) => return outcome,
            Waited::Step => assert!(request.step()),
            Waited::Pending => panic!("the request hangs"),
        }
    }
}

#[test]
fn workers_that_leave_for_lack_of_memory_are_replaced_until_all_is_done() {
    for round in 0..200 {
        let factory = Factory {
            room: 1 + round % 7,
            most: 1 + round % 4,
            ..factory(50)
        };
        *factory.seen.submitter.lock().unwrap() = Some(thread::current().id());
        let (request, seen) = start(factory, None);
        finish(&request).unwrap();
        assert_eq!(seen.taken.load(SeqCst), 50);
        assert_eq!(seen.ended.load(SeqCst), 1);
        assert!(!seen.wrong_thread.load(SeqCst));
    }
}

#[test]
fn nothing_continues_without_the_steps() {
    let (request, seen) = start(factory(50), None);
    thread::sleep(A_WHILE);
    assert!(matches!(request.wait(Some(LONG)), Waited::Step));
    assert!(seen.made.load(SeqCst) < 50);
    assert_eq!(seen.taken.load(SeqCst), 0);
    finish(&request).unwrap();
}

#[test]
fn draining_does_not_wait_for_steps_that_are_not_taken() {
    let (request, seen) = start(factory(50), None);
    let (drained, is_drained) = std::sync::mpsc::channel();
    thread::spawn(move || drained.send(penstock_engine::drain()));
    is_drained.recv_timeout(LONG).unwrap().unwrap();
    finish(&request).unwrap();
    assert_eq!(seen.taken.load(SeqCst), 50);
}

#[test]
fn an_error_of_a_worker_ends_the_request_after_all_have_left() {
    for at in [0, 3, 20] {
        let factory = Factory {
            worker_fails_at: Some(at),
            ..factory(50)
        };
        let (request, seen) = start(factory, None);
        let error = finish(&request).unwrap_err();
        assert!(error.to_string().contains("a worker failed"), "{error}");
        assert_eq!(error.path(), Some(Path::new("/factory")));
        assert_eq!(seen.ended.load(SeqCst), 1);
        assert!(!seen.touched_late.load(SeqCst));
    }
}

#[test]
fn an_error_of_a_step_ends_the_request_after_all_have_left() {
    for at in [0, 10] {
        let factory = Factory {
            step_fails_at: Some(at),
            ..factory(50)
        };
        let (request, seen) = start(factory, None);
        let error = finish(&request).unwrap_err();
        assert!(error.to_string().contains("a step failed"), "{error}");
        assert_eq!(seen.ended.load(SeqCst), 1);
        assert!(!seen.touched_late.load(SeqCst));
    }
}

/// Starts a request with a worker that is inside until the latch is lifted, and an owner that reports
/// when it is dropped.
fn start_latched() -> (Request, Arc<Seen>, Latched, Receiver<()>) {
    let factory = Factory {
        latch: Latch::default(),
        ..factory(50)
    };
    let latch = Latched(factory.latch.clone());
    let (owner, dropped) = owner();
    let (request, seen) = start(factory, owner);
    while seen.inside.load(SeqCst) == 0 {
        thread::yield_now();
    }
    (request, seen, latch, dropped)
}

#[test]
fn a_cancelled_request_calls_no_step_but_ends_in_one() {
    let (request, seen, latch, dropped) = start_latched();
    request.cancel();
    assert!(matches!(request.wait(Some(LONG)), Waited::Step));
    request.step();
    // A worker is still inside.
    assert!(request.test().finished().is_none());
    assert_eq!(
        dropped.recv_timeout(A_WHILE),
        Err(RecvTimeoutError::Timeout)
    );
    latch.0.lift();
    assert_eq!(finish(&request).unwrap_err().kind(), Kind::Cancelled);
    assert_eq!(dropped.recv_timeout(LONG), Ok(()));
    assert_eq!(seen.taken.load(SeqCst), 0);
    assert_eq!(seen.ended.load(SeqCst), 1);
}

#[test]
fn a_dropped_request_stops_without_its_steps() {
    let (request, seen, latch, dropped) = start_latched();
    drop(request);
    assert_eq!(
        dropped.recv_timeout(A_WHILE),
        Err(RecvTimeoutError::Timeout)
    );
    latch.0.lift();
    assert_eq!(dropped.recv_timeout(LONG), Ok(()));
    assert_eq!(seen.inside.load(SeqCst), 0);
    assert_eq!(seen.taken.load(SeqCst), 0);
}

/// Whether a descriptor becomes readable within this many milliseconds.
fn is_readable(descriptor: RawFd, limit: i32) -> bool {
    let mut asked = libc::pollfd {
        fd: descriptor,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd, of a descriptor that the request keeps open.
    unsafe { libc::poll(&mut asked, 1, limit) == 1 }
}

#[test]
fn the_descriptor_is_readable_while_a_step_is_due() {
    let (request, _) = start(factory(50), None);
    let descriptor = request.descriptor().unwrap();
    loop {
        match request.test() {
            Waited::Finished(outcome) => break outcome.unwrap(),
            Waited::Step => assert!(request.step()),
            Waited::Pending => {
                // A descriptor requested in between is readable at once.
                assert!(
                    is_readable(descriptor, 20_000),
                    "nothing signals that the request continues"
                );
                if matches!(request.test(), Waited::Pending) {
                    request.step();
                }
            }
        }
    }
    assert!(is_readable(descriptor, 0));
}

#[test]
fn a_descriptor_requested_while_a_step_is_due_is_readable() {
    let (request, _) = start(factory(50), None);
    assert!(matches!(request.wait(Some(LONG)), Waited::Step));
    // All workers have left, so nothing but the step is to come.
    thread::sleep(A_WHILE);
    let descriptor = request.descriptor().unwrap();
    assert!(is_readable(descriptor, 0));
    finish(&request).unwrap();
}
