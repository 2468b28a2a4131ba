//! The functions of HDF5 by which a connector calls the one below it (`H5VLconnector_passthru.h`),
//! and those that it needs besides. They have the same names and signatures in 1.14.x and 2.x.
//!
//! A table of its own: whoever has no connector needs no HDF5 that exports these.

#![allow(non_camel_case_types)]

use std::ffi::{OsStr, c_char, c_int, c_uint, c_ulong, c_void};

use super::connector::functions::connector_functions;
use super::connector::*;
use super::{TITLE, herr_t, hid_t, hssize_t, htri_t};
use crate::library::{Absent, Search, table};

/// One of a property's own functions; none of ours has any.
type Callback = *const c_void;
pub type EachId = unsafe extern "C" fn(id: hid_t, op_data: *mut c_void) -> herr_t;
pub type AtClose = unsafe extern "C" fn(ctx: *mut c_void);

/// Makes the table of the functions in `$besides` and in [`connector_functions`]. The line
/// `fn close = H5VLattr_close(attr: Obj; dxpl_id: hid_t; req) -> herr_t;` becomes
///
/// ```text
/// fn H5VLattr_close(attr: Obj, connector_id: hid_t, dxpl_id: hid_t, req: Req) -> herr_t;
/// ```
macro_rules! functions {
    ({ $($besides:tt)* } $(
        $(#[$attributes:meta])*
        $class:ident {
            $([$field:ident: $type:ty])*
            $(static fn $direct:ident = $direct_function:ident
                ($($direct_arg:ident: $direct_type:ty),*) -> $direct_result:ty;)*
            $($(#[$docs:meta])* fn $name:ident = $function:ident
                ($($before:ident: $before_type:ty),*; $($after:ident: $after_type:ty),*
                $(; $req:ident)?) -> $result:ty;)*
        }
    )*) => {
        table! {
            /// The functions named `H5VL` keep the error stack; all others clear it when they begin.
            Functions {
                required {
                    $($besides)*
                    $($(
                        fn $direct_function($($direct_arg: $direct_type),*) -> $direct_result;
                    )*)*
                    $($(
                        fn $function(
                            $($before: $before_type,)* connector_id: hid_t
                            $(, $after: $after_type)* $(, $req: Req)?
                        ) -> $result;
                    )*)*
                }
                optional {}
            }
        }
    };
}

connector_functions! { functions {
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
} }

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
