//! When pinned pages may be unpinned, and idle GPU memory freed.
//!
//! Unpinning waits until the GPU has done all work queued before, and other CUDA calls of the
//! process wait meanwhile: 20 ms on an H200 with driver 580 while a copy of 20 ms ran on another
//! stream. If a stream waits for a request, that wait would never end, since the request needs CUDA
//! calls to finish. So pages are kept while any stream waits for a request. They are unpinned
//! together with the next pages that are released when no stream waits. No thread unpins them at an
//! unexpected moment.
//!
//! Idle GPU memory is freed under the same rule. `cuMemFreeAsync` did not wait for other streams on an H100
//! with driver 580, but CUDA does not document that; `cuMemFree` waits as unpinning does.

use std::sync::{Condvar, Mutex, MutexGuard};

use super::pages::Pages;
use crate::sync::Recover;

struct UnpinState {
    /// Streams that wait for a request now.
    stream_waits: usize,
    kept: Vec<Pages>,
    /// Whether a thread is unpinning. No stream may begin to wait meanwhile.
    unpinning: bool,
    /// Whether a thread is freeing idle GPU memory. It unpins nothing, but otherwise the rule is
    /// that of `unpinning`.
    freeing: bool,
}

static STATE: Mutex<UnpinState> = Mutex::new(UnpinState {
    stream_waits: 0,
    kept: Vec::new(),
    unpinning: false,
    freeing: false,
});
static CHANGED: Condvar = Condvar::new();

fn state() -> MutexGuard<'static, UnpinState> {
    STATE.lock().recover()
}

/// Locks the state when no other thread is busy in this way.
fn state_without(is_busy: impl Fn(&UnpinState) -> bool) -> MutexGuard<'static, UnpinState> {
    let waited = CHANGED.wait_while(state(), |now| is_busy(now));
    waited.recover()
}

/// Unpins these pages and those that were kept, or keeps them while a stream waits for a request or
/// another thread unpins. No copy of them is in progress. May wait for the GPU.
pub(super) fn release(pages: Pages) {
    let mut now = state_without(|now| now.freeing);
    now.kept.push(pages);
    while now.stream_waits == 0 && !now.unpinning && !now.kept.is_empty() {
        let kept = std::mem::take(&mut now.kept);
        now.unpinning = true;
        drop(now);
        kept.into_iter().for_each(Pages::unpin);
        now = state();
        now.unpinning = false;
        CHANGED.notify_all();
    }
}

/// Calls `free` unless a stream waits for a request or another thread unpins. Returns whether it
/// was called. No stream begins to wait meanwhile. No lock is held.
pub(super) fn free_unless_stream_waits(free: impl FnOnce()) -> bool {
    let mut now = state();
    if now.stream_waits > 0 || now.unpinning || now.freeing {
        return false;
    }
    now.freeing = true;
    drop(now);
    free();
    state().freeing = false;
    CHANGED.notify_all();
    true
}

/// Bytes that stay pinned only because a stream waits for a request.
pub(crate) fn kept_bytes() -> u64 {
    state().kept.iter().map(|p| p.bytes() as u64).sum()
}

/// Returns whether a stream waits for a request now.
pub fn any_stream_waits() -> bool {
    state().stream_waits > 0
}

/// A stream that waits for a request. While one exists, no pages are unpinned and no idle GPU
/// memory is freed.
pub(crate) struct StreamWait(());

impl StreamWait {
    /// Must be created before the wait is queued on the stream. Waits for a thread that unpins or
    /// frees.
    pub(crate) fn new() -> StreamWait {
        state_without(|now| now.unpinning || now.freeing).stream_waits += 1;
        StreamWait(())
    }
}

impl Drop for StreamWait {
    /// Runs after the stream may continue, on any thread, even one of the driver.
    fn drop(&mut self) {
        state().stream_waits -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn no_stream_begins_to_wait_while_idle_memory_is_freed() {
        let (send, begun) = channel();
        let is_called = free_unless_stream_waits(|| {
            thread::spawn(move || {
                let wait = StreamWait::new();
                send.send(()).unwrap();
                drop(wait);
            });
            let early = begun.recv_timeout(Duration::from_millis(100));
            assert!(early.is_err());
        });
        assert!(is_called);
        begun.recv_timeout(Duration::from_secs(60)).unwrap();
        let wait = StreamWait::new();
        assert!(!free_unless_stream_waits(|| panic!("a stream waits")));
        drop(wait);
    }
}
