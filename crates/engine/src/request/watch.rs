//! Finds requests whose stream has failed before them: such a stream never starts its request.
//!
//! One thread polls a mark on the stream of each request that waits for one. Where that thread cannot
//! be started, the threads that wait for requests poll the marks.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::Duration;

use super::launch::Launch;
use crate::gpu::stream::Mark;
use crate::sync::Recover;
use crate::threads;

struct Watched {
    launch: Weak<Launch>,
    mark: Mark,
}

struct Watch {
    watched: Vec<Watched>,
    /// The number of threads that poll marks, which they have taken out of the list.
    polling: usize,
    has_thread: bool,
}

static WATCH: Mutex<Watch> = Mutex::new(Watch {
    watched: Vec::new(),
    polling: 0,
    has_thread: false,
});
static ARRIVED: Condvar = Condvar::new();

/// The time between two polls.
const INTERVAL: Duration = Duration::from_millis(50);

fn lock() -> MutexGuard<'static, Watch> {
    WATCH.lock().recover()
}

/// Abandons the launch if its stream fails before the mark, and so before the launch begins.
pub(super) fn watch(launch: &Arc<Launch>, mark: Mark) {
    let mut watch = lock();
    watch.watched.push(Watched {
        launch: Arc::downgrade(launch),
        mark,
    });
    if !watch.has_thread {
        watch.has_thread = threads::start("penstock-watch", serve).is_ok();
    }
    ARRIVED.notify_one();
}

/// Polls the marks if no thread does. Returns the time after which the caller must poll again, or
/// `None` if it need not.
pub(super) fn poll() -> Option<Duration> {
    let watch = lock();
    if watch.has_thread || (watch.watched.is_empty() && watch.polling == 0) {
        return None;
    }
    poll_all(watch);
    Some(INTERVAL)
}

fn serve() {
    loop {
        std::thread::sleep(INTERVAL);
        let mut watch = lock();
        while watch.watched.is_empty() {
            watch = ARRIVED.wait(watch).recover();
        }
        poll_all(watch);
    }
}

/// Polls every mark once, without the lock, since this calls the driver.
fn poll_all(mut watch: MutexGuard<'_, Watch>) {
    let mut watched = std::mem::take(&mut watch.watched);
    watch.polling += 1;
    drop(watch);
    watched.retain(Watched::still_waits);
    let mut watch = lock();
    watch.polling -= 1;
    watch.watched.extend(watched);
}

impl Watched {
    fn still_waits(&self) -> bool {
        let Some(launch) = self.launch.upgrade() else {
            return false;
        };
        if launch.has_begun() {
            return false;
        }
        match self.mark.reached() {
            Ok(_) => true,
            Err(error) => {
                launch.abandon(error);
                false
            }
        }
    }
}
