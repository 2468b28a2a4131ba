//! Structs of the C API, as `penstock.h` and `penstock_hdf5.h` declare them.

use std::ffi::c_void;

/// `penstock_axis`
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Axis {
    pub(crate) start: u64,
    pub(crate) step: u64,
    pub(crate) count: u64,
    pub(crate) indices: *const u64,
}

impl Default for Axis {
    fn default() -> Axis {
        Axis {
            start: 0,
            step: 0,
            count: 0,
            indices: std::ptr::null(),
        }
    }
}

/// `penstock_selection`
#[repr(C)]
pub(crate) struct Selection {
    pub(crate) struct_size: usize,
    pub(crate) rank: i32,
    pub(crate) reserved: i32,
    pub(crate) axes: *const Axis,
    pub(crate) points: *const u64,
    pub(crate) point_count: u64,
}

/// `penstock_array`
#[repr(C)]
pub(crate) struct Array {
    pub(crate) struct_size: usize,
    pub(crate) data: *mut c_void,
    pub(crate) element: i64,
    pub(crate) rank: i32,
    pub(crate) reserved: i32,
    pub(crate) shape: *const u64,
    pub(crate) strides: *const i64,
}
