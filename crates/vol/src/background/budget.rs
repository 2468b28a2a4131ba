//! Limits the memory of copies for pending operations.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The number of reserved bytes. Each reservation names its limit, because files may have different limits.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    reserved: AtomicU64,
}

/// Result of a reservation.
#[derive(Debug)]
pub(crate) enum Reserved<'a> {
    Granted(Reservation<'a>),
    /// The reservation fits only after others have ended.
    Wait,
    /// The reservation alone exceeds the limit.
    TooLarge,
}

/// Reserved bytes. Dropping the value on any thread ends the reservation.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Budget {
    pub(crate) const fn new() -> Budget {
        Budget {
            reserved: AtomicU64::new(0),
        }
    }

    /// Reserves `bytes` if the sum of all reservations stays within `limit`.
    pub(crate) fn reserve(&self, bytes: u64, limit: u64) -> Reserved<'_> {
        if bytes > limit {
            return Reserved::TooLarge;
        }
        let more = |reserved: u64| reserved.checked_add(bytes).filter(|all| *all <= limit);
        match self.reserved.fetch_update(Relaxed, Relaxed, more) {
            Ok(_) => Reserved::Granted(Reservation {
                budget: self,
                bytes,
            }),
            Err(_) => Reserved::Wait,
        }
    }

    #[cfg(test)]
    fn reserved(&self) -> u64 {
        self.reserved.load(Relaxed)
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.budget.reserved.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reservations_never_exceed_the_limit_and_those_that_fit_later_may_wait() {
        let budget = Budget::new();
        assert!(matches!(budget.reserve(101, 100), Reserved::TooLarge));
        let Reserved::Granted(reservation) = budget.reserve(60, 100) else {
            panic!("60 of 100 are free");
        };
        assert!(matches!(budget.reserve(41, 100), Reserved::Wait));
        assert!(matches!(budget.reserve(40, 100), Reserved::Granted(_)));
        drop(reservation);
        assert!(matches!(budget.reserve(100, 100), Reserved::Granted(_)));
        assert_eq!(budget.reserved(), 0);
    }

    #[test]
    fn sums_beyond_64_bits_do_not_wrap_around() {
        let budget = Budget::new();
        let Reserved::Granted(_share) = budget.reserve(u64::MAX - 1, u64::MAX) else {
            panic!("nothing is reserved yet");
        };
        assert!(matches!(budget.reserve(2, u64::MAX), Reserved::Wait));
    }

    #[test]
    fn the_limit_holds_for_threads_that_reserve_at_the_same_time() {
        let budget = Budget::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let answer = budget.reserve(3, 10);
                        assert!(budget.reserved() <= 10);
                        drop(answer);
                    }
                });
            }
        });
        assert_eq!(budget.reserved(), 0);
    }

    proptest! {
        #[test]
        fn what_is_reserved_is_the_sum_of_the_shares(
            steps in prop::collection::vec((any::<bool>(), 0u64..50), 1..200)
        ) {
            let budget = Budget::new();
            let mut reservations: Vec<(u64, Reservation<'_>)> = Vec::new();
            for (ends, bytes) in steps {
                if ends && !reservations.is_empty() {
                    let at = bytes as usize % reservations.len();
                    reservations.swap_remove(at);
                } else {
                    let held: u64 = reservations.iter().map(|(bytes, _)| bytes).sum();
                    match budget.reserve(bytes, 100) {
                        Reserved::Granted(reservation) => reservations.push((bytes, reservation)),
                        Reserved::Wait => prop_assert!(held + bytes > 100),
                        Reserved::TooLarge => prop_assert!(bytes > 100),
                    }
                }
                let held: u64 = reservations.iter().map(|(bytes, _)| bytes).sum();
                prop_assert_eq!(budget.reserved(), held);
                prop_assert!(held <= 100);
            }
        }
    }
}
