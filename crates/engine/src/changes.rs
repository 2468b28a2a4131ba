//! Whether the engine may have changed files, for code that keeps copies of bytes of files.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

static BEGUN: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);

/// A time in which the engine may change files. Reads and writes count alike.
#[derive(Debug)]
pub(crate) struct Changing(());

impl Changing {
    pub(crate) fn begin() -> Changing {
        BEGUN.fetch_add(1, SeqCst);
        Changing(())
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        ENDED.fetch_add(1, SeqCst);
    }
}

/// Returns a number that differs between two calls if a request has moved bytes between them; `None`
/// while one may be moving some.
pub fn files_unchanged_since() -> Option<u64> {
    // In this order, equal numbers mean that no change is in progress: each change that has ended
    // has also begun.
    let ended = ENDED.load(SeqCst);
    let begun = BEGUN.load(SeqCst);
    (begun == ended).then_some(begun)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_in_progress_is_reported_and_one_that_has_ended_changes_the_number() {
        let one = Changing::begin();
        assert_eq!(files_unchanged_since(), None);
        drop(one);
        // Other tests of this process make requests at the same time, which end.
        let number = || loop {
            if let Some(number) = files_unchanged_since() {
                return number;
            }
            std::thread::yield_now();
        };
        let before = number();
        drop(Changing::begin());
        assert!(number() > before);
    }
}
