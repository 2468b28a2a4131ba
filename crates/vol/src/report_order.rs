//! The order in which event sets see the end of their operations.
//!
//! HDF5 (up to 2.2.0 at least) keeps the operations of an event set in a list. When the last
//! operation leaves the list before an earlier one, HDF5 does not update the end of the list, and
//! loses each operation that the application adds later. Therefore a request does not report its
//! end while an earlier request of the same set reports that it is in progress.
//!
//! HDF5 does not pass the set of a request. But on each query of a set, HDF5 queries its requests
//! one after the other, in the order of their creation. The first request of a set may always
//! report its end, which matters to an application that alternates between sets.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use penstock_engine::Recover;

/// The position of one request in the order of reports.
pub(crate) struct ReportOrder {
    /// Number of the request. Later requests have higher numbers.
    number: u64,
    /// Time of the last query, in counts of [`LastReport`]; 0 without one.
    queried: AtomicU64,
}

struct LastReport {
    /// Number of requests created and of queries so far, used as a clock.
    count: u64,
    /// Number and time of the last request that reported to be in progress.
    in_progress: Option<(u64, u64)>,
}

static LAST: Mutex<LastReport> = Mutex::new(LastReport {
    count: 0,
    in_progress: None,
});

fn last() -> MutexGuard<'static, LastReport> {
    LAST.lock().recover()
}

impl LastReport {
    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }
}

impl ReportOrder {
    pub(crate) fn new() -> ReportOrder {
        ReportOrder {
            number: last().next(),
            queried: AtomicU64::new(0),
        }
    }

    /// Returns whether the request, which HDF5 is querying, may report its end. It may not if an
    /// older request, possibly of the same set, has reported progress since the previous query of
    /// this one.
    pub(crate) fn may_report_end(&self) -> bool {
        let mut last = last();
        let now = last.next();
        let before = self.queried.swap(now, Relaxed);
        !last
            .in_progress
            .is_some_and(|(number, when)| number < self.number && when > before)
    }

    /// Records that the request has reported that it is in progress.
    pub(crate) fn reports_in_progress(&self) {
        last().in_progress = Some((self.number, self.queried.load(Relaxed)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queries the requests of an event set in HDF5's order, and removes those that report their
    /// end.
    fn query(set: &mut Vec<(ReportOrder, bool)>) {
        let mut is_going_on = false;
        set.retain(|(order, is_over)| {
            let ends = order.may_report_end() && *is_over;
            if !ends {
                order.reports_in_progress();
            }
            assert!(!(ends && is_going_on), "one ends before an older one");
            is_going_on |= !ends;
            !ends
        });
    }

    fn set(ends: &[bool]) -> Vec<(ReportOrder, bool)> {
        ends.iter()
            .map(|is_over| (ReportOrder::new(), *is_over))
            .collect()
    }

    // One test, because the last reports are a global of the process.
    #[test]
    fn requests_of_a_set_end_in_their_order_and_those_of_another_do_not_wait() {
        let mut one = set(&[true, false, true, true, false, true]);
        query(&mut one);
        assert_eq!(one.len(), 5);
        query(&mut one);
        assert_eq!(one.len(), 5);

        let mut other = set(&[true, true]);
        query(&mut one);
        query(&mut other);
        query(&mut other);
        assert!(other.is_empty());

        one[0].1 = true;
        query(&mut one);
        assert_eq!(one.len(), 2);
        one[0].1 = true;
        query(&mut one);
        assert!(one.is_empty());
    }
}
