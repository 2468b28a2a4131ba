//! Programs with a race each, which ThreadSanitizer must report: a write without any order, one
//! under a mutex of its own instead of the common one, and a look before the end was told.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

#[derive(Default)]
struct Shared {
    value: UnsafeCell<u64>,
    mutex: [Mutex<()>; 2],
    is_done: (Mutex<bool>, Condvar),
    hint: AtomicBool,
}

// SAFETY: it is not, and that is the point.
unsafe impl Sync for Shared {}

fn add(shared: &Shared) {
    // SAFETY: none; see above.
    unsafe { *shared.value.get() += 1 };
}

fn unordered(shared: &Shared, _me: usize) {
    add(shared);
}

fn under_two_mutexes(shared: &Shared, me: usize) {
    for _ in 0..1000 {
        let _locked = shared.mutex[me].lock().unwrap();
        add(shared);
    }
}

fn before_the_end_is_told(shared: &Shared, me: usize) {
    let (is_done, told) = &shared.is_done;
    if me == 0 {
        shared.hint.store(true, Ordering::Relaxed);
        add(shared);
        *is_done.lock().unwrap() = true;
        told.notify_all();
    } else {
        while !shared.hint.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        add(shared);
        let mut done = is_done.lock().unwrap();
        while !*done {
            done = told.wait(done).unwrap();
        }
    }
}

fn main() {
    let which = std::env::args().nth(1).unwrap();
    let act = match which.as_str() {
        "unordered" => unordered,
        "under_two_mutexes" => under_two_mutexes,
        "before_the_end_is_told" => before_the_end_is_told,
        _ => panic!("no such race: {which}"),
    };
    let shared = Arc::new(Shared::default());
    let threads = [0, 1].map(|me| {
        let shared = Arc::clone(&shared);
        std::thread::spawn(move || act(&shared, me))
    });
    threads.into_iter().for_each(|t| t.join().unwrap());
}
