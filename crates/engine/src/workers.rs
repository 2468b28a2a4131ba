//! The engine's threads. They live as long as the process and serve all requests in turn.
//!
//! A submission queues its tasks and wakes sleeping threads, at most as many as it wants to run.
//! Waking costs a system call each, so the submitter wakes only a few, and each woken thread wakes
//! others. One idle thread looks for tasks for [`WATCH`] before it sleeps, so that requests that
//! follow each other wake no thread. Because a task never waits for another task, any number of
//! threads makes progress.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering, Recover};
use crate::threads;

pub(crate) type Runnable = Box<dyn FnOnce() + Send>;

/// A first-in-first-out queue of tasks, and threads that are started when no thread is idle. A task
/// may block on I/O, but never on another task.
pub(crate) struct Workers {
    shared: Arc<Shared>,
}

/// The least limit of threads.
const LEAST: usize = 8;

/// How long one idle thread looks for a task before it sleeps. If each request takes less than
/// that, requests that follow each other need not wake a thread. A wake-up takes the submitter some
/// 5 us, and the thread 50.
const WATCH: Duration = Duration::from_micros(50);

/// With fewer processors, a thread that looks for tasks keeps the submitter from its own work.
const WATCHED_FROM: usize = 4;

struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
    /// Whether there are tasks, for the thread that looks for them without the lock.
    has_tasks: AtomicBool,
    cores: usize,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Runnable>,
    /// Threads that sleep.
    idle: usize,
    /// Threads that were woken and do not run yet. They count as idle.
    woken: usize,
    threads: usize,
    /// The most threads that a request has wanted, by the GPU of its memory; `None` is host memory.
    wanted: BTreeMap<Option<i32>, usize>,
    /// Whether a thread looks for a task now, and need not be woken for it.
    is_watched: bool,
}

impl Queue {
    /// No request adds threads beyond the processors to those of others, since each that decodes wants
    /// all of them.
    fn limit(&self, cores: usize) -> usize {
        let most = self.wanted.values().max().copied().unwrap_or(0);
        let all: usize = self.wanted.values().sum();
        all.min(cores).max(most).max(LEAST)
    }

    /// Returns how many sleeping threads the caller must wake, and counts them.
    ///
    /// Each woken thread wakes others in turn, so that no thread, least of all the submitter, spends
    /// long on waking.
    fn wakes(&mut self) -> usize {
        const MOST: usize = 2;
        let coming = self.woken + usize::from(self.is_watched);
        let lacking = self.tasks.len().saturating_sub(coming);
        let wakes = lacking.min(self.idle - self.woken).min(MOST);
        self.woken += wakes;
        wakes
    }
}

impl Workers {
    /// The workers of a machine with this number of processors.
    pub(crate) fn new(cores: usize) -> Self {
        Workers {
            shared: Arc::new(Shared {
                queue: Mutex::new(Queue::default()),
                arrived: Condvar::new(),
                has_tasks: AtomicBool::new(false),
                cores,
            }),
        }
    }

    /// Queues tasks, of which the submitter wants `threads` to run at the same time for the memory of
    /// a GPU, or of the host.
    ///
    /// The engine keeps as many threads as the most demanding request so far wanted for each GPU and
    /// for the host, if there are processors for them, so that reads into several GPUs do not share the
    /// threads of one. It keeps a least number, so that a request that hangs does not stop all others. If no thread can be started,
    /// returns the tasks, for the submitter to carry out.
    pub(crate) fn submit(
        &self,
        tasks: Vec<Runnable>,
        threads: usize,
        device: Option<i32>,
    ) -> std::result::Result<(), Vec<Runnable>> {
        let mut queue = self.shared.queue.lock().recover();
        let most = queue.wanted.entry(device).or_default();
        *most = threads.max(*most);
        let wanted = (queue.tasks.len() + tasks.len())
            .saturating_sub(queue.idle + usize::from(queue.is_watched))
            .min(queue.limit(self.shared.cores).saturating_sub(queue.threads));
        if !self.start_threads(&mut queue, wanted) {
            return Err(tasks);
        }
        queue.tasks.extend(tasks);
        self.shared.note_tasks(&queue);
        let wakes = queue.wakes();
        drop(queue);
        self.shared.wake(wakes);
        Ok(())
    }

    /// Whether a thread will carry out tasks that are submitted later.
    pub(crate) fn has_thread(&self) -> bool {
        let mut queue = self.shared.queue.lock().recover();
        let wanted = usize::from(queue.threads == 0);
        self.start_threads(&mut queue, wanted)
    }

    /// Starts threads, or fewer if the system has no more. Returns false if no thread exists
    /// afterwards.
    fn start_threads(&self, queue: &mut Queue, wanted: usize) -> bool {
        for _ in 0..wanted {
            let shared = Arc::clone(&self.shared);
            if threads::start("penstock", move || shared.serve()).is_err() {
                break;
            }
            queue.threads += 1;
        }
        wanted == 0 || queue.threads > 0
    }
}

impl Shared {
    fn serve(&self) {
        let mut queue = self.queue.lock().recover();
        let mut has_watched = false;
        loop {
            if let Some(task) = queue.tasks.pop_front() {
                self.note_tasks(&queue);
                let wakes = queue.wakes();
                drop(queue);
                self.wake(wakes);
                // Tasks report their own panics. The thread must live on for other requests.
                let _ = catch_unwind(AssertUnwindSafe(task));
                has_watched = false;
                queue = self.queue.lock().recover();
            } else if self.cores >= WATCHED_FROM && !queue.is_watched && !has_watched {
                queue = self.watch(queue);
                has_watched = true;
            } else {
                queue.idle += 1;
                queue = self.arrived.wait(queue).recover();
                queue.idle -= 1;
                // A thread may also wake spuriously.
                queue.woken = queue.woken.saturating_sub(1);
            }
        }
    }

    fn wake(&self, threads: usize) {
        for _ in 0..threads {
            self.arrived.notify_one();
        }
    }

    /// Looks for a task for a while, without the lock.
    fn watch<'a>(&'a self, mut queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        queue.is_watched = true;
        drop(queue);
        let end = Instant::now() + WATCH;
        while !self.has_tasks.load(Ordering::Relaxed) && Instant::now() < end {
            std::hint::spin_loop();
        }
        let mut queue = self.queue.lock().recover();
        queue.is_watched = false;
        queue
    }

    /// Publishes whether there are tasks, for the thread that looks for them.
    fn note_tasks(&self, queue: &Queue) {
        self.has_tasks
            .store(!queue.tasks.is_empty(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn tasks_that_outnumber_the_threads_all_run() {
        let workers = Workers::new(WATCHED_FROM);
        let (sender, receiver) = mpsc::channel();
        let tasks = (0..100).map(|i| {
            let sender = sender.clone();
            Box::new(move || sender.send(i).unwrap()) as Runnable
        });
        assert!(workers.submit(tasks.collect(), 3, None).is_ok());
        let mut seen: Vec<i32> = receiver.iter().take(100).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
        assert!(workers.shared.queue.lock().recover().threads <= LEAST);
    }

    #[test]
    fn a_panicking_task_does_not_take_its_thread_along() {
        let workers = Workers::new(WATCHED_FROM);
        let (sender, receiver) = mpsc::channel();
        let bad: Runnable = Box::new(|| panic!("expected by this test"));
        let good: Runnable = Box::new(move || sender.send(1).unwrap());
        assert!(workers.submit(vec![bad, good], 1, None).is_ok());
        assert_eq!(receiver.recv(), Ok(1));
    }

    #[test]
    fn requests_for_each_memory_have_the_threads_that_they_want() {
        let workers = Workers::new(2 * LEAST);
        let barrier = Arc::new(std::sync::Barrier::new(2 * LEAST + 1));
        for device in [Some(0), Some(1)] {
            let tasks = (0..LEAST).map(|_| {
                let barrier = Arc::clone(&barrier);
                Box::new(move || {
                    barrier.wait();
                }) as Runnable
            });
            assert!(workers.submit(tasks.collect(), LEAST, device).is_ok());
        }
        barrier.wait();
    }
}
