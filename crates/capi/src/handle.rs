//! What `penstock_file *` and `penstock_request *` point to: nothing.
//!
//! A handle is a number that is given out once in the life of the process, and a table says what it
//! stands for. A handle that was freed is therefore recognised, never followed, and a call that
//! found its object keeps it, whoever frees the handle meanwhile.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use penstock_engine::error::{Error, Result};
use penstock_engine::refuse_fork;

use crate::error::null;

/// Handles of all tables, so that one of a file is none of a request. They are odd: no address of
/// an object is taken for one.
static NEXT: AtomicUsize = AtomicUsize::new(1);

const SHARDS: usize = 16;

type Shard<T> = RwLock<HashMap<usize, Arc<T>, Spread>>;

pub(crate) struct Table<T> {
    /// What errors call its objects.
    name: &'static str,
    shards: [Shard<T>; SHARDS],
}

impl<T> Table<T> {
    pub(crate) const fn new(name: &'static str) -> Self {
        Table {
            name,
            shards: [const { RwLock::new(HashMap::with_hasher(Spread)) }; SHARDS],
        }
    }

    fn shard(&self, handle: usize) -> &Shard<T> {
        &self.shards[handle / 2 % SHARDS]
    }

    pub(crate) fn insert<C>(&self, object: Arc<T>) -> *mut C {
        let handle = NEXT.fetch_add(2, Relaxed);
        let mut shard = self
            .shard(handle)
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        shard.insert(handle, object);
        std::ptr::without_provenance_mut(handle)
    }

    pub(crate) fn get<C>(&self, handle: *mut C) -> Result<Arc<T>> {
        self.allows(handle)?;
        let shard = self
            .shard(handle.addr())
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        shard
            .get(&handle.addr())
            .map(Arc::clone)
            .ok_or_else(|| self.unknown())
    }

    /// As [`get`](Self::get), and the handle is no longer known: of several calls, one succeeds.
    pub(crate) fn take<C>(&self, handle: *mut C) -> Result<Arc<T>> {
        self.allows(handle)?;
        let mut shard = self
            .shard(handle.addr())
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        shard.remove(&handle.addr()).ok_or_else(|| self.unknown())
    }

    /// A child of fork() must not touch the locks: threads that it does not have may hold them.
    fn allows<C>(&self, handle: *mut C) -> Result<()> {
        refuse_fork()?;
        match handle.is_null() {
            true => Err(null(self.name)),
            false => Ok(()),
        }
    }

    fn unknown(&self) -> Error {
        Error::invalid(format!("the {} is not open", self.name)).remedy(format!(
            "do not use a {} after it was freed or closed, on no thread",
            self.name
        ))
    }
}

/// Hashes numbers that follow each other so that the upper bits differ as well.
#[derive(Clone, Copy)]
struct Spread;

struct Spreading(u64);

impl BuildHasher for Spread {
    type Hasher = Spreading;

    fn build_hasher(&self) -> Spreading {
        Spreading(0)
    }
}

impl Hasher for Spreading {
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
        let handle: *mut Handle = table.insert(Arc::new(7));
        assert_eq!(*table.get(handle).unwrap(), 7);
        assert_eq!(*table.take(handle).unwrap(), 7);
        assert_eq!(table.get(handle).unwrap_err().kind(), Kind::Invalid);
        assert_eq!(table.take(handle).unwrap_err().kind(), Kind::Invalid);
    }

    #[test]
    fn a_handle_is_never_given_out_again() {
        let table = Table::new("thing");
        let first: *mut Handle = table.insert(Arc::new(1));
        table.take(first).unwrap();
        let second: *mut Handle = table.insert(Arc::new(2));
        assert_ne!(first, second);
        assert!(table.get(first).is_err());
    }

    #[test]
    fn a_handle_of_another_table_is_not_known() {
        let (files, requests) = (Table::new("file"), Table::new("request"));
        let file: *mut Handle = files.insert(Arc::new(1));
        let _: *mut Handle = requests.insert(Arc::new(2));
        assert!(requests.get(file).is_err());
    }

    #[test]
    fn no_object_in_memory_is_taken_for_a_handle() {
        let table = Table::new("thing");
        let _: *mut Handle = table.insert(Arc::new(1));
        let mut number = 5_u64;
        assert!(table.get(&raw mut number).is_err());
        assert!(table.get::<Handle>(std::ptr::null_mut()).is_err());
    }

    #[test]
    fn of_several_that_take_a_handle_one_gets_the_object() {
        let table = Table::new("thing");
        let handle: *mut Handle = table.insert(Arc::new(1));
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
