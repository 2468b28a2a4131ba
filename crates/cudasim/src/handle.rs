//! Handles of the client's objects: streams, events, modules, functions and files.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

/// A unique handle, which is never reused. It is not an address.
pub(crate) fn new_handle() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0x5000_0000_0000);
    NEXT.fetch_add(0x10, Ordering::Relaxed)
}

/// Objects by their handles.
pub(crate) struct Table<T>(RwLock<BTreeMap<usize, Arc<T>>>);

impl<T> Table<T> {
    pub const fn new() -> Table<T> {
        Table(RwLock::new(BTreeMap::new()))
    }

    pub fn add(&self, object: Arc<T>) -> *mut c_void {
        let handle = new_handle();
        self.0.write().unwrap().insert(handle, object);
        handle as *mut c_void
    }

    pub fn find(&self, handle: *mut c_void) -> Option<Arc<T>> {
        self.0.read().unwrap().get(&(handle as usize)).cloned()
    }

    pub fn remove(&self, handle: *mut c_void) -> Option<Arc<T>> {
        self.0.write().unwrap().remove(&(handle as usize))
    }

    pub fn retain(&self, stays: impl Fn(&T) -> bool) {
        self.0.write().unwrap().retain(|_, object| stays(object));
    }

    pub fn any(&self, fits: impl Fn(&T) -> bool) -> bool {
        self.0.read().unwrap().values().any(|object| fits(object))
    }

    pub fn len(&self) -> usize {
        self.0.read().unwrap().len()
    }
}
