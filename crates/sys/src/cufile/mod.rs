//! cuFile, the library of GPUDirect Storage.

pub mod stats;

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::fmt;
use std::mem::{offset_of, size_of};
use std::ptr;
use std::sync::OnceLock;

use libc::{off_t, size_t, ssize_t, timespec};

use crate::cuda::{CUresult, CUstream};
use crate::environment;
use crate::library::{Absent, Search, table, vendor_folders};
use stats::{CUfileStatsLevel1, CUfileStatsLevel2, CUfileStatsLevel3};

pub type CUfileHandle = *mut c_void;
pub type CUfileBatchHandle = *mut c_void;
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

// Bits of `CUfileDrvPropsNvfs::dstatusflags`, by number.
pub const CU_FILE_NVME_SUPPORTED: u32 = 4;
pub const CU_FILE_NVMEOF_SUPPORTED: u32 = 5;
pub const CU_FILE_SCSI_SUPPORTED: u32 = 6;
pub const CU_FILE_NVME_P2P_SUPPORTED: u32 = 11;

// Bits of `CUfileDrvPropsNvfs::dcontrolflags`, by number.
pub const CU_FILE_USE_POLL_MODE: u32 = 0;
pub const CU_FILE_ALLOW_COMPAT_MODE: u32 = 1;

// Bits of `CUfileDrvProps::fflags`, by number.
pub const CU_FILE_DYN_ROUTING_SUPPORTED: u32 = 0;
pub const CU_FILE_BATCH_IO_SUPPORTED: u32 = 1;
pub const CU_FILE_STREAMS_SUPPORTED: u32 = 2;
pub const CU_FILE_PARALLEL_IO_SUPPORTED: u32 = 3;
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

pub const CUFILE_READ: c_int = 0;
pub const CUFILE_WRITE: c_int = 1;
pub const CUFILE_BATCH: c_int = 1;

// States of a batch operation.
pub const CUFILE_CANCELED: c_int = 0x08;
pub const CUFILE_COMPLETE: c_int = 0x10;
pub const CUFILE_FAILED: c_int = 0x40;

/// The one member of the union in the header's struct.
#[allow(non_snake_case)]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUfileIOBatch {
    pub devPtr_base: *mut c_void,
    pub file_offset: off_t,
    pub devPtr_offset: off_t,
    pub size: size_t,
}

/// One operation of a batch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUfileIOParams {
    /// `CUFILE_BATCH`.
    pub mode: c_int,
    pub batch: CUfileIOBatch,
    pub fh: CUfileHandle,
    /// `CUFILE_READ` or `CUFILE_WRITE`.
    pub opcode: c_int,
    /// Returned in the event of this operation.
    pub cookie: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUfileIOEvents {
    pub cookie: *mut c_void,
    pub status: c_int,
    /// The bytes moved, or a negative result as of `cuFileRead`, cast to unsigned.
    pub ret: size_t,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUfileIOVec {
    pub base: *mut c_void,
    pub len: size_t,
}

// Flags of `cuFileStreamRegister`: the arguments of operations that are fixed at submission.
pub const CU_FILE_STREAM_FIXED_BUF_OFFSET: c_uint = 1;
pub const CU_FILE_STREAM_FIXED_FILE_OFFSET: c_uint = 2;
pub const CU_FILE_STREAM_FIXED_FILE_SIZE: c_uint = 4;
pub const CU_FILE_STREAM_PAGE_ALIGNED_INPUTS: c_uint = 8;

// Parameters of type size_t.
pub const CUFILE_PARAM_PROFILE_STATS: c_int = 0;
pub const CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB: c_int = 5;
pub const CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB: c_int = 6;
pub const CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB: c_int = 7;
pub const CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB: c_int = 8;
pub const CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE: c_int = 9;
pub const CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB: c_int = 10;
pub const CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS: c_int = 11;

// Parameters of type bool.
pub const CUFILE_PARAM_PROPERTIES_USE_POLL_MODE: c_int = 0;
pub const CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE: c_int = 1;
pub const CUFILE_PARAM_FORCE_COMPAT_MODE: c_int = 2;
pub const CUFILE_PARAM_EXECUTION_PARALLEL_IO: c_int = 4;
pub const CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY: c_int = 6;

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
            fn cuFileUseCount() -> c_long;
            /// Writes 1000 x major + 10 x minor.
            fn cuFileGetVersion(version: *mut c_int) -> CUfileError;

            /// All pointers must stay valid until the stream completes this operation, which then
            /// writes the result of `cuFileRead` to `bytes_read`.
            fn cuFileReadAsync(
                handle: CUfileHandle,
                base: *mut c_void,
                size: *mut size_t,
                file_offset: *mut off_t,
                buffer_offset: *mut off_t,
                bytes_read: *mut ssize_t,
                stream: CUstream
            ) -> CUfileError;
            /// As `cuFileReadAsync`.
            fn cuFileWriteAsync(
                handle: CUfileHandle,
                base: *mut c_void,
                size: *mut size_t,
                file_offset: *mut off_t,
                buffer_offset: *mut off_t,
                bytes_written: *mut ssize_t,
                stream: CUstream
            ) -> CUfileError;
            fn cuFileStreamRegister(stream: CUstream, flags: c_uint) -> CUfileError;
            fn cuFileStreamDeregister(stream: CUstream) -> CUfileError;

            fn cuFileBatchIOSetUp(batch: *mut CUfileBatchHandle, capacity: c_uint) -> CUfileError;
            fn cuFileBatchIOSubmit(
                batch: CUfileBatchHandle,
                count: c_uint,
                operations: *mut CUfileIOParams,
                flags: c_uint
            ) -> CUfileError;
            /// `count` is the capacity of `events` before the call and the number of events after it.
            fn cuFileBatchIOGetStatus(
                batch: CUfileBatchHandle,
                at_least: c_uint,
                count: *mut c_uint,
                events: *mut CUfileIOEvents,
                timeout: *mut timespec
            ) -> CUfileError;
            fn cuFileBatchIOCancel(batch: CUfileBatchHandle) -> CUfileError;
            fn cuFileBatchIODestroy(batch: CUfileBatchHandle);

            /// Since 1.19.
            fn cuFileReadv(
                handle: CUfileHandle,
                vectors: *const CUfileIOVec,
                count: size_t,
                file_offset: off_t,
                flags: c_uint
            ) -> ssize_t;
            /// Since 1.19.
            fn cuFileWritev(
                handle: CUfileHandle,
                vectors: *const CUfileIOVec,
                count: size_t,
                file_offset: off_t,
                flags: c_uint
            ) -> ssize_t;

            fn cuFileGetParameterSizeT(parameter: c_int, value: *mut size_t) -> CUfileError;
            fn cuFileGetParameterBool(parameter: c_int, value: *mut bool) -> CUfileError;
            fn cuFileGetParameterString(
                parameter: c_int, value: *mut c_char, len: c_int
            ) -> CUfileError;
            fn cuFileSetParameterSizeT(parameter: c_int, value: size_t) -> CUfileError;
            fn cuFileSetParameterBool(parameter: c_int, value: bool) -> CUfileError;
            fn cuFileSetParameterString(parameter: c_int, value: *const c_char) -> CUfileError;

            fn cuFileSetStatsLevel(level: c_int) -> CUfileError;
            fn cuFileGetStatsLevel(level: *mut c_int) -> CUfileError;
            fn cuFileStatsStart() -> CUfileError;
            fn cuFileStatsStop() -> CUfileError;
            fn cuFileStatsReset() -> CUfileError;
            fn cuFileGetStatsL1(stats: *mut CUfileStatsLevel1) -> CUfileError;
            fn cuFileGetStatsL2(stats: *mut CUfileStatsLevel2) -> CUfileError;
            /// The layout of the struct depends on the version: use [`CuFile::stats_level3`].
            fn cuFileGetStatsL3(stats: *mut CUfileStatsLevel3) -> CUfileError;
        }
    }
}

const OVERRIDE: &str = "PENSTOCK_CUFILE_LIBRARY";
const NAMES: &[&str] = &["libcufile.so.0", "libcufile.so"];
const WHEEL_FOLDERS: &[&str] = &["nvidia/cufile/lib", "nvidia/cu13/lib"];

/// cuFile, opened on the first call. `PENSTOCK_CUFILE_LIBRARY` names another library.
/// Opening it does not open cuFile's driver.
pub fn cufile() -> Result<&'static CuFile, Absent> {
    static CUFILE: OnceLock<Result<CuFile, Absent>> = OnceLock::new();
    CUFILE
        .get_or_init(|| {
            let search = Search {
                title: "cuFile library",
                variable: OVERRIDE,
                names: NAMES,
                folders: vendor_folders(WHEEL_FOLDERS),
            };
            CuFile::open(&search, environment::path(OVERRIDE).as_deref())
        })
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

    assert!(size_of::<CUfileIOParams>() == 64);
    assert!(offset_of!(CUfileIOParams, mode) == 0);
    assert!(offset_of!(CUfileIOParams, batch.devPtr_base) == 8);
    assert!(offset_of!(CUfileIOParams, batch.file_offset) == 16);
    assert!(offset_of!(CUfileIOParams, batch.devPtr_offset) == 24);
    assert!(offset_of!(CUfileIOParams, batch.size) == 32);
    assert!(offset_of!(CUfileIOParams, fh) == 40);
    assert!(offset_of!(CUfileIOParams, opcode) == 48);
    assert!(offset_of!(CUfileIOParams, cookie) == 56);

    assert!(size_of::<CUfileIOEvents>() == 24);
    assert!(offset_of!(CUfileIOEvents, cookie) == 0);
    assert!(offset_of!(CUfileIOEvents, status) == 8);
    assert!(offset_of!(CUfileIOEvents, ret) == 16);

    assert!(size_of::<CUfileIOVec>() == 16);
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
