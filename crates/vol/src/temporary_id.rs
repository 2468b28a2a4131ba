//! Temporary identifiers.
//!
//! A callback gets an object of the connector below, but no identifier. The functions of HDF5 that
//! plan a transfer or write an encoded chunk require one. When such a function calls this connector
//! with a temporary identifier, the connector recognises the wrapper and forwards the call
//! immediately. Closing the identifier leaves the object below open.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use penstock_engine::Recover;
use penstock_engine::error::{Error, Kind, Result};
use penstock_sys::hdf5::connector::{H5I_type_t, Location, LocationBySelf};
use penstock_sys::hdf5::hid_t;

use super::calling_library::CallingLibrary;
use super::container::Container;
use super::under::Under;
use super::visit::is_closing;
use penstock_hdf5::transfer::conflicts::Pending;

/// A temporary identifier. A thread inside a call of its HDF5 drops it, which closes the
/// identifier.
pub(crate) struct TemporaryId {
    library: CallingLibrary,
    state: Arc<TemporaryState>,
}

/// The state that a temporary identifier shares with the wrapper of its object.
pub(crate) struct TemporaryState {
    /// The identifier; -1 after its close.
    id: AtomicI64,
    /// Whether [`TemporaryId`] still has to close the identifier.
    is_held: AtomicBool,
    /// Whether the application owns the identifier, and closes the object by it.
    is_handed_over: AtomicBool,
    /// The operation that calls HDF5 with the identifier.
    operation: Mutex<Option<Weak<dyn Pending>>>,
}

const CLOSED: hid_t = -1;

thread_local! {
    /// The temporary identifier for the object that this thread is about to wrap; otherwise null.
    /// It is a pointer because thread-locals with a destructor cannot be read when the process
    /// exits.
    static WRAPPING: Cell<*const Wrapping> = const { Cell::new(ptr::null()) };
}

type Wrapping = (Arc<Container>, Arc<TemporaryState>);

/// Returns the temporary identifier for the object that the thread is wrapping, if there is one. It
/// must belong to the connector of `container`, because another instance of this connector above or
/// below wraps the object, too.
pub(crate) fn take_wrapping(container: &Container) -> Option<Wrapping> {
    // SAFETY: the pointer is null, or points to a variable of `TemporaryId::of`, which resets it.
    let wrapping = unsafe { WRAPPING.get().as_ref() }?;
    if wrapping.0.below.compare(&container.below) != 0 {
        return None;
    }
    WRAPPING.set(ptr::null());
    Some(wrapping.clone())
}

/// Returns the kind of the object at which a location begins.
///
/// # Safety
/// HDF5 has passed the location.
pub(crate) unsafe fn kind_of(location: Location) -> H5I_type_t {
    // SAFETY: the caller guarantees this; all locations begin with the same members.
    unsafe { (*location.cast::<LocationBySelf>()).obj_type }
}

impl TemporaryId {
    /// Makes an identifier of an object.
    ///
    /// # Safety
    /// The thread is inside a callback on `under`, an object of this kind, or on another object of
    /// the same connectors. The object stays open until the identifier is dropped.
    pub(crate) unsafe fn of(under: &Under, kind: H5I_type_t) -> Result<TemporaryId> {
        let state = Arc::new(TemporaryState {
            id: AtomicI64::new(CLOSED),
            is_held: AtomicBool::new(false),
            is_handed_over: AtomicBool::new(false),
            operation: Mutex::default(),
        });
        let wrapping: Wrapping = (Arc::clone(&under.container), Arc::clone(&state));
        WRAPPING.set(&wrapping);
        // SAFETY: the caller guarantees this.
        let id = unsafe {
            let bottom = (under.calls.H5VLget_object)(under.object, under.id);
            if bottom.is_null() {
                CLOSED
            } else {
                (under.calls.H5VLwrap_register)(bottom, kind)
            }
        };
        WRAPPING.set(ptr::null());
        if id < 0 {
            return Err(Error::new(
                Kind::Unavailable,
                "HDF5 cannot make an identifier for the object during this call",
            ));
        }
        state.id.store(id, Relaxed);
        state.is_held.store(true, Relaxed);
        Ok(TemporaryId {
            library: under.library(),
            state,
        })
    }

    pub(crate) fn get(&self) -> hid_t {
        self.state.id.load(Relaxed)
    }

    /// Makes the identifier the owner of the object if the application has references to it.
    /// H5Iget_file_id, for example, returns any identifier of a file. HDF5 then closes the object
    /// with the last reference. Also does so when the library closes, because only a close by
    /// identifier releases all of HDF5's state of the file. Returns whether the identifier owns the
    /// object.
    pub(crate) fn hand_over(&self) -> bool {
        // SAFETY: the thread is inside a call of this HDF5, which checks the identifier.
        let references = || unsafe { (self.library.calls.H5Iget_ref)(self.get()) };
        let hands_over = self.state.is_held.load(Relaxed)
            && (self.library.keeping_errors(references) > 1 || is_closing());
        if hands_over {
            self.state.is_held.store(false, Relaxed);
            self.state.is_handed_over.store(true, Relaxed);
            self.release();
        }
        hands_over
    }

    /// Releases one reference. Returns the number of references left.
    fn release(&self) -> c_int {
        // SAFETY: the thread is inside a call of this HDF5, which checks the identifier.
        let release = || unsafe { (self.library.calls.H5Idec_ref)(self.get()) };
        self.library.keeping_errors(release)
    }

    /// Sets the operation that uses the identifier. If the application finds the identifier among
    /// those of the file and closes it, the close waits for the operation.
    pub(crate) fn set_user(&self, operation: &Arc<impl Pending + 'static>) {
        let mut user = self.state.operation.lock().recover();
        let operation = Arc::downgrade(operation);
        *user = Some(operation);
    }
}

impl Drop for TemporaryId {
    fn drop(&mut self) {
        if self.state.is_held.swap(false, Relaxed) {
            // Another identifier closes the object. The application's references to this one must
            // not outlive the object.
            while self.release() > 0 {}
        }
    }
}

impl TemporaryState {
    /// Returns whether the application owns the identifier, which is then no longer temporary.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.is_handed_over.load(Relaxed)
    }

    /// Records that [`TemporaryId`] or the application closes the identifier. A close by the
    /// application waits for the operation that uses the identifier; [`TemporaryId`] then has
    /// nothing to close.
    pub(crate) fn closes(&self) {
        let operation = {
            let user = self.operation.lock().recover();
            user.as_ref().and_then(Weak::upgrade)
        };
        if self.is_held.swap(false, Relaxed)
            && let Some(operation) = operation
        {
            operation.finish();
        }
        self.id.store(CLOSED, Relaxed);
    }
}

/// Releases the wrappers that intermediate connectors have put around the object of a temporary
/// identifier.
///
/// # Safety
/// `under` was wrapped for a temporary identifier, and nothing uses it later.
pub(crate) unsafe fn unwrap(under: &Under) {
    let below = &under.container.below;
    // SAFETY: the caller guarantees this.
    let _bottom: *mut c_void = unsafe { (under.calls.H5VLunwrap_object)(under.object, below.id) };
}
