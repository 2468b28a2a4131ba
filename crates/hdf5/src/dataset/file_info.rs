//! The description of a file, read through HDF5 on the caller's thread and kept as plain data.

use std::collections::VecDeque;
use std::ffi::{OsString, c_int, c_void};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::{Arc, Mutex};

use penstock_engine::Recover;
use penstock_engine::error::Result;
use penstock_engine::file::stat_of;
use penstock_engine::file::unchanged::Unchanged;
use penstock_sys::hdf5::{
    H5F_ACC_RDWR, H5F_ACC_SWMR_READ, H5F_ACC_SWMR_WRITE, HADDR_UNDEF, Hdf5, hid_t,
};

use crate::library::{Id, Session, drop_at_close, plain_files};

/// The file of a dataset, and what decides whether its bytes may be accessed without HDF5.
#[derive(Clone, Debug)]
pub struct FileInfo {
    /// Name by which it was opened.
    pub name: PathBuf,
    /// HDF5's own descriptor of the file, if its driver is one of plain files. It is valid while
    /// HDF5 has the file open; `/proc/self/fd` leads through it to the same file even if its name
    /// has changed.
    pub descriptor: Option<i32>,
    /// Size in bytes, including what HDF5 has allocated but not yet written; `i64::MAX` if it is unknown.
    pub size: u64,
    /// Whether it is open for writing, so that HDF5 may buffer changes.
    pub is_writable: bool,
    /// Whether it is open for one writer and readers at the same time (SWMR).
    pub is_swmr: bool,
    /// Whether offsets are those of one plain file.
    pub is_plain: bool,
    /// Whether there is no file: it is HDF5's driver `core` that holds the bytes, and stores them nowhere.
    pub is_in_memory: bool,
    /// Size in bytes of the page buffer, which may hold changed raw data.
    pub page_buffer: usize,
    /// Size in bytes of the sieve buffer, which may hold changed contiguous data.
    pub sieve_buffer: usize,
    /// Size in bytes of the user block before HDF5's data; offsets include it.
    pub user_block: u64,
    /// Size in bytes of an address in the file, on which the stored sizes of references depend.
    pub address_size: usize,
    /// The state of the file before anything of it was described. `None` if nothing of the file may be cached:
    /// it is open for writing or for SWMR, or is not one plain file.
    pub unchanged: Option<Arc<Unchanged>>,
}

impl FileInfo {
    /// Describes the file of an object.
    pub fn of(session: &Session<'_>, object: hid_t) -> Result<FileInfo> {
        FileInfo::of_file(session, &session.file_of(object)?)
    }

    pub(super) fn of_file(session: &Session<'_>, file: &Id) -> Result<FileInfo> {
        let intent = session.intent_of(file)?;
        let is_shared = is_shared(session.hdf5, file);
        let constant = Constant::of(session, file, is_shared)?;
        let size = if is_shared && intent & H5F_ACC_RDWR != 0 {
            // MPI-IO does not know the size after a write, and reports 0 for a new file with a user block.
            i64::MAX as u64
        } else {
            size_with_allocated(session, file)?
        };
        let Constant {
            name,
            user_block,
            address_size,
            access,
        } = constant;
        let mut info = FileInfo {
            name,
            descriptor: access.descriptor,
            size,
            is_writable: intent & (H5F_ACC_RDWR | H5F_ACC_SWMR_WRITE) != 0,
            is_swmr: intent & (H5F_ACC_SWMR_READ | H5F_ACC_SWMR_WRITE) != 0,
            is_plain: access.is_plain,
            is_in_memory: access.is_in_memory,
            page_buffer: access.page_buffer,
            sieve_buffer: access.sieve_buffer,
            user_block,
            address_size,
            unchanged: None,
        };
        info.unchanged = info
            .descriptor
            .filter(|_| !info.may_end_early())
            .map(|descriptor| Arc::new(Unchanged::since_now(descriptor)));
        info.size = info.size_now();
        Ok(info)
    }

    /// Returns the offset in the file of a chunk, of which HDF5 reports this address.
    ///
    /// Before 1.14.4, HDF5 leaves out the user block, though not for contiguous elements.
    pub(crate) fn chunk_offset(&self, hdf5: &Hdf5, address: u64) -> u64 {
        if address == HADDR_UNDEF || hdf5.version() >= (1, 14, 4) {
            return address;
        }
        address.saturating_add(self.user_block)
    }

    /// Returns the current size: another process may append to the file (SWMR), while HDF5 knows
    /// its size at the time of opening.
    pub(crate) fn size_now(&self) -> u64 {
        self.size.max(self.descriptor.map_or(0, length))
    }

    /// Returns the size after HDF5 may have allocated more in the file, which is open as `file`; it need not be
    /// written yet.
    pub(crate) fn size_after_allocation(&self, session: &Session<'_>, file: &Id) -> Result<u64> {
        let known = self.size_now();
        if !self.is_writable || known == i64::MAX as u64 {
            return Ok(known);
        }
        Ok(known.max(size_with_allocated(session, file)?))
    }

    /// Returns whether the file may be shorter than what HDF5 has allocated in it; HDF5 reads zeros
    /// there. Any other file has lost data if it is.
    pub(crate) fn may_end_early(&self) -> bool {
        self.is_writable || self.is_swmr
    }
}

fn name_of_file(session: &Session<'_>, file: hid_t) -> Result<PathBuf> {
    let name = session.text("get the name of the file", |to, size| {
        // SAFETY: HDF5 checks the identifier. `text` passes a buffer of `size` bytes, or null and 0.
        unsafe { (session.hdf5.H5Fget_name)(file, to, size) }
    })?;
    Ok(PathBuf::from(OsString::from_vec(name)))
}

const GET_STATE: &str = "get the state of the file";

fn size_with_allocated(session: &Session<'_>, file: &Id) -> Result<u64> {
    let mut size = 0;
    // SAFETY: an owned identifier, and a place for the size.
    let status = unsafe { (session.hdf5.H5Fget_filesize)(file.get(), &mut size) };
    session.check(status, GET_STATE)?;
    Ok(size)
}

/// What cannot change while a file is open under one identifier, which HDF5 gives to no other file until the
/// library closes. HDF5 copies two property lists for it, which takes 40 us.
#[derive(Clone)]
struct Constant {
    name: PathBuf,
    user_block: u64,
    address_size: usize,
    access: Access,
}

/// The files described last, by the copy of HDF5 and the identifier.
static KNOWN: Mutex<VecDeque<((usize, hid_t), Constant)>> = Mutex::new(VecDeque::new());

const MOST_KNOWN: usize = 16;

/// Forgets the files of a copy of HDF5 that closes.
fn forget(copy: usize) {
    KNOWN.lock().recover().retain(|((of, _), _)| *of != copy);
}

impl Constant {
    fn of(session: &Session<'_>, file: &Id, is_shared: bool) -> Result<Constant> {
        let key = (session.hdf5.copy(), file.get());
        let known = KNOWN.lock().recover();
        if let Some((_, constant)) = known.iter().find(|(other, _)| *other == key) {
            return Ok(constant.clone());
        }
        drop(known);
        let constant = Constant::read(session, file, is_shared)?;
        // To ask another driver for its descriptor may make it write what it buffers.
        if constant.access.is_by_default_driver && drop_at_close(session.hdf5, &[forget]) {
            let mut known = KNOWN.lock().recover();
            known.truncate(MOST_KNOWN - 1);
            known.push_front((key, constant.clone()));
        }
        Ok(constant)
    }

    fn read(session: &Session<'_>, file: &Id, is_shared: bool) -> Result<Constant> {
        let hdf5 = session.hdf5;
        // SAFETY: takes an owned identifier and returns one.
        let creation = unsafe { (hdf5.H5Fget_create_plist)(file.get()) };
        let creation = session.own(
            creation,
            hdf5.H5Pclose,
            "get the file's creation properties",
        )?;
        let (mut user_block, mut address_size, mut length_size) = (0, 0, 0);
        // SAFETY: owned identifiers, and places of the right types for all results.
        let statuses = unsafe {
            [
                (hdf5.H5Pget_userblock)(creation.get(), &mut user_block),
                (hdf5.H5Pget_sizes)(creation.get(), &mut address_size, &mut length_size),
            ]
        };
        for status in statuses {
            session.check(status, GET_STATE)?;
        }
        Ok(Constant {
            name: name_of_file(session, file.get())?,
            user_block,
            address_size,
            access: if is_shared {
                Access::default()
            } else {
                Access::of(session, file)?
            },
        })
    }
}

/// What the access properties of a file contain.
#[derive(Clone, Default)]
struct Access {
    is_plain: bool,
    is_by_default_driver: bool,
    is_in_memory: bool,
    descriptor: Option<i32>,
    page_buffer: usize,
    sieve_buffer: usize,
}

impl Access {
    fn of(session: &Session<'_>, file: &Id) -> Result<Access> {
        let hdf5 = session.hdf5;
        let list = session.access_of_file(file)?;
        let mut access = Access::default();
        let (mut meta, mut raw) = (0, 0);
        // SAFETY: owned identifiers, and places of the right types for all results.
        let statuses = unsafe {
            [
                (hdf5.H5Pget_sieve_buf_size)(list.get(), &mut access.sieve_buffer),
                (hdf5.H5Pget_page_buffer_size)(
                    list.get(),
                    &mut access.page_buffer,
                    &mut meta,
                    &mut raw,
                ),
            ]
        };
        for status in statuses {
            session.check(status, GET_STATE)?;
        }
        // SAFETY: takes an owned identifier; the caller must not close the result.
        let driver = unsafe { (hdf5.H5Pget_driver)(list.get()) };
        access.is_by_default_driver = driver >= 0 && hdf5.sec2_driver() == Some(driver);
        let handle = handle(session, file, &list);
        access.is_plain = plain_files::is_plain(hdf5, driver, handle);
        if access.is_plain && !handle.is_null() {
            // SAFETY: with these drivers the handle is the address of the descriptor, an int.
            access.descriptor = Some(unsafe { *handle.cast::<c_int>() });
        }
        if !access.is_plain {
            let (mut increment, mut is_stored) = (0, true);
            // SAFETY: an owned identifier, and places for both results. Fails for other drivers.
            let status =
                unsafe { (hdf5.H5Pget_fapl_core)(list.get(), &mut increment, &mut is_stored) };
            access.is_in_memory = status >= 0 && !is_stored;
        }
        Ok(access)
    }
}

/// Returns whether the processes of an MPI program share a file. Its access properties hold a communicator, which
/// all processes copy together, so one process must not get them.
pub(crate) fn is_shared(hdf5: &Hdf5, file: &Id) -> bool {
    let Some(get) = hdf5.H5Fget_mpi_atomicity else {
        return false;
    };
    let mut is_atomic = false;
    // SAFETY: an owned identifier, and a place for the result.
    unsafe { get(file.get(), &mut is_atomic) >= 0 }
}

/// Returns the driver's file handle; null if the driver provides none.
fn handle(session: &Session<'_>, file: &Id, access: &Id) -> *mut c_void {
    let mut handle = ptr::null_mut();
    // SAFETY: owned identifiers, and a place for a pointer.
    let status = unsafe { (session.hdf5.H5Fget_vfd_handle)(file.get(), access.get(), &mut handle) };
    if status < 0 { ptr::null_mut() } else { handle }
}

/// Returns the length of an open file; 0 if `fstat` fails.
fn length(descriptor: c_int) -> u64 {
    stat_of(&descriptor).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0))
}
