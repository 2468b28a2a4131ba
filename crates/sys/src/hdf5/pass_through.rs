//! The functions of HDF5 with which a connector calls the one below it
//! (`H5VLconnector_passthru.h`), and further functions that only a connector needs. They have the
//! same names and signatures in 1.14.x and 2.x.
//!
//! They have a table of their own because programs without a connector may use an HDF5 that does
//! not export them.

#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

use super::connector::functions::connector_functions;
use super::connector::*;
use super::{herr_t, hid_t, hssize_t, htri_t};
use crate::library::table;

/// A callback of a property, which is always null here.
type Callback = *const c_void;
/// The function that `H5Iiterate` calls for each identifier.
pub type EachId = unsafe extern "C" fn(id: hid_t, op_data: *mut c_void) -> herr_t;
/// The function that HDF5 calls when it closes.
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
            /// The functions for connectors. Those named `H5VL` keep the error stack. All others clear it
            /// when they begin.
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
                optional {
                    /// Registers the connector "pass_through" and returns its identifier, without
                    /// a reference for the caller. 1.14 only; 2.x registers it when it initialises.
                    fn H5VL_pass_through_register() -> hid_t;
                    /// Exported only by an HDF5 with MPI, as the next functions are. Fails unless
                    /// the driver is that of MPI-IO.
                    fn H5Pget_fapl_mpio(fapl_id: hid_t, comm: *mut c_void, info: *mut c_void) -> herr_t;
                    fn H5Pget_all_coll_metadata_ops(plist_id: hid_t, is_collective: *mut bool) -> herr_t;
                    fn H5Pget_coll_metadata_write(plist_id: hid_t, is_collective: *mut bool) -> herr_t;
                    fn H5Pget_dxpl_mpio(dxpl_id: hid_t, mode: *mut c_int) -> herr_t;
                    fn H5Pset_dxpl_mpio(dxpl_id: hid_t, mode: c_int) -> herr_t;
                }
            }
        }
    };
}

connector_functions! { functions {
    /// The caller frees the memory with `H5free_memory`.
    fn H5allocate_memory(size: usize, clear: bool) -> *mut c_void;
    fn H5ESget_requests(es_id: hid_t, order: c_int, connector_ids: *mut hid_t,
        requests: *mut *mut c_void, array_len: usize, count: *mut usize) -> herr_t;
    /// Returns early if an operation has failed, and removes it from the set.
    fn H5ESwait(es_id: hid_t, timeout: u64, num_in_progress: *mut usize, err_occurred: *mut bool)
        -> herr_t;
    /// The end of the space that is allocated in a file.
    fn H5Fget_eoa(file_id: hid_t, eoa: *mut u64) -> herr_t;
    fn H5Fget_obj_count(file_id: hid_t, types: c_uint) -> isize;
    fn H5Fget_obj_ids(file_id: hid_t, types: c_uint, max_objs: usize, obj_id_list: *mut hid_t)
        -> isize;
    fn H5Idec_ref(id: hid_t) -> c_int;
    fn H5Iget_ref(id: hid_t) -> c_int;
    /// Returns a negative number, without an error, for a number that is not an identifier.
    fn H5Iget_type(id: hid_t) -> H5I_type_t;
    /// Calls `op` until it returns a result other than 0.
    fn H5Iiterate(type_: H5I_type_t, op: EachId, op_data: *mut c_void) -> herr_t;
    fn H5Pcopy(plist_id: hid_t) -> hid_t;
    fn H5Pget_alignment(fapl_id: hid_t, threshold: *mut u64, alignment: *mut u64) -> herr_t;
    fn H5Pget_file_space_strategy(fcpl_id: hid_t, strategy: *mut c_int, persist: *mut bool,
        threshold: *mut u64) -> herr_t;
    fn H5Pget_fclose_degree(fapl_id: hid_t, degree: *mut c_int) -> herr_t;
    fn H5Pset_vol(plist_id: hid_t, new_vol_id: hid_t, new_vol_info: *const c_void) -> herr_t;
    /// Adds a reference to the identifier.
    fn H5Pget_vol_id(plist_id: hid_t, vol_id: *mut hid_t) -> herr_t;
    /// Returns a copy, made by the connector, or null if the list has no information.
    fn H5Pget_vol_info(plist_id: hid_t, vol_info: *mut *mut c_void) -> herr_t;
    /// Moves the errors of the calling thread to a new stack. Does not clear them first.
    fn H5Eget_current_stack() -> hid_t;
    /// Moves the errors back, and closes their stack.
    fn H5Eset_current_stack(err_stack_id: hid_t) -> herr_t;
    /// Does not clear the error stack.
    fn H5Eget_num(error_stack_id: hid_t) -> isize;
    /// Writes whether `H5Eget_auto2` may be called. Does not clear the error stack.
    fn H5Eauto_is_v2(err_stack: hid_t, is_stack: *mut c_uint) -> herr_t;

    fn H5VLregister_connector(cls: *const H5VL_class_t, vipl_id: hid_t) -> hid_t;
    /// Returns an identifier of a registered connector, or registers it. Adds a reference.
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

    /// Makes an identifier for an object of the connector at the bottom. All connectors that take part in
    /// the current call of HDF5 wrap the object.
    fn H5VLwrap_register(obj: Obj, type_: H5I_type_t) -> hid_t;
    /// Makes the library call `func` when it closes, before it closes anything.
    fn H5atclose(func: AtClose, ctx: *mut c_void) -> herr_t;
    fn H5Pequal(id1: hid_t, id2: hid_t) -> htri_t;
    fn H5Pexist(plist_id: hid_t, name: *const c_char) -> htri_t;
    fn H5Pget(plist_id: hid_t, name: *const c_char, value: *mut c_void) -> herr_t;
    fn H5Pset(plist_id: hid_t, name: *const c_char, value: *const c_void) -> herr_t;
    fn H5Premove(plist_id: hid_t, name: *const c_char) -> herr_t;
    /// Adds a property to this list, and to later copies of it. HDF5 calls the functions, which may all be
    /// null, when it uses the property.
    fn H5Pinsert2(plist_id: hid_t, name: *const c_char, size: usize, value: *mut c_void,
        set: Callback, get: Callback, prp_del: Callback, copy: Callback,
        compare: Callback, close: Callback) -> herr_t;
    fn H5Aget_space(attr_id: hid_t) -> hid_t;
    fn H5Sget_simple_extent_npoints(space_id: hid_t) -> hssize_t;
    /// Subtracts `offset` from the coordinates of the selection.
    fn H5Sselect_adjust(spaceid: hid_t, offset: *const hssize_t) -> herr_t;
    fn H5Sselect_valid(spaceid: hid_t) -> htri_t;
    /// Returns null if there is no conversion. `pcdata` receives an address.
    fn H5Tfind(src_id: hid_t, dst_id: hid_t, pcdata: *mut *mut c_void) -> *mut c_void;
    fn H5FDdriver_query(driver_id: hid_t, flags: *mut c_ulong) -> herr_t;
} }
