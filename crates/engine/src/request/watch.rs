//! Requests that come after a stream which has failed: the stream never starts them, so somebody
//! has to notice. One thread looks at marks on the streams of all such requests, now and then; where
//! it cannot be started, those who wait for requests do.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::Duration;

use super::launch::Launch;
use crate::gpu::stream::Mark;

struct Watched {
    launch: Weak<Launch>,
    mark: Mark,
}

struct Watch {
    watched: Vec<Watched>,
    /// How many threads look at marks that they have taken out of the list meanwhile.
    lookers: usize,
    running: bool,
}

static WATCH: Mutex<Watch> = Mutex::new(Watch {
    watched: Vec::new(),
    lookers: 0,
    running: false,
});
static ARRIVED: Condvar = Condvar::new();

/// How often the marks are looked at.
const INTERVAL: Duration = Duration::from_millis(50);

fn lock() -> MutexGuard<'static, Watch> {
    WATCH.lock().unwrap_or_else(|e| e.into_inner())
}

/// Abandons the launch if the stream that the mark is on fails before the launch begins.
pub(super) fn watch(launch: &Arc<Launch>, mark: Mark) {
    let mut watch = lock();
    watch.watched.push(Watched {
        launch: Arc::downgrade(launch),
        mark,
    });
    if !watch.running {
        let thread = std::thread::Builder::new().name("penstock-watch".into());
        watch.running = thread.spawn(serve).is_ok();
    }
    ARRIVED.notify_one();
}

/// Looks at the marks where no thread does. Then it is to be called again after the time given.
pub(super) fn attend() -> Option<Duration> {
    let watch = lock();
    if watch.running || (watch.watched.is_empty() && watch.lookers == 0) {
        return None;
    }
    look(watch);
    Some(INTERVAL)
}

fn serve() {
    loop {
        std::thread::sleep(INTERVAL);
        let mut watch = lock();
        while watch.watched.is_empty() {
            watch = ARRIVED.wait(watch).unwrap_or_else(|e| e.into_inner());
        }
        look(watch);
    }
}

/// Looks at all marks once, without the lock, as the driver is asked.
fn look(mut watch: MutexGuard<'_, Watch>) {
    let mut watched = std::mem::take(&mut watch.watched);
    watch.lookers += 1;
    drop(watch);
    watched.retain(Watched::still_waits);
    let mut watch = lock();
    watch.lookers -= 1;
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
