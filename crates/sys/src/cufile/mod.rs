//! cuFile, the library of GPUDirect Storage.

pub mod stats;

use std::ffi::{c_int, c_uint, c_void};
use std::fmt;
use std::mem::{offset_of, size_of};
use std::ptr;
use std::sync::OnceLock;

use libc::{off_t, size_t, ssize_t};

use crate::cuda::CUresult;
use crate::library::{Absent, Search, table, vendor_folders};
use stats::CUfileStatsLevel3;

pub type CUfileHandle = *mut c_void;
pub type CUfileOpError = c_int;

/// The codes of cuFile's own errors are above this.
pub const CUFILEOP_BASE_ERR: c_int = 5000;

macro_rules! op_errors {
    ($($name:ident = $code:expr;)*) => {
        $(pub const $name: CUfileOpError = $code;)*

        /// The header's name for a code of either sign; `None` for one that it does not list.
        pub fn op_error_name(code: CUfileOpError) -> Option<&'static str> {
            match code.saturating_abs() {
                $($name => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

op_errors! {
    CU_FILE_SUCCESS = 0;
    CU_FILE_DRIVER_NOT_INITIALIZED = CUFILEOP_BASE_ERR + 1;
    CU_FILE_DRIVER_INVALID_PROPS = CUFILEOP_BASE_ERR + 2;
    CU_FILE_DRIVER_UNSUPPORTED_LIMIT = CUFILEOP_BASE_ERR + 3;
    CU_FILE_DRIVER_VERSION_MISMATCH = CUFILEOP_BASE_ERR + 4;
    CU_FILE_DRIVER_VERSION_READ_ERROR = CUFILEOP_BASE_ERR + 5;
    CU_FILE_DRIVER_CLOSING = CUFILEOP_BASE_ERR + 6;
    CU_FILE_PLATFORM_NOT_SUPPORTED = CUFILEOP_BASE_ERR + 7;
    CU_FILE_IO_NOT_SUPPORTED = CUFILEOP_BASE_ERR + 8;
    CU_FILE_DEVICE_NOT_SUPPORTED = CUFILEOP_BASE_ERR + 9;
    CU_FILE_NVFS_DRIVER_ERROR = CUFILEOP_BASE_ERR + 10;
    CU_FILE_CUDA_DRIVER_ERROR = CUFILEOP_BASE_ERR + 11;
    CU_FILE_CUDA_POINTER_INVALID = CUFILEOP_BASE_ERR + 12;
    CU_FILE_CUDA_MEMORY_TYPE_INVALID = CUFILEOP_BASE_ERR + 13;
    CU_FILE_CUDA_POINTER_RANGE_ERROR = CUFILEOP_BASE_ERR + 14;
    CU_FILE_CUDA_CONTEXT_MISMATCH = CUFILEOP_BASE_ERR + 15;
    CU_FILE_INVALID_MAPPING_SIZE = CUFILEOP_BASE_ERR + 16;
    CU_FILE_INVALID_MAPPING_RANGE = CUFILEOP_BASE_ERR + 17;
    CU_FILE_INVALID_FILE_TYPE = CUFILEOP_BASE_ERR + 18;
    CU_FILE_INVALID_FILE_OPEN_FLAG = CUFILEOP_BASE_ERR + 19;
    CU_FILE_DIO_NOT_SET = CUFILEOP_BASE_ERR + 20;
    CU_FILE_INVALID_VALUE = CUFILEOP_BASE_ERR + 22;
    CU_FILE_MEMORY_ALREADY_REGISTERED = CUFILEOP_BASE_ERR + 23;
    CU_FILE_MEMORY_NOT_REGISTERED = CUFILEOP_BASE_ERR + 24;
    CU_FILE_PERMISSION_DENIED = CUFILEOP_BASE_ERR + 25;
    CU_FILE_DRIVER_ALREADY_OPEN = CUFILEOP_BASE_ERR + 26;
    CU_FILE_HANDLE_NOT_REGISTERED = CUFILEOP_BASE_ERR + 27;
    CU_FILE_HANDLE_ALREADY_REGISTERED = CUFILEOP_BASE_ERR + 28;
    CU_FILE_DEVICE_NOT_FOUND = CUFILEOP_BASE_ERR + 29;
    CU_FILE_INTERNAL_ERROR = CUFILEOP_BASE_ERR + 30;
    CU_FILE_GETNEWFD_FAILED = CUFILEOP_BASE_ERR + 31;
    CU_FILE_NVFS_SETUP_ERROR = CUFILEOP_BASE_ERR + 33;
    CU_FILE_IO_DISABLED = CUFILEOP_BASE_ERR + 34;
    CU_FILE_BATCH_SUBMIT_FAILED = CUFILEOP_BASE_ERR + 35;
    CU_FILE_GPU_MEMORY_PINNING_FAILED = CUFILEOP_BASE_ERR + 36;
    CU_FILE_BATCH_FULL = CUFILEOP_BASE_ERR + 37;
    CU_FILE_ASYNC_NOT_SUPPORTED = CUFILEOP_BASE_ERR + 38;
    CU_FILE_INTERNAL_BATCH_SETUP_ERROR = CUFILEOP_BASE_ERR + 39;
    CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR = CUFILEOP_BASE_ERR + 40;
    CU_FILE_INTERNAL_BATCH_GETSTATUS_ERROR = CUFILEOP_BASE_ERR + 41;
    CU_FILE_INTERNAL_BATCH_CANCEL_ERROR = CUFILEOP_BASE_ERR + 42;
    CU_FILE_NOMEM_ERROR = CUFILEOP_BASE_ERR + 43;
    CU_FILE_IO_ERROR = CUFILEOP_BASE_ERR + 44;
    CU_FILE_INTERNAL_BUF_REGISTER_ERROR = CUFILEOP_BASE_ERR + 45;
    CU_FILE_HASH_OPR_ERROR = CUFILEOP_BASE_ERR + 46;
    CU_FILE_INVALID_CONTEXT_ERROR = CUFILEOP_BASE_ERR + 47;
    CU_FILE_NVFS_INTERNAL_DRIVER_ERROR = CUFILEOP_BASE_ERR + 48;
    CU_FILE_BATCH_NOCOMPAT_ERROR = CUFILEOP_BASE_ERR + 49;
    CU_FILE_IO_MAX_ERROR = CUFILEOP_BASE_ERR + 50;
}

/// The result of most calls. `cu_err` is valid only if `err` is `CU_FILE_CUDA_DRIVER_ERROR`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct CUfileError {
    pub err: CUfileOpError,
    pub cu_err: CUresult,
}

impl CUfileError {
    pub fn is_success(self) -> bool {
        self.err == CU_FILE_SUCCESS
    }
}

/// The name of the code, with the CUDA result if there is one.
impl fmt::Display for CUfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match op_error_name(self.err) {
            Some(name) => f.write_str(name)?,
            None => write!(f, "cuFile error {}", self.err)?,
        }
        if self.err == CU_FILE_CUDA_DRIVER_ERROR {
            write!(f, " (CUDA error {})", self.cu_err)?;
        }
        Ok(())
    }
}

/// A bit of `CUfileDrvPropsNvfs::dstatusflags`, by number.
pub const CU_FILE_NVME_SUPPORTED: u32 = 4;
/// A bit of `CUfileDrvProps::fflags`, by number.
pub const CU_FILE_P2P_SUPPORTED: u32 = 4;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CUfileDrvPropsNvfs {
    pub major_version: c_uint,
    pub minor_version: c_uint,
    pub poll_thresh_size: size_t,
    /// In KiB, like all other sizes of the properties.
    pub max_direct_io_size: size_t,
    pub dstatusflags: c_uint,
    pub dcontrolflags: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CUfileDrvProps {
    pub nvfs: CUfileDrvPropsNvfs,
    pub fflags: c_uint,
    pub max_device_cache_size: c_uint,
    pub per_buffer_cache_size: c_uint,
    pub max_device_pinned_mem_size: c_uint,
    pub max_batch_io_size: c_uint,
    pub max_batch_io_timeout_msecs: c_uint,
}

pub const CU_FILE_HANDLE_TYPE_OPAQUE_FD: c_int = 1;

#[repr(C)]
#[derive(Clone, Copy)]
pub union CUfileDescrHandle {
    pub fd: c_int,
    pub handle: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUfileDescr {
    pub type_: c_int,
    pub handle: CUfileDescrHandle,
    /// Only for user-space file systems; null otherwise.
    pub fs_ops: *const c_void,
}

impl CUfileDescr {
    /// Describes an open file. cuFile keeps using `fd` until the handle is deregistered.
    pub fn for_fd(fd: c_int) -> Self {
        let mut handle = CUfileDescrHandle {
            handle: ptr::null_mut(),
        };
        handle.fd = fd;
        Self {
            type_: CU_FILE_HANDLE_TYPE_OPAQUE_FD,
            handle,
            fs_ops: ptr::null(),
        }
    }
}

/// A parameter of type bool.
pub const CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE: c_int = 1;

table! {
    /// cuFile. Parameters must be set before `cuFileDriverOpen`; I/O is possible after it.
    CuFile {
        required {
            /// Call it only after `cuInit` succeeded: on a machine without a CUDA driver, versions
            /// 1.18 to 1.20 did not return from it.
            fn cuFileDriverOpen() -> CUfileError;
            fn cuFileDriverClose = "cuFileDriverClose_v2" | "cuFileDriverClose"() -> CUfileError;
            fn cuFileDriverGetProperties(props: *mut CUfileDrvProps) -> CUfileError;

            /// `descr` is read only during the call.
            fn cuFileHandleRegister(
                handle: *mut CUfileHandle, descr: *mut CUfileDescr
            ) -> CUfileError;
            fn cuFileHandleDeregister(handle: CUfileHandle);
            fn cuFileBufRegister(
                base: *const c_void, length: size_t, flags: c_int
            ) -> CUfileError;
            fn cuFileBufDeregister(base: *const c_void) -> CUfileError;

            /// Returns the bytes read, 0 at the end of the file. -1 is a failure with `errno`; any
            /// other negative value is a negated [`CUfileOpError`]. For a registered buffer, `base` is
            /// the registered address. `buffer_offset` counts from `base`.
            fn cuFileRead(
                handle: CUfileHandle,
                base: *mut c_void,
                size: size_t,
                file_offset: off_t,
                buffer_offset: off_t
            ) -> ssize_t;
            /// Returns as `cuFileRead` does.
            fn cuFileWrite(
                handle: CUfileHandle,
                base: *const c_void,
                size: size_t,
                file_offset: off_t,
                buffer_offset: off_t
            ) -> ssize_t;
        }
        optional {
            /// Writes 1000 x major + 10 x minor.
            fn cuFileGetVersion(version: *mut c_int) -> CUfileError;

            /// Since 1.19. [`CuFile::stats_level3`] uses only its presence.
            fn cuFileReadv(
                handle: CUfileHandle,
                vectors: *const c_void,
                count: size_t,
                file_offset: off_t,
                flags: c_uint
            ) -> ssize_t;

            fn cuFileSetParameterBool(parameter: c_int, value: bool) -> CUfileError;

            fn cuFileSetStatsLevel(level: c_int) -> CUfileError;
            fn cuFileStatsStart() -> CUfileError;
            /// The layout of the struct depends on the version: use [`CuFile::stats_level3`].
            fn cuFileGetStatsL3(stats: *mut CUfileStatsLevel3) -> CUfileError;
        }
    }
}

const LIBRARY: Search = Search {
    title: "cuFile library",
    variable: "PENSTOCK_CUFILE_LIBRARY",
    names: &["libcufile.so.0", "libcufile.so"],
    folders: || vendor_folders(&["nvidia/cufile/lib", "nvidia/cu13/lib"]),
};

/// cuFile, opened on the first call. `PENSTOCK_CUFILE_LIBRARY` names another library.
/// Opening it does not open cuFile's driver.
pub fn cufile() -> Result<&'static CuFile, Absent> {
    static CUFILE: OnceLock<Result<CuFile, Absent>> = OnceLock::new();
    CUFILE
        .get_or_init(|| CuFile::of(&LIBRARY.open(LIBRARY.override_path().as_deref())?))
        .as_ref()
        .map_err(Absent::clone)
}

// The layout of the structs of cufile.h 1.15 to 1.20 on 64-bit Linux.
const _: () = {
    assert!(size_of::<CUfileError>() == 8);
    assert!(offset_of!(CUfileError, cu_err) == 4);

    assert!(size_of::<CUfileDrvProps>() == 56);
    assert!(offset_of!(CUfileDrvProps, nvfs.minor_version) == 4);
    assert!(offset_of!(CUfileDrvProps, nvfs.poll_thresh_size) == 8);
    assert!(offset_of!(CUfileDrvProps, nvfs.max_direct_io_size) == 16);
    assert!(offset_of!(CUfileDrvProps, nvfs.dstatusflags) == 24);
    assert!(offset_of!(CUfileDrvProps, nvfs.dcontrolflags) == 28);
    assert!(offset_of!(CUfileDrvProps, fflags) == 32);
    assert!(offset_of!(CUfileDrvProps, max_device_cache_size) == 36);
    assert!(offset_of!(CUfileDrvProps, per_buffer_cache_size) == 40);
    assert!(offset_of!(CUfileDrvProps, max_device_pinned_mem_size) == 44);
    assert!(offset_of!(CUfileDrvProps, max_batch_io_size) == 48);
    assert!(offset_of!(CUfileDrvProps, max_batch_io_timeout_msecs) == 52);

    assert!(size_of::<CUfileDescr>() == 24);
    assert!(offset_of!(CUfileDescr, type_) == 0);
    assert!(offset_of!(CUfileDescr, handle) == 8);
    assert!(offset_of!(CUfileDescr, fs_ops) == 16);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_named_with_either_sign() {
        assert_eq!(op_error_name(5030), Some("CU_FILE_INTERNAL_ERROR"));
        assert_eq!(op_error_name(-5030), Some("CU_FILE_INTERNAL_ERROR"));
        assert_eq!(op_error_name(5021), None);
    }

    #[test]
    fn an_error_shows_the_cuda_result_only_where_it_counts() {
        let show = |err| CUfileError { err, cu_err: 2 }.to_string();
        assert_eq!(show(CU_FILE_INVALID_VALUE), "CU_FILE_INVALID_VALUE");
        assert_eq!(
            show(CU_FILE_CUDA_DRIVER_ERROR),
            "CU_FILE_CUDA_DRIVER_ERROR (CUDA error 2)"
        );
        assert_eq!(show(4999), "cuFile error 4999");
    }

    #[test]
    fn a_descriptor_for_a_file_leaves_no_byte_of_the_union_undefined() {
        let descr = CUfileDescr::for_fd(7);
        // SAFETY: all eight bytes were written, four of them again as the descriptor.
        assert_eq!(unsafe { descr.handle.handle }.addr(), 7);
    }
}
