//! Objects of any kind, `H5O`.

use std::ffi::{CStr, c_char, c_int, c_void};

use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{herr_t, hid_t};

use super::api_call::ApiCall;
use super::background;
use super::callback::{make, operate, operate_on_two, operate_or_visit};
use super::under::Under;

forward! {
    make open = H5VLobject_open, c"H5Oopen_async";
    operate get = H5VLobject_get, c"H5Oget_info";
    operate optional = H5VLobject_optional, c"H5O";
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
        operate_on_two(
            src_obj,
            dst_obj,
            ApiCall::of(c"H5Ocopy_async", req),
            |under, src, dst| {
                // The copied objects may lie in any file.
                background::finish_all(under.container.below.library);
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
            },
        )
    }
}

fn call_of(operation: c_int) -> &'static CStr {
    match operation {
        H5VL_OBJECT_VISIT => c"H5Ovisit",
        H5VL_OBJECT_FLUSH => c"H5Oflush_async",
        H5VL_OBJECT_REFRESH => c"H5Orefresh_async",
        _ => c"H5O",
    }
}

unsafe extern "C" fn specific(
    obj: *mut c_void,
    loc_params: Location,
    args: *mut H5VL_object_specific_args_t,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: the call passes HDF5's arguments on.
    unsafe {
        let call = |under: &Under| {
            if matches!((*args).op_type, H5VL_OBJECT_FLUSH | H5VL_OBJECT_REFRESH)
                && !under.is_internal
            {
                background::finish_all(under.container.below.library);
            }
            (under.calls.H5VLobject_specific)(
                under.object,
                loc_params,
                under.id,
                args,
                dxpl_id,
                req,
            )
        };
        let api_call = ApiCall::of(call_of((*args).op_type), req);
        operate_or_visit(obj, api_call, (*args).op_type == H5VL_OBJECT_VISIT, call)
    }
}

pub(crate) const CLASS: H5VL_object_class_t = H5VL_object_class_t {
    open: Some(open),
    copy: Some(copy),
    get: Some(get),
    specific: Some(specific),
    optional: Some(optional),
};
