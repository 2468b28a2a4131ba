//! Operations made of requests that are the engine's, on files and host memory.

use std::path::Path;
use std::sync::atomic::AtomicUsize;

use penstock_engine::Extent;
use penstock_engine::file::position::Operation as Direction;
use penstock_engine::file::{Access, File};
use penstock_engine::options::Options;
use penstock_engine::request::{self, Duty, DutyOrder, Order, Remaining, Share};

use super::super::delay::begin_after;
use super::*;

const CALL: &CStr = c"H5Dwrite_async";

fn operation(work: Work) -> Arc<Operation> {
    Operation::new(CALL, None, work)
}

fn attend(operation: &Arc<Operation>) {
    Arc::clone(operation).go_on(&|| Some(Duration::ZERO), Effort::Begun);
}

fn moving(requests: Vec<Request>) -> Work {
    Work::Moving(Moving {
        begun: Begun {
            requests: requests.into_iter().map(Arc::new).collect(),
            failed: None,
        },
        loans: Vec::new(),
    })
}

fn queued(begin: Box<dyn FnOnce() -> Begun>) -> Work {
    Work::Queued(Queued {
        begin,
        loans: Vec::new(),
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
    // SAFETY: the bytes live for ever, and nobody writes to them.
    unsafe { request::submit(&file, order, None, None).unwrap() }
}

fn file() -> tempfile::NamedTempFile {
    tempfile::NamedTempFile::new().unwrap()
}

const FAILS: usize = usize::MAX;

/// A request that ends only after so many turns, or fails in the first.
struct Turns(AtomicUsize);

impl Duty for Turns {
    fn serve(&self, _share: &Share<'_>) -> Result<()> {
        Ok(())
    }

    fn turn(&self, share: &Share<'_>) -> Result<Remaining> {
        if self.0.load(Relaxed) == FAILS {
            return Err(Error::new(Kind::NoSpace, "no space left"));
        }
        if self.0.fetch_sub(1, Relaxed) == 1 {
            return Ok(Remaining::Nothing);
        }
        share.ask_turn();
        Ok(Remaining::Turns)
    }

    fn named(&self, error: Error) -> Error {
        error
    }

    fn operation(&self) -> Direction {
        Direction::Write
    }
}

fn turns(count: usize) -> Request {
    let order = DutyOrder {
        duty: Box::new(Turns(AtomicUsize::new(count))),
        path: "turns".into(),
        workers: 1,
        context: None,
        asked: penstock_engine::options::RouteName::Host,
        block: 0,
        has_turns: true,
        moved: 0,
        moved_by: penstock_engine::report::Path::Hdf5,
        note: None,
    };
    // SAFETY: the duty touches no memory.
    unsafe { request::submit_duty(order, None, None).unwrap() }
}

#[test]
fn an_operation_ends_when_its_bytes_are_in_the_file() {
    let file = file();
    let operation = operation(moving(vec![write(file.path(), b"penstock")]));
    assert!(matches!(operation.wait(None), Some(Outcome::Succeeded)));
    assert_eq!(std::fs::read(file.path()).unwrap(), b"penstock");
    assert!(operation.times().1 > 0);
}

#[test]
fn asking_again_and_again_without_waiting_takes_the_turns_and_finds_the_end() {
    let operation = operation(moving(vec![turns(5), turns(1)]));
    let end = Instant::now() + Duration::from_secs(20);
    while operation.wait(Some(Duration::ZERO)).is_none() {
        assert!(Instant::now() < end, "polling never finds the end");
    }
}

#[test]
fn a_failure_is_kept_and_told_to_everybody_who_asks() {
    let operation = operation(moving(vec![turns(1), turns(FAILS), turns(1)]));
    for _ in 0..2 {
        match operation.wait(None) {
            Some(Outcome::Failed(error)) => assert_eq!(error.kind(), Kind::NoSpace),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_failure_that_nobody_waits_for_is_told_once_later() {
    let later = Arc::new(Failures::default());
    let work = moving(vec![turns(FAILS)]);
    Operation::new(CALL, Some(Arc::clone(&later)), work).settle();
    assert!(later.take().is_err());
    assert!(later.take().is_ok());
}

#[test]
fn what_comes_after_others_is_done_when_they_are_finished_and_not_before() {
    let first = operation(moving(vec![turns(3)]));
    let done = Arc::new(AtomicBool::new(false));
    let act = {
        let (first, done) = (Arc::clone(&first), Arc::clone(&done));
        Box::new(move || {
            done.store(first.outcome().is_some(), Relaxed);
            Ok(())
        })
    };
    let last = operation(Work::After(vec![first], act));
    assert!(matches!(last.wait(None), Some(Outcome::Succeeded)));
    assert!(done.load(Relaxed));
}

#[test]
fn what_is_queued_begins_when_it_is_waited_for_and_not_when_turns_are_taken() {
    let begun = Arc::new(AtomicBool::new(false));
    let begin = {
        let begun = Arc::clone(&begun);
        Box::new(move || {
            begun.store(true, Relaxed);
            Begun::default()
        })
    };
    let operation = operation(queued(begin));
    attend(&operation);
    assert!(!begun.load(Relaxed));
    operation.settle();
    assert!(begun.load(Relaxed));
}

#[test]
fn what_is_queued_for_some_time_begins_by_itself_and_then_takes_its_turns() {
    let begin = Box::new(|| Begun {
        requests: vec![Arc::new(turns(1))],
        failed: None,
    });
    let operation = operation(queued(begin));
    begin_after(&operation, Duration::from_millis(20));
    attend(&operation);
    assert!(matches!(&*operation.work(), Work::Queued(_)));
    while operation.outcome().is_none() {
        std::thread::sleep(Duration::from_millis(1));
        attend(&operation);
    }
    assert!(matches!(operation.outcome(), Some(Outcome::Succeeded)));
}

#[test]
fn what_fails_to_begin_is_a_failure_when_the_rest_has_ended() {
    let begin = Box::new(|| Begun {
        requests: vec![Arc::new(turns(2))],
        failed: Some(Error::new(Kind::NoSpace, "no space left")),
    });
    let operation = operation(queued(begin));
    let Some(Outcome::Failed(error)) = operation.wait(None) else {
        panic!("a part of it has failed");
    };
    assert_eq!(error.kind(), Kind::NoSpace);
}

#[test]
fn cancelling_stops_what_is_queued_and_cannot_take_back_what_is_done() {
    let never = Box::new(|| panic!("it was cancelled"));
    let queued = operation(queued(never));
    assert_eq!(queued.cancel(), H5VL_REQUEST_STATUS_CANCELED);
    assert!(matches!(queued.wait(None), Some(Outcome::Cancelled)));

    let running = operation(moving(vec![turns(1)]));
    assert_eq!(running.cancel(), H5VL_REQUEST_STATUS_CANCELED);

    let file = file();
    let finished = operation(moving(vec![write(file.path(), b"x")]));
    finished.settle();
    assert_eq!(finished.cancel(), H5VL_REQUEST_STATUS_SUCCEED);

    let closing = operation(Work::After(Vec::new(), Box::new(|| Ok(()))));
    assert_eq!(closing.cancel(), H5VL_REQUEST_STATUS_CANT_CANCEL);
}

#[test]
fn the_end_is_told_once_to_whoever_asked_before_or_asks_afterwards() {
    static TOLD: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn tell(_: *mut c_void, status: H5VL_request_status_t) -> i32 {
        assert_eq!(status, H5VL_REQUEST_STATUS_SUCCEED);
        TOLD.fetch_add(1, Relaxed);
        0
    }
    let operation = operation(moving(vec![turns(1)]));
    // SAFETY: the function needs no context.
    unsafe { operation.notify(Some(tell), std::ptr::null_mut()) };
    assert_eq!(TOLD.load(Relaxed), 0);
    operation.settle();
    operation.settle();
    assert_eq!(TOLD.load(Relaxed), 1);
    // SAFETY: as above.
    unsafe { operation.notify(Some(tell), std::ptr::null_mut()) };
    assert_eq!(TOLD.load(Relaxed), 2);
}
