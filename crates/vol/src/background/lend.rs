//! Identifiers of objects of which a callback has only what the connector below made.
//!
//! Plans are made, and encoded chunks are handed over, by functions of HDF5's that take an identifier.
//! What they ask comes back to this connector, which knows a lent object by its wrapper and passes
//! everything on at once. Closing the identifier leaves the object below open.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use penstock_engine::error::{Error, Kind, Result};
use penstock_sys::hdf5::connector::H5I_type_t;
use penstock_sys::hdf5::hid_t;

use super::operation::Operation;
use super::visit::is_ending;
use crate::host::Host;
use crate::wrapped::{Container, Under};

/// An identifier, closed when this is dropped: by a thread that is inside a call of its HDF5.
pub struct Loan {
    host: Host,
    lent: Arc<Lent>,
}

/// What the wrapper of a lent object knows.
pub struct Lent {
    /// -1 when it is closed.
    id: AtomicI64,
    /// Whether the loan still has to close the identifier.
    is_held: AtomicBool,
    /// Whether the application has the identifier, and closes the object by it.
    is_given: AtomicBool,
    /// The operation that calls HDF5 by it.
    operation: Mutex<Weak<Operation>>,
}

const CLOSED: hid_t = -1;

thread_local! {
    /// What this thread is about to wrap, if that is to be lent, else null. A pointer, which can still
    /// be asked for when the process exits and what threads own is gone.
    static LENDING: Cell<*const Lending> = const { Cell::new(ptr::null()) };
}

type Lending = (Arc<Container>, Arc<Lent>);

/// For the callback that wraps an object for `container`: the object that is lent, if it is lent by
/// the same connector. Above or below there may be another of this kind, which is asked, too.
pub fn being_lent(container: &Container) -> Option<Lending> {
    // SAFETY: it is null, or points to what `Loan::of` keeps while it is set.
    let lending = unsafe { LENDING.get().as_ref() }?;
    if lending.0.below.compare(&container.below) != 0 {
        return None;
    }
    LENDING.set(ptr::null());
    Some(lending.clone())
}

impl Loan {
    /// # Safety
    /// The thread is inside a callback on `under`, an object of this kind, or on another object of
    /// the same connectors. The object stays open until the loan is dropped.
    pub unsafe fn of(under: &Under, kind: H5I_type_t) -> Result<Loan> {
        let lent = Arc::new(Lent {
            id: AtomicI64::new(CLOSED),
            is_held: AtomicBool::new(false),
            is_given: AtomicBool::new(false),
            operation: Mutex::new(Weak::new()),
        });
        let lending: Lending = (Arc::clone(&under.container), Arc::clone(&lent));
        LENDING.set(&lending);
        // SAFETY: passed on.
        let id = unsafe {
            let bottom = (under.calls.H5VLget_object)(under.object, under.id);
            match bottom.is_null() {
                true => CLOSED,
                false => (under.calls.H5VLwrap_register)(bottom, kind),
            }
        };
        LENDING.set(ptr::null());
        if id < 0 {
            return Err(Error::new(
                Kind::Unavailable,
                "HDF5 gives no identifier for the object in the course of this call",
            ));
        }
        lent.id.store(id, Relaxed);
        lent.is_held.store(true, Relaxed);
        Ok(Loan {
            host: under.container.below.host,
            lent,
        })
    }

    pub fn id(&self) -> hid_t {
        self.lent.id.load(Relaxed)
    }

    /// Leaves the object to those who have references to its identifier, if there are any: HDF5 gives
    /// out the identifier that it finds for a file, as H5Iget_file_id does. It is closed with the last
    /// of them then. When the library closes nobody has: it is closed by the identifier itself, whose call
    /// says for which connectors, so that all that HDF5 keeps of the file goes.
    pub fn is_taken_over(&self) -> bool {
        // SAFETY: the thread is inside a call of this HDF5, which checks the identifier.
        let references = || unsafe { (self.host.calls.H5Iget_ref)(self.id()) };
        let is_taken_over = self.lent.is_held.load(Relaxed)
            && (self.host.keeping_errors(references) > 1 || is_ending());
        if is_taken_over {
            self.lent.is_held.store(false, Relaxed);
            self.lent.is_given.store(true, Relaxed);
            self.release();
        }
        is_taken_over
    }

    /// Gives one reference back. How many are left.
    fn release(&self) -> c_int {
        // SAFETY: the thread is inside a call of this HDF5, which checks the identifier.
        let release = || unsafe { (self.host.calls.H5Idec_ref)(self.id()) };
        self.host.keeping_errors(release)
    }

    /// From now on an application that closes the identifier, which it finds among those of the
    /// file, waits for the operation.
    pub fn is_used_by(&self, operation: &Arc<Operation>) {
        let mut user = self
            .lent
            .operation
            .lock()
            .unwrap_or_else(|e| e.into_inner());
        *user = Arc::downgrade(operation);
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if self.lent.is_held.swap(false, Relaxed) {
            // The object is closed by another identifier: an application that has taken references to
            // this one must not reach what is no more.
            while self.release() > 0 {}
        }
    }
}

impl Lent {
    /// Whether the object is the application's, and no longer lent.
    pub fn is_given(&self) -> bool {
        self.is_given.load(Relaxed)
    }

    /// The identifier is being closed, by its loan or by the application. Until this returns it can be
    /// used, and the operation is finished by it; then its loan has nothing left to close.
    pub fn closes(&self) {
        let operation = {
            let user = self.operation.lock().unwrap_or_else(|e| e.into_inner());
            user.upgrade()
        };
        if self.is_held.swap(false, Relaxed)
            && let Some(operation) = operation
        {
            operation.settle();
        }
        self.id.store(CLOSED, Relaxed);
    }
}

/// Gives wrappers back that connectors in between have put around a lent object.
///
/// # Safety
/// `under` is what was wrapped for the loan, and is used no more.
pub unsafe fn unwrap(under: &Under) {
    let below = &under.container.below;
    // SAFETY: passed on.
    let _bottom: *mut c_void = unsafe { (under.calls.H5VLunwrap_object)(under.object, below.id) };
}
