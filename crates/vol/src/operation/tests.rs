//! Operations made of requests of the engine, on files and host memory.

use std::path::Path;
use std::sync::atomic::AtomicUsize;

use penstock_engine::Extent;
use penstock_engine::file::position::Operation as Direction;
use penstock_engine::file::{Access, File};
use penstock_engine::options::Options;
use penstock_engine::request::{self, Order, Remaining, Share, Task, TaskOrder};
use penstock_hdf5::transfer::{InCall, may_flush};

use super::*;

const CALL: &CStr = c"H5Dwrite_async";

fn operation(state: State) -> Arc<AsyncOperation> {
    AsyncOperation::new(CALL, None, state)
}

fn poll(operation: &Arc<AsyncOperation>) {
    Arc::clone(operation).go_on(&|| Some(Duration::ZERO), Effort::Begun);
}

fn running(requests: Vec<Request>) -> State {
    State::Running(Transfers {
        requests: requests.into_iter().map(Arc::new).collect(),
        ..Transfers::default()
    })
}

fn deferred(after: Vec<Shared>, call: Box<dyn FnOnce() -> Result<()>>) -> State {
    State::Deferred(DeferredCall {
        after,
        flushes: true,
        call,
    })
}

fn queued(ready: Vec<Submission>) -> State {
    State::Queued(Transfers {
        ready,
        ..Transfers::default()
    })
}

fn write(path: &Path, bytes: &'static [u8]) -> Request {
    let access = Access {
        read: true,
        write: true,
        ..Access::default()
    };
    let file = Arc::new(File::open(path, access, Options::default()).unwrap());
    let extents = [Extent {
        offset: 0,
        length: bytes.len() as u64,
        memory: bytes.as_ptr() as usize,
    }];
    let order = Order::new(Direction::Write, &extents, Options::default());
    // SAFETY: the bytes are constants.
    unsafe { request::submit(&file, order, None, None).unwrap() }
}

fn file() -> tempfile::NamedTempFile {
    tempfile::NamedTempFile::new().unwrap()
}

const FAILS: usize = usize::MAX;

/// A request that ends after a number of submitter steps, or fails in the first.
struct Steps(AtomicUsize);

impl Task for Steps {
    fn serve(&self, _share: &Share<'_>) -> Result<()> {
        Ok(())
    }

    fn step(&self, share: &Share<'_>) -> Result<Remaining> {
        if self.0.load(Relaxed) == FAILS {
            return Err(Error::new(Kind::NoSpace, "no space left"));
        }
        if self.0.fetch_sub(1, Relaxed) == 1 {
            return Ok(Remaining::Nothing);
        }
        share.ask_step();
        Ok(Remaining::Steps)
    }

    fn named(&self, error: Error) -> Error {
        error
    }

    fn operation(&self) -> Direction {
        Direction::Write
    }
}

/// A request whose only step flushes a file.
struct Flush;

impl Task for Flush {
    fn serve(&self, _share: &Share<'_>) -> Result<()> {
        Ok(())
    }

    fn step(&self, _share: &Share<'_>) -> Result<Remaining> {
        Ok(if may_flush() {
            Remaining::Nothing
        } else {
            Remaining::Later
        })
    }

    fn named(&self, error: Error) -> Error {
        error
    }

    fn operation(&self) -> Direction {
        Direction::Write
    }
}

fn steps(count: usize) -> Request {
    request_of(Box::new(Steps(AtomicUsize::new(count))))
}

fn request_of(task: Box<dyn Task>) -> Request {
    let order = TaskOrder {
        task,
        path: "steps".into(),
        workers: 1,
        context: None,
        requested: penstock_engine::options::RouteName::Host,
        block: 0,
        has_steps: true,
        waiter_shares: false,
        moved: 0,
        moved_by: penstock_engine::report::Path::Hdf5,
        note: None,
    };
    // SAFETY: the task touches no memory.
    unsafe { request::submit_task(order, None, None).unwrap() }
}

#[test]
fn an_operation_ends_when_its_bytes_are_in_the_file() {
    let file = file();
    let operation = operation(running(vec![write(file.path(), b"penstock")]));
    assert!(matches!(operation.wait(None), Some(Outcome::Succeeded)));
    assert_eq!(std::fs::read(file.path()).unwrap(), b"penstock");
    assert!(operation.times().1 > 0);
}

#[test]
fn polling_runs_the_submitter_steps_and_finds_the_end() {
    let operation = operation(running(vec![steps(5), steps(1)]));
    let end = Instant::now() + Duration::from_secs(20);
    while operation.wait(Some(Duration::ZERO)).is_none() {
        assert!(Instant::now() < end, "polling never finds the end");
    }
}

#[test]
fn a_failure_is_reported_each_time() {
    let operation = operation(running(vec![steps(1), steps(FAILS), steps(1)]));
    for _ in 0..2 {
        match operation.wait(None) {
            Some(Outcome::Failed(error)) => assert_eq!(error.kind(), Kind::NoSpace),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_failure_without_a_request_is_reported_once_later() {
    let failures = Arc::new(Failures::default());
    let state = running(vec![steps(FAILS)]);
    AsyncOperation::new(CALL, Some(Arc::clone(&failures)), state).wait_if_possible();
    assert!(failures.take().is_err());
    assert!(failures.take().is_ok());
}

#[test]
fn a_deferred_operation_runs_only_when_the_others_have_finished() {
    let first = operation(running(vec![steps(3)]));
    let done = Arc::new(AtomicBool::new(false));
    let act = {
        let (first, done) = (Arc::clone(&first), Arc::clone(&done));
        Box::new(move || {
            done.store(first.outcome().is_some(), Relaxed);
            Ok(())
        })
    };
    let last = operation(deferred(vec![first], act));
    assert!(matches!(last.wait(None), Some(Outcome::Succeeded)));
    assert!(done.load(Relaxed));
}

#[test]
fn a_flush_inside_of_a_call_is_postponed_until_its_end() {
    let write = operation(running(vec![request_of(Box::new(Flush)), steps(3)]));
    let (shared, close) = (Arc::clone(&write) as Shared, Box::new(|| Ok(())));
    let closing = operation(deferred(vec![shared], close));
    {
        let _in_call = InCall::begin();
        assert!(write.wait(None).is_none());
        assert!(write.is_postponed() && closing.is_postponed());
        assert!(closing.wait(None).is_none());
    }
    assert!(matches!(closing.wait(None), Some(Outcome::Succeeded)));
    assert!(matches!(write.outcome(), Some(Outcome::Succeeded)));
    assert!(!write.is_postponed());
}

#[test]
fn waiting_begins_a_queued_operation_and_polling_does_not() {
    let begun = Arc::new(AtomicBool::new(false));
    let begin = {
        let begun = Arc::clone(&begun);
        Box::new(move || {
            begun.store(true, Relaxed);
            Ok(steps(1))
        })
    };
    let operation = operation(queued(vec![begin]));
    poll(&operation);
    assert!(!begun.load(Relaxed));
    operation.wait_if_possible();
    assert!(begun.load(Relaxed));
}

#[test]
fn a_delayed_operation_begins_by_itself_and_then_runs_its_submitter_steps() {
    let operation = operation(queued(vec![Box::new(|| Ok(steps(1)))]));
    begin_after(&operation, Duration::from_millis(20));
    poll(&operation);
    assert!(matches!(&*operation.state(), State::Queued(_)));
    while operation.outcome().is_none() {
        std::thread::sleep(Duration::from_millis(1));
        poll(&operation);
    }
    assert!(matches!(operation.outcome(), Some(Outcome::Succeeded)));
}

#[test]
fn a_transfer_that_cannot_begin_is_a_failure_when_the_others_have_ended() {
    let operation = operation(queued(vec![
        Box::new(|| Ok(steps(2))),
        Box::new(|| Err(Error::new(Kind::NoSpace, "no space left"))),
        Box::new(|| panic!("the one before failed")),
    ]));
    let Some(Outcome::Failed(error)) = operation.wait(None) else {
        panic!("one transfer has failed to begin");
    };
    assert_eq!(error.kind(), Kind::NoSpace);
}

#[test]
fn cancelling_stops_a_queued_operation_and_cannot_undo_a_finished_one() {
    let queued = operation(queued(vec![Box::new(|| panic!("it was cancelled"))]));
    assert_eq!(queued.cancel(), H5VL_REQUEST_STATUS_CANCELED);
    assert!(matches!(queued.wait(None), Some(Outcome::Cancelled)));

    let moving = operation(running(vec![steps(1)]));
    assert_eq!(moving.cancel(), H5VL_REQUEST_STATUS_CANCELED);

    let file = file();
    let finished = operation(running(vec![write(file.path(), b"x")]));
    finished.wait_if_possible();
    assert_eq!(finished.cancel(), H5VL_REQUEST_STATUS_SUCCEED);

    let closing = operation(deferred(Vec::new(), Box::new(|| Ok(()))));
    assert_eq!(closing.cancel(), H5VL_REQUEST_STATUS_CANT_CANCEL);
}

#[test]
fn each_notification_is_called_once_before_or_after_the_end() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn count(_: *mut c_void, status: H5VL_request_status_t) -> i32 {
        assert_eq!(status, H5VL_REQUEST_STATUS_SUCCEED);
        CALLS.fetch_add(1, Relaxed);
        0
    }
    let operation = operation(running(vec![steps(1)]));
    // SAFETY: the function needs no context.
    unsafe { operation.notify(Some(count), std::ptr::null_mut()) };
    assert_eq!(CALLS.load(Relaxed), 0);
    operation.wait_if_possible();
    operation.wait_if_possible();
    assert_eq!(CALLS.load(Relaxed), 1);
    // SAFETY: as above.
    unsafe { operation.notify(Some(count), std::ptr::null_mut()) };
    assert_eq!(CALLS.load(Relaxed), 2);
}
