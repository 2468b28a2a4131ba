//! Callbacks of the driver class. Each converts its arguments to Rust, and an error or panic to an
//! entry of HDF5's error stack. No callback prints or unwinds into C.

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

use penstock_engine::Extent;
use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_sys::hdf5::driver::{
    H5FD_CTL_FAIL_IF_UNKNOWN_FLAG, H5FD_CTL_MEM_COPY, H5FD_FEAT_ACCUMULATE_METADATA,
    H5FD_FEAT_AGGREGATE_METADATA, H5FD_FEAT_AGGREGATE_SMALLDATA, H5FD_FEAT_DEFAULT_VFD_COMPATIBLE,
    H5FD_FEAT_MEMMANAGE, H5FD_FEAT_POSIX_COMPAT_HANDLE, H5FD_FEAT_SUPPORTS_SWMR_IO, H5FD_MEM_DRAW,
    H5FD_MEM_NOLIST, H5FD_ctl_memcpy_args_t, H5FD_mem_t, H5FD_t,
};
use penstock_sys::hdf5::{haddr_t, herr_t, hid_t};

use crate::file::{self, DriverFile};
use crate::information;
use crate::selection::Pair;
use crate::sieve::SelectionId;
use penstock_hdf5::library::callback::{
    ErrorSite, FAIL, SUCCEED, error_site, run_callback, status,
};
use penstock_hdf5::library::copies::hdf5_of;

/// Returns the file behind HDF5's pointer.
///
/// # Safety
/// `file` was returned by [`open`] and is not closed yet.
unsafe fn of<'a>(file: *const H5FD_t) -> &'a DriverFile {
    // SAFETY: the public part is the first field of a DriverFile.
    unsafe { &*file.cast::<DriverFile>() }
}

pub(super) unsafe extern "C" fn open<const SLOT: usize>(
    name: *const c_char,
    flags: c_uint,
    fapl: hid_t,
    maxaddr: haddr_t,
) -> *mut H5FD_t {
    let Some(hdf5) = hdf5_of(SLOT) else {
        return std::ptr::null_mut();
    };
    let site = error_site(c"penstock_open", "H5E_FILE_g", "H5E_CANTOPENFILE_g");
    // SAFETY: HDF5 passes a C string and a property list, and holds its lock.
    let opened = run_callback(hdf5, site, || unsafe {
        DriverFile::open(hdf5, name, flags, fapl, maxaddr)
    });
    opened.map_or(std::ptr::null_mut(), |file| Box::into_raw(file).cast())
}

pub(super) unsafe extern "C" fn close(file: *mut H5FD_t) -> herr_t {
    // SAFETY: HDF5 returns ownership of the file, which `open` made.
    let file = unsafe { Box::from_raw(file.cast::<DriverFile>()) };
    let hdf5 = file.hdf5;
    let site = error_site(c"penstock_close", "H5E_IO_g", "H5E_CANTCLOSEFILE_g");
    status(run_callback(hdf5, site, || file.close()))
}

/// Returns the settings of an open file, for a property list that HDF5 makes of it.
pub(super) unsafe extern "C" fn fapl_get(file: *mut H5FD_t) -> *mut c_void {
    // SAFETY: HDF5 passes an open file.
    let settings = unsafe { of(file) }.settings();
    Box::into_raw(Box::new(information::number_of(settings))).cast()
}

pub(super) unsafe extern "C" fn fapl_copy(fapl: *const c_void) -> *mut c_void {
    // SAFETY: HDF5 passes what `fapl_get` or this function made.
    let number = unsafe { *fapl.cast::<usize>() };
    Box::into_raw(Box::new(number)).cast()
}

pub(super) unsafe extern "C" fn fapl_free(fapl: *mut c_void) -> herr_t {
    // SAFETY: HDF5 returns ownership of what one of the two functions above made.
    drop(unsafe { Box::from_raw(fapl.cast::<usize>()) });
    SUCCEED
}

/// Orders files by identity, so that HDF5 recognises one file opened under two names.
pub(super) unsafe extern "C" fn cmp(f1: *const H5FD_t, f2: *const H5FD_t) -> c_int {
    // SAFETY: HDF5 passes two open files of this driver.
    let (one, other) = unsafe { (of(f1).identity(), of(f2).identity()) };
    one.cmp(&other) as c_int
}

/// Reports the features of the default driver, with two exceptions. `H5FD_FEAT_MEMMANAGE` leaves
/// copies to the driver, which moves memory of every kind. Without `H5FD_FEAT_DATA_SIEVE`, HDF5
/// does not collect raw data in its own sieve buffer, into which it would copy with the CPU.
pub(super) unsafe extern "C" fn query(_: *const H5FD_t, flags: *mut c_ulong) -> herr_t {
    if !flags.is_null() {
        let known = H5FD_FEAT_AGGREGATE_METADATA
            | H5FD_FEAT_ACCUMULATE_METADATA
            | H5FD_FEAT_AGGREGATE_SMALLDATA
            | H5FD_FEAT_POSIX_COMPAT_HANDLE
            | H5FD_FEAT_SUPPORTS_SWMR_IO
            | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE
            | H5FD_FEAT_MEMMANAGE;
        // SAFETY: HDF5 passes a place for the result.
        unsafe { *flags = known };
    }
    SUCCEED
}

pub(super) unsafe extern "C" fn get_eoa(file: *const H5FD_t, _: H5FD_mem_t) -> haddr_t {
    // SAFETY: HDF5 passes an open file.
    unsafe { of(file) }.eoa()
}

pub(super) unsafe extern "C" fn set_eoa(file: *mut H5FD_t, _: H5FD_mem_t, addr: haddr_t) -> herr_t {
    // SAFETY: HDF5 passes an open file.
    unsafe { of(file) }.set_eoa(addr);
    SUCCEED
}

/// Returns the end of file. This is the first call that HDF5 makes after it has read the access
/// property list.
pub(super) unsafe extern "C" fn get_eof(file: *const H5FD_t, _: H5FD_mem_t) -> haddr_t {
    // SAFETY: HDF5 passes an open file.
    let file = unsafe { of(file) };
    file.restore_page_buffer();
    file.eof()
}

pub(super) unsafe extern "C" fn get_handle(
    file: *mut H5FD_t,
    _: hid_t,
    file_handle: *mut *mut c_void,
) -> herr_t {
    if file_handle.is_null() {
        return FAIL;
    }
    let site = error_site(c"penstock_get_handle", "H5E_VFL_g", "H5E_CANTGET_g");
    let body = |file: &DriverFile| {
        // SAFETY: HDF5 passes a place for the result.
        unsafe { *file_handle = file.handle() };
        // The caller may use the descriptor it gets, so the driver holds nothing back.
        file.sieve.evict()
    };
    // SAFETY: HDF5 passes an open file.
    unsafe { call(file, site, body) }
}

/// Calls `body` with HDF5's file, and converts its outcome to HDF5's return value.
///
/// # Safety
/// As for [`of`].
unsafe fn call(
    file: *const H5FD_t,
    site: ErrorSite,
    body: impl FnOnce(&DriverFile) -> Result<()>,
) -> herr_t {
    // SAFETY: upheld by the caller.
    let file = unsafe { of(file) };
    status(run_callback(file.hdf5, site, || body(file)))
}

/// The direction of a transfer.
pub(super) trait Direction {
    /// HDF5's pointer to memory of the application.
    type Buffer: Copy;
    const OPERATION: Operation;
    const SITE: ErrorSite;
}

pub(super) struct Read;

impl Direction for Read {
    type Buffer = *mut c_void;
    const OPERATION: Operation = Operation::Read;
    const SITE: ErrorSite = error_site(c"penstock_read", "H5E_IO_g", "H5E_READERROR_g");
}

pub(super) struct Write;

impl Direction for Write {
    type Buffer = *const c_void;
    const OPERATION: Operation = Operation::Write;
    const SITE: ErrorSite = error_site(c"penstock_write", "H5E_IO_g", "H5E_WRITEERROR_g");
}

pub(super) unsafe extern "C" fn range<D: Direction>(
    file: *mut H5FD_t,
    mem: H5FD_mem_t,
    _: hid_t,
    addr: haddr_t,
    size: usize,
    buffer: D::Buffer,
) -> herr_t {
    let extent = Extent {
        offset: addr,
        length: size as u64,
        // SAFETY: a buffer is a pointer.
        memory: unsafe { *(&raw const buffer).cast::<usize>() },
    };
    // SAFETY: HDF5 passes an open file and a buffer of that size, which a write only reads.
    unsafe {
        call(file, D::SITE, |file| {
            file.move_range(D::OPERATION, mem, extent)
        })
    }
}

/// An array from HDF5 that may end early. If an entry after the first equals the mark, the entry
/// before it applies to all remaining elements.
struct Shortened<T> {
    entries: *const T,
    mark: T,
    last: Option<T>,
    has_ended: bool,
}

impl<T: Copy + PartialEq> Shortened<T> {
    fn new(entries: *const T, mark: T) -> Shortened<T> {
        Shortened {
            entries,
            mark,
            last: None,
            has_ended: false,
        }
    }

    /// # Safety
    /// The array has ended early, or is valid for one more entry than were requested so far.
    unsafe fn next(&mut self) -> T {
        if !self.has_ended {
            // SAFETY: the array has not ended, so the entry exists.
            let entry = unsafe { *self.entries };
            self.entries = self.entries.wrapping_add(1);
            self.has_ended = self.last.is_some() && entry == self.mark;
            if !self.has_ended {
                self.last = Some(entry);
            }
        }
        self.last.unwrap_or(self.mark)
    }
}

pub(super) unsafe extern "C" fn vector<D: Direction>(
    file: *mut H5FD_t,
    _: hid_t,
    count: u32,
    types: *const H5FD_mem_t,
    addrs: *const haddr_t,
    sizes: *const usize,
    bufs: *const D::Buffer,
) -> herr_t {
    let count = count as usize;
    let body = |file: &DriverFile| {
        let mut raw = Vec::with_capacity(count);
        let mut kinds = Shortened::new(types, H5FD_MEM_NOLIST);
        let mut sizes = Shortened::new(sizes, 0);
        for index in 0..count {
            // SAFETY: there are `count` of each, shortened or not. A buffer is a pointer.
            let (kind, size, offset, memory) = unsafe {
                (
                    kinds.next(),
                    sizes.next(),
                    *addrs.add(index),
                    *bufs.cast::<usize>().add(index),
                )
            };
            let extent = Extent {
                offset,
                length: size as u64,
                memory,
            };
            match kind {
                H5FD_MEM_DRAW => raw.push(extent),
                // SAFETY: HDF5 passes `count` ranges of memory, which a write only reads.
                _ => unsafe { file.move_range(D::OPERATION, kind, extent)? },
            }
        }
        // SAFETY: as above.
        unsafe { file.move_raw(D::OPERATION, &raw, None) }
    };
    // SAFETY: HDF5 passes an open file.
    unsafe { call(file, D::SITE, body) }
}

pub(super) unsafe extern "C" fn selection<D: Direction>(
    file: *mut H5FD_t,
    mem: H5FD_mem_t,
    _: hid_t,
    count: usize,
    mem_spaces: *const hid_t,
    file_spaces: *const hid_t,
    offsets: *const haddr_t,
    element_sizes: *const usize,
    bufs: *const D::Buffer,
) -> herr_t {
    let body = |file: &DriverFile| {
        let mut sizes = Shortened::new(element_sizes, 0);
        let mut buffers = Shortened::new(bufs.cast::<usize>(), 0);
        for index in 0..count {
            // SAFETY: there are `count` of each, shortened or not. A buffer is a pointer.
            let pair = unsafe {
                Pair {
                    file_space: *file_spaces.add(index),
                    memory_space: *mem_spaces.add(index),
                    offset: *offsets.add(index),
                    memory: buffers.next(),
                    element_size: sizes.next(),
                }
            };
            // A single range needs no identifier of its selection.
            let mut id = None;
            let mut act = |extents: &[Extent]| match mem {
                // SAFETY: HDF5 guarantees the memory that the selection covers.
                H5FD_MEM_DRAW => unsafe {
                    let is_part = extents.len() > 1;
                    let selection = is_part.then(|| *id.get_or_insert_with(SelectionId::new));
                    file.move_raw(D::OPERATION, extents, selection)
                },
                _ => extents
                    .iter()
                    // SAFETY: as above.
                    .try_for_each(|extent| unsafe { file.move_range(D::OPERATION, mem, *extent) }),
            };
            // SAFETY: HDF5 passes its own dataspaces, and holds its lock.
            unsafe { pair.each(&file.iterators, &mut act)? };
        }
        Ok(())
    };
    // SAFETY: HDF5 passes an open file.
    unsafe { call(file, D::SITE, body) }
}

pub(super) unsafe extern "C" fn flush(file: *mut H5FD_t, _: hid_t, _: bool) -> herr_t {
    let site = error_site(c"penstock_flush", "H5E_IO_g", "H5E_CANTFLUSH_g");
    // SAFETY: HDF5 passes an open file.
    unsafe { call(file, site, DriverFile::flush) }
}

pub(super) unsafe extern "C" fn truncate(file: *mut H5FD_t, _: hid_t, _: bool) -> herr_t {
    let site = error_site(c"penstock_truncate", "H5E_IO_g", "H5E_SEEKERROR_g");
    // SAFETY: HDF5 passes an open file.
    unsafe { call(file, site, DriverFile::truncate) }
}

pub(super) unsafe extern "C" fn lock(file: *mut H5FD_t, rw: bool) -> herr_t {
    let site = error_site(c"penstock_lock", "H5E_VFL_g", "H5E_CANTLOCKFILE_g");
    // SAFETY: HDF5 passes an open file.
    unsafe { call(file, site, |file| file.lock(rw)) }
}

pub(super) unsafe extern "C" fn unlock(file: *mut H5FD_t) -> herr_t {
    let site = error_site(c"penstock_unlock", "H5E_VFL_g", "H5E_CANTUNLOCKFILE_g");
    // SAFETY: HDF5 passes an open file.
    unsafe { call(file, site, DriverFile::unlock) }
}

pub(super) unsafe extern "C" fn del<const SLOT: usize>(name: *const c_char, _: hid_t) -> herr_t {
    let Some(hdf5) = hdf5_of(SLOT) else {
        return FAIL;
    };
    let site = error_site(c"penstock_delete", "H5E_VFL_g", "H5E_CANTDELETEFILE_g");
    // SAFETY: HDF5 passes a C string.
    status(run_callback(hdf5, site, || unsafe { file::delete(name) }))
}

pub(super) unsafe extern "C" fn ctl(
    file: *mut H5FD_t,
    op_code: u64,
    flags: u64,
    input: *const c_void,
    _: *mut *mut c_void,
) -> herr_t {
    let site = error_site(c"penstock_ctl", "H5E_VFL_g", "H5E_FCNTL_g");
    let body = |file: &DriverFile| match op_code {
        H5FD_CTL_MEM_COPY => {
            // SAFETY: the input of this operation is of this type.
            let Some(args) = (unsafe { input.cast::<H5FD_ctl_memcpy_args_t>().as_ref() }) else {
                return Err(Error::invalid("the copy has no arguments"));
            };
            let destination = args.dstbuf as usize + args.dst_off as usize;
            let source = args.srcbuf as usize + args.src_off as usize;
            // SAFETY: HDF5 guarantees both memory ranges.
            unsafe { file.copy(destination, source, args.len) }
        }
        _ if flags & H5FD_CTL_FAIL_IF_UNKNOWN_FLAG != 0 => Err(Error::invalid(format!(
            "the driver does not know the control operation {op_code}"
        ))),
        _ => Ok(()),
    };
    // SAFETY: HDF5 passes an open file.
    unsafe { call(file, site, body) }
}
