//! Tables of handles. A `penstock_file *` or `penstock_request *` is not an address.
//!
//! A handle is a number that the process never reuses, and a table maps it to its object. Use of a
//! freed handle is therefore detected, and never dereferences memory. A call keeps its object even
//! if another thread frees the handle during the call. A handle also contains the number of its
//! process: a forked child with its own library detects handles of its parent.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, RwLock};

use penstock_engine::Recover;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::refuse_fork;

use crate::arguments::null;

/// The next handle of all tables, so that handles of files and requests never coincide. Handles are
/// odd, so that the address of an aligned object is never a handle.
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// First bit of the process number in a handle.
const PROCESS_SHIFT: u32 = 40;

const SHARDS: usize = 16;

type Shard<T> = RwLock<HashMap<usize, Arc<T>, BuildHasherDefault<Multiplicative>>>;

pub(crate) struct Table<T> {
    /// Name of the objects in errors.
    name: &'static str,
    shards: [Shard<T>; SHARDS],
}

/// Frees the object in the caller's variable, and sets the variable to null.
///
/// # Safety
/// `place` is null or valid. `free` accepts its value, which may be null.
pub(crate) unsafe fn release<T, R>(place: *mut *mut T, free: impl FnOnce(*mut T) -> R) {
    // SAFETY: by contract of this function.
    if let Some(place) = unsafe { place.as_mut() } {
        free(std::mem::replace(place, std::ptr::null_mut()));
    }
}

impl<T> Table<T> {
    pub(crate) const fn new(name: &'static str) -> Self {
        Table {
            name,
            shards: [const { RwLock::new(HashMap::with_hasher(BuildHasherDefault::new())) };
                SHARDS],
        }
    }

    fn shard(&self, handle: usize) -> &Shard<T> {
        &self.shards[handle / 2 % SHARDS]
    }

    pub(crate) fn insert<C>(&self, object: T) -> *mut C {
        let handle = process() | NEXT.fetch_add(2, Relaxed);
        let mut shard = self.shard(handle).write().recover();
        shard.insert(handle, Arc::new(object));
        std::ptr::without_provenance_mut(handle)
    }

    pub(crate) fn get<C>(&self, handle: *mut C) -> Result<Arc<T>> {
        self.check(handle)?;
        let shard = self.shard(handle.addr()).read().recover();
        let found = shard.get(&handle.addr()).map(Arc::clone);
        found.ok_or_else(|| self.unknown(handle.addr()))
    }

    /// As [`get`](Self::get), and removes the handle. Of several concurrent calls, one succeeds.
    pub(crate) fn take<C>(&self, handle: *mut C) -> Result<Arc<T>> {
        self.check(handle)?;
        let taken = self
            .shard(handle.addr())
            .write()
            .recover()
            .remove(&handle.addr());
        taken.ok_or_else(|| self.unknown(handle.addr()))
    }

    /// As [`take`](Self::take), and drops the object. Null is not a handle and is ignored.
    pub(crate) fn close<C>(&self, handle: *mut C) -> Result<()> {
        if handle.is_null() {
            return Ok(());
        }
        self.take(handle).map(drop)
    }

    /// Fails in a child of fork(), which must not use the locks: threads of the parent may hold them.
    fn check<C>(&self, handle: *mut C) -> Result<()> {
        refuse_fork()?;
        if handle.is_null() {
            Err(null(self.name))
        } else {
            Ok(())
        }
    }

    fn unknown(&self, handle: usize) -> Error {
        if handle % 2 == 1 && handle >> PROCESS_SHIFT != process() >> PROCESS_SHIFT {
            let cause = format!("the {} belongs to another process, which forked", self.name);
            return Error::new(Kind::Forked, cause).remedy(format!(
                "open a {} in the child instead of using one of its parent",
                self.name
            ));
        }
        Error::invalid(format!("the {} is not open", self.name)).remedy(format!(
            "do not use a {} on any thread after it was freed or closed",
            self.name
        ))
    }
}

/// Returns the number of this process, at its position in handles.
fn process() -> usize {
    (penstock_engine::process() as usize) << PROCESS_SHIFT
}

/// Multiplicative hashing, so that the upper bits of consecutive numbers differ as well.
#[derive(Default)]
struct Multiplicative(u64);

impl Hasher for Multiplicative {
    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = (self.0 ^ number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_engine::error::Kind;

    struct Handle;

    #[test]
    fn a_handle_finds_its_object_until_it_is_taken() {
        let table = Table::new("thing");
        let handle: *mut Handle = table.insert(7);
        assert_eq!(*table.get(handle).unwrap(), 7);
        assert_eq!(*table.take(handle).unwrap(), 7);
        assert_eq!(table.get(handle).unwrap_err().kind(), Kind::Invalid);
        assert_eq!(table.take(handle).unwrap_err().kind(), Kind::Invalid);
    }

    #[test]
    fn a_handle_is_never_reused() {
        let table = Table::new("thing");
        let first: *mut Handle = table.insert(1);
        table.take(first).unwrap();
        let second: *mut Handle = table.insert(2);
        assert_ne!(first, second);
        assert!(table.get(first).is_err());
    }

    #[test]
    fn a_handle_of_another_table_is_unknown() {
        let (files, requests) = (Table::new("file"), Table::new("request"));
        let file: *mut Handle = files.insert(1);
        let _: *mut Handle = requests.insert(2);
        assert!(requests.get(file).is_err());
    }

    #[test]
    fn an_error_names_a_handle_of_another_process() {
        let table = Table::new("thing");
        let handle: *mut Handle = table.insert(1);
        let others = std::ptr::without_provenance_mut::<Handle>(handle.addr() ^ 1 << PROCESS_SHIFT);
        assert_eq!(table.get(others).unwrap_err().kind(), Kind::Forked);
    }

    #[test]
    fn the_address_of_an_object_is_not_a_handle() {
        let table = Table::new("thing");
        let _: *mut Handle = table.insert(1);
        let mut number = 5_u64;
        assert!(table.get(&raw mut number).is_err());
        assert!(table.get::<Handle>(std::ptr::null_mut()).is_err());
    }

    #[test]
    fn one_of_several_threads_takes_the_object_of_a_handle() {
        let table = Table::new("thing");
        let handle: *mut Handle = table.insert(1);
        let address = handle.addr();
        let taken: usize = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..4)
                .map(|_| {
                    let table = &table;
                    scope.spawn(move || {
                        let handle = std::ptr::without_provenance_mut::<Handle>(address);
                        usize::from(table.take(handle).is_ok())
                    })
                })
                .collect();
            takers.into_iter().map(|taker| taker.join().unwrap()).sum()
        });
        assert_eq!(taken, 1);
    }
}
