//! The interface between HDF5 and a virtual file driver (`H5FDdevelop.h`, `H5FDpublic.h`). It is the
//! same in 1.14.x and 2.x.
//!
//! HDF5 copies the class when the driver is registered. A thread-safe HDF5 calls its functions under
//! its own lock.

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

use super::{haddr_t, herr_t, hid_t, hsize_t};

/// The kind of data in a range of the file. An int, because HDF5 may pass values that are not listed.
#[allow(non_camel_case_types)]
pub type H5FD_mem_t = c_int;
/// In a vector of types: the previous type holds for the rest.
pub const H5FD_MEM_NOLIST: H5FD_mem_t = -1;
pub const H5FD_MEM_SUPER: H5FD_mem_t = 1;
/// Raw data: the only kind whose buffer may be the application's.
pub const H5FD_MEM_DRAW: H5FD_mem_t = 3;
pub const H5FD_MEM_NTYPES: usize = 7;

pub const H5FD_CLASS_VERSION: c_uint = 1;

pub const H5FD_FEAT_AGGREGATE_METADATA: c_ulong = 0x0001;
pub const H5FD_FEAT_ACCUMULATE_METADATA: c_ulong = 0x0006;
pub const H5FD_FEAT_AGGREGATE_SMALLDATA: c_ulong = 0x0010;
pub const H5FD_FEAT_POSIX_COMPAT_HANDLE: c_ulong = 0x0080;
pub const H5FD_FEAT_SUPPORTS_SWMR_IO: c_ulong = 0x1000;
pub const H5FD_FEAT_DEFAULT_VFD_COMPATIBLE: c_ulong = 0x8000;
/// The driver manages memory: HDF5 copies raw data only by [`H5FD_CTL_MEM_COPY`].
pub const H5FD_FEAT_MEMMANAGE: c_ulong = 0x1_0000;

pub const H5FD_CTL_MEM_COPY: u64 = 7;
pub const H5FD_CTL_FAIL_IF_UNKNOWN_FLAG: u64 = 1;

/// The first member of every driver's file struct. HDF5 fills it in after `open` has returned.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct H5FD_t {
    pub driver_id: hid_t,
    pub cls: *const H5FD_class_t,
    pub fileno: c_ulong,
    pub access_flags: c_uint,
    pub feature_flags: c_ulong,
    pub maxaddr: haddr_t,
    pub base_addr: haddr_t,
    pub threshold: hsize_t,
    pub alignment: hsize_t,
    pub paged_aggr: bool,
}

/// The input of [`H5FD_CTL_MEM_COPY`].
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct H5FD_ctl_memcpy_args_t {
    pub dstbuf: *mut c_void,
    pub dst_off: hsize_t,
    pub srcbuf: *const c_void,
    pub src_off: hsize_t,
    pub len: usize,
}

/// Reads or writes one range.
pub type Transfer<Buffer> = unsafe extern "C" fn(
    file: *mut H5FD_t,
    mem: H5FD_mem_t,
    dxpl: hid_t,
    addr: haddr_t,
    size: usize,
    buffer: Buffer,
) -> herr_t;

/// Reads or writes several ranges.
pub type VectorTransfer<Buffer> = unsafe extern "C" fn(
    file: *mut H5FD_t,
    dxpl: hid_t,
    count: u32,
    types: *const H5FD_mem_t,
    addrs: *const haddr_t,
    sizes: *const usize,
    bufs: *const Buffer,
) -> herr_t;

/// Reads or writes several selections.
pub type SelectionTransfer<Buffer> = unsafe extern "C" fn(
    file: *mut H5FD_t,
    mem: H5FD_mem_t,
    dxpl_id: hid_t,
    count: usize,
    mem_spaces: *const hid_t,
    file_spaces: *const hid_t,
    offsets: *const haddr_t,
    element_sizes: *const usize,
    bufs: *const Buffer,
) -> herr_t;

/// Flushes or truncates a file.
pub type Finish = unsafe extern "C" fn(file: *mut H5FD_t, dxpl_id: hid_t, closing: bool) -> herr_t;

/// A driver: its name, its capabilities and its functions.
#[allow(non_camel_case_types, clippy::type_complexity)]
#[repr(C)]
pub struct H5FD_class_t {
    pub version: c_uint,
    pub value: c_int,
    pub name: *const c_char,
    pub maxaddr: haddr_t,
    pub fc_degree: c_int,
    pub terminate: Option<unsafe extern "C" fn() -> herr_t>,
    pub sb_size: Option<unsafe extern "C" fn(file: *mut H5FD_t) -> hsize_t>,
    pub sb_encode:
        Option<unsafe extern "C" fn(file: *mut H5FD_t, name: *mut c_char, p: *mut u8) -> herr_t>,
    pub sb_decode:
        Option<unsafe extern "C" fn(f: *mut H5FD_t, name: *const c_char, p: *const u8) -> herr_t>,
    pub fapl_size: usize,
    pub fapl_get: Option<unsafe extern "C" fn(file: *mut H5FD_t) -> *mut c_void>,
    pub fapl_copy: Option<unsafe extern "C" fn(fapl: *const c_void) -> *mut c_void>,
    pub fapl_free: Option<unsafe extern "C" fn(fapl: *mut c_void) -> herr_t>,
    pub dxpl_size: usize,
    pub dxpl_copy: Option<unsafe extern "C" fn(dxpl: *const c_void) -> *mut c_void>,
    pub dxpl_free: Option<unsafe extern "C" fn(dxpl: *mut c_void) -> herr_t>,
    pub open: Option<
        unsafe extern "C" fn(
            name: *const c_char,
            flags: c_uint,
            fapl: hid_t,
            maxaddr: haddr_t,
        ) -> *mut H5FD_t,
    >,
    pub close: Option<unsafe extern "C" fn(file: *mut H5FD_t) -> herr_t>,
    pub cmp: Option<unsafe extern "C" fn(f1: *const H5FD_t, f2: *const H5FD_t) -> c_int>,
    /// `f1` is null when HDF5 queries the driver and not a file.
    pub query: Option<unsafe extern "C" fn(f1: *const H5FD_t, flags: *mut c_ulong) -> herr_t>,
    pub get_type_map:
        Option<unsafe extern "C" fn(file: *const H5FD_t, type_map: *mut H5FD_mem_t) -> herr_t>,
    pub alloc: Option<
        unsafe extern "C" fn(
            file: *mut H5FD_t,
            mem: H5FD_mem_t,
            dxpl_id: hid_t,
            size: hsize_t,
        ) -> haddr_t,
    >,
    pub free: Option<
        unsafe extern "C" fn(
            file: *mut H5FD_t,
            mem: H5FD_mem_t,
            dxpl_id: hid_t,
            addr: haddr_t,
            size: hsize_t,
        ) -> herr_t,
    >,
    pub get_eoa: Option<unsafe extern "C" fn(file: *const H5FD_t, mem: H5FD_mem_t) -> haddr_t>,
    pub set_eoa:
        Option<unsafe extern "C" fn(file: *mut H5FD_t, mem: H5FD_mem_t, addr: haddr_t) -> herr_t>,
    pub get_eof: Option<unsafe extern "C" fn(file: *const H5FD_t, mem: H5FD_mem_t) -> haddr_t>,
    pub get_handle: Option<
        unsafe extern "C" fn(
            file: *mut H5FD_t,
            fapl: hid_t,
            file_handle: *mut *mut c_void,
        ) -> herr_t,
    >,
    pub read: Option<Transfer<*mut c_void>>,
    pub write: Option<Transfer<*const c_void>>,
    /// A size of 0 or the type `H5FD_MEM_NOLIST` means that the previous one holds for the rest.
    pub read_vector: Option<VectorTransfer<*mut c_void>>,
    pub write_vector: Option<VectorTransfer<*const c_void>>,
    /// An element size of 0 or a null buffer means that the previous one holds for the rest.
    pub read_selection: Option<SelectionTransfer<*mut c_void>>,
    pub write_selection: Option<SelectionTransfer<*const c_void>>,
    pub flush: Option<Finish>,
    pub truncate: Option<Finish>,
    pub lock: Option<unsafe extern "C" fn(file: *mut H5FD_t, rw: bool) -> herr_t>,
    pub unlock: Option<unsafe extern "C" fn(file: *mut H5FD_t) -> herr_t>,
    pub del: Option<unsafe extern "C" fn(name: *const c_char, fapl: hid_t) -> herr_t>,
    pub ctl: Option<
        unsafe extern "C" fn(
            file: *mut H5FD_t,
            op_code: u64,
            flags: u64,
            input: *const c_void,
            output: *mut *mut c_void,
        ) -> herr_t,
    >,
    pub fl_map: [H5FD_mem_t; H5FD_MEM_NTYPES],
}

// SAFETY: the name and the functions are constants of the program, and HDF5 only reads the class.
unsafe impl Sync for H5FD_class_t {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_has_the_size_of_the_c_struct() {
        assert_eq!(size_of::<H5FD_class_t>(), 336);
    }
}
