//! The C library of HDF5: the copy that the process has already loaded.
//!
//! Identifiers belong to one copy of HDF5, so this module never loads another one. All functions in
//! [`Functions`] have the same signatures in 1.14.x and 2.x. The library may have been built without
//! thread-safety: every call must be made under the lock that guards HDF5 in this process, such as
//! h5py's.

pub mod connector;
pub mod driver;
mod error_stack;
pub mod pass_through;

use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int, c_uint, c_void};
use std::fs;
use std::ops::{Deref, DerefMut};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::library::{Absent, Library, Object, Search, loaded, object_of, table};
use crate::mpi::Mpi;
use connector::H5O_info2_t;
use driver::H5FD_class_t;

pub use error_stack::{ErrorPlace, push_error_at};

#[allow(non_camel_case_types)]
pub type hid_t = i64;
#[allow(non_camel_case_types)]
pub type herr_t = c_int;
#[allow(non_camel_case_types)]
pub type htri_t = c_int;
#[allow(non_camel_case_types)]
pub type hsize_t = u64;
#[allow(non_camel_case_types)]
pub type hssize_t = i64;
#[allow(non_camel_case_types)]
pub type haddr_t = u64;

pub const HADDR_UNDEF: haddr_t = haddr_t::MAX;
pub const H5S_UNLIMITED: hsize_t = hsize_t::MAX;
pub const H5S_MAX_RANK: usize = 32;
pub const H5E_DEFAULT: hid_t = 0;
pub const H5P_DEFAULT: hid_t = 0;
pub const H5S_ALL: hid_t = 0;

pub const H5T_INTEGER: c_int = 0;
pub const H5T_FLOAT: c_int = 1;
pub const H5T_TIME: c_int = 2;
pub const H5T_STRING: c_int = 3;
pub const H5T_BITFIELD: c_int = 4;
pub const H5T_OPAQUE: c_int = 5;
pub const H5T_COMPOUND: c_int = 6;
pub const H5T_REFERENCE: c_int = 7;
pub const H5T_ENUM: c_int = 8;
pub const H5T_VLEN: c_int = 9;
pub const H5T_ARRAY: c_int = 10;
/// Since 2.0.
pub const H5T_COMPLEX: c_int = 11;

pub const H5T_ORDER_LE: c_int = 0;
pub const H5T_ORDER_BE: c_int = 1;
pub const H5T_SGN_NONE: c_int = 0;
pub const H5T_NORM_IMPLIED: c_int = 0;
pub const H5T_PERS_HARD: c_int = 0;
pub const H5T_CSET_UTF8: c_int = 1;

pub const H5D_COMPACT: c_int = 0;
pub const H5D_CONTIGUOUS: c_int = 1;
pub const H5D_CHUNKED: c_int = 2;
pub const H5D_VIRTUAL: c_int = 3;
pub const H5D_CHUNK_IDX_NONE: c_int = 2;
pub const H5D_CHUNK_IDX_EARRAY: c_int = 4;
pub const H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS: c_uint = 2;
pub const H5D_FILL_TIME_NEVER: c_int = 1;
pub const H5D_FILL_TIME_IFSET: c_int = 2;
pub const H5D_FILL_VALUE_UNDEFINED: c_int = 0;
pub const H5D_FILL_VALUE_DEFAULT: c_int = 1;
pub const H5D_FILL_VALUE_USER_DEFINED: c_int = 2;
pub const H5D_SELECTION_IO_MODE_ON: c_int = 2;
pub const H5D_SEL_IO_NO_VECTOR_OR_SELECTION_IO_CB: u32 = 8;

pub const H5S_NULL: c_int = 2;
pub const H5S_SEL_NONE: c_int = 0;
pub const H5S_SEL_HYPERSLABS: c_int = 2;
pub const H5S_SEL_ALL: c_int = 3;
pub const H5S_SELECT_SET: c_int = 0;
pub const H5S_SELECT_OR: c_int = 1;
pub const H5S_SELECT_AND: c_int = 2;

// In the headers of 1.14 these call H5check, which aborts the process under a 2.x library.
pub const H5F_ACC_RDONLY: c_uint = 0;
pub const H5F_ACC_RDWR: c_uint = 1;
pub const H5F_OBJ_FILE: c_uint = 1;
pub const H5F_OBJ_DATASET: c_uint = 2;
pub const H5F_OBJ_ALL: c_uint = 0x1f;
pub const H5_INDEX_NAME: c_int = 0;
pub const H5_ITER_NATIVE: c_int = 2;
pub const H5L_TYPE_SOFT: c_int = 1;
pub const H5L_TYPE_EXTERNAL: c_int = 64;
pub const H5O_TYPE_DATASET: c_int = 1;
pub const H5O_COPY_EXPAND_SOFT_LINK_FLAG: c_uint = 2;
pub const H5O_COPY_EXPAND_EXT_LINK_FLAG: c_uint = 4;
pub const H5O_COPY_EXPAND_REFERENCE_FLAG: c_uint = 8;
pub const H5F_ACC_TRUNC: c_uint = 2;
pub const H5F_ACC_EXCL: c_uint = 4;
pub const H5F_ACC_CREAT: c_uint = 0x10;
pub const H5F_ACC_SWMR_WRITE: c_uint = 0x20;
pub const H5F_ACC_SWMR_READ: c_uint = 0x40;
pub const H5F_SCOPE_LOCAL: c_int = 0;
pub const H5F_CLOSE_WEAK: c_int = 1;
pub const H5E_WALK_UPWARD: c_int = 0;
pub const H5Z_FLAG_OPTIONAL: c_uint = 1;

/// Called for each allocated chunk with the coordinates of its first element, filter mask, offset in
/// the file (user block included from 1.14.4 on) and stored size. `offset` has one more value than
/// the dataset has dimensions. A positive result ends the iteration; a negative one makes it fail.
pub type ChunkIterOp = unsafe extern "C" fn(
    offset: *const hsize_t,
    filter_mask: c_uint,
    addr: haddr_t,
    size: hsize_t,
    op_data: *mut c_void,
) -> c_int;

/// Converts `nelmts` elements in place. `cdata` starts with the command, an int.
pub type TypeConversion = unsafe extern "C" fn(
    src_id: hid_t,
    dst_id: hid_t,
    cdata: *mut c_int,
    nelmts: usize,
    buf_stride: usize,
    bkg_stride: usize,
    buf: *mut c_void,
    bkg: *mut c_void,
    dset_xfer_plist: hid_t,
) -> herr_t;

/// Called for each property of a list.
pub type PropertyIterate =
    unsafe extern "C" fn(id: hid_t, name: *const c_char, iter_data: *mut c_void) -> herr_t;

/// Called for each object of a visit. A result other than 0 ends the visit.
pub type ObjectVisit = unsafe extern "C" fn(
    obj: hid_t,
    name: *const c_char,
    info: *const H5O_info2_t,
    op_data: *mut c_void,
) -> herr_t;

/// Called for each link of a visit. A result other than 0 ends the visit.
pub type LinkVisit = unsafe extern "C" fn(
    group: hid_t,
    name: *const c_char,
    info: *const H5L_info2_t,
    op_data: *mut c_void,
) -> herr_t;

/// The description of a link.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct H5L_info2_t {
    pub kind: c_int,
    pub corder_valid: bool,
    pub corder: i64,
    pub cset: c_int,
    /// The token of what a hard link leads to, or the size of the value of another link.
    pub u: [u8; 16],
}

pub type ErrorAuto = unsafe extern "C" fn(estack: hid_t, client_data: *mut c_void) -> herr_t;
pub type ErrorWalk = unsafe extern "C" fn(
    n: c_uint,
    err_desc: *const H5E_error2_t,
    client_data: *mut c_void,
) -> herr_t;

/// One entry of an error stack. The strings are valid until the stack changes.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct H5E_error2_t {
    pub cls_id: hid_t,
    pub maj_num: hid_t,
    pub min_num: hid_t,
    pub line: c_uint,
    pub func_name: *const c_char,
    pub file_name: *const c_char,
    pub desc: *const c_char,
}

table! {
    /// HDF5's functions by their C names. `H5free_memory` frees strings that HDF5 allocates; the
    /// `close` function of their kind closes identifiers.
    Functions {
        required {
            fn H5open() -> herr_t;
            fn H5get_libversion(majnum: *mut c_uint, minnum: *mut c_uint, relnum: *mut c_uint)
                -> herr_t;
            fn H5free_memory(mem: *mut c_void) -> herr_t;

            fn H5Dopen2(loc_id: hid_t, name: *const c_char, dapl_id: hid_t) -> hid_t;
            fn H5Dclose(dset_id: hid_t) -> herr_t;
            fn H5Dget_space(dset_id: hid_t) -> hid_t;
            fn H5Dget_type(dset_id: hid_t) -> hid_t;
            fn H5Dget_create_plist(dset_id: hid_t) -> hid_t;
            fn H5Dget_access_plist(dset_id: hid_t) -> hid_t;
            /// Returns the offset in the file, user block included; meaningless unless storage is
            /// allocated.
            fn H5Dget_offset(dset_id: hid_t) -> haddr_t;
            fn H5Dget_storage_size(dset_id: hid_t) -> hsize_t;
            /// Like `H5Dget_chunk_info` and `H5Dget_chunk_info_by_coord`, which use the same code, it
            /// passes wrong coordinates for an extensible array index whose unlimited dimension is
            /// not the first.
            fn H5Dchunk_iter(dset_id: hid_t, dxpl_id: hid_t, cb: ChunkIterOp, op_data: *mut c_void)
                -> herr_t;
            fn H5Dget_chunk_index_type(did: hid_t, idx_type: *mut c_int) -> herr_t;
            /// Fails for a chunk that is not allocated.
            fn H5Dget_chunk_storage_size(
                dset_id: hid_t,
                offset: *const hsize_t,
                chunk_bytes: *mut hsize_t
            ) -> herr_t;
            fn H5Dget_chunk_info_by_coord(
                dset_id: hid_t,
                offset: *const hsize_t,
                filter_mask: *mut c_uint,
                addr: *mut haddr_t,
                size: *mut hsize_t
            ) -> herr_t;
            /// The form without a buffer size: 2.0 renamed it.
            fn H5Dread_chunk = "H5Dread_chunk1" | "H5Dread_chunk" (
                dset_id: hid_t,
                dxpl_id: hid_t,
                offset: *const hsize_t,
                filters: *mut u32,
                buf: *mut c_void
            ) -> herr_t;
            fn H5Dwrite_chunk(
                dset_id: hid_t,
                dxpl_id: hid_t,
                filters: u32,
                offset: *const hsize_t,
                data_size: usize,
                buf: *const c_void
            ) -> herr_t;
            fn H5Dread(
                dset_id: hid_t,
                mem_type_id: hid_t,
                mem_space_id: hid_t,
                file_space_id: hid_t,
                dxpl_id: hid_t,
                buf: *mut c_void
            ) -> herr_t;
            fn H5Dwrite(
                dset_id: hid_t,
                mem_type_id: hid_t,
                mem_space_id: hid_t,
                file_space_id: hid_t,
                dxpl_id: hid_t,
                buf: *const c_void
            ) -> herr_t;
            fn H5Drefresh(dset_id: hid_t) -> herr_t;

            fn H5Fopen(filename: *const c_char, flags: c_uint, fapl_id: hid_t) -> hid_t;
            fn H5Fclose(file_id: hid_t) -> herr_t;
            fn H5Fflush(object_id: hid_t, scope: c_int) -> herr_t;
            /// Takes an identifier of a file, or [`H5F_OBJ_ALL`]. Adds no references to the identifiers.
            fn H5Fget_obj_ids(
                file_id: hid_t,
                types: c_uint,
                max_objs: usize,
                obj_id_list: *mut hid_t
            ) -> isize;
            fn H5Fget_obj_count(file_id: hid_t, types: c_uint) -> isize;
            fn H5Fget_name(obj_id: hid_t, name: *mut c_char, size: usize) -> isize;
            fn H5Fget_intent(file_id: hid_t, intent: *mut c_uint) -> herr_t;
            fn H5Fget_access_plist(file_id: hid_t) -> hid_t;
            fn H5Fget_create_plist(file_id: hid_t) -> hid_t;
            fn H5Fget_filesize(file_id: hid_t, size: *mut hsize_t) -> herr_t;
            fn H5Fget_vfd_handle(file_id: hid_t, fapl: hid_t, file_handle: *mut *mut c_void)
                -> herr_t;
            fn H5FDregister(cls: *const H5FD_class_t) -> hid_t;
            fn H5FDis_driver_registered_by_name(driver_name: *const c_char) -> htri_t;
            /// With `H5O_INFO_BASIC` it writes the number of the open file and the object's token.
            fn H5Oget_info3(loc_id: hid_t, oinfo: *mut H5O_info2_t, fields: c_uint) -> herr_t;
            /// Opens any object; cheaper for a dataset than `H5Dopen2`, which copies an access property
            /// list.
            fn H5Oopen(loc_id: hid_t, name: *const c_char, lapl_id: hid_t) -> hid_t;
            fn H5Oclose(object_id: hid_t) -> herr_t;
            fn H5Ovisit_by_name3(
                loc_id: hid_t,
                obj_name: *const c_char,
                idx_type: c_int,
                order: c_int,
                op: ObjectVisit,
                op_data: *mut c_void,
                fields: c_uint,
                lapl_id: hid_t
            ) -> herr_t;
            /// Visits the links of a group and of all groups below it.
            fn H5Lvisit_by_name2(
                loc_id: hid_t,
                group_name: *const c_char,
                idx_type: c_int,
                order: c_int,
                op: LinkVisit,
                op_data: *mut c_void,
                lapl_id: hid_t
            ) -> herr_t;
            fn H5Oexists_by_name(loc_id: hid_t, name: *const c_char, lapl_id: hid_t) -> htri_t;
            fn H5Iinc_ref(id: hid_t) -> c_int;
            fn H5Iis_valid(id: hid_t) -> htri_t;
            fn H5Iget_file_id(id: hid_t) -> hid_t;
            fn H5Iget_name(id: hid_t, name: *mut c_char, size: usize) -> isize;

            fn H5Pcreate(cls_id: hid_t) -> hid_t;
            fn H5Pclose(plist_id: hid_t) -> herr_t;
            /// Holds HDF5's lock while it calls `iter_func`. A result other than 0 ends the
            /// iteration.
            fn H5Piterate(
                id: hid_t,
                idx: *mut c_int,
                iter_func: PropertyIterate,
                iter_data: *mut c_void
            ) -> c_int;
            fn H5Pget_driver(plist_id: hid_t) -> hid_t;
            fn H5Pget_fapl_core(
                fapl_id: hid_t,
                increment: *mut usize,
                backing_store: *mut bool
            ) -> herr_t;
            /// Registers the driver, or adds a reference to it, and copies the string.
            fn H5Pset_driver_by_name(
                plist_id: hid_t,
                driver_name: *const c_char,
                driver_config: *const c_char
            ) -> herr_t;
            /// Returns the length of the string; 0 without a string.
            fn H5Pget_driver_config_str(
                fapl_id: hid_t,
                config_buf: *mut c_char,
                buf_size: usize
            ) -> isize;
            /// Returns the driver's information; null, with an error on the stack, if the driver
            /// has no information.
            fn H5Pget_driver_info(plist_id: hid_t) -> *const c_void;
            fn H5Pget_file_locking(
                fapl_id: hid_t,
                use_file_locking: *mut bool,
                ignore_when_disabled: *mut bool
            ) -> herr_t;
            fn H5Pset_fclose_degree(fapl_id: hid_t, degree: c_int) -> herr_t;
            fn H5Pget_layout(plist_id: hid_t) -> c_int;
            fn H5Pget_chunk(plist_id: hid_t, max_ndims: c_int, dim: *mut hsize_t) -> c_int;
            fn H5Pget_chunk_opts(plist_id: hid_t, opts: *mut c_uint) -> herr_t;
            fn H5Pget_nfilters(plist_id: hid_t) -> c_int;
            fn H5Pget_filter2(
                plist_id: hid_t,
                idx: c_uint,
                flags: *mut c_uint,
                cd_nelmts: *mut usize,
                cd_values: *mut c_uint,
                namelen: usize,
                name: *mut c_char,
                filter_config: *mut c_uint
            ) -> c_int;
            fn H5Pget_external_count(plist_id: hid_t) -> c_int;
            fn H5Pget_external(
                plist_id: hid_t,
                idx: c_uint,
                name_size: usize,
                name: *mut c_char,
                offset: *mut i64,
                size: *mut hsize_t
            ) -> herr_t;
            fn H5Pget_efile_prefix(dapl_id: hid_t, prefix: *mut c_char, size: usize) -> isize;
            fn H5Pget_virtual_count(dcpl_id: hid_t, count: *mut usize) -> herr_t;
            fn H5Pget_virtual_vspace(dcpl_id: hid_t, index: usize) -> hid_t;
            fn H5Pget_virtual_srcspace(dcpl_id: hid_t, index: usize) -> hid_t;
            fn H5Pget_virtual_filename(dcpl_id: hid_t, index: usize, name: *mut c_char, size: usize)
                -> isize;
            fn H5Pget_virtual_dsetname(dcpl_id: hid_t, index: usize, name: *mut c_char, size: usize)
                -> isize;
            fn H5Pget_virtual_prefix(dapl_id: hid_t, prefix: *mut c_char, size: usize) -> isize;
            fn H5Pget_fill_value(plist_id: hid_t, type_id: hid_t, value: *mut c_void) -> herr_t;
            fn H5Pfill_value_defined(plist: hid_t, status: *mut c_int) -> herr_t;
            fn H5Pget_fill_time(plist_id: hid_t, fill_time: *mut c_int) -> herr_t;
            fn H5Pget_sizes(
                plist_id: hid_t,
                sizeof_addr: *mut usize,
                sizeof_size: *mut usize
            ) -> herr_t;
            fn H5Pget_userblock(plist_id: hid_t, size: *mut hsize_t) -> herr_t;
            /// The first number has no meaning any more.
            fn H5Pget_cache(
                plist_id: hid_t,
                mdc_nelmts: *mut c_int,
                rdcc_nslots: *mut usize,
                rdcc_nbytes: *mut usize,
                rdcc_w0: *mut f64
            ) -> herr_t;
            fn H5Pget_chunk_cache(
                dapl_id: hid_t,
                rdcc_nslots: *mut usize,
                rdcc_nbytes: *mut usize,
                rdcc_w0: *mut f64
            ) -> herr_t;
            fn H5Pset_chunk_cache(
                dapl_id: hid_t,
                rdcc_nslots: usize,
                rdcc_nbytes: usize,
                rdcc_w0: f64
            ) -> herr_t;
            fn H5Pget_copy_object(plist_id: hid_t, copy_options: *mut c_uint) -> herr_t;
            fn H5Pget_sieve_buf_size(fapl_id: hid_t, size: *mut usize) -> herr_t;
            fn H5Pget_page_buffer_size(
                plist_id: hid_t,
                buf_size: *mut usize,
                min_meta_perc: *mut c_uint,
                min_raw_perc: *mut c_uint
            ) -> herr_t;
            fn H5Pset_page_buffer_size(
                plist_id: hid_t,
                buf_size: usize,
                min_meta_perc: c_uint,
                min_raw_perc: c_uint
            ) -> herr_t;

            fn H5Sget_simple_extent_type(space_id: hid_t) -> c_int;
            fn H5Sget_simple_extent_ndims(space_id: hid_t) -> c_int;
            fn H5Sget_simple_extent_dims(
                space_id: hid_t,
                dims: *mut hsize_t,
                maxdims: *mut hsize_t
            ) -> c_int;
            fn H5Sset_extent_simple(
                space_id: hid_t,
                rank: c_int,
                dims: *const hsize_t,
                max: *const hsize_t
            ) -> herr_t;
            fn H5Sget_select_type(spaceid: hid_t) -> c_int;
            fn H5Sget_select_npoints(spaceid: hid_t) -> hssize_t;
            fn H5Sget_select_bounds(spaceid: hid_t, start: *mut hsize_t, end: *mut hsize_t)
                -> herr_t;
            fn H5Sis_regular_hyperslab(spaceid: hid_t) -> htri_t;
            fn H5Sget_regular_hyperslab(
                spaceid: hid_t,
                start: *mut hsize_t,
                stride: *mut hsize_t,
                count: *mut hsize_t,
                block: *mut hsize_t
            ) -> htri_t;
            fn H5Ssel_iter_create(spaceid: hid_t, elmt_size: usize, flags: c_uint) -> hid_t;
            /// Writes offsets and lengths in bytes, for elements of the size given at creation.
            fn H5Ssel_iter_get_seq_list(
                sel_iter_id: hid_t,
                maxseq: usize,
                maxelmts: usize,
                nseq: *mut usize,
                nelmts: *mut usize,
                off: *mut hsize_t,
                len: *mut usize
            ) -> herr_t;
            fn H5Ssel_iter_reset(sel_iter_id: hid_t, space_id: hid_t) -> herr_t;
            fn H5Ssel_iter_close(sel_iter_id: hid_t) -> herr_t;
            fn H5Scopy(space_id: hid_t) -> hid_t;
            fn H5Screate_simple(rank: c_int, dims: *const hsize_t, maxdims: *const hsize_t)
                -> hid_t;
            fn H5Sselect_none(spaceid: hid_t) -> herr_t;
            fn H5Sselect_hyperslab(
                space_id: hid_t,
                op: c_int,
                start: *const hsize_t,
                stride: *const hsize_t,
                count: *const hsize_t,
                block: *const hsize_t
            ) -> herr_t;
            fn H5Smodify_select(space1_id: hid_t, op: c_int, space2_id: hid_t) -> herr_t;
            fn H5Sselect_elements(
                space_id: hid_t,
                op: c_int,
                num_elem: usize,
                coord: *const hsize_t
            ) -> herr_t;
            fn H5Soffset_simple(space_id: hid_t, offset: *const hssize_t) -> herr_t;
            fn H5Sclose(space_id: hid_t) -> herr_t;

            fn H5Tget_class(type_id: hid_t) -> c_int;
            fn H5Tget_size(type_id: hid_t) -> usize;
            fn H5Treclaim(type_id: hid_t, space_id: hid_t, plist_id: hid_t, buf: *mut c_void) -> herr_t;
            fn H5Tget_order(type_id: hid_t) -> c_int;
            fn H5Tget_sign(type_id: hid_t) -> c_int;
            fn H5Tget_precision(type_id: hid_t) -> usize;
            fn H5Tget_offset(type_id: hid_t) -> c_int;
            fn H5Tget_ebias(type_id: hid_t) -> usize;
            fn H5Tget_fields(
                type_id: hid_t,
                spos: *mut usize,
                epos: *mut usize,
                esize: *mut usize,
                mpos: *mut usize,
                msize: *mut usize
            ) -> herr_t;
            fn H5Tget_norm(type_id: hid_t) -> c_int;
            fn H5Tget_nmembers(type_id: hid_t) -> c_int;
            /// The caller frees the string with `H5free_memory`.
            fn H5Tget_member_name(type_id: hid_t, membno: c_uint) -> *mut c_char;
            fn H5Tget_member_offset(type_id: hid_t, membno: c_uint) -> usize;
            fn H5Tget_member_type(type_id: hid_t, membno: c_uint) -> hid_t;
            fn H5Tget_member_value(type_id: hid_t, membno: c_uint, value: *mut c_void) -> herr_t;
            fn H5Tget_super(type_: hid_t) -> hid_t;
            fn H5Tget_array_ndims(type_id: hid_t) -> c_int;
            fn H5Tget_array_dims2(type_id: hid_t, dims: *mut hsize_t) -> c_int;
            fn H5Tget_cset(type_id: hid_t) -> c_int;
            fn H5Tget_strpad(type_id: hid_t) -> c_int;
            /// The caller frees the string with `H5free_memory`.
            fn H5Tget_tag(type_: hid_t) -> *mut c_char;
            fn H5Tis_variable_str(type_id: hid_t) -> htri_t;
            fn H5Tequal(type1_id: hid_t, type2_id: hid_t) -> htri_t;
            /// Converts in place: the buffer has room for `nelmts` of the larger type. `background`,
            /// of the same size, has the values of compound fields that the source lacks.
            fn H5Tconvert(
                src_id: hid_t,
                dst_id: hid_t,
                nelmts: usize,
                buf: *mut c_void,
                background: *mut c_void,
                plist_id: hid_t
            ) -> herr_t;
            /// Makes HDF5 call `func` instead of its own conversion between `from` and `to`.
            fn H5Tregister(
                pers: c_int,
                name: *const c_char,
                from: hid_t,
                to: hid_t,
                func: TypeConversion
            ) -> herr_t;
            fn H5Tunregister(
                pers: c_int,
                name: *const c_char,
                from: hid_t,
                to: hid_t,
                func: TypeConversion
            ) -> herr_t;
            fn H5Tcopy(type_id: hid_t) -> hid_t;
            fn H5Tset_size(type_id: hid_t, size: usize) -> herr_t;
            fn H5Tset_order(type_id: hid_t, order: c_int) -> herr_t;
            fn H5Tset_precision(type_id: hid_t, prec: usize) -> herr_t;
            fn H5Tset_ebias(type_id: hid_t, ebias: usize) -> herr_t;
            fn H5Tset_fields(
                type_id: hid_t,
                spos: usize,
                epos: usize,
                esize: usize,
                mpos: usize,
                msize: usize
            ) -> herr_t;
            fn H5Tcreate(class: c_int, size: usize) -> hid_t;
            fn H5Tinsert(parent_id: hid_t, name: *const c_char, offset: usize, member_id: hid_t)
                -> herr_t;
            fn H5Tarray_create2(base_id: hid_t, ndims: c_uint, dim: *const hsize_t) -> hid_t;
            fn H5Tenum_create(base_id: hid_t) -> hid_t;
            fn H5Tenum_insert(type_: hid_t, name: *const c_char, value: *const c_void) -> herr_t;
            fn H5Tclose(type_id: hid_t) -> herr_t;

            fn H5Eset_auto2(estack_id: hid_t, func: Option<ErrorAuto>, client_data: *mut c_void)
                -> herr_t;
            fn H5Eget_auto2(
                estack_id: hid_t,
                func: *mut Option<ErrorAuto>,
                client_data: *mut *mut c_void
            ) -> herr_t;
            fn H5Ewalk2(
                err_stack: hid_t,
                direction: c_int,
                func: ErrorWalk,
                client_data: *mut c_void
            ) -> herr_t;
            fn H5Eclear2(err_stack: hid_t) -> herr_t;
            fn H5Zfilter_avail(id: c_int) -> htri_t;
        }
        optional {
            /// 1.14 only; 2.x has the variable `H5FD_SEC2_id_g`.
            fn H5FD_sec2_init() -> hid_t;
            /// Exported only by an HDF5 with MPI. Fails for a file that does not use MPI-IO.
            fn H5Fget_mpi_atomicity(file_id: hid_t, is_atomic: *mut bool) -> herr_t;
            /// Since 1.14.1.
            fn H5Pset_selection_io(plist_id: hid_t, mode: c_int) -> herr_t;
            /// Since 1.14.3. Writes bits with the reason why the last transfer with the list did
            /// not use selection I/O.
            fn H5Pget_no_selection_io_cause(plist_id: hid_t, cause: *mut u32) -> herr_t;
        }
    }
}

const TITLE: &str = "HDF5 library of this process";
const LIBRARY: Search = Search {
    title: TITLE,
    variable: "path",
    names: &["libhdf5.so.310", "libhdf5.so.320", "libhdf5.so"],
    folders: Vec::new,
};

/// The HDF5 of this process.
pub struct Hdf5 {
    functions: Functions,
    library: Library,
    version: (u32, u32, u32),
    pass_through: OnceLock<Result<pass_through::Functions, Absent>>,
    mpi: OnceLock<Option<Mpi>>,
}

/// A test may replace functions of a table.
impl DerefMut for Hdf5 {
    fn deref_mut(&mut self) -> &mut Functions {
        &mut self.functions
    }
}

impl Deref for Hdf5 {
    type Target = Functions;

    fn deref(&self) -> &Functions {
        &self.functions
    }
}

impl Hdf5 {
    /// The copy at `hint`. Without a hint, the one with global symbols, else the one loaded by its
    /// usual name, else a mapped file that is named like HDF5's main library, as in h5py's wheels. A
    /// process with several private copies needs the hint.
    ///
    /// Calls `H5open`, so the caller must hold the lock that guards HDF5.
    pub fn of_process(hint: Option<&Path>) -> Result<Hdf5, Absent> {
        if let Some(path) = hint {
            if !is_loaded(path.as_os_str()) {
                return Err(Absent {
                    what: format!("{TITLE}: {} is not loaded", path.display()),
                });
            }
            return Hdf5::at(path.as_os_str());
        }
        // The empty name is the global scope of the program, which has a linked or preloaded HDF5.
        let mut refused = match Hdf5::at(OsStr::new("")) {
            Ok(found) => return Ok(found),
            Err(absent) => vec![absent.what],
        };
        let mapped = mapped_files().into_iter().map(PathBuf::into_os_string);
        let loaded = LIBRARY.names.iter().map(OsString::from).chain(mapped);
        for name in loaded.filter(|name| is_loaded(name)) {
            match Hdf5::at(&name) {
                Ok(found) => return Ok(found),
                Err(absent) => refused.push(absent.what),
            }
        }
        Err(Absent {
            what: format!("{TITLE}: no copy is loaded; {}", refused.join("; ")),
        })
    }

    /// The copy that a loaded shared object is linked with, such as an extension module of h5py.
    pub fn of_module(module: &Path) -> Result<Hdf5, Absent> {
        let absent = |why: &str| Absent {
            what: format!("{TITLE}: {} {why}", module.display()),
        };
        let handle = loaded(module.as_os_str()).ok_or_else(|| absent("is not loaded"))?;
        let handle = handle.as_ptr();
        // SAFETY: the handle is the one just returned. `dlsym` searches the module and its
        // dependencies.
        let symbol = unsafe { libc::dlsym(handle, c"H5open".as_ptr()) };
        let path = object_of(symbol).map(|object| object.path);
        // SAFETY: the handle is the one returned above; its owner keeps the module loaded.
        unsafe { libc::dlclose(handle) };
        Hdf5::at(
            path.ok_or_else(|| absent("is not linked with HDF5"))?
                .as_os_str(),
        )
    }

    /// The copy that contains `code`, the address of an instruction of HDF5.
    ///
    /// Calls none of its functions, not even `H5open`, since it may be in the middle of initialising.
    pub fn of_code(code: *const c_void) -> Result<Hdf5, Absent> {
        let object = containing(code)?;
        // A program into which HDF5 is linked statically cannot be opened by its name.
        Hdf5::found(object.path.as_os_str()).or_else(|absent| {
            let program = Hdf5::found(OsStr::new("")).map_err(|_| absent)?;
            match object_of(program.functions.H5open as *const c_void) {
                Some(other) if other.base == object.base => Ok(program),
                _ => Err(Absent {
                    what: format!("{TITLE}: {} does not export HDF5", object.path.display()),
                }),
            }
        })
    }

    /// The copy with which the object that contains `code` is linked: a shared object, or the program
    /// itself. Calls none of its functions.
    pub fn of_caller(code: *const c_void) -> Result<Hdf5, Absent> {
        // A program cannot be opened by its name, only as its global scope.
        Hdf5::found(containing(code)?.path.as_os_str())
            .or_else(|absent| Hdf5::found(OsStr::new("")).map_err(|_| absent))
    }

    /// As [`found`](Self::found), but initialises the library.
    fn at(name: &OsStr) -> Result<Hdf5, Absent> {
        let hdf5 = Hdf5::found(name)?;
        // SAFETY: H5open may be called at any time under the lock, which the caller holds.
        if unsafe { (hdf5.functions.H5open)() } < 0 {
            return Err(Absent {
                what: format!("{TITLE}: {} fails to initialise", name.display()),
            });
        }
        Ok(hdf5)
    }

    /// Opens `name`, which is already loaded, so that it stays loaded.
    fn found(name: &OsStr) -> Result<Hdf5, Absent> {
        let library = LIBRARY.open(Some(name))?;
        // An older library also lacks functions. The version says more than their names.
        let written = version_of(&library);
        written.map_or(Ok(()), |version| refuse_unsupported(name, version))?;
        let functions = Functions::of(&library)?;
        let version = written.unwrap_or_else(|| {
            let mut version = (0, 0, 0);
            // SAFETY: the pointers are valid; the numbers stay 0 if the function fails. It needs no
            // initialised library.
            unsafe {
                (functions.H5get_libversion)(&mut version.0, &mut version.1, &mut version.2);
            }
            version
        });
        refuse_unsupported(name, version)?;
        Ok(Hdf5 {
            functions,
            library,
            version,
            pass_through: OnceLock::new(),
            mpi: OnceLock::new(),
        })
    }

    /// Major, minor and release number.
    pub fn version(&self) -> (u32, u32, u32) {
        self.version
    }

    /// A number that identifies this copy of HDF5 in the process.
    pub fn copy(&self) -> usize {
        self.functions.H5Dread as usize
    }

    /// The additional functions that a connector needs.
    pub fn pass_through(&self) -> Result<&pass_through::Functions, Absent> {
        self.pass_through
            .get_or_init(|| pass_through::Functions::of(&self.library))
            .as_ref()
            .map_err(Absent::clone)
    }

    /// The MPI library that this HDF5 is linked with. `None` if there is no such library, or if it
    /// hides its functions, or on a big-endian machine.
    pub fn mpi(&self) -> Option<&Mpi> {
        let open = || Mpi::of(&self.library).ok();
        let mpi = self.mpi.get_or_init(open).as_ref();
        mpi.filter(|_| cfg!(target_endian = "little"))
    }

    /// The value of one of HDF5's global identifiers, such as `H5T_NATIVE_INT_g`; `None` if this
    /// version has no such variable.
    pub fn identifier(&self, variable: &str) -> Option<hid_t> {
        identifier(&self.library, variable)
    }

    /// The address of that variable. The search takes longer than reading it, so callers may keep it.
    pub fn address_of(&self, variable: &str) -> Option<*const hid_t> {
        address_of(&self.library, variable)
    }

    /// Pushes an entry on the calling thread's error stack. `major` and `minor` are variables of HDF5's
    /// own error messages, such as `H5E_IO_g` and `H5E_READERROR_g`.
    pub fn push_error(&self, place: &ErrorPlace<'_>, major: &str, minor: &str, text: &CStr) {
        error_stack::push_error(&self.library, place, major, minor, text);
    }

    /// The identifier of the sec2 driver, which stores a file as one POSIX file.
    pub fn sec2_driver(&self) -> Option<hid_t> {
        match self.functions.H5FD_sec2_init {
            // SAFETY: the function has no arguments, and the library is initialised.
            Some(init) => Some(unsafe { init() }),
            None => self.identifier("H5FD_SEC2_id_g"),
        }
        .filter(|id| *id > 0)
    }
}

/// Returns an error for a version without plugins for drivers, or of an unknown interface.
fn refuse_unsupported(name: &OsStr, version: (u32, u32, u32)) -> Result<(), Absent> {
    let what = match version {
        (1, 14, _) | (2, ..) => return Ok(()),
        older if older < (1, 14, 0) => "is too old",
        _ => "is not supported",
    };
    let (major, minor, release) = version;
    let version = format!("HDF5 {major}.{minor}.{release}");
    Err(Absent {
        what: format!(
            "{version} ({}) {what}: Penstock needs HDF5 1.14 or 2.x",
            name.display()
        ),
    })
}

/// As [`Hdf5::identifier`].
fn identifier(library: &Library, variable: &str) -> Option<hid_t> {
    let address = address_of(library, variable)?;
    // SAFETY: HDF5's exported variables with such names have the type hid_t. The library is never
    // closed.
    Some(unsafe { address.read() })
}

/// As [`Hdf5::address_of`].
///
/// A program that refers to the variable may have a copy of it (R_X86_64_COPY, ELF x86-64 ABI
/// 4.4). HDF5 then uses the copy and never sets its own variable.
fn address_of(library: &Library, variable: &str) -> Option<*const hid_t> {
    if !variable.starts_with("H5") || !variable.ends_with("_g") {
        return None;
    }
    // SAFETY: a data pointer has the size of a function pointer, and it is used only as a data
    // pointer.
    let own: *const hid_t = unsafe { library.optional(&[variable]) }?;
    // SAFETY: exported variables with such names have the type hid_t. HDF5 and the program stay
    // mapped.
    let is_set = |variable: *const hid_t| unsafe { variable.read() } > 0;
    if is_set(own) {
        return Some(own);
    }
    let name = CString::new(variable).ok()?;
    // SAFETY: the name is a C string. The scope is the one in which HDF5's own references to the
    // variable were resolved.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.cast::<hid_t>();
    let is_copied = !first.is_null() && is_set(first);
    Some(if is_copied { first } else { own })
}

/// The version from a string that the library exports. Calls no function: HDF5 may be looking for a
/// plugin because something has failed, and a call would clear its error stack.
fn version_of(library: &Library) -> Option<(u32, u32, u32)> {
    // SAFETY: a data pointer has the size of a function pointer, and it is used only as a data
    // pointer.
    let text: *const c_char = unsafe { library.optional(&["H5_lib_vers_info_g"]) }?;
    // SAFETY: HDF5's variable of this name is a constant C string.
    version_in(&unsafe { CStr::from_ptr(text) }.to_string_lossy())
}

/// The numbers of "HDF5 library version: 1.14.4-3".
fn version_in(text: &str) -> Option<(u32, u32, u32)> {
    let text = text.strip_prefix("HDF5 library version: ")?;
    let mut numbers = text
        .split(['.', '-', ' '])
        .map_while(|part| part.parse().ok());
    Some((numbers.next()?, numbers.next()?, numbers.next()?))
}

fn containing(code: *const c_void) -> Result<Object, Absent> {
    object_of(code).ok_or_else(|| Absent {
        what: format!("{TITLE}: no loaded object contains the address {code:p}"),
    })
}

/// The base address of the object that contains `code`: the same for all addresses of one copy of
/// HDF5.
pub fn base_of(code: *const c_void) -> Option<usize> {
    object_of(code).map(|object| object.base)
}

/// Whether `name` is loaded in this process.
fn is_loaded(name: &OsStr) -> bool {
    // SAFETY: the handle is the one just returned; other handles keep the library loaded.
    loaded(name).is_some_and(|handle| unsafe { libc::dlclose(handle.as_ptr()) } == 0)
}

/// Files mapped into this process that are named like HDF5's main library.
fn mapped_files() -> Vec<PathBuf> {
    let maps = fs::read("/proc/self/maps").unwrap_or_default();
    let mut found: Vec<PathBuf> = maps
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.iter().position(|b| *b == b'/').map(|at| &line[at..]))
        .map(|path| PathBuf::from(OsString::from_vec(path.to_vec())))
        .filter(|path| is_main_library(path))
        .collect();
    found.dedup();
    found
}

/// `libhdf5.so.310`, `libhdf5-<hash>.so.320.0.0`, `libhdf5_serial.so.103`; not `libhdf5_hl.so`.
fn is_main_library(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(OsStr::to_str) else {
        return false;
    };
    let Some((stem, _)) = name.split_once(".so") else {
        return false;
    };
    match stem.strip_prefix("libhdf5") {
        Some(rest) => {
            rest.is_empty()
                || rest.starts_with('-')
                || matches!(rest, "_serial" | "_openmpi" | "_mpich")
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hdf5_is_absent_in_a_process_without_it() {
        let absent = Hdf5::of_process(None).err().expect("nothing loads HDF5");
        assert!(absent.what.contains("no copy is loaded"), "{absent}");
        assert!(absent.what.contains("H5open"), "{absent}");
    }

    #[test]
    fn a_version_before_1_14_is_too_old() {
        let refusal = |version| refuse_unsupported(OsStr::new("a.so"), version).err();
        for version in [(1, 14, 0), (1, 14, 6), (2, 0, 0), (2, 2, 0)] {
            assert_eq!(refusal(version), None);
        }
        for (version, words) in [
            ((1, 12, 2), "HDF5 1.12.2 (a.so) is too old"),
            ((1, 8, 23), "HDF5 1.8.23 (a.so) is too old"),
            ((1, 16, 0), "HDF5 1.16.0 (a.so) is not supported"),
            ((3, 0, 0), "HDF5 3.0.0 (a.so) is not supported"),
        ] {
            let what = refusal(version).expect("unsupported").what;
            assert!(what.starts_with(words), "{what}");
        }
    }

    #[test]
    fn a_hint_that_is_not_loaded_is_never_loaded() {
        let absent = Hdf5::of_process(Some(Path::new("/none/libhdf5.so.310")))
            .err()
            .expect("the file does not exist");
        assert!(
            absent.what.contains("/none/libhdf5.so.310 is not loaded"),
            "{absent}"
        );
    }

    #[test]
    fn the_version_is_parsed_from_the_string_that_the_library_exports() {
        assert_eq!(
            version_in("HDF5 library version: 1.14.4-3"),
            Some((1, 14, 4))
        );
        assert_eq!(version_in("HDF5 library version: 2.2.0"), Some((2, 2, 0)));
        assert_eq!(version_in("HDF5 library version: 2.x"), None);
        assert_eq!(version_in("2.2.0"), None);
    }

    #[test]
    fn only_the_main_library_counts_as_hdf5() {
        for name in [
            "libhdf5.so",
            "libhdf5.so.310",
            "libhdf5-9e18f0c6.so.320.0.0",
            "libhdf5_serial.so.103",
        ] {
            assert!(is_main_library(&Path::new("/x").join(name)), "{name}");
        }
        for name in [
            "libhdf5_hl.so.310",
            "libhdf5_hl-69da89c9.so.320.0.0",
            "libhdf5_cpp.so",
            "libhdf5.a",
            "data.so",
        ] {
            assert!(!is_main_library(&Path::new("/x").join(name)), "{name}");
        }
    }

    #[test]
    fn an_entry_of_the_error_stack_has_the_size_of_the_c_struct() {
        assert_eq!(size_of::<H5E_error2_t>(), 56);
        assert_eq!(std::mem::offset_of!(H5E_error2_t, desc), 48);
    }
}
