//! A thread that writes the dirty blocks of sieves when no call does so within [`MAX_AGE`].

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once};
use std::thread;

use penstock_engine::Recover;
use penstock_engine::threads;

use super::block::Block;
use super::{MAX_AGE, Sieve};

#[derive(Default)]
struct Behind {
    /// Files with dirty blocks.
    listed: Vec<Arc<Sieve>>,
    has_thread: bool,
}

static BEHIND: Mutex<Behind> = Mutex::new(Behind {
    listed: Vec::new(),
    has_thread: false,
});
static HAS_MORE: Condvar = Condvar::new();

/// Whether the thread holds locks of sieves. It must hold none across a fork, because the child
/// could never take them.
static WRITING: AtomicBool = AtomicBool::new(false);

/// Number of forks in progress. A fork in a signal handler may interrupt another.
static FORKS: AtomicUsize = AtomicUsize::new(0);

static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// Returns whether this process was forked from one that had opened files with the driver. The
/// child caches nothing between calls: it has no background thread, and it shares the file locks
/// with the parent.
pub(crate) fn is_forked() -> bool {
    IS_FORKED.load(SeqCst)
}

fn behind() -> MutexGuard<'static, Behind> {
    BEHIND.lock().recover()
}

/// Registers a sieve with the background thread, which writes its dirty blocks after [`MAX_AGE`],
/// and again until the sieve is idle. Returns false if the thread cannot be started.
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
        thread::sleep(MAX_AGE);
        let listed = std::mem::take(&mut behind().listed);
        let mut visits: Vec<Visit> = listed.into_iter().map(Visit::of).collect();
        // Allocates and frees no memory: the program may fork within malloc, in a signal handler.
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

/// One file whose dirty blocks the thread writes.
struct Visit {
    sieve: Arc<Sieve>,
    /// Whether no call has used the blocks since the previous visit.
    is_idle: bool,
    /// The blocks of an idle file, freed after all visits.
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

    /// Writes the dirty blocks, unless a call holds the sieve. Waiting for the call could deadlock:
    /// a signal handler may have interrupted it and fork, and a fork waits for this thread. The
    /// next call of the driver retries a failed write and reports the error.
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

/// Writes dirty blocks before each fork. Otherwise both processes would write them, and the child
/// could overwrite newer bytes of the parent.
pub(super) fn register_fork_handlers() {
    unsafe extern "C" fn before() {
        // A child has no dirty blocks, and its locks may be held by threads that do not exist in
        // it.
        if is_forked() {
            return;
        }
        FORKS.fetch_add(1, SeqCst);
        while WRITING.load(SeqCst) {
            thread::yield_now();
        }
        // Waits for no lock: a signal handler may fork while its thread holds one. Blocks that are
        // not written here stay with the parent.
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
