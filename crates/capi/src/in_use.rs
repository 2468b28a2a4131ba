//! Objects in use by calls, with a wait until the last call has ended.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, fence};
use std::sync::{Arc, Condvar, Mutex};

use penstock_engine::Recover;

/// Number of threads in [`wait_for_others`], for all objects. It is usually 0, so that calls only
/// read its cache line.
static WAITING: AtomicUsize = AtomicUsize::new(0);
static RELEASED: Mutex<()> = Mutex::new(());
static SOME_RELEASED: Condvar = Condvar::new();

/// An object for the duration of a call.
pub(crate) struct InUse<T>(ManuallyDrop<Arc<T>>);

impl<T> InUse<T> {
    pub(crate) fn new(object: Arc<T>) -> InUse<T> {
        InUse(ManuallyDrop::new(object))
    }
}

impl<T> Deref for InUse<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for InUse<T> {
    fn drop(&mut self) {
        // SAFETY: the `Arc` is dropped only here and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.0) };
        // Either this thread sees the waiting one, or the waiting one sees that the `Arc` was
        // dropped.
        fence(std::sync::atomic::Ordering::SeqCst);
        if WAITING.load(Relaxed) > 0 {
            drop(RELEASED.lock().recover());
            SOME_RELEASED.notify_all();
        }
    }
}

/// Waits until only the caller holds the object. Calls must hold it as [`InUse`], and no new call
/// may obtain it.
pub(crate) fn wait_for_others<T>(object: &Arc<T>) {
    WAITING.fetch_add(1, Relaxed);
    fence(std::sync::atomic::Ordering::SeqCst);
    let mut released = RELEASED.lock().recover();
    while Arc::strong_count(object) > 1 {
        released = SOME_RELEASED.wait(released).recover();
    }
    drop(released);
    WAITING.fetch_sub(1, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_call_wakes_the_waiting_thread() {
        for _ in 0..200 {
            let object = Arc::new(7);
            let uses: Vec<_> = (0..3).map(|_| InUse::new(Arc::clone(&object))).collect();
            let threads: Vec<_> = uses
                .into_iter()
                .map(|object| std::thread::spawn(move || assert_eq!(*object, 7)))
                .collect();
            wait_for_others(&object);
            assert_eq!(Arc::strong_count(&object), 1);
            threads.into_iter().for_each(|t| t.join().unwrap());
        }
    }
}
