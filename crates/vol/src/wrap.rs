//! Wraps and unwraps objects for HDF5: for callbacks of an application, for references, and for
//! datatypes of variable length. HDF5 calls this connector to wrap an object of the connector at
//! the bottom.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;

use penstock_sys::hdf5::connector::{H5I_type_t, H5VL_wrap_class_t};
use penstock_sys::hdf5::herr_t;

use super::container::Container;
use super::temporary_id::take_wrapping;
use super::under::CALL;
use super::unwrapped::{is_natives, of_caller};
use super::wrapped::Wrapped;
use penstock_hdf5::library::callback::{FAIL, SUCCEED, run_callback};

/// Context of [`wrap_object`] for objects in the same file as the object of [`get_wrap_ctx`].
struct WrapContext {
    container: Arc<Container>,
    /// Context of the connector below; null if that connector needs no wrapping.
    under: *mut c_void,
}

impl Drop for WrapContext {
    fn drop(&mut self) {
        if !self.under.is_null() {
            let below = &self.container.below;
            // SAFETY: the connector below has made the context, and nothing uses it later.
            below.library.keeping_errors(|| unsafe {
                (below.library.calls.H5VLfree_wrap_ctx)(self.under, below.id)
            });
        }
    }
}

/// The bit of an address that distinguishes a marked container from a [`WrapContext`].
const MARK: usize = 1;

/// Makes a context above the native connector, which needs none of its own: the marked address of
/// the container. HDF5 requests a context at each of the application's calls, so it must cost
/// little.
fn marked(container: &Arc<Container>) -> *mut c_void {
    let container = Arc::into_raw(Arc::clone(container));
    container.map_addr(|at| at | MARK).cast_mut().cast()
}

/// Returns the container of a context made by [`marked`].
///
/// # Safety
/// `wrap_ctx` is a context of this connector.
unsafe fn of_marked(wrap_ctx: *mut c_void) -> Option<ManuallyDrop<Arc<Container>>> {
    let container = wrap_ctx.map_addr(|at| at & !MARK).cast::<Container>();
    // SAFETY: the caller guarantees this; the context owns a reference, which stays where it is.
    (container.addr() != wrap_ctx.addr())
        .then(|| ManuallyDrop::new(unsafe { Arc::from_raw(container) }))
}

unsafe extern "C" fn get_object(obj: *const c_void) -> *mut c_void {
    // SAFETY: HDF5 passes an object of this connector, or a native file.
    unsafe {
        if !Wrapped::is_wrapper(obj) {
            return obj.cast_mut();
        }
        let under = Wrapped::of(obj).under();
        let found = under.run_callback(|| Ok((under.calls.H5VLget_object)(under.object, under.id)));
        found.unwrap_or(ptr::null_mut())
    }
}

unsafe extern "C" fn get_wrap_ctx(obj: *const c_void, wrap_ctx: *mut *mut c_void) -> herr_t {
    // SAFETY: HDF5 passes an object of this connector or a native file, and a pointer for the answer.
    unsafe {
        if !Wrapped::is_wrapper(obj) {
            let Some(container) = of_caller() else {
                return FAIL;
            };
            let under = ptr::null_mut();
            *wrap_ctx = Box::into_raw(Box::new(WrapContext { container, under })).cast();
            return SUCCEED;
        }
        let wrapped = Wrapped::of(obj);
        if let Some(Some(_)) = wrapped.container().native.get() {
            *wrap_ctx = marked(wrapped.container());
            return SUCCEED;
        }
        let body = || {
            let mut context = WrapContext {
                container: Arc::clone(wrapped.container()),
                under: ptr::null_mut(),
            };
            // HDF5 wraps nothing of a request but temporary identifiers, and nothing of a closed
            // file.
            if wrapped.own_request().is_none() && !wrapped.is_gone() {
                let under = wrapped.under();
                let get = under.calls.H5VLget_wrap_ctx;
                let status = get(under.object, under.id, &mut context.under);
                if status < 0 {
                    return Ok(status);
                }
            }
            *wrap_ctx = Box::into_raw(Box::new(context)).cast();
            Ok(SUCCEED)
        };
        run_callback(wrapped.library().hdf5, CALL, body).unwrap_or(FAIL)
    }
}

unsafe extern "C" fn wrap_object(
    obj: *mut c_void,
    obj_type: H5I_type_t,
    wrap_ctx: *mut c_void,
) -> *mut c_void {
    // SAFETY: HDF5 passes a context of this connector.
    let above_native = unsafe { of_marked(wrap_ctx) };
    let (container, of_below) = match &above_native {
        Some(container) => (&**container, ptr::null_mut()),
        None => {
            // SAFETY: as above.
            let context = unsafe { &*wrap_ctx.cast::<WrapContext>() };
            (&context.container, context.under)
        }
    };
    let below = &container.below;
    let wrapping = take_wrapping(container);
    // SAFETY: HDF5 passes an object of the connector at the bottom.
    if wrapping.is_none() && unsafe { is_natives(obj, obj_type, container) } {
        return obj;
    }
    // SAFETY: the context belongs to the file of the object.
    let under = unsafe { (below.library.calls.H5VLwrap_object)(obj, obj_type, below.id, of_below) };
    if under.is_null() {
        return under;
    }
    match wrapping {
        Some((container, state)) => Wrapped::wrap_temporary(under, &container, state),
        None if container.is_above_own && under == obj => under,
        None => Wrapped::wrap(under, container),
    }
}

unsafe extern "C" fn unwrap_object(obj: *mut c_void) -> *mut c_void {
    // SAFETY: HDF5 passes an object of this connector, or a native file.
    if !unsafe { Wrapped::is_wrapper(obj) } {
        return obj;
    }
    // SAFETY: HDF5 releases an object of this connector if it gets the object at the bottom in return.
    unsafe {
        let under = Wrapped::of(obj).under();
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
    // SAFETY: HDF5 transfers the ownership of a context of this connector.
    unsafe {
        match of_marked(wrap_ctx) {
            Some(container) => drop(ManuallyDrop::into_inner(container)),
            None => drop(Box::from_raw(wrap_ctx.cast::<WrapContext>())),
        }
    }
    SUCCEED
}

pub(crate) const CLASS: H5VL_wrap_class_t = H5VL_wrap_class_t {
    get_object: Some(get_object),
    get_wrap_ctx: Some(get_wrap_ctx),
    wrap_object: Some(wrap_object),
    unwrap_object: Some(unwrap_object),
    free_wrap_ctx: Some(free_wrap_ctx),
};
