//! The thread that frees the GPU memory that contexts keep, after a while without use. The program
//! may need the memory, and its allocations cannot take it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use super::OwnContext;
use crate::sync::Recover;
use crate::threads;

/// Memory is freed after this time without use, and before twice of it.
const IDLE: Duration = Duration::from_secs(1);

struct Listed {
    contexts: Vec<Arc<OwnContext>>,
    has_thread: bool,
}

static LISTED: Mutex<Listed> = Mutex::new(Listed {
    contexts: Vec::new(),
    has_thread: false,
});
static HAS_MORE: Condvar = Condvar::new();

fn listed() -> MutexGuard<'static, Listed> {
    LISTED.lock().recover()
}

/// Lists a context, whose kept memory the thread frees when it is idle. Returns false if no thread
/// can be started.
pub(super) fn list(context: &Arc<OwnContext>) -> bool {
    let mut listed = listed();
    listed.has_thread = listed.has_thread || threads::start("penstock-idle-gpu", serve).is_ok();
    if listed.has_thread {
        listed.contexts.push(Arc::clone(context));
        HAS_MORE.notify_one();
    }
    listed.has_thread
}

fn serve() {
    loop {
        let mut waiting = listed();
        while waiting.contexts.is_empty() {
            waiting = HAS_MORE.wait(waiting).recover();
        }
        drop(waiting);
        thread::sleep(IDLE);
        let visited = std::mem::take(&mut listed().contexts);
        let left = visited.into_iter().filter(|context| !context.free_idle());
        let left: Vec<_> = left.collect();
        listed().contexts.extend(left);
    }
}
