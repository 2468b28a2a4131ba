//! When pinned pages may be let go.
//!
//! Unpinning waits until the GPU has done all work queued so far (measured on an H200 with driver
//! 580: 20 ms while a copy of 20 ms ran on another stream). A stream that is held until a request
//! is finished would make that wait endless, if the request itself had to unpin pages first. So
//! pages are never unpinned while a stream is held: they are kept, and let go after the last hold
//! has ended.

use std::sync::{Mutex, MutexGuard};

use super::pages::Map;

struct Holds {
    /// Streams that wait for a request at present.
    streams: usize,
    kept: Vec<Map>,
}

static HOLDS: Mutex<Holds> = Mutex::new(Holds {
    streams: 0,
    kept: Vec::new(),
});

fn holds() -> MutexGuard<'static, Holds> {
    HOLDS.lock().unwrap_or_else(|e| e.into_inner())
}

/// Lets maps go, now or when no stream is held. No copy out of them is under way.
pub(super) fn release(maps: impl Iterator<Item = Map>) {
    let mut holds = holds();
    if holds.streams > 0 {
        holds.kept.extend(maps);
    } else {
        // With the lock held, so that no stream is held meanwhile.
        maps.for_each(drop);
    }
}

/// Bytes that are pinned only because a stream is held.
pub(super) fn kept_bytes() -> u64 {
    holds().kept.iter().map(|m| m.bytes as u64).sum()
}

/// A stream being held. While one exists, no pages are unpinned.
pub(crate) struct Hold(());

impl Hold {
    /// To be made before the stream is told to wait.
    pub fn new() -> Hold {
        holds().streams += 1;
        Hold(())
    }
}

impl Drop for Hold {
    /// To be dropped after the stream was told to go on.
    fn drop(&mut self) {
        let mut holds = holds();
        holds.streams -= 1;
        if holds.streams == 0 {
            holds.kept.clear();
        }
    }
}
