//! The interface between HDF5 and a connector of its virtual object layer (`H5VLconnector.h`,
//! `H5VLpublic.h`). It is the same in 1.14.x and 2.x.
//!
//! The structs of functions are complete. Many functions take their arguments as one struct. Such a struct
//! has fields here only if it contains objects or property lists of the connector: a connector above
//! another replaces these, and passes all other structs on by their address.

#![allow(non_camel_case_types)]

pub(super) mod functions;

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

use super::{herr_t, hid_t, hsize_t};
pub use functions::*;

pub const H5VL_VERSION: c_uint = 3;

/// The flag of a driver with which the processes of an MPI program share a file (`H5FDpublic.h`).
pub const H5FD_FEAT_HAS_MPI: c_ulong = 0x100;

/// The modes of a transfer property list (`H5FDmpi.h`).
pub const H5FD_MPIO_INDEPENDENT: c_int = 0;
pub const H5FD_MPIO_COLLECTIVE: c_int = 1;

pub const H5VL_CAP_FLAG_ASYNC: u64 = 0x2;

pub type H5VL_class_value_t = c_int;
pub type H5I_type_t = c_int;
pub const H5I_FILE: H5I_type_t = 1;
pub const H5I_GROUP: H5I_type_t = 2;
pub const H5I_DATATYPE: H5I_type_t = 3;
pub const H5I_DATASPACE: H5I_type_t = 4;
pub const H5I_DATASET: H5I_type_t = 5;
pub const H5I_ATTR: H5I_type_t = 7;
pub const H5I_EVENTSET: H5I_type_t = 16;
pub type H5VL_subclass_t = c_int;
pub type H5VL_get_conn_lvl_t = c_int;

/// Requests the class of the connector itself.
pub const H5VL_GET_CONN_LVL_CURR: H5VL_get_conn_lvl_t = 0;
/// Requests the class of the connector at the bottom.
pub const H5VL_GET_CONN_LVL_TERM: H5VL_get_conn_lvl_t = 1;

pub type H5VL_request_status_t = c_int;
pub const H5VL_REQUEST_STATUS_IN_PROGRESS: H5VL_request_status_t = 0;
pub const H5VL_REQUEST_STATUS_SUCCEED: H5VL_request_status_t = 1;
pub const H5VL_REQUEST_STATUS_FAIL: H5VL_request_status_t = 2;
pub const H5VL_REQUEST_STATUS_CANT_CANCEL: H5VL_request_status_t = 3;
pub const H5VL_REQUEST_STATUS_CANCELED: H5VL_request_status_t = 4;

/// HDF5 expects one call when the request has finished.
pub type H5VL_request_notify_t =
    Option<unsafe extern "C" fn(ctx: *mut c_void, status: H5VL_request_status_t) -> herr_t>;

/// Structs that a connector only passes on by their address.
macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[repr(C)]
        pub struct $name {
            _opaque: [u8; 0],
        }
    )*};
}

opaque! { H5VL_loc_params_t H5O_token_t }

/// Arguments of which a connector reads only the operation. HDF5 makes them, never this program.
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
    H5VL_group_get_args_t
    H5VL_link_get_args_t
    H5VL_link_specific_args_t
    H5VL_object_get_args_t
    H5VL_object_specific_args_t
    H5VL_blob_specific_args_t
}

/// The location of an object that is itself the argument: `H5VL_loc_params_t` of the kind
/// `H5VL_OBJECT_BY_SELF`, as large as the other kinds.
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

/// The arguments of all functions named `optional`.
#[repr(C)]
pub struct H5VL_optional_args_t {
    pub op_type: c_int,
    pub args: *mut c_void,
}

// The operations named `ITER` and `VISIT` call a function of the application.
pub const H5VL_ATTR_EXISTS: c_int = 2;
pub const H5VL_ATTR_ITER: c_int = 3;
pub const H5VL_ATTR_RENAME: c_int = 4;
pub const H5VL_LINK_EXISTS: c_int = 1;
pub const H5VL_LINK_ITER: c_int = 2;
pub const H5VL_OBJECT_CHANGE_REF_COUNT: c_int = 0;
pub const H5VL_OBJECT_VISIT: c_int = 3;
pub const H5VL_OBJECT_FLUSH: c_int = 4;
pub const H5VL_OBJECT_REFRESH: c_int = 5;

pub const H5VL_DATASET_GET_SPACE: c_int = 2;
// The results depend on the allocated storage.
pub const H5VL_DATASET_GET_SPACE_STATUS: c_int = 3;
pub const H5VL_DATASET_GET_STORAGE_SIZE: c_int = 4;
/// Of the native connector's optional operations.
pub const H5VL_NATIVE_DATASET_GET_OFFSET: c_int = 9;

/// `H5VL_dataset_get_args_t` of [`H5VL_DATASET_GET_SPACE`].
#[repr(C)]
pub struct DatasetGetSpace {
    pub op_type: c_int,
    /// The result: a copy, which the caller closes.
    pub space_id: hid_t,
    _rest: u64,
}

impl Default for DatasetGetSpace {
    fn default() -> DatasetGetSpace {
        DatasetGetSpace {
            op_type: H5VL_DATASET_GET_SPACE,
            space_id: -1,
            _rest: 0,
        }
    }
}

impl DatasetGetSpace {
    pub fn as_args(&mut self) -> *mut H5VL_dataset_get_args_t {
        std::ptr::from_mut(self).cast()
    }
}

pub const H5VL_DATASET_SET_EXTENT: c_int = 0;
pub const H5VL_DATASET_FLUSH: c_int = 1;

#[repr(C)]
pub struct H5VL_dataset_specific_args_t {
    pub op_type: c_int,
    pub args: DatasetSpecific,
}

#[repr(C)]
pub union DatasetSpecific {
    /// For [`H5VL_DATASET_SET_EXTENT`]: a number for each dimension.
    pub set_extent: *const hsize_t,
    /// For the other operations: the dataset.
    pub dset_id: hid_t,
}

pub const H5VL_FILE_GET_FAPL: c_int = 1;

#[repr(C)]
pub struct H5VL_file_get_args_t {
    pub op_type: c_int,
    pub args: FileGet,
}

#[repr(C)]
pub union FileGet {
    /// For [`H5VL_FILE_GET_FAPL`]: a new file access property list.
    pub fapl_id: hid_t,
    _all: [u64; 4],
}

pub const H5VL_FILE_FLUSH: c_int = 0;
pub const H5VL_FILE_REOPEN: c_int = 1;
pub const H5VL_FILE_IS_ACCESSIBLE: c_int = 2;
pub const H5VL_FILE_DELETE: c_int = 3;

#[repr(C)]
pub struct H5VL_file_specific_args_t {
    pub op_type: c_int,
    pub args: FileSpecific,
}

#[repr(C)]
pub union FileSpecific {
    pub flush: FileFlush,
    /// The pointer for the new file object.
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
    /// For [`H5VL_GROUP_MOUNT`].
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

/// As large as the largest member, so that a connector can change a copy.
#[derive(Clone, Copy)]
#[repr(C)]
pub union LinkCreate {
    /// For [`H5VL_LINK_CREATE_HARD`]: the object that gets another name; null means the location of
    /// the link. The location of the object follows.
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
    /// For [`H5VL_REQUEST_GET_ERR_STACK`]: a stack that HDF5 closes.
    pub err_stack_id: hid_t,
    pub get_exec_time: RequestExecTime,
}

/// The pointers for the times of a request, in nanoseconds.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RequestExecTime {
    pub exec_ts: *mut u64,
    pub exec_time: *mut u64,
}

// SAFETY: the name and the functions are constants, and HDF5 only reads the class.
unsafe impl Sync for H5VL_class_t {}
