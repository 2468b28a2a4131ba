//! Calls without the GIL, after which the threads that read take the GIL in turns without sleeping.
//!
//! A thread that finds the GIL taken sleeps until it is woken, which takes longer than Python needs
//! from one small read to the next: several threads would then read no more than one thread does. So a
//! thread first waits awake while another one has the *turn*. A thread takes the turn before the
//! GIL, and passes it on after it has released the GIL for its next read. The turn is only a hint:
//! a thread may release the GIL elsewhere, and keep the turn. It is waited for only while it is
//! younger than [`LONGEST_TURN`].

use std::cell::Cell;
use std::hint::spin_loop;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::available_parallelism;
use std::time::Instant;

use pyo3::prelude::*;

/// In nanoseconds; more than Python needs from one small read to the next.
const LONGEST_TURN: u64 = 50_000;

/// The most nanoseconds that a thread waits awake after a call.
const LONGEST_WAIT: u64 = 400_000;

/// Pauses of the processor between two looks at the turn, whose holder writes there.
const PAUSES: u32 = 8;

/// The most threads that wait awake: the holder of the turn and running calls need processors too.
static MOST_AWAKE: LazyLock<usize> =
    LazyLock::new(|| available_parallelism().map_or(1, |cores| cores.get().div_ceil(2)));

/// Threads that take the turn.
static AWAKE: AtomicUsize = AtomicUsize::new(0);

/// When the turn began, in nanoseconds since [`START`]; 0 if no thread has it.
static TURN: AtomicU64 = AtomicU64::new(0);

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

thread_local! {
    /// The last turn of this thread.
    static OWN: Cell<u64> = const { Cell::new(0) };
}

/// Calls `call` without the GIL.
pub(crate) fn without<R: Send>(py: Python<'_>, call: impl FnOnce() -> R + Send) -> R {
    py.detach(|| {
        pass();
        let result = call();
        take();
        result
    })
}

/// Passes the turn on, if this thread still has it.
fn pass() {
    // Another thread may have the turn already.
    let _ = TURN.compare_exchange(OWN.get(), 0, Ordering::Relaxed, Ordering::Relaxed);
}

/// Takes the turn: at once if no other thread is to be waited for.
fn take() {
    let may_wait = AWAKE.fetch_add(1, Ordering::Relaxed) < *MOST_AWAKE;
    let begin = now();
    let mut time = begin;
    loop {
        let turn = TURN.load(Ordering::Relaxed);
        let is_awaited = turn != 0
            && may_wait
            && time.saturating_sub(turn) < LONGEST_TURN
            && time - begin < LONGEST_WAIT;
        if !is_awaited
            && TURN
                .compare_exchange(turn, time, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            break;
        }
        (0..PAUSES).for_each(|_| spin_loop());
        time = now();
    }
    AWAKE.fetch_sub(1, Ordering::Relaxed);
    OWN.set(time);
}

/// Returns the time in nanoseconds, which is not 0.
fn now() -> u64 {
    START.elapsed().as_nanos() as u64 + 1
}
