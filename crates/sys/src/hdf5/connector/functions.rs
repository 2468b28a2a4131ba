//! The functions of a connector: this list has each signature once.
//!
//! HDF5 calls a connector through structs of functions, such as `H5VL_attr_class_t`. A connector calls
//! the one below it through functions that HDF5 exports, such as `H5VLattr_create`. Both take the same
//! arguments, but the exported functions also take the identifier of the connector below. From the list
//! in [`connector_functions`] macros make the structs (below), the table of the exported functions
//! ([`Functions`](crate::hdf5::pass_through::Functions)), and
//! [`connector_signature`](crate::connector_signature), which gives a single signature to other crates.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::*;
use crate::hdf5::{herr_t, hid_t};

/// An object of a connector.
pub type Obj = *mut c_void;
/// The location of an object, as HDF5 describes it.
pub type Location = *const H5VL_loc_params_t;
/// Null, or the pointer for the request of an operation that continues after the call.
pub type Req = *mut *mut c_void;

/// Calls the macro `$then` with the list of all functions, after the tokens `$with`.
///
/// A line `fn close = H5VLattr_close(attr: Obj; dxpl_id: hid_t; req) -> herr_t;` means:
/// - the struct has a function `close(attr, dxpl_id, req)`;
/// - HDF5 exports `H5VLattr_close(attr, connector_id, dxpl_id, req)`: the first `;` marks where it
///   takes the identifier of the connector;
/// - the second `;`, if there is one, precedes the argument of type [`Req`].
///
/// A `static` function takes no identifier of a connector. A field in brackets has no counterpart
/// among the exported functions.
macro_rules! connector_functions {
    ($then:ident $($with:tt)*) => {
        $then! { $($with)*
            /// The information that `H5Pset_vol` stores in a property list.
            H5VL_info_class_t {
                [size: usize]
                [copy: Option<unsafe extern "C" fn(info: *const c_void) -> *mut c_void>]
                fn cmp = H5VLcmp_connector_info(cmp_value: *mut c_int; info1: *const c_void,
                    info2: *const c_void) -> herr_t;
                fn free = H5VLfree_connector_info(; info: *mut c_void) -> herr_t;
                fn to_str = H5VLconnector_info_to_str(info: *const c_void; str: *mut *mut c_char)
                    -> herr_t;
                fn from_str = H5VLconnector_str_to_info(str: *const c_char; info: *mut *mut c_void)
                    -> herr_t;
            }

            /// Wrappers around objects of the connector below.
            H5VL_wrap_class_t {
                fn get_object = H5VLget_object(obj: *const c_void;) -> *mut c_void;
                fn get_wrap_ctx = H5VLget_wrap_ctx(obj: *const c_void; wrap_ctx: *mut *mut c_void)
                    -> herr_t;
                fn wrap_object = H5VLwrap_object(obj: Obj, obj_type: H5I_type_t;
                    wrap_ctx: *mut c_void) -> *mut c_void;
                fn unwrap_object = H5VLunwrap_object(obj: Obj;) -> *mut c_void;
                fn free_wrap_ctx = H5VLfree_wrap_ctx(wrap_ctx: *mut c_void;) -> herr_t;
            }

            /// `H5A`.
            H5VL_attr_class_t {
                fn create = H5VLattr_create(obj: Obj, loc_params: Location;
                    attr_name: *const c_char, type_id: hid_t, space_id: hid_t, acpl_id: hid_t,
                    aapl_id: hid_t, dxpl_id: hid_t; req) -> *mut c_void;
                fn open = H5VLattr_open(obj: Obj, loc_params: Location; attr_name: *const c_char,
                    aapl_id: hid_t, dxpl_id: hid_t; req) -> *mut c_void;
                fn read = H5VLattr_read(attr: Obj; mem_type_id: hid_t, buf: *mut c_void,
                    dxpl_id: hid_t; req) -> herr_t;
                fn write = H5VLattr_write(attr: Obj; mem_type_id: hid_t, buf: *const c_void,
                    dxpl_id: hid_t; req) -> herr_t;
                fn get = H5VLattr_get(obj: Obj; args: *mut H5VL_attr_get_args_t, dxpl_id: hid_t;
                    req) -> herr_t;
                fn specific = H5VLattr_specific(obj: Obj, loc_params: Location;
                    args: *mut H5VL_attr_specific_args_t, dxpl_id: hid_t; req) -> herr_t;
                fn optional = H5VLattr_optional(obj: Obj; args: *mut H5VL_optional_args_t,
                    dxpl_id: hid_t; req) -> herr_t;
                fn close = H5VLattr_close(attr: Obj; dxpl_id: hid_t; req) -> herr_t;
            }

            /// `H5D`.
            H5VL_dataset_class_t {
                fn create = H5VLdataset_create(obj: Obj, loc_params: Location; name: *const c_char,
                    lcpl_id: hid_t, type_id: hid_t, space_id: hid_t, dcpl_id: hid_t,
                    dapl_id: hid_t, dxpl_id: hid_t; req) -> *mut c_void;
                fn open = H5VLdataset_open(obj: Obj, loc_params: Location; name: *const c_char,
                    dapl_id: hid_t, dxpl_id: hid_t; req) -> *mut c_void;
                /// Each array has an entry for each of the `count` datasets.
                fn read = H5VLdataset_read(count: usize, dset: *mut *mut c_void;
                    mem_type_id: *mut hid_t, mem_space_id: *mut hid_t, file_space_id: *mut hid_t,
                    dxpl_id: hid_t, buf: *mut *mut c_void; req) -> herr_t;
                fn write = H5VLdataset_write(count: usize, dset: *mut *mut c_void;
                    mem_type_id: *mut hid_t, mem_space_id: *mut hid_t, file_space_id: *mut hid_t,
                    dxpl_id: hid_t, buf: *mut *const c_void; req) -> herr_t;
                fn get = H5VLdataset_get(obj: Obj; args: *mut H5VL_dataset_get_args_t,
                    dxpl_id: hid_t; req) -> herr_t;
                fn specific = H5VLdataset_specific(obj: Obj;
                    args: *mut H5VL_dataset_specific_args_t, dxpl_id: hid_t; req) -> herr_t;
                fn optional = H5VLdataset_optional(obj: Obj; args: *mut H5VL_optional_args_t,
                    dxpl_id: hid_t; req) -> herr_t;
                fn close = H5VLdataset_close(dset: Obj; dxpl_id: hid_t; req) -> herr_t;
            }

            /// `H5T`, for named datatypes.
            H5VL_datatype_class_t {
                fn commit = H5VLdatatype_commit(obj: Obj, loc_params: Location;
                    name: *const c_char, type_id: hid_t, lcpl_id: hid_t, tcpl_id: hid_t,
                    tapl_id: hid_t, dxpl_id: hid_t; req) -> *mut c_void;
                fn open = H5VLdatatype_open(obj: Obj, loc_params: Location; name: *const c_char,
                    tapl_id: hid_t, dxpl_id: hid_t; req) -> *mut c_void;
                fn get = H5VLdatatype_get(obj: Obj; args: *mut H5VL_datatype_get_args_t,
                    dxpl_id: hid_t; req) -> herr_t;
                fn specific = H5VLdatatype_specific(obj: Obj;
                    args: *mut H5VL_datatype_specific_args_t, dxpl_id: hid_t; req) -> herr_t;
                fn optional = H5VLdatatype_optional(obj: Obj; args: *mut H5VL_optional_args_t,
                    dxpl_id: hid_t; req) -> herr_t;
                fn close = H5VLdatatype_close(dt: Obj; dxpl_id: hid_t; req) -> herr_t;
            }

            /// `H5F`.
            H5VL_file_class_t {
                static fn create = H5VLfile_create(name: *const c_char, flags: c_uint,
                    fcpl_id: hid_t, fapl_id: hid_t, dxpl_id: hid_t, req: Req) -> *mut c_void;
                static fn open = H5VLfile_open(name: *const c_char, flags: c_uint, fapl_id: hid_t,
                    dxpl_id: hid_t, req: Req) -> *mut c_void;
                fn get = H5VLfile_get(obj: Obj; args: *mut H5VL_file_get_args_t, dxpl_id: hid_t;
                    req) -> herr_t;
                /// `obj` is null if the operation takes the name of a file.
                fn specific = H5VLfile_specific(obj: Obj; args: *mut H5VL_file_specific_args_t,
                    dxpl_id: hid_t; req) -> herr_t;
                fn optional = H5VLfile_optional(obj: Obj; args: *mut H5VL_optional_args_t,
                    dxpl_id: hid_t; req) -> herr_t;
                fn close = H5VLfile_close(file: Obj; dxpl_id: hid_t; req) -> herr_t;
            }

            /// `H5G`.
            H5VL_group_class_t {
                fn create = H5VLgroup_create(obj: Obj, loc_params: Location; name: *const c_char,
                    lcpl_id: hid_t, gcpl_id: hid_t, gapl_id: hid_t, dxpl_id: hid_t; req)
                    -> *mut c_void;
                fn open = H5VLgroup_open(obj: Obj, loc_params: Location; name: *const c_char,
                    gapl_id: hid_t, dxpl_id: hid_t; req) -> *mut c_void;
                fn get = H5VLgroup_get(obj: Obj; args: *mut H5VL_group_get_args_t, dxpl_id: hid_t;
                    req) -> herr_t;
                fn specific = H5VLgroup_specific(obj: Obj; args: *mut H5VL_group_specific_args_t,
                    dxpl_id: hid_t; req) -> herr_t;
                fn optional = H5VLgroup_optional(obj: Obj; args: *mut H5VL_optional_args_t,
                    dxpl_id: hid_t; req) -> herr_t;
                fn close = H5VLgroup_close(grp: Obj; dxpl_id: hid_t; req) -> herr_t;
            }

            /// `H5L`.
            H5VL_link_class_t {
                fn create = H5VLlink_create(args: *mut H5VL_link_create_args_t, obj: Obj,
                    loc_params: Location; lcpl_id: hid_t, lapl_id: hid_t, dxpl_id: hid_t; req)
                    -> herr_t;
                /// One of the objects may be null, which means the location of the other.
                fn copy = H5VLlink_copy(src_obj: Obj, loc_params1: Location, dst_obj: Obj,
                    loc_params2: Location; lcpl_id: hid_t, lapl_id: hid_t, dxpl_id: hid_t; req)
                    -> herr_t;
                fn r#move = H5VLlink_move(src_obj: Obj, loc_params1: Location, dst_obj: Obj,
                    loc_params2: Location; lcpl_id: hid_t, lapl_id: hid_t, dxpl_id: hid_t; req)
                    -> herr_t;
                fn get = H5VLlink_get(obj: Obj, loc_params: Location;
                    args: *mut H5VL_link_get_args_t, dxpl_id: hid_t; req) -> herr_t;
                fn specific = H5VLlink_specific(obj: Obj, loc_params: Location;
                    args: *mut H5VL_link_specific_args_t, dxpl_id: hid_t; req) -> herr_t;
                fn optional = H5VLlink_optional(obj: Obj, loc_params: Location;
                    args: *mut H5VL_optional_args_t, dxpl_id: hid_t; req) -> herr_t;
            }

            /// `H5O`.
            H5VL_object_class_t {
                fn open = H5VLobject_open(obj: Obj, loc_params: Location;
                    opened_type: *mut H5I_type_t, dxpl_id: hid_t; req) -> *mut c_void;
                fn copy = H5VLobject_copy(src_obj: Obj, loc_params1: Location,
                    src_name: *const c_char, dst_obj: Obj, loc_params2: Location,
                    dst_name: *const c_char; ocpypl_id: hid_t, lcpl_id: hid_t, dxpl_id: hid_t; req)
                    -> herr_t;
                fn get = H5VLobject_get(obj: Obj, loc_params: Location;
                    args: *mut H5VL_object_get_args_t, dxpl_id: hid_t; req) -> herr_t;
                fn specific = H5VLobject_specific(obj: Obj, loc_params: Location;
                    args: *mut H5VL_object_specific_args_t, dxpl_id: hid_t; req) -> herr_t;
                fn optional = H5VLobject_optional(obj: Obj, loc_params: Location;
                    args: *mut H5VL_optional_args_t, dxpl_id: hid_t; req) -> herr_t;
            }

            /// Properties of a connector.
            H5VL_introspect_class_t {
                fn get_conn_cls = H5VLintrospect_get_conn_cls(obj: Obj; lvl: H5VL_get_conn_lvl_t,
                    conn_cls: *mut *const H5VL_class_t) -> herr_t;
                fn get_cap_flags = H5VLintrospect_get_cap_flags(info: *const c_void;
                    cap_flags: *mut u64) -> herr_t;
                fn opt_query = H5VLintrospect_opt_query(obj: Obj; cls: H5VL_subclass_t,
                    opt_type: c_int, flags: *mut u64) -> herr_t;
            }

            /// Operations that continue after the call, in an event set. HDF5 calls `free` after the end.
            H5VL_request_class_t {
                /// `timeout` is in nanoseconds. 0 polls.
                fn wait = H5VLrequest_wait(req: *mut c_void; timeout: u64,
                    status: *mut H5VL_request_status_t) -> herr_t;
                fn notify = H5VLrequest_notify(req: *mut c_void; cb: H5VL_request_notify_t,
                    ctx: *mut c_void) -> herr_t;
                fn cancel = H5VLrequest_cancel(req: *mut c_void;
                    status: *mut H5VL_request_status_t) -> herr_t;
                fn specific = H5VLrequest_specific(req: *mut c_void;
                    args: *mut H5VL_request_specific_args_t) -> herr_t;
                fn optional = H5VLrequest_optional(req: *mut c_void;
                    args: *mut H5VL_optional_args_t) -> herr_t;
                fn free = H5VLrequest_free(req: *mut c_void;) -> herr_t;
            }

            /// Elements of variable length.
            H5VL_blob_class_t {
                fn put = H5VLblob_put(obj: Obj; buf: *const c_void, size: usize,
                    blob_id: *mut c_void, ctx: *mut c_void) -> herr_t;
                fn get = H5VLblob_get(obj: Obj; blob_id: *const c_void, buf: *mut c_void,
                    size: usize, ctx: *mut c_void) -> herr_t;
                fn specific = H5VLblob_specific(obj: Obj; blob_id: *mut c_void,
                    args: *mut H5VL_blob_specific_args_t) -> herr_t;
                fn optional = H5VLblob_optional(obj: Obj; blob_id: *mut c_void,
                    args: *mut H5VL_optional_args_t) -> herr_t;
            }

            /// The location of an object in its file.
            H5VL_token_class_t {
                fn cmp = H5VLtoken_cmp(obj: Obj; token1: *const H5O_token_t,
                    token2: *const H5O_token_t, cmp_value: *mut c_int) -> herr_t;
                fn to_str = H5VLtoken_to_str(obj: Obj, obj_type: H5I_type_t;
                    token: *const H5O_token_t, token_str: *mut *mut c_char) -> herr_t;
                fn from_str = H5VLtoken_from_str(obj: Obj, obj_type: H5I_type_t;
                    token_str: *const c_char, token: *mut H5O_token_t) -> herr_t;
            }

            /// A connector: its name, its capabilities and its functions. HDF5 copies it when the
            /// connector is registered.
            H5VL_class_t {
                [version: c_uint]
                [value: H5VL_class_value_t]
                [name: *const c_char]
                [conn_version: c_uint]
                [cap_flags: u64]
                [initialize: Option<unsafe extern "C" fn(vipl_id: hid_t) -> herr_t>]
                [terminate: Option<unsafe extern "C" fn() -> herr_t>]
                [info_cls: H5VL_info_class_t]
                [wrap_cls: H5VL_wrap_class_t]
                [attr_cls: H5VL_attr_class_t]
                [dataset_cls: H5VL_dataset_class_t]
                [datatype_cls: H5VL_datatype_class_t]
                [file_cls: H5VL_file_class_t]
                [group_cls: H5VL_group_class_t]
                [link_cls: H5VL_link_class_t]
                [object_cls: H5VL_object_class_t]
                [introspect_cls: H5VL_introspect_class_t]
                [request_cls: H5VL_request_class_t]
                [blob_cls: H5VL_blob_class_t]
                [token_cls: H5VL_token_class_t]
                fn optional = H5VLoptional(obj: Obj; args: *mut H5VL_optional_args_t, dxpl_id: hid_t;
                    req) -> herr_t;
            }
        }
    };
}
pub(crate) use connector_functions;

/// Makes the structs. The line above becomes the field
///
/// ```text
/// pub close: Option<unsafe extern "C" fn(attr: Obj, dxpl_id: hid_t, req: Req) -> herr_t>,
/// ```
///
/// A function that is absent is an operation that the connector does not support.
macro_rules! structs {
    ($(
        $(#[$attributes:meta])*
        $class:ident {
            $([$field:ident: $type:ty])*
            $(static fn $direct:ident = $direct_function:ident
                ($($direct_arg:ident: $direct_type:ty),*) -> $direct_result:ty;)*
            $($(#[$docs:meta])* fn $name:ident = $function:ident
                ($($before:ident: $before_type:ty),*; $($after:ident: $after_type:ty),*
                $(; $req:ident)?) -> $result:ty;)*
        }
    )*) => {$(
        $(#[$attributes])*
        #[allow(clippy::type_complexity)]
        #[derive(Clone, Copy)]
        #[repr(C)]
        pub struct $class {
            $(pub $field: $type,)*
            $(pub $direct: Option<
                unsafe extern "C" fn($($direct_arg: $direct_type),*) -> $direct_result,
            >,)*
            $(
                $(#[$docs])*
                pub $name: Option<
                    unsafe extern "C" fn(
                        $($before: $before_type,)* $($after: $after_type,)* $($req: Req)?
                    ) -> $result,
                >,
            )*
        }
    )*};
}

connector_functions!(structs);

/// Makes `connector_signature`, which has an arm for each function. `$d` is a dollar sign. The line above
/// becomes
///
/// ```text
/// (H5VLattr_close $then:ident $($with:tt)*) => {
///     $then! { $($with)* (attr: Obj; dxpl_id: hid_t; req) -> herr_t }
/// };
/// ```
macro_rules! signatures {
    ($d:tt $(
        $(#[$attributes:meta])*
        $class:ident {
            $([$field:ident: $type:ty])*
            $(static fn $direct:ident = $direct_function:ident $direct_args:tt -> $direct_result:ty;)*
            $($(#[$docs:meta])* fn $name:ident = $function:ident $args:tt -> $result:ty;)*
        }
    )*) => {
        /// `connector_signature!(H5VLattr_close then with)` becomes `then! { with SIGNATURE }`. The list
        /// of the functions of a connector has the `SIGNATURE` and explains its semicolons.
        #[macro_export]
        macro_rules! connector_signature {
            $($(($function $d then:ident $d($d with:tt)*) => {
                $d then! { $d($d with)* $args -> $result }
            };)*)*
        }
    };
}

connector_functions!(signatures $);
