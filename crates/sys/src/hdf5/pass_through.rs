//! The functions of HDF5 by which a connector calls the one below it (`H5VLconnector_passthru.h`),
//! and those that it needs besides. They have the same names and signatures in 1.14.x and 2.x.
//!
//! A table of its own: whoever has no connector needs no HDF5 that exports these.

#![allow(non_camel_case_types)]

use std::ffi::{OsStr, c_char, c_int, c_uint, c_ulong, c_void};

use super::connector::*;
use super::{TITLE, herr_t, hid_t, hssize_t, htri_t};
use crate::library::{Absent, Search, table};

type Obj = *mut c_void;
type Location = *const H5VL_loc_params_t;
type Req = *mut *mut c_void;
/// One of a property's own functions; none of ours has any.
type Callback = *const c_void;
pub type EachId = unsafe extern "C" fn(id: hid_t, op_data: *mut c_void) -> herr_t;
pub type AtClose = unsafe extern "C" fn(ctx: *mut c_void);

table! {
    /// The functions named `H5VL` keep the error stack; all others clear it when they begin.
    Functions {
        required {
            /// To be given back by `H5free_memory`.
            fn H5allocate_memory(size: usize, clear: bool) -> *mut c_void;
            fn H5ESget_requests(es_id: hid_t, order: c_int, connector_ids: *mut hid_t,
                requests: *mut *mut c_void, array_len: usize, count: *mut usize) -> herr_t;
            /// Ends early where an operation has failed, which has left the set then.
            fn H5ESwait(es_id: hid_t, timeout: u64, num_in_progress: *mut usize, err_occurred: *mut bool)
                -> herr_t;
            fn H5Fget_obj_count(file_id: hid_t, types: c_uint) -> isize;
            fn H5Fget_obj_ids(file_id: hid_t, types: c_uint, max_objs: usize, obj_id_list: *mut hid_t)
                -> isize;
            fn H5Idec_ref(id: hid_t) -> c_int;
            fn H5Iget_ref(id: hid_t) -> c_int;
            /// Until `op` returns something else than 0.
            fn H5Iiterate(type_: H5I_type_t, op: EachId, op_data: *mut c_void) -> herr_t;
            fn H5Pcopy(plist_id: hid_t) -> hid_t;
            fn H5Pget_fclose_degree(fapl_id: hid_t, degree: *mut c_int) -> herr_t;
            fn H5Pset_vol(plist_id: hid_t, new_vol_id: hid_t, new_vol_info: *const c_void) -> herr_t;
            /// One reference more of the identifier.
            fn H5Pget_vol_id(plist_id: hid_t, vol_id: *mut hid_t) -> herr_t;
            /// A copy, made by the connector, or null if the list has no information.
            fn H5Pget_vol_info(plist_id: hid_t, vol_info: *mut *mut c_void) -> herr_t;
            /// Moves the calling thread's errors to a stack of its own. Does not begin by clearing.
            fn H5Eget_current_stack() -> hid_t;
            /// Moves them back, and closes that stack.
            fn H5Eset_current_stack(err_stack_id: hid_t) -> herr_t;
            /// Does not clear.
            fn H5Eget_num(error_stack_id: hid_t) -> isize;
            /// Does not clear. Whether `H5Eget_auto2` may be asked.
            fn H5Eauto_is_v2(err_stack: hid_t, is_stack: *mut c_uint) -> herr_t;

            fn H5VLregister_connector(cls: *const H5VL_class_t, vipl_id: hid_t) -> hid_t;
            /// One reference more of the identifier, or a new one, of a connector that is there.
            fn H5VLregister_connector_by_value(connector_value: H5VL_class_value_t, vipl_id: hid_t)
                -> hid_t;
            fn H5VLregister_connector_by_name(connector_name: *const c_char, vipl_id: hid_t) -> hid_t;
            fn H5VLis_connector_registered_by_name(name: *const c_char) -> htri_t;
            fn H5VLget_connector_id_by_name(name: *const c_char) -> hid_t;
            fn H5VLcmp_connector_cls(cmp: *mut c_int, connector_id1: hid_t, connector_id2: hid_t)
                -> herr_t;

            fn H5VLget_connector_name(id: hid_t, name: *mut c_char, size: usize) -> isize;
            fn H5VLget_value(connector_id: hid_t, conn_value: *mut H5VL_class_value_t) -> herr_t;
            fn H5VLcopy_connector_info(connector_id: hid_t, dst_vol_info: *mut *mut c_void,
                src_vol_info: *mut c_void) -> herr_t;
            fn H5VLcmp_connector_info(cmp: *mut c_int, connector_id: hid_t, info1: *const c_void,
                info2: *const c_void) -> herr_t;
            fn H5VLfree_connector_info(connector_id: hid_t, vol_info: *mut c_void) -> herr_t;
            /// To be given back by `H5free_memory`; null if there is nothing to tell.
            fn H5VLconnector_info_to_str(info: *const c_void, connector_id: hid_t,
                str: *mut *mut c_char) -> herr_t;
            fn H5VLconnector_str_to_info(str: *const c_char, connector_id: hid_t,
                info: *mut *mut c_void) -> herr_t;

            fn H5VLget_object(obj: Obj, connector_id: hid_t) -> *mut c_void;
            fn H5VLget_wrap_ctx(obj: Obj, connector_id: hid_t, wrap_ctx: *mut *mut c_void) -> herr_t;
            fn H5VLwrap_object(obj: Obj, obj_type: H5I_type_t, connector_id: hid_t,
                wrap_ctx: *mut c_void) -> *mut c_void;
            fn H5VLunwrap_object(obj: Obj, connector_id: hid_t) -> *mut c_void;
            /// An identifier for an object of the connector at the bottom, which all connectors wrap
            /// that take part in the call of HDF5 in which this is called.
            fn H5VLwrap_register(obj: Obj, type_: H5I_type_t) -> hid_t;
            /// Calls `func` when the library closes, before it closes anything.
            fn H5atclose(func: AtClose, ctx: *mut c_void) -> herr_t;
            fn H5Pequal(id1: hid_t, id2: hid_t) -> htri_t;
            fn H5Pexist(plist_id: hid_t, name: *const c_char) -> htri_t;
            fn H5Pget(plist_id: hid_t, name: *const c_char, value: *mut c_void) -> herr_t;
            fn H5Pset(plist_id: hid_t, name: *const c_char, value: *const c_void) -> herr_t;
            fn H5Premove(plist_id: hid_t, name: *const c_char) -> herr_t;
            /// A property of this list only, which its copies have, too. The functions, which all may
            /// be null, take part in its life.
            fn H5Pinsert2(plist_id: hid_t, name: *const c_char, size: usize, value: *mut c_void,
                set: Callback, get: Callback, prp_del: Callback, copy: Callback,
                compare: Callback, close: Callback) -> herr_t;
            fn H5Aget_space(attr_id: hid_t) -> hid_t;
            fn H5Sget_simple_extent_npoints(space_id: hid_t) -> hssize_t;
            /// Takes as much as `offset` says from the coordinates of what is selected.
            fn H5Sselect_adjust(spaceid: hid_t, offset: *const hssize_t) -> herr_t;
            fn H5FDdriver_query(driver_id: hid_t, flags: *mut c_ulong) -> herr_t;
            fn H5VLfree_wrap_ctx(wrap_ctx: *mut c_void, connector_id: hid_t) -> herr_t;

            fn H5VLattr_create(obj: Obj, loc_params: Location, connector_id: hid_t,
                attr_name: *const c_char, type_id: hid_t, space_id: hid_t, acpl_id: hid_t,
                aapl_id: hid_t, dxpl_id: hid_t, req: Req) -> *mut c_void;
            fn H5VLattr_open(obj: Obj, loc_params: Location, connector_id: hid_t,
                name: *const c_char, aapl_id: hid_t, dxpl_id: hid_t, req: Req) -> *mut c_void;
            fn H5VLattr_read(attr: Obj, connector_id: hid_t, dtype_id: hid_t, buf: *mut c_void,
                dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLattr_write(attr: Obj, connector_id: hid_t, dtype_id: hid_t, buf: *const c_void,
                dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLattr_get(obj: Obj, connector_id: hid_t, args: *mut H5VL_attr_get_args_t,
                dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLattr_specific(obj: Obj, loc_params: Location, connector_id: hid_t,
                args: *mut H5VL_attr_specific_args_t, dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLattr_optional(obj: Obj, connector_id: hid_t, args: *mut H5VL_optional_args_t,
                dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLattr_close(attr: Obj, connector_id: hid_t, dxpl_id: hid_t, req: Req) -> herr_t;

            fn H5VLdataset_create(obj: Obj, loc_params: Location, connector_id: hid_t,
                name: *const c_char, lcpl_id: hid_t, type_id: hid_t, space_id: hid_t,
                dcpl_id: hid_t, dapl_id: hid_t, dxpl_id: hid_t, req: Req) -> *mut c_void;
            fn H5VLdataset_open(obj: Obj, loc_params: Location, connector_id: hid_t,
                name: *const c_char, dapl_id: hid_t, dxpl_id: hid_t, req: Req) -> *mut c_void;
            fn H5VLdataset_read(count: usize, dset: *mut *mut c_void, connector_id: hid_t,
                mem_type_id: *mut hid_t, mem_space_id: *mut hid_t, file_space_id: *mut hid_t,
                plist_id: hid_t, buf: *mut *mut c_void, req: Req) -> herr_t;
            fn H5VLdataset_write(count: usize, dset: *mut *mut c_void, connector_id: hid_t,
                mem_type_id: *mut hid_t, mem_space_id: *mut hid_t, file_space_id: *mut hid_t,
                plist_id: hid_t, buf: *mut *const c_void, req: Req) -> herr_t;
            fn H5VLdataset_get(dset: Obj, connector_id: hid_t, args: *mut H5VL_dataset_get_args_t,
                dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLdataset_specific(obj: Obj, connector_id: hid_t,
                args: *mut H5VL_dataset_specific_args_t, dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLdataset_optional(obj: Obj, connector_id: hid_t, args: *mut H5VL_optional_args_t,
                dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLdataset_close(dset: Obj, connector_id: hid_t, dxpl_id: hid_t, req: Req)
                -> herr_t;

            fn H5VLdatatype_commit(obj: Obj, loc_params: Location, connector_id: hid_t,
                name: *const c_char, type_id: hid_t, lcpl_id: hid_t, tcpl_id: hid_t,
                tapl_id: hid_t, dxpl_id: hid_t, req: Req) -> *mut c_void;
            fn H5VLdatatype_open(obj: Obj, loc_params: Location, connector_id: hid_t,
                name: *const c_char, tapl_id: hid_t, dxpl_id: hid_t, req: Req) -> *mut c_void;
            fn H5VLdatatype_get(dt: Obj, connector_id: hid_t, args: *mut H5VL_datatype_get_args_t,
                dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLdatatype_specific(obj: Obj, connector_id: hid_t,
                args: *mut H5VL_datatype_specific_args_t, dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLdatatype_optional(obj: Obj, connector_id: hid_t,
                args: *mut H5VL_optional_args_t, dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLdatatype_close(dt: Obj, connector_id: hid_t, dxpl_id: hid_t, req: Req) -> herr_t;

            /// The connector is the one of the property list.
            fn H5VLfile_create(name: *const c_char, flags: c_uint, fcpl_id: hid_t, fapl_id: hid_t,
                dxpl_id: hid_t, req: Req) -> *mut c_void;
            /// As for `H5VLfile_create`.
            fn H5VLfile_open(name: *const c_char, flags: c_uint, fapl_id: hid_t, dxpl_id: hid_t,
                req: Req) -> *mut c_void;
            fn H5VLfile_get(file: Obj, connector_id: hid_t, args: *mut H5VL_file_get_args_t,
                dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLfile_specific(obj: Obj, connector_id: hid_t,
                args: *mut H5VL_file_specific_args_t, dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLfile_optional(obj: Obj, connector_id: hid_t, args: *mut H5VL_optional_args_t,
                dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLfile_close(file: Obj, connector_id: hid_t, dxpl_id: hid_t, req: Req) -> herr_t;

            fn H5VLgroup_create(obj: Obj, loc_params: Location, connector_id: hid_t,
                name: *const c_char, lcpl_id: hid_t, gcpl_id: hid_t, gapl_id: hid_t,
                dxpl_id: hid_t, req: Req) -> *mut c_void;
            fn H5VLgroup_open(obj: Obj, loc_params: Location, connector_id: hid_t,
                name: *const c_char, gapl_id: hid_t, dxpl_id: hid_t, req: Req) -> *mut c_void;
            fn H5VLgroup_get(obj: Obj, connector_id: hid_t, args: *mut H5VL_group_get_args_t,
                dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLgroup_specific(obj: Obj, connector_id: hid_t,
                args: *mut H5VL_group_specific_args_t, dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLgroup_optional(obj: Obj, connector_id: hid_t, args: *mut H5VL_optional_args_t,
                dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLgroup_close(grp: Obj, connector_id: hid_t, dxpl_id: hid_t, req: Req) -> herr_t;

            fn H5VLlink_create(args: *mut H5VL_link_create_args_t, obj: Obj, loc_params: Location,
                connector_id: hid_t, lcpl_id: hid_t, lapl_id: hid_t, dxpl_id: hid_t, req: Req)
                -> herr_t;
            fn H5VLlink_copy(src_obj: Obj, loc_params1: Location, dst_obj: Obj,
                loc_params2: Location, connector_id: hid_t, lcpl_id: hid_t, lapl_id: hid_t,
                dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLlink_move(src_obj: Obj, loc_params1: Location, dst_obj: Obj,
                loc_params2: Location, connector_id: hid_t, lcpl_id: hid_t, lapl_id: hid_t,
                dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLlink_get(obj: Obj, loc_params: Location, connector_id: hid_t,
                args: *mut H5VL_link_get_args_t, dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLlink_specific(obj: Obj, loc_params: Location, connector_id: hid_t,
                args: *mut H5VL_link_specific_args_t, dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLlink_optional(obj: Obj, loc_params: Location, connector_id: hid_t,
                args: *mut H5VL_optional_args_t, dxpl_id: hid_t, req: Req) -> herr_t;

            fn H5VLobject_open(obj: Obj, loc_params: Location, connector_id: hid_t,
                opened_type: *mut H5I_type_t, dxpl_id: hid_t, req: Req) -> *mut c_void;
            fn H5VLobject_copy(src_obj: Obj, loc_params1: Location, src_name: *const c_char,
                dst_obj: Obj, loc_params2: Location, dst_name: *const c_char, connector_id: hid_t,
                ocpypl_id: hid_t, lcpl_id: hid_t, dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLobject_get(obj: Obj, loc_params: Location, connector_id: hid_t,
                args: *mut H5VL_object_get_args_t, dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLobject_specific(obj: Obj, loc_params: Location, connector_id: hid_t,
                args: *mut H5VL_object_specific_args_t, dxpl_id: hid_t, req: Req) -> herr_t;
            fn H5VLobject_optional(obj: Obj, loc_params: Location, connector_id: hid_t,
                args: *mut H5VL_optional_args_t, dxpl_id: hid_t, req: Req) -> herr_t;

            fn H5VLintrospect_get_conn_cls(obj: Obj, connector_id: hid_t, lvl: H5VL_get_conn_lvl_t,
                conn_cls: *mut *const H5VL_class_t) -> herr_t;
            fn H5VLintrospect_get_cap_flags(info: *const c_void, connector_id: hid_t,
                cap_flags: *mut u64) -> herr_t;
            fn H5VLintrospect_opt_query(obj: Obj, connector_id: hid_t, subcls: H5VL_subclass_t,
                opt_type: c_int, flags: *mut u64) -> herr_t;

            fn H5VLrequest_wait(req: *mut c_void, connector_id: hid_t, timeout: u64,
                status: *mut H5VL_request_status_t) -> herr_t;
            fn H5VLrequest_notify(req: *mut c_void, connector_id: hid_t, cb: H5VL_request_notify_t,
                ctx: *mut c_void) -> herr_t;
            fn H5VLrequest_cancel(req: *mut c_void, connector_id: hid_t,
                status: *mut H5VL_request_status_t) -> herr_t;
            fn H5VLrequest_specific(req: *mut c_void, connector_id: hid_t,
                args: *mut H5VL_request_specific_args_t) -> herr_t;
            fn H5VLrequest_optional(req: *mut c_void, connector_id: hid_t,
                args: *mut H5VL_optional_args_t) -> herr_t;
            fn H5VLrequest_free(req: *mut c_void, connector_id: hid_t) -> herr_t;

            fn H5VLblob_put(obj: Obj, connector_id: hid_t, buf: *const c_void, size: usize,
                blob_id: *mut c_void, ctx: *mut c_void) -> herr_t;
            fn H5VLblob_get(obj: Obj, connector_id: hid_t, blob_id: *const c_void,
                buf: *mut c_void, size: usize, ctx: *mut c_void) -> herr_t;
            fn H5VLblob_specific(obj: Obj, connector_id: hid_t, blob_id: *mut c_void,
                args: *mut H5VL_blob_specific_args_t) -> herr_t;
            fn H5VLblob_optional(obj: Obj, connector_id: hid_t, blob_id: *mut c_void,
                args: *mut H5VL_optional_args_t) -> herr_t;

            fn H5VLtoken_cmp(obj: Obj, connector_id: hid_t, token1: *const H5O_token_t,
                token2: *const H5O_token_t, cmp_value: *mut c_int) -> herr_t;
            fn H5VLtoken_to_str(obj: Obj, obj_type: H5I_type_t, connector_id: hid_t,
                token: *const H5O_token_t, token_str: *mut *mut c_char) -> herr_t;
            fn H5VLtoken_from_str(obj: Obj, obj_type: H5I_type_t, connector_id: hid_t,
                token_str: *const c_char, token: *mut H5O_token_t) -> herr_t;

            fn H5VLoptional(obj: Obj, connector_id: hid_t, args: *mut H5VL_optional_args_t,
                dxpl_id: hid_t, req: Req) -> herr_t;
        }
        optional {}
    }
}

impl Functions {
    /// Of the HDF5 that was opened by this name, which is loaded.
    pub(super) fn of(library: &OsStr) -> Result<Functions, Absent> {
        let search = Search {
            title: TITLE,
            variable: "path",
            names: &[],
            folders: Vec::new(),
        };
        Functions::open(&search, Some(library))
    }
}
