//! The engine's threads. They live as long as the process and serve all requests in turn.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::sync::{Condvar, Mutex, lock};

pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// A first-in-first-out queue of tasks, and threads that are started when no thread is idle. A task
/// may block on I/O, but never on another task.
pub(crate) struct Workers {
    shared: Arc<Shared>,
}

/// The least limit of threads.
const LEAST: usize = 8;

struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Work>,
    idle: usize,
    threads: usize,
    limit: usize,
}

impl Workers {
    pub(crate) fn new() -> Self {
        Workers {
            shared: Arc::new(Shared {
                queue: Mutex::new(Queue::default()),
                arrived: Condvar::new(),
            }),
        }
    }

    /// Queues tasks, of which the submitter wants `threads` to run at the same time.
    ///
    /// The engine keeps as many threads as the most demanding request so far wanted, and always
    /// some, so that a request that hangs does not stop all others. If no thread can be started,
    /// the tasks come back for the submitter to carry out.
    pub(crate) fn submit(
        &self,
        tasks: Vec<Work>,
        threads: usize,
    ) -> std::result::Result<(), Vec<Work>> {
        let mut queue = lock(&self.shared.queue);
        queue.limit = queue.limit.max(threads).max(LEAST);
        let added = tasks.len();
        let wanted = (queue.tasks.len() + added)
            .saturating_sub(queue.idle)
            .min(queue.limit.saturating_sub(queue.threads));
        if !self.start_threads(&mut queue, wanted) {
            return Err(tasks);
        }
        queue.tasks.extend(tasks);
        drop(queue);
        // A thread that wakes wakes the next, since the submitter has work of its own.
        if added > 0 {
            self.shared.arrived.notify_one();
        }
        Ok(())
    }

    /// Whether a thread will carry out tasks that are submitted later.
    pub(crate) fn has_thread(&self) -> bool {
        let mut queue = lock(&self.shared.queue);
        let wanted = usize::from(queue.threads == 0);
        self.start_threads(&mut queue, wanted)
    }

    /// Starts threads, or fewer if the system has no more. Returns false if there is none at all.
    fn start_threads(&self, queue: &mut Queue, wanted: usize) -> bool {
        for _ in 0..wanted {
            if self.start_thread().is_err() {
                break;
            }
            queue.threads += 1;
        }
        wanted == 0 || queue.threads > 0
    }

    fn start_thread(&self) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        std::thread::Builder::new()
            .name("penstock".into())
            .spawn(move || shared.serve())
            .map(drop)
    }
}

impl Shared {
    fn serve(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(task) = queue.tasks.pop_front() {
                let wake_another = queue.idle > 0 && !queue.tasks.is_empty();
                drop(queue);
                if wake_another {
                    self.arrived.notify_one();
                }
                // Tasks report their own panics. The thread must live on for other requests.
                let _ = catch_unwind(AssertUnwindSafe(task));
                queue = lock(&self.queue);
            } else {
                queue.idle += 1;
                queue = self.arrived.wait(queue).unwrap_or_else(|e| e.into_inner());
                queue.idle -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn tasks_that_outnumber_the_threads_all_run() {
        let workers = Workers::new();
        let (sender, receiver) = mpsc::channel();
        let tasks = (0..100).map(|i| {
            let sender = sender.clone();
            Box::new(move || sender.send(i).unwrap()) as Work
        });
        assert!(workers.submit(tasks.collect(), 3).is_ok());
        let mut seen: Vec<i32> = receiver.iter().take(100).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
        assert!(lock(&workers.shared.queue).threads <= LEAST);
    }

    #[test]
    fn a_panicking_task_does_not_take_its_thread_along() {
        let workers = Workers::new();
        let (sender, receiver) = mpsc::channel();
        let bad: Work = Box::new(|| panic!("expected by this test"));
        let good: Work = Box::new(move || sender.send(1).unwrap());
        assert!(workers.submit(vec![bad, good], 1).is_ok());
        assert_eq!(receiver.recv(), Ok(1));
    }
}
