//! A program without races that uses all of std's means of ordering that the engine and its tests
//! use, under contention. ThreadSanitizer must have nothing to say about it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, RwLock, Weak, mpsc};
use std::time::Duration;

const THREADS: usize = 6;
const ROUNDS: usize = 400;

#[derive(Default)]
struct Shared {
    list: Mutex<Vec<usize>>,
    turn: (Mutex<Box<usize>>, Condvar),
    table: RwLock<Vec<usize>>,
    made: Vec<OnceLock<Box<usize>>>,
    left: AtomicUsize,
}

fn work(shared: &Shared, me: usize, sender: &mpsc::Sender<Box<usize>>) {
    for round in 0..ROUNDS {
        let mut list = shared.list.lock().unwrap();
        list.push(round);
        if round % 7 == 0 {
            // So that others find it taken.
            std::thread::yield_now();
        }
        drop(list);
        if round % 10 == 0 {
            let value = shared.made[round / 10].get_or_init(|| Box::new(round));
            assert_eq!(**value, round);
            shared.table.write().unwrap().push(round);
            sender.send(Box::new(round)).unwrap();
        }
        assert!(shared.table.read().unwrap().iter().all(|at| at % 10 == 0));
    }
    // Each in turn, which most have to wait for, some with a limit.
    let (turn, changed) = &shared.turn;
    let mut now = turn.lock().unwrap();
    while **now != me {
        now = match me % 2 {
            0 => changed.wait(now).unwrap(),
            _ => changed.wait_timeout(now, Duration::from_secs(9)).unwrap().0,
        };
    }
    *now = Box::new(me + 1);
    changed.notify_all();
    drop(now);
    shared.left.fetch_sub(1, Ordering::AcqRel);
}

/// Whoever comes last frees what all have written to.
fn share(shared: Arc<[AtomicUsize; 8]>, weak: Weak<[AtomicUsize; 8]>, me: usize) {
    shared[me].fetch_add(1, Ordering::Relaxed);
    drop(shared);
    if let Some(still) = weak.upgrade() {
        still[me].fetch_add(1, Ordering::Relaxed);
    }
}

fn main() {
    for _ in 0..ROUNDS {
        let shared = Arc::new(std::array::from_fn(AtomicUsize::new));
        let threads = [0, 1, 2].map(|me| {
            let (shared, weak) = (Arc::clone(&shared), Arc::downgrade(&shared));
            std::thread::spawn(move || share(shared, weak, me))
        });
        drop(shared);
        threads.into_iter().for_each(|t| t.join().unwrap());
    }

    let shared = Arc::new(Shared {
        made: (0..ROUNDS / 10).map(|_| OnceLock::new()).collect(),
        left: AtomicUsize::new(THREADS),
        ..Shared::default()
    });
    let (sender, receiver) = mpsc::channel();
    let threads: Vec<_> = (0..THREADS)
        .map(|me| {
            let (shared, sender) = (Arc::clone(&shared), sender.clone());
            std::thread::spawn(move || work(&shared, me, &sender))
        })
        .collect();
    drop(sender);
    let received: usize = receiver.iter().map(|value| *value).sum();
    assert_eq!(received, THREADS * (0..ROUNDS).step_by(10).sum::<usize>());
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(shared.left.load(Ordering::Acquire), 0);
    assert_eq!(shared.list.lock().unwrap().len(), THREADS * ROUNDS);
}
