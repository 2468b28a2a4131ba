//! The bookkeeping of slots: limited in total, created when they are first needed, and kept for
//! reuse.
//!
//! A request for an item takes the first of these steps that is possible:
//!
//! 1. Take the smallest idle item that is large enough.
//! 2. Create an item, if the capacity allows it or no item exists.
//! 3. Destroy an idle item of another kind or size, and start again.
//! 4. Wait until an item is returned, and start again.
//!
//! The invariant is that `bytes` counts all items that are idle, in use or being created, and
//! exceeds the capacity only for a single item. A step decides under the lock and acts without it,
//! so a slow creation delays no other thread. A waiting thread holds no item, so the threads that
//! hold items can always finish and return them: there is no deadlock. loom checks this.

use crate::sync::{Condvar, Mutex, Recover};

/// Hands out items of several kinds, at most `capacity` bytes of all kinds together.
///
/// Items are created and destroyed without the lock, since pinning memory takes milliseconds and
/// calls the driver. A thread that waits here must hold no item, so that the items of other threads
/// always return.
pub(crate) struct Ledger<K, T> {
    state: Mutex<State<K, T>>,
    returned: Condvar,
    capacity: u64,
}

struct State<K, T> {
    idle: Vec<Item<K, T>>,
    /// Bytes of all items: idle, in use, and being created.
    bytes: u64,
    waiting: usize,
}

pub(crate) struct Item<K, T> {
    pub kind: K,
    pub bytes: u64,
    pub value: T,
}

enum Step<K, T> {
    Take(Item<K, T>),
    Make,
    Unmake(Item<K, T>),
    Full,
}

impl<K: Copy + PartialEq, T> Ledger<K, T> {
    pub(crate) fn new(capacity: u64) -> Self {
        Ledger {
            state: Mutex::new(State {
                idle: Vec::new(),
                bytes: 0,
                waiting: 0,
            }),
            returned: Condvar::new(),
            capacity,
        }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// An item of this kind with at least this many bytes: an idle one, or one that `make` creates
    /// after destroying idle items of other kinds. While the capacity is used up, waits, or returns
    /// `None`.
    pub(crate) fn acquire<E>(
        &self,
        kind: K,
        bytes: u64,
        waits: bool,
        make: impl Fn() -> Result<T, E>,
    ) -> Result<Option<Item<K, T>>, E> {
        loop {
            match self.step(kind, bytes, waits) {
                Step::Take(item) => return Ok(Some(item)),
                Step::Make => return self.make(kind, bytes, make).map(Some),
                Step::Unmake(item) => self.unmake(item),
                Step::Full if waits => {}
                Step::Full => return Ok(None),
            }
        }
    }

    pub(crate) fn release(&self, item: Item<K, T>) {
        let mut state = self.state.lock().recover();
        state.idle.push(item);
        self.wake(&state);
    }

    fn step(&self, kind: K, bytes: u64, wait: bool) -> Step<K, T> {
        let mut state = self.state.lock().recover();
        // The smallest item that is large enough. Of several, the one that was returned last, since
        // it is most likely in the processor's cache.
        let fitting = state
            .idle
            .iter()
            .enumerate()
            .filter(|(_, i)| i.kind == kind && i.bytes >= bytes)
            .min_by_key(|(at, i)| (i.bytes, usize::MAX - at))
            .map(|(at, _)| at);
        if let Some(at) = fitting {
            return Step::Take(state.idle.swap_remove(at));
        }
        // One item is always allowed: otherwise a slot larger than the capacity could never be
        // created.
        if state.bytes == 0 || state.bytes + bytes <= self.capacity {
            state.bytes += bytes;
            return Step::Make;
        }
        if let Some(item) = state.idle.pop() {
            return Step::Unmake(item);
        }
        if wait {
            state.waiting += 1;
            state = self.returned.wait(state).recover();
            state.waiting -= 1;
        }
        Step::Full
    }

    fn make<E>(
        &self,
        kind: K,
        bytes: u64,
        make: impl Fn() -> Result<T, E>,
    ) -> Result<Item<K, T>, E> {
        match make() {
            Ok(value) => Ok(Item { kind, bytes, value }),
            Err(e) => {
                self.forget(bytes);
                Err(e)
            }
        }
    }

    fn unmake(&self, item: Item<K, T>) {
        let bytes = item.bytes;
        drop(item);
        self.forget(bytes);
    }

    fn forget(&self, bytes: u64) {
        let mut state = self.state.lock().recover();
        state.bytes -= bytes;
        self.wake(&state);
    }

    fn wake(&self, state: &State<K, T>) {
        // All threads wake, since they may wait for items of different kinds.
        if state.waiting > 0 {
            self.returned.notify_all();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn make() -> Result<u32, ()> {
        Ok(7)
    }

    #[test]
    fn a_returned_item_is_reused() {
        let ledger: Ledger<u8, u32> = Ledger::new(100);
        let item = ledger.acquire(1, 60, true, make).unwrap().unwrap();
        ledger.release(item);
        let again = ledger.acquire(1, 60, true, || Err::<u32, &str>("made anew"));
        assert_eq!(again.map(|i| i.unwrap().value), Ok(7));
    }

    #[test]
    fn a_larger_idle_item_is_reused() {
        let ledger: Ledger<u8, u32> = Ledger::new(100);
        let item = ledger.acquire(1, 60, true, make).unwrap().unwrap();
        ledger.release(item);
        let smaller = ledger.acquire(1, 10, true, || Err::<u32, &str>("made anew"));
        assert_eq!(smaller.map(|i| i.unwrap().bytes), Ok(60));
    }

    #[test]
    fn idle_items_of_another_kind_make_room() {
        let ledger: Ledger<u8, u32> = Ledger::new(100);
        let item = ledger.acquire(1, 60, true, make).unwrap().unwrap();
        ledger.release(item);
        assert!(ledger.acquire(2, 60, false, make).unwrap().is_some());
        assert!(ledger.acquire(2, 60, false, make).unwrap().is_none());
    }

    #[test]
    fn a_failed_creation_returns_the_room() {
        let ledger: Ledger<u8, u32> = Ledger::new(100);
        assert!(ledger.acquire(1, 100, true, || Err::<u32, ()>(())).is_err());
        assert!(ledger.acquire(1, 100, false, make).unwrap().is_some());
    }

    #[test]
    fn one_item_above_the_capacity_can_be_had() {
        let ledger: Ledger<u8, u32> = Ledger::new(10);
        assert!(ledger.acquire(1, 100, false, make).unwrap().is_some());
        assert!(ledger.acquire(1, 1, false, make).unwrap().is_none());
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;

    #[test]
    fn a_waiting_thread_always_gets_a_slot_that_comes_back() {
        loom::model(|| {
            let ledger: Arc<Ledger<u8, ()>> = Arc::new(Ledger::new(1));
            let threads: Vec<_> = (0..2)
                .map(|kind| {
                    let ledger = Arc::clone(&ledger);
                    loom::thread::spawn(move || {
                        let item = ledger
                            .acquire(kind, 1, true, || Ok::<(), ()>(()))
                            .unwrap()
                            .unwrap();
                        ledger.release(item);
                    })
                })
                .collect();
            for t in threads {
                t.join().unwrap();
            }
            assert!(ledger.state.lock().recover().bytes <= 1);
        });
    }

    #[test]
    fn a_failed_creation_wakes_waiting_threads() {
        loom::model(|| {
            let ledger: Arc<Ledger<u8, ()>> = Arc::new(Ledger::new(1));
            let other = Arc::clone(&ledger);
            let thread = loom::thread::spawn(move || {
                let _ = other.acquire(0, 1, true, || Err::<(), ()>(()));
            });
            let item = ledger
                .acquire(1, 1, true, || Ok::<(), ()>(()))
                .unwrap()
                .unwrap();
            ledger.release(item);
            thread.join().unwrap();
        });
    }
}
