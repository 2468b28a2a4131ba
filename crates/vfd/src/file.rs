//! An open file of the driver: its descriptor, end addresses, lock and settings.

use std::cell::UnsafeCell;
use std::collections::HashSet;
use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, RwLock};

use penstock_engine::Recover;
use penstock_engine::error::{Error, Result};
use penstock_engine::file::medium;
use penstock_engine::file::position::Operation;
use penstock_engine::file::stripe::{self, Striping};
use penstock_engine::file::{File, answer, uninterrupted};
use penstock_sys::environment;
use penstock_sys::hdf5::driver::H5FD_t;
use penstock_sys::hdf5::{
    H5E_DEFAULT, H5F_ACC_CREAT, H5F_ACC_EXCL, H5F_ACC_RDWR, H5F_ACC_SWMR_READ, H5F_ACC_SWMR_WRITE,
    H5F_ACC_TRUNC, H5P_DEFAULT, Hdf5, haddr_t, hid_t,
};
use serde_json::Value;

use crate::account::Account;
use crate::information;
use crate::modes::Mode;
use crate::page_buffer::{self, TurnedOff};
use crate::selection::Iterators;
use crate::settings::Settings;
use crate::sieve::{self, Sieve};
use penstock_hdf5::library::Session;

/// Largest address; file offsets are signed.
pub(crate) const MAX_ADDRESS: haddr_t = haddr_t::MAX >> 1;

/// An open file. HDF5 may call from several threads, with or without its own lock around each call.
#[repr(C)]
pub(crate) struct DriverFile {
    /// Must be the first field: HDF5 identifies the file by its address and fills the field in.
    public: UnsafeCell<H5FD_t>,
    /// Target of the file handle of `H5Fget_vfd_handle`.
    descriptor: c_int,
    owned: OwnedFd,
    pub hdf5: &'static Hdf5,
    /// HDF5's identifier of this driver.
    pub driver: hid_t,
    path: PathBuf,
    writes: bool,
    /// Device and inode number, which identify the file under any name.
    device: u64,
    inode: u64,
    /// End of the allocated space (EOA) and end of the file (EOF), as addresses.
    eoa: AtomicU64,
    eof: AtomicU64,
    ignores_missing_locks: bool,
    /// Advisory lock that HDF5 holds. [`SHARED`] prevents writes of other processes, [`EXCLUSIVE`]
    /// prevents all their accesses, [`UNLOCKED`] prevents nothing.
    locked: AtomicU8,
    /// Whether the file is open for SWMR: other processes may write or read despite the lock.
    is_swmr: bool,
    pub is_swmr_reader: bool,
    /// Page buffer of the property list with which HDF5 is opening the file for writing.
    page_buffer: Mutex<Option<TurnedOff>>,
    /// Cache for small accesses to raw data in host memory.
    pub sieve: Arc<Sieve>,
    pub iterators: Iterators,
    settings: RwLock<Settings>,
    /// The engine's file, opened for the first transfer by the engine.
    engine: OnceLock<Arc<File>>,
    pub account: Account,
}

// SAFETY: only HDF5 writes `public`, before and between its calls of the driver, and the driver
// never reads it.
unsafe impl Sync for DriverFile {}

const UNLOCKED: u8 = 0;
const SHARED: u8 = 1;
const EXCLUSIVE: u8 = 2;

/// Addresses of the descriptors of all open files. A handle of `H5Fget_vfd_handle` belongs to this
/// driver if it is among them.
static OPEN: LazyLock<Mutex<HashSet<usize>>> = LazyLock::new(Mutex::default);

fn open_files() -> std::sync::MutexGuard<'static, HashSet<usize>> {
    OPEN.lock().recover()
}

impl DriverFile {
    /// # Safety
    /// `name` is a C string, and `fapl` is a file access property list of `hdf5`, whose lock is
    /// held.
    pub(crate) unsafe fn open(
        hdf5: &'static Hdf5,
        name: *const c_char,
        flags: c_uint,
        fapl: hid_t,
        max_address: haddr_t,
    ) -> Result<Box<DriverFile>> {
        // SAFETY: the caller passes a C string.
        let path = unsafe { path_of(name)? };
        if max_address == 0 || max_address > MAX_ADDRESS {
            return Err(
                Error::invalid(format!("a file cannot have {max_address} bytes")).in_file(path),
            );
        }
        // SAFETY: upheld by the caller.
        let (settings, ignores, driver) = unsafe {
            let settings = configuration(hdf5, fapl)?;
            // Reports errors of the environment now, not in the first transfer.
            settings.in_force()?;
            let ignores = ignores_missing_locks(hdf5, fapl)?;
            (settings, ignores, (hdf5.H5Pget_driver)(fapl))
        };
        let writes = flags & H5F_ACC_RDWR != 0;
        let page_buffer = if writes {
            // SAFETY: upheld by the caller; HDF5 calls the driver with its lock held.
            unsafe { page_buffer::turn_off(hdf5, fapl)? }
        } else {
            None
        };
        let (owned, note) = open_descriptor(path, flags, &settings)?;
        let status = std::fs::File::from(owned);
        let metadata = uninterrupted(|| status.metadata())
            .map_err(|e| Error::os(&e, "cannot read the file's status").in_file(path))?;
        let owned = OwnedFd::from(status);
        let account = Account::new();
        if let Some(note) = note {
            account.note(&note);
        }
        account.report_opened(path, settings.mode_name());
        use std::os::unix::fs::MetadataExt;
        let file = Box::new(DriverFile {
            // SAFETY: plain data, for which all zero bytes are a valid value.
            public: UnsafeCell::new(unsafe { std::mem::zeroed() }),
            descriptor: owned.as_raw_fd(),
            sieve: Sieve::new(owned.as_raw_fd(), path),
            owned,
            hdf5,
            driver,
            path: path.to_owned(),
            writes,
            device: metadata.dev(),
            inode: metadata.ino(),
            eoa: AtomicU64::new(0),
            eof: AtomicU64::new(metadata.len()),
            ignores_missing_locks: ignores,
            locked: AtomicU8::new(UNLOCKED),
            is_swmr: flags & (H5F_ACC_SWMR_READ | H5F_ACC_SWMR_WRITE) != 0,
            is_swmr_reader: flags & H5F_ACC_SWMR_READ != 0,
            page_buffer: Mutex::new(page_buffer),
            iterators: Iterators::new(hdf5),
            settings: RwLock::new(settings),
            engine: OnceLock::new(),
            account,
        });
        open_files().insert(file.handle() as usize);
        Ok(file)
    }

    /// Returns the handle for `H5Fget_vfd_handle`: a pointer to the descriptor, an int.
    pub(crate) fn handle(&self) -> *mut c_void {
        (&raw const self.descriptor).cast_mut().cast()
    }

    /// Calls `act` with the file of a handle from `H5Fget_vfd_handle`. Returns an error if the
    /// handle does not belong to this driver.
    pub(crate) fn with_handle<T>(
        handle: *const c_void,
        act: impl FnOnce(&DriverFile) -> Result<T>,
    ) -> Result<T> {
        // The lock keeps the file open during the call.
        let open = open_files();
        if !open.contains(&(handle as usize)) {
            return Err(
                Error::invalid("the file is not open by the penstock driver").remedy(
                    "open it with the driver: HDF5_DRIVER=penstock, or penstock_fapl_set on its access property list",
                ),
            );
        }
        let start = handle as usize - std::mem::offset_of!(DriverFile, descriptor);
        // SAFETY: the handle is a field of an open file, which is closed only after its removal
        // from the set that is locked here.
        act(unsafe { &*(start as *const DriverFile) })
    }

    /// Calls `ask` with the open file that has this descriptor, if there is one.
    pub(crate) fn with_descriptor<T>(
        descriptor: c_int,
        ask: impl Fn(&DriverFile) -> T,
    ) -> Option<T> {
        let open = open_files();
        open.iter().find_map(|handle| {
            let start = handle - std::mem::offset_of!(DriverFile, descriptor);
            // SAFETY: as for `with_handle`.
            let file = unsafe { &*(start as *const DriverFile) };
            (file.descriptor == descriptor).then(|| ask(file))
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
    pub(crate) fn descriptor(&self) -> c_int {
        self.descriptor
    }
    /// Returns the identity of the file: its device and inode numbers.
    pub(crate) fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }
    pub(crate) fn eoa(&self) -> haddr_t {
        self.eoa.load(Relaxed)
    }
    pub(crate) fn set_eoa(&self, address: haddr_t) {
        self.eoa.store(address, Relaxed);
    }
    pub(crate) fn eof(&self) -> haddr_t {
        self.eof.load(Relaxed)
    }
    /// Records that a write has ended at `end`.
    pub(crate) fn grown_to(&self, end: haddr_t) {
        self.eof.fetch_max(end, Relaxed);
    }

    pub(crate) fn settings(&self) -> Settings {
        *self.settings.read().recover()
    }

    /// Returns the settings, completed from those of the process and its environment.
    pub(crate) fn settings_in_force(&self) -> Result<Settings> {
        self.settings().in_force()
    }

    /// Replaces the settings from the next transfer on. Striping is fixed when a file is created.
    pub(crate) fn set(&self, settings: Settings) {
        *self.settings.write().recover() = settings;
    }

    /// Returns the engine's view of the file. It has its own descriptors, so that closing them does
    /// not release locks of this one. An error is not stored, because it may be temporary.
    pub(crate) fn engine(&self) -> Result<&Arc<File>> {
        if let Some(file) = self.engine.get() {
            return Ok(file);
        }
        let options = Default::default();
        let file = File::of_descriptor(self.descriptor, &self.path, self.writes, options)?;
        Ok(self.engine.get_or_init(|| Arc::new(file)))
    }

    /// Returns whether small accesses may be cached between two calls of the driver. The lock must
    /// keep other processes from changing the file, and for writes also from reading it.
    pub(crate) fn keeps(&self, operation: Operation, settings: &Settings) -> bool {
        let lock = self.locked.load(Relaxed);
        let is_alone = match operation {
            Operation::Read => lock != UNLOCKED,
            Operation::Write => lock == EXCLUSIVE && settings.options.durable != Some(true),
        };
        is_alone && !self.is_swmr && settings.mode == Mode::Auto && !sieve::is_forked()
    }

    /// Sets the file's length to the end of the allocated space.
    pub(crate) fn truncate(&self) -> Result<()> {
        // Sets the length even after a failed write: HDF5 refuses a file shorter than its
        // superblock says.
        let written = self.sieve.evict();
        let end = self.eoa();
        if end == self.eof() {
            return written;
        }
        // SAFETY: ftruncate on an open descriptor affects no memory of this process.
        uninterrupted(|| answer(unsafe { libc::ftruncate(self.descriptor, end as libc::off_t) }))
            .map_err(|e| Error::os(&e, "cannot set the file's length").in_file(&self.path))?;
        self.eof.store(end, Relaxed);
        written
    }

    /// Writes what the sieve holds to the page cache, as the default driver does, and to the
    /// storage device if durability is requested.
    pub(crate) fn flush(&self) -> Result<()> {
        self.sieve.write_out()?;
        self.sync()
    }

    /// Waits for the storage device if durability is requested.
    pub(crate) fn sync(&self) -> Result<()> {
        if !self.writes || self.settings_in_force()?.options.durable != Some(true) {
            return Ok(());
        }
        medium::sync(self.descriptor, &self.path)
    }

    /// Restores the page buffer of the access property list. HDF5 has already read the list.
    pub(crate) fn restore_page_buffer(&self) {
        drop(self.page_buffer.lock().recover().take());
    }

    /// Takes an advisory lock, exclusive or shared. Returns an error if another process holds it.
    pub(crate) fn lock(&self, exclusive: bool) -> Result<()> {
        let kind = if exclusive {
            libc::LOCK_EX
        } else {
            libc::LOCK_SH
        };
        let is_held = self.flock(kind | libc::LOCK_NB, "cannot lock the file")
            .map_err(|error| {
                // HDF5 stops here. A later error on its stack would be lost.
                self.restore_page_buffer();
                error.remedy("close the file elsewhere, or see HDF5_USE_FILE_LOCKING if the file system has no locks")
            })?;
        let locked = match (is_held, exclusive) {
            (false, _) => UNLOCKED,
            (true, false) => SHARED,
            (true, true) => EXCLUSIVE,
        };
        self.locked.store(locked, Relaxed);
        Ok(())
    }

    pub(crate) fn unlock(&self) -> Result<()> {
        self.locked.store(UNLOCKED, Relaxed);
        let written = self.sieve.evict();
        self.flock(libc::LOCK_UN, "cannot unlock the file")?;
        written
    }

    /// Calls flock. Returns false if the file system has no locks and the settings accept that.
    fn flock(&self, how: c_int, action: &str) -> Result<bool> {
        // SAFETY: flock on an open descriptor affects no memory of this process.
        match uninterrupted(|| answer(unsafe { libc::flock(self.descriptor, how) })) {
            Ok(()) => Ok(true),
            Err(e) if e.raw_os_error() == Some(libc::ENOSYS) && self.ignores_missing_locks => {
                Ok(false)
            }
            Err(e) => Err(Error::os(&e, action).in_file(&self.path)),
        }
    }

    pub(crate) fn report(&self) -> Value {
        self.account
            .json("open", &self.path, self.settings().mode_name())
    }

    /// Closes the descriptor, and returns the error that the system reports.
    pub(crate) fn close(self: Box<Self>) -> Result<()> {
        open_files().remove(&(self.handle() as usize));
        let file = *self;
        // HDF5 writes its superblock after its last flush of the file.
        let flushed = file.flush();
        file.sieve.close();
        file.iterators.close();
        file.account
            .report_closed(&file.path, file.settings().mode_name());
        // Closes the engine's descriptors first, because a network file system may report a failure
        // at the last close. No request uses them: the driver waits for each.
        drop(file.engine);
        use std::os::fd::IntoRawFd;
        // SAFETY: the file owned the descriptor, which is not used any more.
        let closed = match answer(unsafe { libc::close(file.owned.into_raw_fd()) }) {
            // Linux has closed the descriptor if a signal interrupts the call.
            Err(e) if e.kind() != ErrorKind::Interrupted => {
                Err(Error::os(&e, "cannot close the file").in_file(&file.path))
            }
            _ => Ok(()),
        };
        flushed.and(closed)
    }
}

/// # Safety
/// `name` is null or a C string that outlives the result.
unsafe fn path_of<'a>(name: *const c_char) -> Result<&'a Path> {
    if name.is_null() {
        return Err(Error::invalid("the file has no name"));
    }
    // SAFETY: upheld by the caller.
    let name = unsafe { CStr::from_ptr(name) };
    Ok(Path::new(OsStr::from_bytes(name.to_bytes())))
}

/// Removes a file for `H5Fdelete`.
///
/// # Safety
/// `name` is null or a C string.
pub(crate) unsafe fn delete(name: *const c_char) -> Result<()> {
    // SAFETY: upheld by the caller.
    let path = unsafe { path_of(name)? };
    uninterrupted(|| std::fs::remove_file(path))
        .map_err(|e| Error::os(&e, "cannot delete the file").in_file(path))
}

/// Returns the settings in the property list: those of the file from which it was made, or a
/// configuration string, which may come from `HDF5_DRIVER_CONFIG`.
///
/// # Safety
/// As for [`DriverFile::open`].
unsafe fn configuration(hdf5: &Hdf5, fapl: hid_t) -> Result<Settings> {
    // SAFETY: upheld by the caller.
    if let Some(settings) = unsafe { inherited(hdf5, fapl) } {
        return Ok(settings);
    }
    let unreadable = || Error::invalid("HDF5 does not return the driver's configuration");
    // SAFETY: without a buffer, HDF5 only returns the length.
    let length = unsafe { (hdf5.H5Pget_driver_config_str)(fapl, std::ptr::null_mut(), 0) };
    let length = usize::try_from(length).map_err(|_| unreadable())?;
    if length == 0 {
        return Ok(Settings::default());
    }
    let mut text = vec![0u8; length + 1];
    // SAFETY: the buffer has room for the text and its NUL.
    let status =
        unsafe { (hdf5.H5Pget_driver_config_str)(fapl, text.as_mut_ptr().cast(), text.len()) };
    if status < 0 {
        return Err(unreadable());
    }
    let text = CStr::from_bytes_until_nul(&text).map_err(|_| unreadable())?;
    Settings::parse(&text.to_string_lossy())
        .map_err(|error| error.about("the configuration of the penstock driver"))
}

/// Returns the settings of the open file from which HDF5 made the list.
///
/// # Safety
/// As for [`DriverFile::open`].
unsafe fn inherited(hdf5: &Hdf5, fapl: hid_t) -> Option<Settings> {
    // HDF5 reports an error if there is no information.
    // SAFETY: the caller guarantees that the lock is held.
    let session = unsafe { Session::begin(hdf5) };
    // SAFETY: HDF5 opens a file with the driver of its list, so the information is this driver's,
    // and does not change while HDF5 holds the list.
    let number = unsafe { (hdf5.H5Pget_driver_info)(fapl).cast::<usize>().as_ref() };
    if number.is_none() {
        // SAFETY: as above.
        unsafe { (hdf5.H5Eclear2)(H5E_DEFAULT) };
    }
    drop(session);
    information::settings_of(*number?)
}

/// Returns whether a file system without locks is accepted: by the environment, as in HDF5, else by
/// the property list.
///
/// # Safety
/// As for [`DriverFile::open`].
unsafe fn ignores_missing_locks(hdf5: &Hdf5, fapl: hid_t) -> Result<bool> {
    match environment::text("HDF5_USE_FILE_LOCKING").as_deref() {
        Some("BEST_EFFORT") => return Ok(true),
        Some("TRUE" | "1") => return Ok(false),
        _ => {}
    }
    let (mut uses, mut ignores) = (false, false);
    // SAFETY: both results have places of their types.
    let status = unsafe { (hdf5.H5Pget_file_locking)(fapl, &mut uses, &mut ignores) };
    if status < 0 {
        Err(Error::invalid(
            "HDF5 does not return the file locking settings",
        ))
    } else {
        Ok(ignores)
    }
}

/// Opens or creates the file as HDF5's flags request. The note says why a new file is not striped
/// as requested.
fn open_descriptor(
    path: &Path,
    flags: c_uint,
    settings: &Settings,
) -> Result<(OwnedFd, Option<String>)> {
    let mut mode = libc::O_CLOEXEC;
    mode |= match flags & H5F_ACC_RDWR {
        0 => libc::O_RDONLY,
        _ => libc::O_RDWR,
    };
    for (flag, meaning) in [
        (H5F_ACC_TRUNC, libc::O_TRUNC),
        (H5F_ACC_CREAT, libc::O_CREAT),
        (H5F_ACC_EXCL, libc::O_EXCL),
    ] {
        if flags & flag != 0 {
            mode |= meaning;
        }
    }
    let striping = Striping {
        count: settings.stripe_count,
        size: settings.stripe_size,
    };
    stripe::create(path, mode, 0o666, &striping)
        .map_err(|e| Error::os(&e, "unable to open the file").in_file(path))
}

/// Calls `act` with an open file, given its identifier.
///
/// # Safety
/// `file` is an identifier of `hdf5`, whose lock is held.
pub(crate) unsafe fn with_identifier<T>(
    hdf5: &Hdf5,
    file: hid_t,
    act: impl FnOnce(&DriverFile) -> Result<T>,
) -> Result<T> {
    let mut handle: *mut c_void = std::ptr::null_mut();
    // SAFETY: `handle` is a place for the result; HDF5 checks the identifier.
    let status = unsafe { (hdf5.H5Fget_vfd_handle)(file, H5P_DEFAULT, &mut handle) };
    if status < 0 {
        return Err(Error::invalid(format!(
            "{file} is not the identifier of an open HDF5 file"
        )));
    }
    DriverFile::with_handle(handle, act)
}
