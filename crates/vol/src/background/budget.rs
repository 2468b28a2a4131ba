//! How much memory the copies of pending operations may take.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::{cmp, fs};

/// Bytes that are taken at present, against limits that the takers name: files may be opened with
/// different ones.
#[derive(Debug, Default)]
pub struct Budget {
    taken: AtomicU64,
}

/// What a taker is told.
#[derive(Debug)]
pub enum Answer<'a> {
    Taken(Share<'a>),
    /// There will be room when others have given theirs back.
    Wait,
    /// Alone it is more than the limit.
    TooLarge,
}

/// Bytes that are taken until this is dropped, by any thread.
#[derive(Debug)]
pub struct Share<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Budget {
    pub const fn new() -> Budget {
        Budget {
            taken: AtomicU64::new(0),
        }
    }

    /// Takes `bytes` if all that is taken then is no more than `limit`.
    pub fn take(&self, bytes: u64, limit: u64) -> Answer<'_> {
        if bytes > limit {
            return Answer::TooLarge;
        }
        let more = |taken: u64| taken.checked_add(bytes).filter(|all| *all <= limit);
        match self.taken.fetch_update(Relaxed, Relaxed, more) {
            Ok(_) => Answer::Taken(Share {
                budget: self,
                bytes,
            }),
            Err(_) => Answer::Wait,
        }
    }

    #[cfg(test)]
    fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.bytes, Relaxed);
    }
}

/// The limit where none is named: a quarter of the memory that is available now.
pub fn usual_limit() -> u64 {
    const LEAST: u64 = 64 << 20;
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    cmp::max(available(&text).unwrap_or(0) / 4, LEAST)
}

/// `MemAvailable` of /proc/meminfo, in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn more_than_the_limit_is_never_had_and_what_fits_later_can_be_waited_for() {
        let budget = Budget::new();
        assert!(matches!(budget.take(101, 100), Answer::TooLarge));
        let Answer::Taken(share) = budget.take(60, 100) else {
            panic!("60 of 100 are free");
        };
        assert!(matches!(budget.take(41, 100), Answer::Wait));
        assert!(matches!(budget.take(40, 100), Answer::Taken(_)));
        drop(share);
        assert!(matches!(budget.take(100, 100), Answer::Taken(_)));
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn sizes_beyond_all_numbers_do_not_wrap_around() {
        let budget = Budget::new();
        let Answer::Taken(_share) = budget.take(u64::MAX - 1, u64::MAX) else {
            panic!("nothing is taken yet");
        };
        assert!(matches!(budget.take(2, u64::MAX), Answer::Wait));
    }

    #[test]
    fn the_limit_is_kept_by_threads_that_take_at_the_same_time() {
        let budget = Budget::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let answer = budget.take(3, 10);
                        assert!(budget.taken() <= 10);
                        drop(answer);
                    }
                });
            }
        });
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn the_available_memory_is_read_out_of_what_the_kernel_tells() {
        let text = "MemTotal:       100 kB\nMemFree:  7 kB\nMemAvailable:   24 kB\n";
        assert_eq!(available(text), Some(24 << 10));
        assert_eq!(available("MemTotal: 1 kB\n"), None);
        assert!(usual_limit() >= 64 << 20);
    }

    proptest! {
        #[test]
        fn what_is_taken_is_the_sum_of_the_shares(
            steps in prop::collection::vec((any::<bool>(), 0u64..50), 1..200)
        ) {
            let budget = Budget::new();
            let mut shares: Vec<(u64, Share<'_>)> = Vec::new();
            for (gives_back, bytes) in steps {
                if gives_back && !shares.is_empty() {
                    let at = bytes as usize % shares.len();
                    shares.swap_remove(at);
                } else {
                    let held: u64 = shares.iter().map(|(bytes, _)| bytes).sum();
                    match budget.take(bytes, 100) {
                        Answer::Taken(share) => shares.push((bytes, share)),
                        Answer::Wait => prop_assert!(held + bytes > 100),
                        Answer::TooLarge => prop_assert!(bytes > 100),
                    }
                }
                let held: u64 = shares.iter().map(|(bytes, _)| bytes).sum();
                prop_assert_eq!(budget.taken(), held);
                prop_assert!(held <= 100);
            }
        }
    }
}
