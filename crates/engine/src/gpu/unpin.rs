//! When pinned pages may be let go.
//!
//! Unpinning waits until the GPU has done all work queued so far (measured on an H200 with driver
//! 580: 20 ms while a copy of 20 ms ran on another stream). A stream that is held until a request
//! is finished would make that wait endless, if the request itself had to unpin pages first. So
//! pages are never unpinned while a stream is held: they are kept, and let go after the last hold
//! has ended.

use std::sync::{Condvar, Mutex, MutexGuard};

use super::pages::Pages;

struct State {
    /// Streams that wait for a request at present.
    holds: usize,
    kept: Vec<Pages>,
    /// A thread is unpinning. No stream may be held meanwhile.
    unpinning: bool,
}

static STATE: Mutex<State> = Mutex::new(State {
    holds: 0,
    kept: Vec::new(),
    unpinning: false,
});
static UNPINNED: Condvar = Condvar::new();

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Lets pages go, now or when no stream is held. No copy out of them is under way. May wait for
/// the GPU, so not for threads of the driver.
pub(super) fn release(pages: Pages) {
    state().kept.push(pages);
    unpin_kept();
}

/// Unpins what is kept, unless a stream is held or another thread does so already.
fn unpin_kept() {
    let mut now = state();
    while now.holds == 0 && !now.unpinning && !now.kept.is_empty() {
        let kept = std::mem::take(&mut now.kept);
        now.unpinning = true;
        drop(now);
        kept.into_iter().for_each(Pages::unpin);
        now = state();
        now.unpinning = false;
        UNPINNED.notify_all();
    }
}

/// Bytes that are pinned only because a stream is held.
pub(crate) fn kept_bytes() -> u64 {
    state().kept.iter().map(|p| p.bytes() as u64).sum()
}

/// A stream being held. While one exists, no pages are unpinned.
pub(crate) struct Hold(());

impl Hold {
    /// To be made before the stream is told to wait. Waits for an unpinning under way.
    pub fn new() -> Hold {
        let mut now = state();
        while now.unpinning {
            now = UNPINNED.wait(now).unwrap_or_else(|e| e.into_inner());
        }
        now.holds += 1;
        Hold(())
    }
}

impl Drop for Hold {
    /// To be dropped after the stream was told to go on; on any thread, also one of the driver.
    fn drop(&mut self) {
        let mut now = state();
        now.holds -= 1;
        if now.holds == 0 && !now.kept.is_empty() {
            drop(now);
            // A thread of its own, since this one must not wait for the GPU. If there is none to
            // be had, the pages stay until the next release.
            let _ = std::thread::Builder::new()
                .name("penstock-unpin".into())
                .spawn(unpin_kept);
        }
    }
}
