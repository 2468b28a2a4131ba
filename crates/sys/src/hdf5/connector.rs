//! What HDF5 asks of a connector of its virtual object layer (`H5VLconnector.h`,
//! `H5VLpublic.h`), the same in 1.14.x and 2.x.
//!
//! The tables are complete. Of the arguments that many callbacks take as one struct, only those are
//! spelled out that hold objects or property lists of the connector, which one that stands above
//! another has to replace by those of the other; the rest is passed on by its address.

#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

use super::{herr_t, hid_t, hsize_t};

pub const H5VL_VERSION: c_uint = 3;

/// Of a driver by which the processes of an MPI program share a file (`H5FDpublic.h`).
pub const H5FD_FEAT_HAS_MPI: c_ulong = 0x100;

pub const H5VL_CAP_FLAG_THREADSAFE: u64 = 0x1;
pub const H5VL_CAP_FLAG_ASYNC: u64 = 0x2;
pub const H5VL_CAP_FLAG_NATIVE_FILES: u64 = 0x4;

pub type H5VL_class_value_t = c_int;
pub type H5I_type_t = c_int;
pub const H5I_FILE: H5I_type_t = 1;
pub const H5I_GROUP: H5I_type_t = 2;
pub const H5I_DATASPACE: H5I_type_t = 4;
pub const H5I_DATASET: H5I_type_t = 5;
pub const H5I_ATTR: H5I_type_t = 7;
pub const H5I_EVENTSET: H5I_type_t = 16;
pub type H5VL_subclass_t = c_int;
pub type H5VL_get_conn_lvl_t = c_int;

/// Asked: the class of the connector itself, not of the one at the bottom.
pub const H5VL_GET_CONN_LVL_CURR: H5VL_get_conn_lvl_t = 0;
pub const H5VL_GET_CONN_LVL_TERM: H5VL_get_conn_lvl_t = 1;

pub type H5VL_request_status_t = c_int;
pub const H5VL_REQUEST_STATUS_IN_PROGRESS: H5VL_request_status_t = 0;
pub const H5VL_REQUEST_STATUS_SUCCEED: H5VL_request_status_t = 1;
pub const H5VL_REQUEST_STATUS_FAIL: H5VL_request_status_t = 2;
pub const H5VL_REQUEST_STATUS_CANT_CANCEL: H5VL_request_status_t = 3;
pub const H5VL_REQUEST_STATUS_CANCELED: H5VL_request_status_t = 4;

/// Called once when the request has finished.
pub type H5VL_request_notify_t =
    Option<unsafe extern "C" fn(ctx: *mut c_void, status: H5VL_request_status_t) -> herr_t>;

/// Structs of which only the address is passed on.
macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[repr(C)]
        pub struct $name {
            _opaque: [u8; 0],
        }
    )*};
}

opaque! { H5VL_loc_params_t H5O_token_t }

/// Arguments of which only the operation is looked at. They are made by HDF5 and never here.
macro_rules! operation_only {
    ($($name:ident)*) => {$(
        #[repr(C)]
        pub struct $name {
            pub op_type: c_int,
            _rest: [u8; 0],
        }
    )*};
}

operation_only! {
    H5VL_attr_get_args_t
    H5VL_attr_specific_args_t
    H5VL_dataset_get_args_t
    H5VL_datatype_get_args_t
    H5VL_datatype_specific_args_t
    H5VL_file_get_args_t
    H5VL_group_get_args_t
    H5VL_link_get_args_t
    H5VL_link_specific_args_t
    H5VL_object_get_args_t
    H5VL_object_specific_args_t
    H5VL_blob_specific_args_t
}

/// Where an object lies that is itself the place: `H5VL_loc_params_t` of the kind
/// `H5VL_OBJECT_BY_SELF`, with room for the other kinds.
#[repr(C)]
pub struct LocationBySelf {
    pub obj_type: H5I_type_t,
    pub kind: c_int,
    _loc_data: [u64; 4],
}

impl LocationBySelf {
    pub const fn new(obj_type: H5I_type_t) -> LocationBySelf {
        LocationBySelf {
            obj_type,
            kind: 0,
            _loc_data: [0; 4],
        }
    }

    pub fn as_location(&self) -> *const H5VL_loc_params_t {
        std::ptr::from_ref(self).cast()
    }
}

pub const H5VL_OBJECT_GET_INFO: c_int = 3;
pub const H5O_INFO_BASIC: c_uint = 1;

/// `H5VL_object_get_args_t` of [`H5VL_OBJECT_GET_INFO`].
#[repr(C)]
pub struct ObjectGetInfo {
    pub op_type: c_int,
    pub args: ObjectInfo,
    _rest: u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ObjectInfo {
    pub fields: c_uint,
    pub oinfo: *mut H5O_info2_t,
}

impl ObjectGetInfo {
    pub fn new(oinfo: &mut H5O_info2_t) -> ObjectGetInfo {
        ObjectGetInfo {
            op_type: H5VL_OBJECT_GET_INFO,
            args: ObjectInfo {
                fields: H5O_INFO_BASIC,
                oinfo,
            },
            _rest: 0,
        }
    }

    pub fn as_args(&mut self) -> *mut H5VL_object_get_args_t {
        std::ptr::from_mut(self).cast()
    }
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct H5O_info2_t {
    pub fileno: c_ulong,
    pub token: [u8; 16],
    pub kind: c_int,
    pub rc: c_uint,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    pub btime: i64,
    pub num_attrs: hsize_t,
}

/// Of all callbacks named `optional`.
#[repr(C)]
pub struct H5VL_optional_args_t {
    pub op_type: c_int,
    pub args: *mut c_void,
}

// Those named `ITER` and `VISIT` call a function of the application.
pub const H5VL_ATTR_EXISTS: c_int = 2;
pub const H5VL_ATTR_ITER: c_int = 3;
pub const H5VL_ATTR_RENAME: c_int = 4;
pub const H5VL_LINK_EXISTS: c_int = 1;
pub const H5VL_LINK_ITER: c_int = 2;
pub const H5VL_OBJECT_VISIT: c_int = 3;
pub const H5VL_OBJECT_FLUSH: c_int = 4;
pub const H5VL_OBJECT_REFRESH: c_int = 5;

// What these tell depends on the storage that is allocated.
pub const H5VL_DATASET_GET_SPACE_STATUS: c_int = 3;
pub const H5VL_DATASET_GET_STORAGE_SIZE: c_int = 4;

pub const H5VL_DATASET_SET_EXTENT: c_int = 0;
pub const H5VL_DATASET_FLUSH: c_int = 1;
pub const H5VL_DATASET_REFRESH: c_int = 2;

#[repr(C)]
pub struct H5VL_dataset_specific_args_t {
    pub op_type: c_int,
    pub args: DatasetSpecific,
}

#[repr(C)]
pub union DatasetSpecific {
    /// Of [`H5VL_DATASET_SET_EXTENT`]: one number a dimension.
    pub set_extent: *const hsize_t,
    /// Of the others: the dataset.
    pub dset_id: hid_t,
}

pub const H5VL_FILE_FLUSH: c_int = 0;
pub const H5VL_FILE_REOPEN: c_int = 1;
pub const H5VL_FILE_IS_ACCESSIBLE: c_int = 2;
pub const H5VL_FILE_DELETE: c_int = 3;
pub const H5VL_FILE_IS_EQUAL: c_int = 4;

#[repr(C)]
pub struct H5VL_file_specific_args_t {
    pub op_type: c_int,
    pub args: FileSpecific,
}

#[repr(C)]
pub union FileSpecific {
    pub flush: FileFlush,
    /// Where the new file object goes.
    pub reopen: *mut *mut c_void,
    pub is_accessible: FileIsAccessible,
    pub del: FileDelete,
    pub is_equal: FileIsEqual,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct FileFlush {
    pub obj_type: H5I_type_t,
    pub scope: c_int,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct FileIsAccessible {
    pub filename: *const c_char,
    pub fapl_id: hid_t,
    pub accessible: *mut bool,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct FileDelete {
    pub filename: *const c_char,
    pub fapl_id: hid_t,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct FileIsEqual {
    pub obj2: *mut c_void,
    pub same_file: *mut bool,
}

pub const H5VL_GROUP_MOUNT: c_int = 0;

#[repr(C)]
pub struct H5VL_group_specific_args_t {
    pub op_type: c_int,
    pub args: GroupSpecific,
}

#[repr(C)]
pub union GroupSpecific {
    /// Of [`H5VL_GROUP_MOUNT`].
    pub mount: GroupMount,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct GroupMount {
    pub name: *const c_char,
    pub child_file: *mut c_void,
    pub fmpl_id: hid_t,
}

pub const H5VL_LINK_CREATE_HARD: c_int = 0;

#[repr(C)]
pub struct H5VL_link_create_args_t {
    pub op_type: c_int,
    pub args: LinkCreate,
}

/// As large as its largest member, so that it can be copied and changed.
#[derive(Clone, Copy)]
#[repr(C)]
pub union LinkCreate {
    /// Of [`H5VL_LINK_CREATE_HARD`]: the object that gets another name; null is the location of
    /// the link. What says where it lies follows.
    pub hard_curr_obj: *mut c_void,
    _all: [u64; 6],
}

pub const H5VL_REQUEST_GET_ERR_STACK: c_int = 0;
pub const H5VL_REQUEST_GET_EXEC_TIME: c_int = 1;

#[repr(C)]
pub struct H5VL_request_specific_args_t {
    pub op_type: c_int,
    pub args: RequestSpecific,
}

#[repr(C)]
pub union RequestSpecific {
    /// Of [`H5VL_REQUEST_GET_ERR_STACK`]: a stack that HDF5 closes.
    pub err_stack_id: hid_t,
    pub get_exec_time: RequestExecTime,
}

/// In nanoseconds.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RequestExecTime {
    pub exec_ts: *mut u64,
    pub exec_time: *mut u64,
}

type Obj = *mut c_void;
type Location = *const H5VL_loc_params_t;
/// Null, or where an operation that goes on after the call leaves its request.
type Req = *mut *mut c_void;

/// Tables of callbacks. One that is absent is an operation that the connector does not have.
macro_rules! callbacks {
    ($(
        $(#[$attributes:meta])*
        $table:ident {
            $([$field:ident: $type:ty])*
            $($(#[$docs:meta])* fn $name:ident($($arg:ident: $arg_type:ty),*) -> $result:ty;)*
        }
    )*) => {$(
        $(#[$attributes])*
        #[allow(clippy::type_complexity)]
        #[derive(Clone, Copy)]
        #[repr(C)]
        pub struct $table {
            $(pub $field: $type,)*
            $(
                $(#[$docs])*
                pub $name: Option<unsafe extern "C" fn($($arg: $arg_type),*) -> $result>,
            )*
        }
    )*};
}

callbacks! {
    /// What `H5Pset_vol` takes along.
    H5VL_info_class_t {
        [size: usize]
        fn copy(info: *const c_void) -> *mut c_void;
        fn cmp(cmp_value: *mut c_int, info1: *const c_void, info2: *const c_void) -> herr_t;
        fn free(info: *mut c_void) -> herr_t;
        fn to_str(info: *const c_void, str: *mut *mut c_char) -> herr_t;
        fn from_str(str: *const c_char, info: *mut *mut c_void) -> herr_t;
    }

    /// Objects of a connector around those of the one below.
    H5VL_wrap_class_t {
        fn get_object(obj: *const c_void) -> *mut c_void;
        fn get_wrap_ctx(obj: *const c_void, wrap_ctx: *mut *mut c_void) -> herr_t;
        fn wrap_object(obj: Obj, obj_type: H5I_type_t, wrap_ctx: *mut c_void) -> *mut c_void;
        fn unwrap_object(obj: Obj) -> *mut c_void;
        fn free_wrap_ctx(wrap_ctx: *mut c_void) -> herr_t;
    }

    /// `H5A`.
    H5VL_attr_class_t {
        fn create(obj: Obj, loc_params: Location, attr_name: *const c_char, type_id: hid_t,
            space_id: hid_t, acpl_id: hid_t, aapl_id: hid_t, dxpl_id: hid_t, req: Req)
            -> *mut c_void;
        fn open(obj: Obj, loc_params: Location, attr_name: *const c_char, aapl_id: hid_t,
            dxpl_id: hid_t, req: Req) -> *mut c_void;
        fn read(attr: Obj, mem_type_id: hid_t, buf: *mut c_void, dxpl_id: hid_t, req: Req)
            -> herr_t;
        fn write(attr: Obj, mem_type_id: hid_t, buf: *const c_void, dxpl_id: hid_t, req: Req)
            -> herr_t;
        fn get(obj: Obj, args: *mut H5VL_attr_get_args_t, dxpl_id: hid_t, req: Req) -> herr_t;
        fn specific(obj: Obj, loc_params: Location, args: *mut H5VL_attr_specific_args_t,
            dxpl_id: hid_t, req: Req) -> herr_t;
        fn optional(obj: Obj, args: *mut H5VL_optional_args_t, dxpl_id: hid_t, req: Req) -> herr_t;
        fn close(attr: Obj, dxpl_id: hid_t, req: Req) -> herr_t;
    }

    /// `H5D`.
    H5VL_dataset_class_t {
        fn create(obj: Obj, loc_params: Location, name: *const c_char, lcpl_id: hid_t,
            type_id: hid_t, space_id: hid_t, dcpl_id: hid_t, dapl_id: hid_t, dxpl_id: hid_t,
            req: Req) -> *mut c_void;
        fn open(obj: Obj, loc_params: Location, name: *const c_char, dapl_id: hid_t,
            dxpl_id: hid_t, req: Req) -> *mut c_void;
        /// `count` datasets at once; each array has an entry for each of them.
        fn read(count: usize, dset: *mut *mut c_void, mem_type_id: *mut hid_t,
            mem_space_id: *mut hid_t, file_space_id: *mut hid_t, dxpl_id: hid_t,
            buf: *mut *mut c_void, req: Req) -> herr_t;
        fn write(count: usize, dset: *mut *mut c_void, mem_type_id: *mut hid_t,
            mem_space_id: *mut hid_t, file_space_id: *mut hid_t, dxpl_id: hid_t,
            buf: *mut *const c_void, req: Req) -> herr_t;
        fn get(obj: Obj, args: *mut H5VL_dataset_get_args_t, dxpl_id: hid_t, req: Req) -> herr_t;
        fn specific(obj: Obj, args: *mut H5VL_dataset_specific_args_t, dxpl_id: hid_t, req: Req)
            -> herr_t;
        fn optional(obj: Obj, args: *mut H5VL_optional_args_t, dxpl_id: hid_t, req: Req) -> herr_t;
        fn close(dset: Obj, dxpl_id: hid_t, req: Req) -> herr_t;
    }

    /// `H5T`, of types that have a name in the file.
    H5VL_datatype_class_t {
        fn commit(obj: Obj, loc_params: Location, name: *const c_char, type_id: hid_t,
            lcpl_id: hid_t, tcpl_id: hid_t, tapl_id: hid_t, dxpl_id: hid_t, req: Req)
            -> *mut c_void;
        fn open(obj: Obj, loc_params: Location, name: *const c_char, tapl_id: hid_t,
            dxpl_id: hid_t, req: Req) -> *mut c_void;
        fn get(obj: Obj, args: *mut H5VL_datatype_get_args_t, dxpl_id: hid_t, req: Req) -> herr_t;
        fn specific(obj: Obj, args: *mut H5VL_datatype_specific_args_t, dxpl_id: hid_t, req: Req)
            -> herr_t;
        fn optional(obj: Obj, args: *mut H5VL_optional_args_t, dxpl_id: hid_t, req: Req) -> herr_t;
        fn close(dt: Obj, dxpl_id: hid_t, req: Req) -> herr_t;
    }

    /// `H5F`.
    H5VL_file_class_t {
        fn create(name: *const c_char, flags: c_uint, fcpl_id: hid_t, fapl_id: hid_t,
            dxpl_id: hid_t, req: Req) -> *mut c_void;
        fn open(name: *const c_char, flags: c_uint, fapl_id: hid_t, dxpl_id: hid_t, req: Req)
            -> *mut c_void;
        fn get(obj: Obj, args: *mut H5VL_file_get_args_t, dxpl_id: hid_t, req: Req) -> herr_t;
        /// `obj` is null where the operation is on the name of a file.
        fn specific(obj: Obj, args: *mut H5VL_file_specific_args_t, dxpl_id: hid_t, req: Req)
            -> herr_t;
        fn optional(obj: Obj, args: *mut H5VL_optional_args_t, dxpl_id: hid_t, req: Req) -> herr_t;
        fn close(file: Obj, dxpl_id: hid_t, req: Req) -> herr_t;
    }

    /// `H5G`.
    H5VL_group_class_t {
        fn create(obj: Obj, loc_params: Location, name: *const c_char, lcpl_id: hid_t,
            gcpl_id: hid_t, gapl_id: hid_t, dxpl_id: hid_t, req: Req) -> *mut c_void;
        fn open(obj: Obj, loc_params: Location, name: *const c_char, gapl_id: hid_t,
            dxpl_id: hid_t, req: Req) -> *mut c_void;
        fn get(obj: Obj, args: *mut H5VL_group_get_args_t, dxpl_id: hid_t, req: Req) -> herr_t;
        fn specific(obj: Obj, args: *mut H5VL_group_specific_args_t, dxpl_id: hid_t, req: Req)
            -> herr_t;
        fn optional(obj: Obj, args: *mut H5VL_optional_args_t, dxpl_id: hid_t, req: Req) -> herr_t;
        fn close(grp: Obj, dxpl_id: hid_t, req: Req) -> herr_t;
    }

    /// `H5L`.
    H5VL_link_class_t {
        fn create(args: *mut H5VL_link_create_args_t, obj: Obj, loc_params: Location,
            lcpl_id: hid_t, lapl_id: hid_t, dxpl_id: hid_t, req: Req) -> herr_t;
        /// One of the objects may be null: the location of the other is meant.
        fn copy(src_obj: Obj, loc_params1: Location, dst_obj: Obj, loc_params2: Location,
            lcpl_id: hid_t, lapl_id: hid_t, dxpl_id: hid_t, req: Req) -> herr_t;
        fn r#move(src_obj: Obj, loc_params1: Location, dst_obj: Obj, loc_params2: Location,
            lcpl_id: hid_t, lapl_id: hid_t, dxpl_id: hid_t, req: Req) -> herr_t;
        fn get(obj: Obj, loc_params: Location, args: *mut H5VL_link_get_args_t, dxpl_id: hid_t,
            req: Req) -> herr_t;
        fn specific(obj: Obj, loc_params: Location, args: *mut H5VL_link_specific_args_t,
            dxpl_id: hid_t, req: Req) -> herr_t;
        fn optional(obj: Obj, loc_params: Location, args: *mut H5VL_optional_args_t,
            dxpl_id: hid_t, req: Req) -> herr_t;
    }

    /// `H5O`.
    H5VL_object_class_t {
        fn open(obj: Obj, loc_params: Location, opened_type: *mut H5I_type_t, dxpl_id: hid_t,
            req: Req) -> *mut c_void;
        fn copy(src_obj: Obj, loc_params1: Location, src_name: *const c_char, dst_obj: Obj,
            loc_params2: Location, dst_name: *const c_char, ocpypl_id: hid_t, lcpl_id: hid_t,
            dxpl_id: hid_t, req: Req) -> herr_t;
        fn get(obj: Obj, loc_params: Location, args: *mut H5VL_object_get_args_t, dxpl_id: hid_t,
            req: Req) -> herr_t;
        fn specific(obj: Obj, loc_params: Location, args: *mut H5VL_object_specific_args_t,
            dxpl_id: hid_t, req: Req) -> herr_t;
        fn optional(obj: Obj, loc_params: Location, args: *mut H5VL_optional_args_t,
            dxpl_id: hid_t, req: Req) -> herr_t;
    }

    /// What a connector tells of itself.
    H5VL_introspect_class_t {
        fn get_conn_cls(obj: Obj, lvl: H5VL_get_conn_lvl_t, conn_cls: *mut *const H5VL_class_t)
            -> herr_t;
        fn get_cap_flags(info: *const c_void, cap_flags: *mut u64) -> herr_t;
        fn opt_query(obj: Obj, cls: H5VL_subclass_t, opt_type: c_int, flags: *mut u64) -> herr_t;
    }

    /// Operations that go on after the call, in an event set. `free` comes after the end.
    H5VL_request_class_t {
        /// `timeout` is in nanoseconds; 0 asks and does not wait.
        fn wait(req: *mut c_void, timeout: u64, status: *mut H5VL_request_status_t) -> herr_t;
        fn notify(req: *mut c_void, cb: H5VL_request_notify_t, ctx: *mut c_void) -> herr_t;
        fn cancel(req: *mut c_void, status: *mut H5VL_request_status_t) -> herr_t;
        fn specific(req: *mut c_void, args: *mut H5VL_request_specific_args_t) -> herr_t;
        fn optional(req: *mut c_void, args: *mut H5VL_optional_args_t) -> herr_t;
        fn free(req: *mut c_void) -> herr_t;
    }

    /// Elements of variable length.
    H5VL_blob_class_t {
        fn put(obj: Obj, buf: *const c_void, size: usize, blob_id: *mut c_void, ctx: *mut c_void)
            -> herr_t;
        fn get(obj: Obj, blob_id: *const c_void, buf: *mut c_void, size: usize, ctx: *mut c_void)
            -> herr_t;
        fn specific(obj: Obj, blob_id: *mut c_void, args: *mut H5VL_blob_specific_args_t)
            -> herr_t;
        fn optional(obj: Obj, blob_id: *mut c_void, args: *mut H5VL_optional_args_t) -> herr_t;
    }

    /// Where an object lies in its file.
    H5VL_token_class_t {
        fn cmp(obj: Obj, token1: *const H5O_token_t, token2: *const H5O_token_t,
            cmp_value: *mut c_int) -> herr_t;
        fn to_str(obj: Obj, obj_type: H5I_type_t, token: *const H5O_token_t,
            token_str: *mut *mut c_char) -> herr_t;
        fn from_str(obj: Obj, obj_type: H5I_type_t, token_str: *const c_char,
            token: *mut H5O_token_t) -> herr_t;
    }
}

/// A connector: its name, what it can do, and the functions that do it. HDF5 copies it when the
/// connector is registered.
#[allow(clippy::type_complexity)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct H5VL_class_t {
    pub version: c_uint,
    pub value: H5VL_class_value_t,
    pub name: *const c_char,
    pub conn_version: c_uint,
    pub cap_flags: u64,
    pub initialize: Option<unsafe extern "C" fn(vipl_id: hid_t) -> herr_t>,
    pub terminate: Option<unsafe extern "C" fn() -> herr_t>,
    pub info_cls: H5VL_info_class_t,
    pub wrap_cls: H5VL_wrap_class_t,
    pub attr_cls: H5VL_attr_class_t,
    pub dataset_cls: H5VL_dataset_class_t,
    pub datatype_cls: H5VL_datatype_class_t,
    pub file_cls: H5VL_file_class_t,
    pub group_cls: H5VL_group_class_t,
    pub link_cls: H5VL_link_class_t,
    pub object_cls: H5VL_object_class_t,
    pub introspect_cls: H5VL_introspect_class_t,
    pub request_cls: H5VL_request_class_t,
    pub blob_cls: H5VL_blob_class_t,
    pub token_cls: H5VL_token_class_t,
    pub optional: Option<
        unsafe extern "C" fn(
            obj: *mut c_void,
            args: *mut H5VL_optional_args_t,
            dxpl_id: hid_t,
            req: *mut *mut c_void,
        ) -> herr_t,
    >,
}

// SAFETY: the name and the functions are constants of the program, and HDF5 only reads the class.
unsafe impl Sync for H5VL_class_t {}
