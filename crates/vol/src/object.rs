//! Objects of any kind, `H5O`.

use std::ffi::{CStr, c_char, c_void};

use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{herr_t, hid_t};

use super::api_call::ApiCall;
use super::background;
use super::callback::{attempt, delete, make, operate, operate_on_two, visit};
use super::dataset::describe_together;
use super::protocol::Call;
use super::temporary_id::{TemporaryId, kind_of};
use super::under::Under;
use super::wrapped::Wrapped;
use penstock_hdf5::library::callback::SUCCEED;
use penstock_hdf5::transfer::prepare_for_copy;

forward! {
    operate get = H5VLobject_get, c"H5Oget_info";
    match specific = H5VLobject_specific {
        H5VL_OBJECT_VISIT => visit c"H5Ovisit",
        H5VL_OBJECT_FLUSH => after_all c"H5Oflush_async",
        H5VL_OBJECT_REFRESH => after_all c"H5Orefresh_async",
        H5VL_OBJECT_CHANGE_REF_COUNT => delete c"H5Odecr_refcount",
        _ => operate c"H5O",
    };
    operate optional = H5VLobject_optional, c"H5O";
}

unsafe extern "C" fn open(
    obj: *mut c_void,
    loc_params: Location,
    opened_type: *mut H5I_type_t,
    dxpl_id: hid_t,
    req: Req,
) -> *mut c_void {
    // SAFETY: the call passes HDF5's arguments on, with a place for the kind of the object.
    unsafe {
        let opened = make(obj, ApiCall::of(c"H5Oopen_async", req), |under| {
            let kind = kind_of(loc_params);
            background::open_in_step(under, kind, || {
                (under.calls.H5VLobject_open)(
                    under.object,
                    loc_params,
                    under.id,
                    opened_type,
                    dxpl_id,
                    req,
                )
            })
        });
        if !opened.is_null() && *opened_type == H5I_DATASET {
            describe_together(opened);
        }
        opened
    }
}

/// Runs an operation after all pending operations.
///
/// # Safety
/// As for [`operate`].
unsafe fn after_all(
    obj: *mut c_void,
    api_call: ApiCall,
    call: impl FnOnce(&Under) -> herr_t,
) -> herr_t {
    // SAFETY: the caller guarantees this.
    unsafe {
        attempt(obj, api_call, |under| {
            if !under.is_internal {
                background::finish_all(under.library());
            }
            Ok(under.quietly(|| call(under)))
        })
    }
}

unsafe extern "C" fn copy(
    src_obj: *mut c_void,
    loc_params1: Location,
    src_name: *const c_char,
    dst_obj: *mut c_void,
    loc_params2: Location,
    dst_name: *const c_char,
    ocpypl_id: hid_t,
    lcpl_id: hid_t,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: the call passes HDF5's arguments on.
    unsafe {
        // The copied objects may be in any file.
        let before = attempt(src_obj, ApiCall::NONE, |under| {
            background::finish_all(under.library());
            if !under.is_internal
                && under.ends_in_native()
                && let Ok(location) = TemporaryId::of(under, kind_of(loc_params1))
            {
                let name = CStr::from_ptr(src_name);
                prepare_for_copy(under.library().hdf5, location.get(), name, ocpypl_id)?;
            }
            Ok(SUCCEED)
        });
        if before < 0 {
            return before;
        }
        let api_call = ApiCall::of(c"H5Ocopy_async", req);
        operate_on_two(src_obj, dst_obj, api_call, |under, src, dst| {
            let copy = || {
                (under.calls.H5VLobject_copy)(
                    src,
                    loc_params1,
                    src_name,
                    dst,
                    loc_params2,
                    dst_name,
                    under.id,
                    ocpypl_id,
                    lcpl_id,
                    dxpl_id,
                    req,
                )
            };
            // The call is collective for the file that changes.
            let to = Wrapped::under_of(dst_obj).unwrap_or_else(|| under.clone());
            background::in_step(&to, Call::Copy, || None, copy)
        })
    }
}

pub(crate) const CLASS: H5VL_object_class_t = H5VL_object_class_t {
    open: Some(open),
    copy: Some(copy),
    get: Some(get),
    specific: Some(specific),
    optional: Some(optional),
};
