//! Links, `H5L`.

use std::ffi::c_void;

use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{herr_t, hid_t};

use super::api_call::ApiCall;
use super::callback::{delete, operate, operate_on_two, visit};
use super::under::Under;

unsafe extern "C" fn create(
    args: *mut H5VL_link_create_args_t,
    obj: *mut c_void,
    loc_params: Location,
    lcpl_id: hid_t,
    lapl_id: hid_t,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: the call passes HDF5's arguments on; the member of the union belongs to the operation.
    unsafe {
        let call = |under: &Under, args, place| {
            (under.calls.H5VLlink_create)(
                args, place, loc_params, under.id, lcpl_id, lapl_id, dxpl_id, req,
            )
        };
        if (*args).op_type != H5VL_LINK_CREATE_HARD {
            let api_call = ApiCall::of(c"H5Lcreate_soft_async", req);
            return operate(obj, api_call, |under| call(under, args, under.object));
        }
        let named = (*args).args.hard_curr_obj;
        operate_on_two(
            obj,
            named,
            ApiCall::of(c"H5Lcreate_hard_async", req),
            |under, place, hard_curr_obj| {
                let mut args = H5VL_link_create_args_t {
                    op_type: H5VL_LINK_CREATE_HARD,
                    args: (*args).args,
                };
                args.args.hard_curr_obj = hard_curr_obj;
                call(under, &mut args, place)
            },
        )
    }
}

forward! {
    operate_on_two copy = H5VLlink_copy, c"H5Lcopy";
    operate_on_two r#move = H5VLlink_move, c"H5Lmove";
    operate get = H5VLlink_get, c"H5Lget_info";
    match specific = H5VLlink_specific {
        H5VL_LINK_EXISTS => operate c"H5Lexists_async",
        H5VL_LINK_ITER => visit c"H5Literate_async",
        _ => delete c"H5Ldelete_async",
    };
    operate optional = H5VLlink_optional, c"H5L";
}

pub(crate) const CLASS: H5VL_link_class_t = H5VL_link_class_t {
    create: Some(create),
    copy: Some(copy),
    r#move: Some(r#move),
    get: Some(get),
    specific: Some(specific),
    optional: Some(optional),
};
