//! Callbacks by which HDF5 queries the connector.

use std::ffi::{c_int, c_void};

use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::herr_t;

use super::CLASSES;
use super::api_call::ApiCall;
use super::callback::operate;
use super::calling_library::CallingLibrary;
use super::info::{ConnectorInfo, INFO, ListInfo};
use super::registration::CAP_FLAGS;
use penstock_hdf5::library::callback::{FAIL, run_callback};

unsafe extern "C" fn get_conn_cls(
    obj: *mut c_void,
    lvl: H5VL_get_conn_lvl_t,
    conn_cls: *mut *const H5VL_class_t,
) -> herr_t {
    // SAFETY: the call passes HDF5's arguments on, one of which points to the answer.
    unsafe {
        operate(obj, ApiCall::NONE, |under| {
            if lvl == H5VL_GET_CONN_LVL_CURR {
                *conn_cls = &CLASSES[under.library().slot];
                return 0;
            }
            (under.calls.H5VLintrospect_get_conn_cls)(under.object, under.id, lvl, conn_cls)
        })
    }
}

/// Returns the capabilities of the connector below and of this one.
unsafe extern "C" fn get_cap_flags<const SLOT: usize>(
    info: *const c_void,
    cap_flags: *mut u64,
) -> herr_t {
    let Some(library) = CallingLibrary::of(SLOT) else {
        return FAIL;
    };
    let answer = |info: &ConnectorInfo| {
        // SAFETY: the identifier is open, its connector has made the information, and HDF5 passes a pointer
        // for the answer.
        unsafe {
            let (under_info, id) = (info.under_info, info.below.id);
            let status = (library.calls.H5VLintrospect_get_cap_flags)(under_info, id, cap_flags);
            if status >= 0 {
                *cap_flags |= CAP_FLAGS;
            }
            Ok(status)
        }
    };
    // SAFETY: HDF5 passes null or information of this connector.
    let body = || match unsafe { info.cast::<ListInfo>().as_ref() } {
        Some(ListInfo::Usable(info)) => answer(info),
        Some(ListInfo::Unusable { error, .. }) => Err(error.clone()),
        None => answer(&ConnectorInfo::native(library)?),
    };
    run_callback(library.hdf5, INFO, body).unwrap_or(FAIL)
}

forward! {
    operate opt_query = H5VLintrospect_opt_query;
}

pub(crate) const fn class<const SLOT: usize>() -> H5VL_introspect_class_t {
    H5VL_introspect_class_t {
        get_conn_cls: Some(get_conn_cls),
        get_cap_flags: Some(get_cap_flags::<SLOT>),
        opt_query: Some(opt_query),
    }
}
