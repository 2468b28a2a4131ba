//! Objects that calls hold while somebody on another thread may wait until none does.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, fence};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Threads in [`wait_for_others`], for any object. Mostly none, so that calls share a cache line that
/// nobody writes.
static WAITING: AtomicUsize = AtomicUsize::new(0);
static LEFT: Mutex<()> = Mutex::new(());
static SOME_LEFT: Condvar = Condvar::new();

/// An object for the time of a call.
pub(crate) struct Lent<T>(ManuallyDrop<Arc<T>>);

impl<T> Lent<T> {
    pub(crate) fn new(object: Arc<T>) -> Lent<T> {
        Lent(ManuallyDrop::new(object))
    }
}

impl<T> Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        // SAFETY: it is dropped here only, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.0) };
        // Either this thread sees one that waits, or that one sees that the object was let go of.
        fence(std::sync::atomic::Ordering::SeqCst);
        if WAITING.load(Relaxed) > 0 {
            drop(LEFT.lock().unwrap_or_else(PoisonError::into_inner));
            SOME_LEFT.notify_all();
        }
    }
}

/// Waits until the caller alone holds the object. Calls that hold it must have got it as [`Lent`],
/// and no new ones get it.
pub(crate) fn wait_for_others<T>(object: &Arc<T>) {
    WAITING.fetch_add(1, Relaxed);
    fence(std::sync::atomic::Ordering::SeqCst);
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    while Arc::strong_count(object) > 1 {
        left = SOME_LEFT.wait(left).unwrap_or_else(PoisonError::into_inner);
    }
    drop(left);
    WAITING.fetch_sub(1, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_call_that_holds_an_object_wakes_who_waits_for_it() {
        for _ in 0..200 {
            let object = Arc::new(7);
            let lent: Vec<_> = (0..3).map(|_| Lent::new(Arc::clone(&object))).collect();
            let threads: Vec<_> = lent
                .into_iter()
                .map(|lent| std::thread::spawn(move || assert_eq!(*lent, 7)))
                .collect();
            wait_for_others(&object);
            assert_eq!(Arc::strong_count(&object), 1);
            threads.into_iter().for_each(|t| t.join().unwrap());
        }
    }
}
