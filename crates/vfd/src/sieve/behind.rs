//! The thread that writes what sieves hold when no call does so within [`KEPT`].

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once};
use std::thread;

use penstock_engine::Recover;
use penstock_engine::threads;

use super::block::Block;
use super::{KEPT, Sieve};

#[derive(Default)]
struct Behind {
    /// Files with bytes to be written.
    listed: Vec<Arc<Sieve>>,
    has_thread: bool,
}

static BEHIND: Mutex<Behind> = Mutex::new(Behind {
    listed: Vec::new(),
    has_thread: false,
});
static HAS_MORE: Condvar = Condvar::new();

/// Whether the thread holds locks of sieves. It holds none across a fork: the child would find them
/// held for ever.
static WRITING: AtomicBool = AtomicBool::new(false);

/// Forks under way. They may be nested, by a signal handler.
static FORKS: AtomicUsize = AtomicUsize::new(0);

static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// Returns whether this process was forked from one that had opened files with the driver. Nothing
/// is kept in it between calls: the thread is missing, and the parent has the same locks of files.
pub(crate) fn is_forked() -> bool {
    IS_FORKED.load(SeqCst)
}

fn behind() -> MutexGuard<'static, Behind> {
    BEHIND.lock().recover()
}

/// Has the bytes of a sieve written after [`KEPT`], and again until it is idle. Returns false if that is
/// impossible.
pub(super) fn list(sieve: &Arc<Sieve>) -> bool {
    let mut behind = behind();
    if !behind.has_thread {
        behind.has_thread = threads::start("penstock-sieve", write_behind).is_ok();
    }
    if behind.has_thread {
        behind.listed.push(Arc::clone(sieve));
        HAS_MORE.notify_one();
    }
    behind.has_thread
}

fn write_behind() {
    loop {
        let mut waiting = behind();
        while waiting.listed.is_empty() {
            waiting = HAS_MORE.wait(waiting).recover();
        }
        drop(waiting);
        thread::sleep(KEPT);
        let listed = std::mem::take(&mut behind().listed);
        let mut visits: Vec<Visit> = listed.into_iter().map(Visit::of).collect();
        // Nothing is allocated or freed: the program may fork within malloc, in a signal handler.
        begin_writing();
        visits.iter_mut().for_each(Visit::write);
        WRITING.store(false, SeqCst);
        visits.retain(|visit| !visit.is_idle);
        behind()
            .listed
            .extend(visits.into_iter().map(|visit| visit.sieve));
    }
}

fn begin_writing() {
    loop {
        WRITING.store(true, SeqCst);
        if FORKS.load(SeqCst) == 0 {
            return;
        }
        WRITING.store(false, SeqCst);
        thread::yield_now();
    }
}

/// One file whose bytes the thread writes.
struct Visit {
    sieve: Arc<Sieve>,
    /// Whether no call has used the blocks since the visit before.
    is_idle: bool,
    /// The memory of an idle file, to be freed.
    blocks: Vec<Block>,
}

impl Visit {
    fn of(sieve: Arc<Sieve>) -> Visit {
        Visit {
            sieve,
            is_idle: false,
            blocks: Vec::new(),
        }
    }

    /// Does nothing while a call has the sieve, and does not wait for it: a signal handler may have
    /// interrupted the call and fork, for which this thread must be done. The next call of the driver
    /// tells a failure: it tries again.
    fn write(&mut self) {
        let Ok(mut state) = self.sieve.state.try_lock() else {
            return;
        };
        let written = state.write_all(&self.sieve);
        self.is_idle = state.uses == state.uses_visited;
        state.uses_visited = state.uses;
        if self.is_idle {
            state.is_listed = false;
        }
        if self.is_idle && written.is_ok() {
            self.blocks = std::mem::take(&mut state.blocks);
        }
    }
}

/// Bytes are written before a fork: both processes would write them otherwise, the child perhaps
/// after the parent has written newer ones.
pub(super) fn watch_forks() {
    unsafe extern "C" fn before() {
        // A child has nothing to write, and its locks may be held for ever.
        if is_forked() {
            return;
        }
        FORKS.fetch_add(1, SeqCst);
        while WRITING.load(SeqCst) {
            thread::yield_now();
        }
        // Waits for no lock, as a signal handler may fork while its thread holds one. What is not
        // written here stays the parent's.
        if let Ok(behind) = BEHIND.try_lock() {
            for sieve in &behind.listed {
                if let Ok(mut state) = sieve.state.try_lock() {
                    let _ = state.write_all(sieve);
                }
            }
        }
    }
    unsafe extern "C" fn in_parent() {
        if !is_forked() {
            FORKS.fetch_sub(1, SeqCst);
        }
    }
    unsafe extern "C" fn in_child() {
        IS_FORKED.store(true, SeqCst);
    }
    static ONCE: Once = Once::new();
    // SAFETY: the handlers call nothing that needs a lock of the C library's.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child));
    });
}
