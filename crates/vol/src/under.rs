//! Objects of the connector below, for callbacks on their wrappers.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::connector::{
    H5VL_GET_CONN_LVL_CURR, H5VL_GET_CONN_LVL_TERM, H5VL_class_t, H5VL_dataset_class_t,
    H5VL_get_conn_lvl_t,
};
use penstock_sys::hdf5::hid_t;
use penstock_sys::hdf5::pass_through::Functions;

use super::calling_library::{CallingLibrary, Quiet};
use super::container::Container;
use penstock_hdf5::library::callback::{ErrorSite, error_site, run_callback};

/// An object of the connector below, for one call. It outlives the wrapper, because a refresh
/// closes the object and opens it again.
#[derive(Clone)]
pub(crate) struct Under {
    pub(crate) object: *mut c_void,
    /// The identifier of the connector below.
    pub(crate) id: hid_t,
    pub(crate) calls: &'static Functions,
    pub(crate) container: Arc<Container>,
    /// Whether Penstock makes the call itself, in an operation or a transfer.
    pub(crate) is_internal: bool,
    /// Whether the object is closed, although HDF5 keeps the identifier.
    pub(crate) is_gone: bool,
}

/// The value of the native connector.
pub(crate) const NATIVE: c_int = 0;

/// Functions that call the connector below.
pub(crate) enum Below<'a> {
    /// Its own functions, as HDF5 itself uses. The functions named `H5VL` accept any connector, but
    /// also print errors and look up identifiers.
    Native(&'static H5VL_dataset_class_t),
    /// The functions named `H5VL`.
    Other(&'a Under),
}

pub(crate) const CALL: ErrorSite = error_site(c"penstock_async", "H5E_VOL_g", "H5E_CANTOPERATE_g");

impl Under {
    pub(crate) fn library(&self) -> CallingLibrary {
        self.container.below.library
    }

    /// Runs the body of a callback, and pushes its error or panic onto the error stack. Errors of
    /// the connector below are already there.
    pub(crate) fn run_callback<T>(&self, body: impl FnOnce() -> Result<T>) -> Option<T> {
        let body = || self.refuse_gone().and_then(|()| body());
        run_callback(self.library().hdf5, CALL, body)
    }

    fn refuse_gone(&self) -> Result<()> {
        if self.is_gone {
            Err(Error::invalid(
                "the object was closed by the call that reported a failed write",
            ))
        } else {
            Ok(())
        }
    }

    /// Makes a call that prints no errors. HDF5 prints them at the end of the application's call.
    pub(crate) fn quietly<T>(&self, call: impl FnOnce() -> T) -> T {
        let _quiet = Quiet::begin(self.library());
        self.container.in_call(call)
    }

    /// Returns an error if another object belongs to a different connector below.
    pub(crate) fn together_with(&self, other: &Under) -> Result<()> {
        other.refuse_gone()?;
        let (one, other) = (&self.container, &other.container);
        if Arc::ptr_eq(one, other) || one.below.compare(&other.below) == 0 {
            Ok(())
        } else {
            Err(Error::invalid(
                "the objects belong to different connectors below penstock_async",
            ))
        }
    }

    /// Returns whether the connector at the bottom is the native one.
    ///
    /// # Safety
    /// The thread is inside a callback on this object.
    pub(crate) unsafe fn ends_in_native(&self) -> bool {
        // SAFETY: the caller guarantees this.
        let ask = || unsafe { self.native_class(H5VL_GET_CONN_LVL_TERM) }.is_some();
        *self.container.is_native.get_or_init(ask)
    }

    /// Returns the functions that call the connector below.
    ///
    /// # Safety
    /// As for [`Under::ends_in_native`].
    pub(crate) unsafe fn below(&self) -> Below<'_> {
        let ask = || {
            let mut value = -1;
            // SAFETY: the caller guarantees this; `value` receives the answer.
            let class = self.quietly(|| unsafe {
                (self.calls.H5VLget_value)(self.id, &mut value);
                self.native_class(H5VL_GET_CONN_LVL_CURR)
            });
            // A connector made of the native one's functions may have that one's class.
            class.filter(|_| value == NATIVE)
        };
        let of_native = self
            .container
            .native
            .get_or_init(|| ask().map(|class| &class.dataset_cls));
        of_native.map_or(Below::Other(self), Below::Native)
    }

    /// Returns the class of the connector below, or of the one at the bottom, if it is the native
    /// one.
    ///
    /// # Safety
    /// As for [`Under::ends_in_native`].
    unsafe fn native_class(&self, level: H5VL_get_conn_lvl_t) -> Option<&'static H5VL_class_t> {
        let mut class: *const H5VL_class_t = ptr::null();
        // SAFETY: the caller guarantees this; `class` receives the answer. The class of the native connector is
        // a constant of HDF5, which the process never unloads.
        unsafe {
            let get = self.calls.H5VLintrospect_get_conn_cls;
            let status = get(self.object, self.id, level, &mut class);
            class
                .as_ref()
                .filter(|class| status >= 0 && class.value == NATIVE)
        }
    }
}
