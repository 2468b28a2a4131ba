//! Delays the start of operations, if the environment requests it. An application may want to use
//! memory and disk alone until then.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::AsyncOperation;
use penstock_engine::Recover;
use penstock_engine::threads;
use penstock_hdf5::transfer::conflicts::Pending;

static WAITING: Mutex<Vec<(Instant, Weak<AsyncOperation>)>> = Mutex::new(Vec::new());
static CHANGED: Condvar = Condvar::new();

/// Begins a queued operation after this time, unless another thread has begun it before. Begins it
/// immediately if the process cannot start a thread for the delay.
pub(crate) fn begin_after(operation: &Arc<AsyncOperation>, delay: Duration) {
    static IS_SERVED: OnceLock<bool> = OnceLock::new();
    let is_served = || threads::start("penstock-delay", serve).is_ok();
    let due = Instant::now().checked_add(delay);
    match due.filter(|_| *IS_SERVED.get_or_init(is_served)) {
        Some(due) => {
            waiting().push((due, Arc::downgrade(operation)));
            CHANGED.notify_one();
        }
        None => operation.begin(),
    }
}

fn waiting() -> MutexGuard<'static, Vec<(Instant, Weak<AsyncOperation>)>> {
    WAITING.lock().recover()
}

fn serve() {
    let mut list = waiting();
    loop {
        let now = Instant::now();
        let due: Vec<_> = list.extract_if(.., |(due, _)| *due <= now).collect();
        if !due.is_empty() {
            drop(list);
            for (_, operation) in due {
                if let Some(operation) = operation.upgrade() {
                    operation.begin();
                }
            }
            list = waiting();
            continue;
        }
        let next = list.iter().map(|(due, _)| *due).min();
        list = match next {
            Some(next) => {
                let left = next.saturating_duration_since(now);
                let woken = CHANGED.wait_timeout(list, left);
                woken.recover().0
            }
            None => CHANGED.wait(list).recover(),
        };
    }
}
