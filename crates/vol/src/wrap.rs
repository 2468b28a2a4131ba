//! How HDF5 wraps objects of the connector at the bottom as ours, and takes them out again: for
//! callbacks of an application, for references, for datatypes of elements of variable length.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use penstock_sys::hdf5::connector::{H5I_type_t, H5VL_wrap_class_t};
use penstock_sys::hdf5::herr_t;

use super::background::being_lent;
use super::wrapped::{Container, Under, Wrapped};
use penstock_hdf5::library::callback::{FAIL, SUCCEED};

/// What is needed to wrap an object that lies in the same file as another.
struct Context {
    container: Arc<Container>,
    /// The same of the connector below; null if that wraps nothing.
    under: *mut c_void,
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.under.is_null() {
            let below = &self.container.below;
            // SAFETY: the connector below has made the context, and its end is here.
            below.host.keeping_errors(|| unsafe {
                (below.host.calls.H5VLfree_wrap_ctx)(self.under, below.id)
            });
        }
    }
}

unsafe extern "C" fn get_object(obj: *const c_void) -> *mut c_void {
    // SAFETY: HDF5 gives an object of this connector.
    unsafe {
        let under = Under::of(obj);
        let found = under.caught(|| Ok((under.calls.H5VLget_object)(under.object, under.id)));
        found.unwrap_or(ptr::null_mut())
    }
}

unsafe extern "C" fn get_wrap_ctx(obj: *const c_void, wrap_ctx: *mut *mut c_void) -> herr_t {
    // SAFETY: HDF5 gives an object of this connector, and a place for the answer.
    unsafe {
        let wrapped = Wrapped::of(obj);
        if wrapped.operation().is_some() || wrapped.is_gone() {
            // Nothing of a request is wrapped but what it lends itself; nor anything of a closed file.
            let context = Context {
                container: Arc::clone(wrapped.container()),
                under: ptr::null_mut(),
            };
            *wrap_ctx = Box::into_raw(Box::new(context)).cast();
            return SUCCEED;
        }
        let under = Under::of(obj);
        let body = || {
            let mut context = Context {
                container: Arc::clone(&under.container),
                under: ptr::null_mut(),
            };
            let status = (under.calls.H5VLget_wrap_ctx)(under.object, under.id, &mut context.under);
            if status >= 0 {
                *wrap_ctx = Box::into_raw(Box::new(context)).cast();
            }
            Ok(status)
        };
        under.caught(body).unwrap_or(FAIL)
    }
}

unsafe extern "C" fn wrap_object(
    obj: *mut c_void,
    obj_type: H5I_type_t,
    wrap_ctx: *mut c_void,
) -> *mut c_void {
    // SAFETY: HDF5 gives a context of this connector.
    let context = unsafe { &*wrap_ctx.cast::<Context>() };
    let below = &context.container.below;
    let lending = being_lent(&context.container);
    // SAFETY: the object belongs to the file that the context is of.
    let under =
        unsafe { (below.host.calls.H5VLwrap_object)(obj, obj_type, below.id, context.under) };
    if under.is_null() {
        return under;
    }
    match lending {
        Some((container, lent)) => Wrapped::lend(under, &container, lent),
        None => Wrapped::wrap(under, &context.container),
    }
}

unsafe extern "C" fn unwrap_object(obj: *mut c_void) -> *mut c_void {
    // Of a file that is open by this connector and without, HDF5 (1.14.4, 2.2.0) notes one connector for
    // both: closing the one without asks for an object that was never wrapped.
    if !Wrapped::is_one(obj) {
        return obj;
    }
    // SAFETY: HDF5 gives up an object of this connector, if it gets the one at the bottom for it.
    unsafe {
        let under = Under::of(obj);
        if Wrapped::of(obj).is_gone() {
            return ptr::null_mut();
        }
        let found = (under.calls.H5VLunwrap_object)(under.object, under.id);
        if !found.is_null() {
            Wrapped::release(obj);
        }
        found
    }
}

unsafe extern "C" fn free_wrap_ctx(wrap_ctx: *mut c_void) -> herr_t {
    // SAFETY: HDF5 gives up a context of this connector.
    drop(unsafe { Box::from_raw(wrap_ctx.cast::<Context>()) });
    SUCCEED
}

pub(super) const CLASS: H5VL_wrap_class_t = H5VL_wrap_class_t {
    get_object: Some(get_object),
    get_wrap_ctx: Some(get_wrap_ctx),
    wrap_object: Some(wrap_object),
    unwrap_object: Some(unwrap_object),
    free_wrap_ctx: Some(free_wrap_ctx),
};
