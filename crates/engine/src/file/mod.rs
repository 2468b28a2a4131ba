//! An open file: a buffered descriptor, one for O_DIRECT, and the properties of its file system for
//! direct I/O and striping.

mod cached;
pub(crate) mod layout;
pub(crate) mod mapping;
pub(crate) mod marks;
pub mod medium;
pub(crate) mod mount;
pub mod position;
pub(crate) mod reader;
pub(crate) mod residency;
pub(crate) mod room;
pub mod side;
pub mod stripe;
pub mod system;
pub(crate) mod turns;
pub mod unchanged;

use std::ffi::{CStr, CString, OsStr};
use std::fmt;
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

use penstock_sys::cufile::CUfileHandle;

use crate::cufile::{self, Handles};
use crate::error::{Error, Kind, Result};
use crate::in_flight::InFlight;
use crate::options::Options;
pub use crate::page::page_size;
use crate::sync::Recover;
use mount::Mount;
use position::Operation;
use residency::Residency;
use system::FileSystem;
use turns::Turns;

/// The access with which a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Requests may read the file.
    pub read: bool,
    /// Requests may write the file.
    pub write: bool,
    /// A missing file is created. Needs `write`.
    pub create: bool,
    /// The file is emptied when it is opened. Needs `write`.
    pub truncate: bool,
}

impl Access {
    /// Requests read an existing file.
    pub const READ: Access = Access {
        read: true,
        write: false,
        create: false,
        truncate: false,
    };
    /// Requests read and write an existing file.
    pub const READ_WRITE: Access = Access {
        write: true,
        ..Access::READ
    };

    /// The access mode of open(2).
    fn mode(self) -> Result<i32> {
        match (self.read, self.write) {
            (true, true) => Ok(libc::O_RDWR),
            (false, true) => Ok(libc::O_WRONLY),
            (true, false) => Ok(libc::O_RDONLY),
            (false, false) => Err(Error::invalid(
                "a file must be opened for reading or writing",
            )),
        }
    }
}

/// An open file, for requests of any number of threads.
///
/// Requests keep it open by an `Arc` until they finish.
pub struct File {
    /// cuFile's handles of both descriptors. This is the first field, so that the handles are
    /// deregistered before the descriptors close.
    cufile: Handles,
    path: PathBuf,
    access: Access,
    buffered: OwnedFd,
    /// Whether `buffered` shares locks and position with a descriptor of the caller.
    is_duplicate: bool,
    /// The descriptor for O_DIRECT, opened when a request first needs it, or the reason why it does
    /// not open.
    direct: OnceLock<Result<OwnedFd>>,
    /// The file system, determined when a request first needs it.
    system: OnceLock<FileSystem>,
    /// How the cached share is found, determined when a request first needs it.
    residency: OnceLock<Residency>,
    /// The mount, determined when a request first needs it.
    mount: OnceLock<Option<Arc<Mount>>>,
    options: Mutex<Options>,
    /// The requests of this file that are not finished.
    pub(crate) users: Arc<InFlight>,
    /// Whether the file system refuses reads that do not wait for a medium.
    refuses_cached_reads: AtomicBool,
    /// Idle descriptors of single workers.
    readers: Mutex<Vec<reader::OwnDescriptor>>,
    /// The number of processes on this machine, including this one, that write the file at the same
    /// time.
    writers: AtomicUsize,
    /// Whether rows may be written through mappings that have the gaps between them.
    takes_mapped_rows: AtomicBool,
    /// The turns of workers that write the file in the background through mappings.
    pub(crate) turns: Arc<Turns>,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

impl File {
    /// Opens a file or block device. `options` apply to its requests, below those of each call.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for options out of range, contradictory access, and paths without byte
    /// ranges such as a FIFO; else the failure of open(2).
    pub fn open(path: &Path, access: Access, options: Options) -> Result<File> {
        options.check()?;
        let mut flags = access.mode().map_err(|e| e.in_file(path))?;
        if (access.create || access.truncate) && !access.write {
            return Err(Error::invalid("create and truncate need write access").in_file(path));
        }
        if access.create {
            flags |= libc::O_CREAT;
        }
        if access.truncate {
            flags |= libc::O_TRUNC;
        }
        // A mapping for writes needs a descriptor that can read, too.
        let wider = match flags & libc::O_ACCMODE {
            libc::O_WRONLY => flags & !libc::O_ACCMODE | libc::O_RDWR,
            _ => flags,
        };
        let buffered = open_at_once(path, wider)
            .or_else(|error| {
                if wider == flags {
                    Err(error)
                } else {
                    open_at_once(path, flags)
                }
            })
            .map_err(|e| Error::os(&e, "cannot open the file").in_file(path))?;
        File::of_opened(buffered, path, access, options)
    }

    /// Opens the file of a descriptor again, for reading and, if `writes`, for writing. Errors name
    /// it `name`. The descriptor may be closed afterwards.
    pub fn of_descriptor(
        descriptor: RawFd,
        name: &Path,
        writes: bool,
        options: Options,
    ) -> Result<File> {
        let access = Access {
            write: writes,
            ..Access::READ
        };
        match open_again(descriptor, name, access.mode()?) {
            Ok(opened) => File::of_opened(opened, name, access, options),
            // The file's permissions have changed since it was opened.
            Err(_) => File::of_duplicate(descriptor, name, access, options),
        }
    }

    /// As [`of_descriptor`](Self::of_descriptor) for reading. A file that cannot be opened again is
    /// an error.
    pub fn opened_again(descriptor: RawFd, name: &Path, options: Options) -> Result<File> {
        let opened = open_again(descriptor, name, libc::O_RDONLY)
            .map_err(|e| Error::os(&e, "cannot open the file").in_file(name))?;
        File::of_opened(opened, name, Access::READ, options)
    }

    /// Whether the file could not be opened again, so that it shares locks with the descriptor from
    /// which it was made.
    pub fn is_duplicate(&self) -> bool {
        self.is_duplicate
    }

    /// Opens the file of a descriptor again, with no more access than the descriptor has. Position
    /// and flags of the descriptor do not matter, and it may be closed afterwards.
    ///
    /// # Errors
    /// [`Kind::Invalid`] if the descriptor does not allow the access; else as for
    /// [`open`](Self::open).
    pub fn of_borrowed_descriptor(
        descriptor: RawFd,
        access: Access,
        options: Options,
    ) -> Result<File> {
        options.check()?;
        let same = path_of(descriptor);
        let name = std::fs::read_link(&same)
            .unwrap_or_else(|_| PathBuf::from(format!("descriptor {descriptor}")));
        // SAFETY: fcntl with F_GETFL touches no memory of this process.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
        if flags < 0 {
            return Err(Error::last_os("cannot use the descriptor").in_file(&name));
        }
        let mode = access.mode().map_err(|e| e.in_file(&name))?;
        let has = flags & libc::O_ACCMODE;
        let is_closed_to = |mode| flags & libc::O_PATH != 0 || has == mode;
        let refused = if access.read && is_closed_to(libc::O_WRONLY) {
            Some("reading")
        } else if access.write && is_closed_to(libc::O_RDONLY) {
            Some("writing")
        } else {
            None
        };
        if let Some(what) = refused {
            return Err(
                Error::invalid(format!("the descriptor is not open for {what}"))
                    .remedy(format!("open it for {what}"))
                    .in_file(&name),
            );
        }
        match open_at_once(&same, mode) {
            Ok(opened) => File::of_opened(opened, &name, access, options),
            // A duplicate would share these flags: it would append, or reject unaligned ranges.
            Err(e) if flags & (libc::O_APPEND | libc::O_DIRECT) != 0 => {
                Err(Error::os(&e, "cannot open the file of the descriptor again").in_file(&name))
            }
            Err(_) => File::of_duplicate(descriptor, &name, access, options),
        }
    }

    /// Duplicates the descriptor, which shares position and locks with the duplicate: HDF5's lock
    /// lasts until the duplicate is closed, too.
    fn of_duplicate(
        descriptor: RawFd,
        name: &Path,
        access: Access,
        options: Options,
    ) -> Result<File> {
        let file = File::of_opened(duplicate(descriptor, name)?, name, access, options)?;
        Ok(File {
            is_duplicate: true,
            ..file
        })
    }

    /// Takes over a file that the caller has just created and opened for reading and writing.
    /// Errors name it `name`.
    pub(crate) fn of_new(opened: OwnedFd, name: &Path, options: Options) -> Result<File> {
        options.check()?;
        File::of_opened(opened, name, Access::READ_WRITE, options)
    }

    /// The result of fstat(2).
    pub fn metadata(&self) -> Result<std::fs::Metadata> {
        metadata_of(self.buffered_fd())
            .map_err(|e| Error::os(&e, "cannot read the file's status").in_file(&self.path))
    }

    fn of_opened(buffered: OwnedFd, path: &Path, access: Access, options: Options) -> Result<File> {
        refuse_unseekable(path, &buffered)?;
        Ok(File {
            system: OnceLock::new(),
            path: path.to_owned(),
            access,
            buffered,
            is_duplicate: false,
            direct: OnceLock::new(),
            residency: OnceLock::new(),
            mount: OnceLock::new(),
            options: Mutex::new(options),
            users: Arc::new(InFlight::new()),
            refuses_cached_reads: AtomicBool::new(false),
            readers: Mutex::default(),
            writers: AtomicUsize::new(1),
            takes_mapped_rows: AtomicBool::new(false),
            turns: Arc::default(),
            cufile: Handles::default(),
        })
    }

    pub(crate) fn stat(&self) -> Result<libc::stat> {
        status(&self.path, &self.buffered)
    }

    /// The path that the file was opened by, or the name that the opener gave it.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// How the file was opened.
    pub fn access(&self) -> Access {
        self.access
    }
    /// Sets the number of processes on this machine that write the file at the same time, so that
    /// they share its cores.
    pub fn set_writers(&self, processes: usize) {
        self.writers.store(processes.max(1), Relaxed);
    }
    /// Lets rows be written through mappings that have the gaps between them, which other processes
    /// on this machine fill.
    pub fn let_rows_be_mapped(&self) {
        self.takes_mapped_rows.store(true, Relaxed);
    }
    pub(crate) fn takes_mapped_rows(&self) -> bool {
        self.takes_mapped_rows.load(Relaxed)
    }
    /// The share of this process in the cores, which the processes that write the file divide.
    pub fn share_of(&self, cores: usize) -> usize {
        (cores / self.writers()).max(1)
    }
    /// The number of processes that [`set_writers`](Self::set_writers) has set, or 1.
    pub fn writers(&self) -> usize {
        self.writers.load(Relaxed)
    }
    /// Updates the file's time of change, by writing one byte again that this process has just
    /// written. Faults of a mapping update the time only at the first fault of each page.
    pub(crate) fn note_change(&self, offset: u64) {
        let (fd, at) = (self.buffered_fd(), offset as libc::off_t);
        let mut byte = 0_u8;
        let place = (&raw mut byte).cast();
        // SAFETY: `byte` has one byte.
        unsafe {
            // If the byte is no longer there, another process has changed the file.
            if libc::pread(fd, place, 1, at) == 1 {
                libc::pwrite(fd, place, 1, at);
            }
        }
    }
    /// Whether pages of the file can be mapped for writing.
    pub(crate) fn can_be_mapped(&self) -> bool {
        // SAFETY: fcntl with F_GETFL touches no memory.
        let flags = unsafe { libc::fcntl(self.buffered_fd(), libc::F_GETFL) };
        self.access.write && flags & libc::O_ACCMODE == libc::O_RDWR
    }
    /// The file system that the file lies on.
    pub fn system(&self) -> &FileSystem {
        let find = || FileSystem::of(self.buffered_fd());
        self.system.get_or_init(find)
    }
    /// The mount that the file lies on; `None` if the system does not report it.
    pub(crate) fn mount(&self) -> Option<Arc<Mount>> {
        let of_file = || Mount::of(self.buffered_fd());
        self.mount.get_or_init(of_file).clone()
    }
    /// The options that apply to requests of this file, below those of each call.
    pub fn options(&self) -> Options {
        *self.options.lock().recover()
    }
    /// Replaces the options of the file. Requests that were submitted earlier keep theirs.
    ///
    /// # Errors
    /// [`Kind::Invalid`] for options out of range.
    pub fn set_options(&self, options: Options) -> Result<()> {
        options.check()?;
        *self.options.lock().recover() = options;
        Ok(())
    }

    /// The present length of the file or block device, in bytes.
    pub fn size(&self) -> Result<u64> {
        let stat = self.stat()?;
        if is_block_device(&stat) {
            // SAFETY: lseek on an open descriptor touches no memory. The engine reads and writes by
            // position, so a moved file offset has no effect on it.
            let end = unsafe { libc::lseek(self.buffered_fd(), 0, libc::SEEK_END) };
            return u64::try_from(end)
                .map_err(|_| Error::last_os("cannot find the device's size").in_file(&self.path));
        }
        Ok(stat.st_size as u64)
    }

    /// Sets the length of the file in bytes; new bytes read as zero.
    ///
    /// # Errors
    /// [`Kind::Invalid`] if no file can be that long; else the failure of ftruncate(2).
    pub fn truncate(&self, bytes: u64) -> Result<()> {
        let length = libc::off_t::try_from(bytes).map_err(|_| {
            Error::invalid(format!("no file can have {bytes} bytes")).in_file(&self.path)
        })?;
        // SAFETY: ftruncate on an open descriptor touches no memory of this process.
        uninterrupted(|| answer(unsafe { libc::ftruncate(self.buffered_fd(), length) }))
            .map_err(|e| Error::os(&e, "cannot set the file's length").in_file(&self.path))
    }

    /// Makes the file at least this long; new bytes read as zero. Unlike
    /// [`truncate`](Self::truncate), it does not cut off data that another process writes
    /// meanwhile, where the file system can allocate a byte.
    pub fn lengthen(&self, bytes: u64) -> Result<()> {
        if self.size()? >= bytes || self.allocate(bytes - 1, 1, true)? {
            return Ok(());
        }
        self.truncate(bytes)
    }

    /// Brings data and size of the file to the medium, and its name: see [`medium::sync`].
    pub fn sync(&self) -> Result<()> {
        medium::sync(self.buffered_fd(), &self.path)
    }

    /// Allocates blocks for a range and, if `lengthens`, extends the file to its end. Returns false
    /// if the file system cannot allocate, which is not a failure.
    pub(crate) fn allocate(&self, offset: u64, length: u64, lengthens: bool) -> Result<bool> {
        let mode = if lengthens {
            0
        } else {
            libc::FALLOC_FL_KEEP_SIZE
        };
        // SAFETY: fallocate on an open descriptor touches no memory of this process.
        let status = unsafe {
            libc::fallocate(
                self.buffered_fd(),
                mode,
                offset as libc::off_t,
                length as libc::off_t,
            )
        };
        if status == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // EINTR is not retried: some file systems then undo their work, and would never finish
            // under regular signals.
            Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINTR | libc::ENODEV) => Ok(false),
            _ => Err(Error::os(&error, "cannot allocate room in the file")
                .at(&self.path, offset, length)),
        }
    }

    /// The descriptor that uses the page cache. It is open as long as the file.
    pub fn buffered_fd(&self) -> RawFd {
        self.buffered.as_raw_fd()
    }

    /// The descriptor that bypasses the page cache, if the file system supports direct I/O.
    pub(crate) fn direct_fd(&self) -> Option<RawFd> {
        self.direct().ok().map(AsRawFd::as_raw_fd)
    }

    pub(crate) fn must_have_direct(&self) -> Result<()> {
        self.direct().map(drop)
    }

    /// cuFile's handle of this file: the one that bypasses the page cache if `direct`.
    pub(crate) fn cufile_handle(
        &self,
        driver: &cufile::Driver,
        direct: bool,
    ) -> Result<CUfileHandle> {
        let descriptor = if direct {
            self.direct()?.as_raw_fd()
        } else {
            self.buffered_fd()
        };
        self.cufile
            .get(driver, direct, descriptor)
            .map_err(|e| e.in_file(&self.path))
    }

    fn direct(&self) -> Result<&OwnedFd> {
        let known = match self.direct.get() {
            Some(known) => known,
            None => {
                let opened = self.open_direct();
                // A later request may find a free descriptor.
                if let Err(error) = &opened
                    && error.is_out_of_descriptors()
                {
                    return Err(error.clone());
                }
                self.direct.get_or_init(|| opened)
            }
        };
        known.as_ref().map_err(Error::clone)
    }

    fn open_direct(&self) -> Result<OwnedFd> {
        if self.system().direct.is_none() {
            return Err(self.without_direct());
        }
        let flags = self.access.mode()? | libc::O_DIRECT;
        open_again(self.buffered_fd(), &self.path, flags).map_err(|e| match e.raw_os_error() {
            Some(libc::EINVAL | libc::EOPNOTSUPP) => self.without_direct(),
            _ => Error::os(&e, "cannot open the file for direct I/O").in_file(&self.path),
        })
    }

    fn without_direct(&self) -> Error {
        Error::new(
            Kind::Unavailable,
            format!(
                "the file system ({}) does not support direct I/O for this file",
                self.system().name()
            ),
        )
        .remedy("use direct=auto or direct=no")
        .in_file(&self.path)
    }

    /// Whether the page cache can be bypassed.
    pub fn has_direct(&self) -> bool {
        self.direct_fd().is_some()
    }

    /// Bytes of which offset and length of an O_DIRECT transfer must be multiples.
    pub fn direct_alignment(&self) -> u64 {
        system::whole_pages(self.system().direct, page_size())
    }

    /// Bytes of which memory addresses of O_DIRECT must be multiples.
    pub(crate) fn direct_memory_alignment(&self) -> u64 {
        self.system()
            .direct
            .map_or(1, |d| u64::from(d.memory))
            .max(1)
    }

    /// Checks that the file is open for this operation.
    pub(crate) fn must_allow(&self, operation: Operation) -> Result<()> {
        let (is_open, what) = match operation {
            Operation::Read => (self.access.read, "reading"),
            Operation::Write => (self.access.write, "writing"),
        };
        if is_open {
            return Ok(());
        }
        Err(Error::invalid(format!("the file is not open for {what}"))
            .remedy(format!("open it for {what}"))
            .in_file(&self.path))
    }
}

/// Opens without waiting, since a FIFO without a peer would block. A FIFO is rejected afterwards.
fn open_at_once(path: &Path, flags: i32) -> io::Result<OwnedFd> {
    let opened = open_fd(path, flags | libc::O_NONBLOCK)?;
    // With O_NONBLOCK, io_uring would return EAGAIN instead of waiting for the medium.
    // SAFETY: fcntl with F_SETFL on an open descriptor touches no memory.
    unsafe { libc::fcntl(opened.as_raw_fd(), libc::F_SETFL, flags) };
    Ok(opened)
}

/// Opens the file of a descriptor again: through /proc or, where there is none, by its name. A name
/// that leads to another file is an error.
fn open_again(descriptor: RawFd, name: &Path, flags: i32) -> io::Result<OwnedFd> {
    match open_at_once(&path_of(descriptor), flags) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let opened = open_at_once(name, flags)?;
            let (held, found) = (stat_of(&descriptor)?, stat_of(&opened)?);
            let is_same = (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino);
            if is_same { Ok(opened) } else { Err(error) }
        }
        opened => opened,
    }
}

fn duplicate(descriptor: RawFd, name: &Path) -> Result<OwnedFd> {
    // SAFETY: fcntl with F_DUPFD_CLOEXEC touches no memory of this process.
    match unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) } {
        // SAFETY: fcntl has just returned this descriptor, which has no other owner.
        new if new >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(new) }),
        _ => Err(Error::last_os("cannot open the file").in_file(name)),
    }
}

fn status(path: &Path, fd: &OwnedFd) -> Result<libc::stat> {
    stat_of(fd).map_err(|e| Error::os(&e, "cannot read the file's status").in_file(path))
}

/// The status of an open file, as the standard library has it.
pub(crate) fn metadata_of(descriptor: RawFd) -> io::Result<std::fs::Metadata> {
    // SAFETY: the descriptor is open, and is not closed by the value here.
    let file = ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(descriptor) });
    uninterrupted(|| file.metadata())
}

/// As fstat(2), repeated when a signal interrupts it.
pub fn stat_of(file: &impl AsRawFd) -> io::Result<libc::stat> {
    let mut stat = MaybeUninit::uninit();
    // SAFETY: `stat` is a valid place for the result.
    uninterrupted(|| answer(unsafe { libc::fstat(file.as_raw_fd(), stat.as_mut_ptr()) }))?;
    // SAFETY: fstat has succeeded, so it has filled the place.
    Ok(unsafe { stat.assume_init() })
}

fn is_block_device(stat: &libc::stat) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFBLK
}

fn refuse_unseekable(path: &Path, fd: &OwnedFd) -> Result<()> {
    let what = match status(path, fd)?.st_mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFBLK => return Ok(()),
        libc::S_IFDIR => {
            let error = io::Error::from_raw_os_error(libc::EISDIR);
            return Err(Error::os(&error, "cannot open the file").in_file(path));
        }
        libc::S_IFIFO => "a FIFO",
        libc::S_IFSOCK => "a socket",
        _ => "a character device",
    };
    Err(
        Error::invalid(format!("the path is {what}, which has no byte ranges"))
            .remedy("use a regular file or a block device")
            .in_file(path),
    )
}

pub(crate) fn open_fd(path: &Path, flags: i32) -> io::Result<OwnedFd> {
    open_with(path, flags, 0o666)
}

/// As open(2); `mode` is for a file that the call creates. The descriptor is closed on exec.
pub(crate) fn open_with(path: &Path, flags: i32, mode: u32) -> io::Result<OwnedFd> {
    open_in(libc::AT_FDCWD, &c_string(path.as_os_str())?, flags, mode)
}

/// As openat(2); `mode` is for a file that the call creates. The descriptor is closed on exec.
pub(crate) fn open_in(folder: RawFd, name: &CStr, flags: i32, mode: u32) -> io::Result<OwnedFd> {
    uninterrupted(|| {
        // SAFETY: `name` is a C string that outlives the call.
        let fd = unsafe { libc::openat(folder, name.as_ptr(), flags | libc::O_CLOEXEC, mode) };
        answer(fd)?;
        // SAFETY: openat has just returned this descriptor, which has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    })
}

/// A path or name for a system call.
pub(crate) fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// The path of a descriptor under /proc. It leads to the same file even if the file was renamed or
/// unlinked.
pub(crate) fn path_of(descriptor: RawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{descriptor}"))
}

/// Repeats a system call that a signal interrupts.
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// The outcome of the system call that has just returned `status`.
pub fn answer(status: i32) -> io::Result<()> {
    match status {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Whether a system call failed because the file system lacks the feature.
pub(crate) fn is_unable(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS)
    )
}
