//! What the connector tells of itself.

use std::ffi::{c_int, c_void};

use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::herr_t;

use super::host::Host;
use super::info::{INFO, Info};
use super::wrapped::{Ask, operate};
use super::{CAP_FLAGS, CLASSES};
use penstock_hdf5::library::callback::{FAIL, caught};

unsafe extern "C" fn get_conn_cls(
    obj: *mut c_void,
    lvl: H5VL_get_conn_lvl_t,
    conn_cls: *mut *const H5VL_class_t,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on, with a place for the answer.
    unsafe {
        operate(obj, Ask::NONE, |under| {
            if lvl == H5VL_GET_CONN_LVL_CURR {
                *conn_cls = &CLASSES[under.container.below.host.slot];
                return 0;
            }
            (under.calls.H5VLintrospect_get_conn_cls)(under.object, under.id, lvl, conn_cls)
        })
    }
}

/// What the connector below can do, and this one besides.
unsafe extern "C" fn get_cap_flags<const SLOT: usize>(
    info: *const c_void,
    cap_flags: *mut u64,
) -> herr_t {
    let Some(host) = Host::of(SLOT) else {
        return FAIL;
    };
    let tell = |info: &Info| {
        // SAFETY: the connector is held, the information is its own, and HDF5 gives a place for the
        // answer.
        unsafe {
            let (under_info, id) = (info.under_info(), info.below.id);
            let status = (host.calls.H5VLintrospect_get_cap_flags)(under_info, id, cap_flags);
            if status >= 0 {
                *cap_flags |= CAP_FLAGS;
            }
            Ok(status)
        }
    };
    // SAFETY: HDF5 gives null or information of this connector.
    let body = || match unsafe { info.cast::<Info>().as_ref() } {
        Some(info) => tell(info),
        None => tell(&Info::native(host)?),
    };
    caught(host.hdf5, INFO, body).unwrap_or(FAIL)
}

forward! {
    operate opt_query = H5VLintrospect_opt_query;
}

pub(super) const fn class<const SLOT: usize>() -> H5VL_introspect_class_t {
    H5VL_introspect_class_t {
        get_conn_cls: Some(get_conn_cls),
        get_cap_flags: Some(get_cap_flags::<SLOT>),
        opt_query: Some(opt_query),
    }
}
