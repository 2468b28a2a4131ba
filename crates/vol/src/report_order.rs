//! The order in which event sets learn that their operations have ended.
//!
//! HDF5 (up to 2.2.0 at least) keeps the operations of an event set in a list. When the last operation
//! leaves the list before an earlier one, HDF5 does not update the end of the list, and loses each
//! operation that the application adds later. Therefore a request does not report its end while an
//! earlier request of the same set reports that it is in progress.
//!
//! HDF5 does not tell which set a request belongs to. But each time that the application asks a set,
//! HDF5 asks the requests of the set one after the other, in the order of their creation. The first
//! request of a set may always report its end, which matters to an application that alternates between
//! sets.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use penstock_engine::Recover;

/// The position of one request in the order of reports.
pub(crate) struct ReportOrder {
    /// Requests created later have higher numbers.
    number: u64,
    /// The time of the last question, as [`LastReport`] counts. 0 if there was none.
    asked: AtomicU64,
}

struct LastReport {
    /// The number of requests created and of questions asked: a clock.
    count: u64,
    /// The number of the request that was the last to report that it is in progress, and the time.
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
            asked: AtomicU64::new(0),
        }
    }

    /// Whether the request, which HDF5 asks now, may report its end. It may not if an older request,
    /// possibly of the same set, has reported progress since HDF5 asked this one the last time.
    pub(crate) fn may_report_end(&self) -> bool {
        let mut last = last();
        let now = last.next();
        let before = self.asked.swap(now, Relaxed);
        !last
            .in_progress
            .is_some_and(|(number, when)| number < self.number && when > before)
    }

    /// Notes that the request has reported that it is in progress.
    pub(crate) fn reports_in_progress(&self) {
        last().in_progress = Some((self.number, self.asked.load(Relaxed)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks the requests of an event set in HDF5's order, and removes those that report their end.
    fn ask(set: &mut Vec<(ReportOrder, bool)>) {
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

    // This is one test because the last reports are a global of the process.
    #[test]
    fn requests_of_a_set_end_in_their_order_and_those_of_another_do_not_wait() {
        let mut one = set(&[true, false, true, true, false, true]);
        ask(&mut one);
        assert_eq!(one.len(), 5);
        ask(&mut one);
        assert_eq!(one.len(), 5);

        let mut other = set(&[true, true]);
        ask(&mut one);
        ask(&mut other);
        ask(&mut other);
        assert!(other.is_empty());

        one[0].1 = true;
        ask(&mut one);
        assert_eq!(one.len(), 2);
        one[0].1 = true;
        ask(&mut one);
        assert!(one.is_empty());
    }
}
