//! Requests that come after a stream which has failed: the stream never starts them, so somebody
//! has to notice. One thread looks at the streams of all such requests, now and then.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::Duration;

use super::Launch;
use crate::gpu::Context;
use crate::gpu::stream::Stream;

struct Watched {
    launch: Weak<Launch>,
    stream: Stream,
    context: Arc<Context>,
}

#[derive(Default)]
struct Watch {
    watched: Vec<Watched>,
    running: bool,
}

static WATCH: Mutex<Watch> = Mutex::new(Watch {
    watched: Vec::new(),
    running: false,
});
static ARRIVED: Condvar = Condvar::new();

/// How often the streams are looked at.
const INTERVAL: Duration = Duration::from_millis(50);

fn lock() -> MutexGuard<'static, Watch> {
    WATCH.lock().unwrap_or_else(|e| e.into_inner())
}

/// Abandons the launch if its stream fails before it begins.
pub(super) fn watch(launch: &Arc<Launch>, stream: Stream, context: Arc<Context>) {
    let mut watch = lock();
    watch.watched.push(Watched {
        launch: Arc::downgrade(launch),
        stream,
        context,
    });
    if !watch.running {
        let thread = std::thread::Builder::new().name("penstock-watch".into());
        // Without a thread only a failed stream goes unnoticed; the next request tries again.
        watch.running = thread.spawn(serve).is_ok();
    }
    ARRIVED.notify_one();
}

fn serve() {
    loop {
        std::thread::sleep(INTERVAL);
        let mut watch = lock();
        while watch.watched.is_empty() {
            watch = ARRIVED.wait(watch).unwrap_or_else(|e| e.into_inner());
        }
        let watched = std::mem::take(&mut watch.watched);
        drop(watch);
        // Without the lock, as the driver is asked.
        let waiting = watched.into_iter().filter(Watched::still_waits);
        let waiting: Vec<Watched> = waiting.collect();
        lock().watched.extend(waiting);
    }
}

impl Watched {
    fn still_waits(&self) -> bool {
        let Some(launch) = self.launch.upgrade() else {
            return false;
        };
        if launch.has_begun() {
            return false;
        }
        match self.stream.broken(&self.context) {
            None => true,
            Some(error) => {
                launch.abandon(error);
                false
            }
        }
    }
}
