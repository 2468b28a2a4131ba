//! Wrappers around a call of the connector below, for callbacks.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::connector::Req;
use penstock_sys::hdf5::herr_t;

use super::api_call::{ApiCall, METADATA, NO_REQUEST};
use super::background::{self, When};
use super::calling_library::Quiet;
use super::protocol::Call;
use super::temporary_id::unwrap;
use super::under::Under;
use super::wrapped::Wrapped;
use penstock_hdf5::library::callback::{FAIL, SUCCEED};
use penstock_hdf5::transfer::conflicts::AccessSet;

/// Reason in the log why an object is closed or flushed immediately.
pub(crate) const NOTHING_PENDING: &str = "no pending operation precedes it";

/// Runs an operation on an object.
///
/// # Safety
/// HDF5 holds `object`. `api_call.req` is null or a pointer for a request. `call` makes only the
/// call that HDF5 has requested.
pub(crate) unsafe fn operate(
    object: *const c_void,
    api_call: ApiCall,
    call: impl FnOnce(&Under) -> herr_t,
) -> herr_t {
    // SAFETY: the caller guarantees this.
    unsafe { attempt(object, api_call, |under| Ok(under.quietly(|| call(under)))) }
}

/// Runs an operation whose `call` may return an error of this connector, or call functions of the
/// application. HDF5 prints errors of these functions.
///
/// # Safety
/// As for [`operate`].
pub(crate) unsafe fn attempt(
    object: *const c_void,
    api_call: ApiCall,
    call: impl FnOnce(&Under) -> Result<herr_t>,
) -> herr_t {
    // SAFETY: the caller guarantees this.
    let Some(under) = (unsafe { Wrapped::under_of(object) }) else {
        return FAIL;
    };
    let body = || {
        let status = call(&under)?;
        if status >= 0 {
            // SAFETY: the caller guarantees this.
            unsafe { api_call.succeeded(&under.container, METADATA) };
        }
        Ok(status)
    };
    under.run_callback(body).unwrap_or(FAIL)
}

/// Runs an operation that deletes a link or decrements a number of references. HDF5 frees the storage
/// of a dataset then, or when it is closed.
///
/// # Safety
/// As for [`operate`].
pub(crate) unsafe fn delete(
    object: *const c_void,
    api_call: ApiCall,
    call: impl FnOnce(&Under) -> herr_t,
) -> herr_t {
    // SAFETY: the caller guarantees this.
    unsafe {
        attempt(object, api_call, |under| {
            if let Some(shared) = under.container.shared.get() {
                shared.may_free.store(true, Relaxed);
            }
            let call = || under.quietly(|| call(under));
            Ok(background::in_step(under, Call::Delete, || None, call))
        })
    }
}

/// Runs an operation that iterates: it calls a function of the application for each item.
///
/// # Safety
/// As for [`operate`].
pub(crate) unsafe fn visit(
    object: *const c_void,
    api_call: ApiCall,
    call: impl FnOnce(&Under) -> herr_t,
) -> herr_t {
    // SAFETY: the caller guarantees this.
    unsafe {
        attempt(object, api_call, |under| {
            Ok(under.container.in_call(|| call(under)))
        })
    }
}

/// Runs an operation on two objects. If one is null, it is at the location of the other.
///
/// # Safety
/// As for [`operate`], for both.
pub(crate) unsafe fn operate_on_two(
    one: *mut c_void,
    other: *mut c_void,
    api_call: ApiCall,
    call: impl FnOnce(&Under, *mut c_void, *mut c_void) -> herr_t,
) -> herr_t {
    let under_or_null = |object: *mut c_void, beside: &Under| {
        if object.is_null() {
            Ok(object)
        } else {
            // SAFETY: the caller guarantees this.
            let under = unsafe { Wrapped::under_of(object) };
            let under = under.ok_or_else(|| Error::invalid("the object has no connector"))?;
            beside.together_with(&under)?;
            Ok(under.object)
        }
    };
    // SAFETY: the caller guarantees this.
    unsafe {
        attempt(if one.is_null() { other } else { one }, api_call, |under| {
            let objects = (under_or_null(one, under)?, under_or_null(other, under)?);
            Ok(under.quietly(|| call(under, objects.0, objects.1)))
        })
    }
}

/// Runs an operation that makes an object.
///
/// # Safety
/// As for [`operate`].
pub(crate) unsafe fn make(
    object: *const c_void,
    api_call: ApiCall,
    call: impl FnOnce(&Under) -> *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller guarantees this.
    let Some(under) = (unsafe { Wrapped::under_of(object) }) else {
        return ptr::null_mut();
    };
    let body = || {
        let made = under.quietly(|| call(&under));
        if !made.is_null() {
            // SAFETY: the caller guarantees this.
            unsafe { api_call.succeeded(&under.container, METADATA) };
        }
        Ok(Wrapped::wrap(made, &under.container))
    };
    under.run_callback(body).unwrap_or(ptr::null_mut())
}

/// Runs an operation that closes the object if it succeeds.
///
/// # Safety
/// As for [`operate`].
pub(crate) unsafe fn close(
    object: *mut c_void,
    api_call: ApiCall,
    call: impl FnOnce(&Under) -> herr_t,
) -> herr_t {
    // SAFETY: the caller guarantees this.
    if let Some(status) = unsafe { close_temporary(object) } {
        return status;
    }
    // SAFETY: the caller guarantees this.
    let status = unsafe { operate(object, api_call, call) };
    if status >= 0 {
        // SAFETY: HDF5 releases a closed object.
        unsafe { Wrapped::release(object) };
    }
    status
}

/// As [`close`], for an object that may have pending operations. The close waits for them, or
/// becomes a deferred operation. After a successful close it returns the error of `report`, if any.
/// The call then fails, and HDF5 keeps the identifier, which is invalid until the application closes
/// it again.
///
/// # Safety
/// As for [`close`]. `native` makes the call, now or later. If `report` may fail, HDF5 keeps the
/// identifier of such an object when its close fails.
pub(crate) unsafe fn close_and_report(
    object: *mut c_void,
    api_call: ApiCall,
    set: impl FnOnce(&Under) -> AccessSet,
    native: impl Fn(&Under, Req) -> herr_t + 'static,
    report: impl FnOnce(&Under) -> Result<()>,
) -> herr_t {
    // SAFETY: the caller guarantees this.
    if let Some(status) = unsafe { close_temporary(object) } {
        return status;
    }
    // SAFETY: the caller guarantees this.
    if !unsafe { Wrapped::is_wrapper(object) } {
        let call = |under: &Under| native(under, NO_REQUEST);
        // SAFETY: the caller guarantees this.
        return unsafe { operate(object, api_call, call) };
    }
    // SAFETY: the caller guarantees this.
    if unsafe { Wrapped::of(object) }.is_gone() {
        // SAFETY: HDF5 releases the object now.
        unsafe { Wrapped::release(object) };
        return SUCCEED;
    }
    let when = Cell::new(When::Now);
    // SAFETY: the caller guarantees this.
    unsafe {
        let status = attempt(object, ApiCall::NONE, |under| {
            let _quiet = Quiet::begin(under.library());
            if under.container.shared.get().is_some() {
                let pending = background::pending_on_closed(api_call, under, Wrapped::of(object));
                let status = under.container.in_call(|| native(under, NO_REQUEST));
                if status >= 0 {
                    when.set(background::complete_after(api_call, under, pending));
                }
                return Ok(status);
            }
            let native = Rc::new(native);
            let later = Rc::clone(&native);
            let act = move |under: &Under| {
                let container = Arc::clone(&under.container);
                container.in_call(|| later(under, NO_REQUEST))
            };
            when.set(background::defer(api_call, under, || set(under), act)?);
            if when.get() == When::Later {
                return Ok(SUCCEED);
            }
            let status = under.container.in_call(|| native(under, api_call.req));
            if status >= 0 {
                api_call.succeeded(&under.container, NOTHING_PENDING);
            }
            Ok(status)
        });
        if status < 0 {
            return status;
        }
        let under = Wrapped::of(object).under();
        if when.get() == When::Now && under.run_callback(|| report(&under)).is_none() {
            Wrapped::of(object).set_gone();
            return FAIL;
        }
        Wrapped::release(object);
        status
    }
}

/// Drops the wrapper of an object with a temporary identifier, and leaves the object open. Returns
/// `None` for another object.
///
/// # Safety
/// HDF5 releases the object.
unsafe fn close_temporary(object: *mut c_void) -> Option<herr_t> {
    // SAFETY: the caller guarantees this.
    unsafe {
        if !Wrapped::is_wrapper(object) {
            return None;
        }
        let state = Arc::clone(Wrapped::of(object).temporary()?);
        let under = Wrapped::of(object).under();
        state.closes();
        unwrap(&under);
        Wrapped::release(object);
    }
    Some(SUCCEED)
}
