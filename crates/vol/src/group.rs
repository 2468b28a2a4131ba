//! Groups, `H5G`.

use std::ffi::{c_char, c_void};

use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{herr_t, hid_t};

use super::api_call::ApiCall;
use super::background;
use super::callback::{attempt, close, make, operate, operate_on_two};
use penstock_hdf5::library::callback::SUCCEED;

forward! {
    make create = H5VLgroup_create, c"H5Gcreate_async";
    make open = H5VLgroup_open, c"H5Gopen_async";
    operate get = H5VLgroup_get, c"H5Gget_info_async";
    operate optional = H5VLgroup_optional, c"H5G";
}

unsafe extern "C" fn specific(
    obj: *mut c_void,
    args: *mut H5VL_group_specific_args_t,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: the call passes HDF5's arguments on; the member of the union belongs to the operation.
    unsafe {
        if (*args).op_type != H5VL_GROUP_MOUNT {
            return operate(obj, ApiCall::of(c"H5Gflush", req), |under| {
                (under.calls.H5VLgroup_specific)(under.object, under.id, args, dxpl_id, req)
            });
        }
        let passed = (*args).args.mount;
        for object in [obj, passed.child_file]
            .into_iter()
            .filter(|it| !it.is_null())
        {
            attempt(object, ApiCall::NONE, |under| {
                background::mounts(under);
                Ok(SUCCEED)
            });
        }
        operate_on_two(
            obj,
            passed.child_file,
            ApiCall::of(c"H5Fmount", req),
            |under, group, child_file| {
                let mut args = H5VL_group_specific_args_t {
                    op_type: H5VL_GROUP_MOUNT,
                    args: GroupSpecific {
                        mount: GroupMount {
                            child_file,
                            ..passed
                        },
                    },
                };
                (under.calls.H5VLgroup_specific)(group, under.id, &mut args, dxpl_id, req)
            },
        )
    }
}

unsafe extern "C" fn close_group(grp: *mut c_void, dxpl_id: hid_t, req: Req) -> herr_t {
    // SAFETY: the call passes HDF5's arguments on.
    unsafe {
        close(grp, ApiCall::of(c"H5Gclose_async", req), |under| {
            background::group_closes(under);
            (under.calls.H5VLgroup_close)(under.object, under.id, dxpl_id, req)
        })
    }
}

pub(crate) const CLASS: H5VL_group_class_t = H5VL_group_class_t {
    create: Some(create),
    open: Some(open),
    get: Some(get),
    specific: Some(specific),
    optional: Some(optional),
    close: Some(close_group),
};
