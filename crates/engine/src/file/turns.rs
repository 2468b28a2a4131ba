//! Limits how many workers write a file in the background at the same time.
//!
//! Without a limit, concurrent requests of one file would have as many workers as all of them want,
//! and leave the program no core. Tasks beyond the limit wait here and not in a thread of the pool,
//! which other requests need: a worker that has finished its task takes the next one from here.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::sync::Recover;
use crate::workers::Runnable;

#[derive(Default)]
pub(crate) struct Turns(Mutex<Admissions>);

#[derive(Default)]
struct Admissions {
    workers: usize,
    waiting: VecDeque<Runnable>,
}

impl Turns {
    /// Returns the tasks that may begin now, so that `most` workers are at work. The other tasks
    /// follow them. A task reports its own panics.
    pub(crate) fn admit(self: &Arc<Self>, tasks: Vec<Runnable>, most: usize) -> Vec<Runnable> {
        let mut state = self.0.lock().recover();
        state.waiting.extend(tasks);
        let free = most.saturating_sub(state.workers).min(state.waiting.len());
        state.workers += free;
        state
            .waiting
            .drain(..free)
            .map(|task| self.followed(task))
            .collect()
    }

    fn followed(self: &Arc<Self>, first: Runnable) -> Runnable {
        let turns = Arc::clone(self);
        Box::new(move || {
            let mut next = Some(first);
            while let Some(task) = next {
                task();
                next = turns.next();
            }
        })
    }

    fn next(&self) -> Option<Runnable> {
        let mut state = self.0.lock().recover();
        let next = state.waiting.pop_front();
        if next.is_none() {
            state.workers -= 1;
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[test]
    fn tasks_beyond_the_limit_follow_those_that_have_begun_in_order() {
        let turns = Arc::new(Turns::default());
        let order = Arc::new(Mutex::new(Vec::new()));
        let task = |number: usize| -> Runnable {
            let order = Arc::clone(&order);
            Box::new(move || order.lock().unwrap().push(number))
        };
        let begun = turns.admit(vec![task(0), task(1), task(2)], 2);
        assert_eq!(begun.len(), 2);
        assert!(turns.admit(vec![task(3)], 2).is_empty());
        begun.into_iter().for_each(|task| task());
        assert_eq!(*order.lock().unwrap(), [0, 2, 3, 1]);
        assert_eq!(turns.admit(vec![task(4), task(5)], 2).len(), 2);
    }

    #[test]
    fn no_more_workers_than_the_limit_are_at_work() {
        const MOST: usize = 3;
        let turns = Arc::new(Turns::default());
        let (now, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let counters: &'static (AtomicUsize, AtomicUsize) = Box::leak(Box::new((now, done)));
        let task = || -> Runnable {
            Box::new(|| {
                assert!(counters.0.fetch_add(1, Relaxed) < MOST);
                std::thread::yield_now();
                counters.0.fetch_sub(1, Relaxed);
                counters.1.fetch_add(1, Relaxed);
            })
        };
        std::thread::scope(|scope| {
            for _ in 0..50 {
                for begun in turns.admit(vec![task(), task()], MOST) {
                    scope.spawn(begun);
                }
            }
        });
        assert_eq!(counters.1.load(Relaxed), 100);
    }
}
