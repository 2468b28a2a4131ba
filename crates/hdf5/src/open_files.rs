//! The files that the library opens for transfers of datasets.
//!
//! - A file that HDF5 has open is opened once for reads and once for writes, however many requests are pending:
//!   [`shared`].
//! - Files that HDF5 does not keep open, of which one read may need thousands, are [`SourceFile`]s. One
//!   stays open from the planning on if few descriptors are in use. The others are opened by the worker
//!   that needs them; the last few of these stay open for the next batch.
//!
//! A file is found by device and inode, which no other file has while it is open. It is closed with the
//! last request that uses it.

use std::collections::{HashMap, VecDeque};
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Weak};
use std::time::Duration;
use std::{fs, thread};

use penstock_array::execute::{OnDemand, PlanFile};
use penstock_engine::Recover;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::file::{Access, File, stat_of};
use penstock_engine::options::Options;
use penstock_engine::refuse_fork;

use crate::dataset::FileInfo;

/// Device and inode of a file, which identify it under all its names and descriptors.
pub type Identity = (u64, u64);

/// Returns the identity of an open file.
pub fn identity_of(descriptor: RawFd) -> Option<Identity> {
    let stat = stat_of(&descriptor).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

pub(crate) fn identity(about: &fs::Metadata) -> Identity {
    (about.dev(), about.ino())
}

/// Returns the file that HDF5 has open. All requests share it. One that is opened for reads is not writable: systems
/// notify programs that watch a file when one is closed that was.
///
/// # Errors
/// It cannot be opened, or HDF5 has closed it.
pub(crate) fn shared(file: &FileInfo, operation: Operation) -> Result<Arc<File>> {
    let identity = identity_of(file.descriptor.unwrap_or(-1));
    shared_as(file, identity.ok_or_else(|| closed(file))?, operation)
}

/// As [`shared`], for a file that had this identity when it was described.
pub(crate) fn shared_as(
    file: &FileInfo,
    identity: Identity,
    operation: Operation,
) -> Result<Arc<File>> {
    refuse_fork()?;
    let is_writable = operation == Operation::Write;
    if let Some(open) = registry().find_shared(identity, is_writable) {
        return Ok(open);
    }
    let (descriptor, name) = (file.descriptor.unwrap_or(-1), &file.name);
    let open = || File::of_descriptor(descriptor, name, is_writable, Options::default());
    let opened = with_room(close_recent, open)?;
    // Once HDF5 has closed the file, the descriptor may be that of another one.
    if self::identity(&opened.metadata()?) != identity {
        return Err(closed(file));
    }
    let key = Key {
        identity,
        is_writable,
        is_duplicate: opened.is_duplicate(),
    };
    Ok(register(key, opened))
}

fn closed(file: &FileInfo) -> Error {
    Error::invalid("HDF5 has closed the file of the dataset")
        .remedy("read the dataset while its file is open")
        .in_file(&file.name)
}

/// Opens a file; a second time after `close` if no descriptor was left.
pub(crate) fn with_room<T>(close: impl FnOnce(), open: impl Fn() -> Result<T>) -> Result<T> {
    open().or_else(|error| {
        if !error.is_out_of_descriptors() {
            return Err(error);
        }
        close();
        open()
    })
}

/// The largest number of descriptors of the process.
pub(crate) fn most_descriptors() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the result has a place. It stays 0 on failure.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    limit.rlim_cur
}

/// Returns whether a file may stay open although nothing uses it yet: if its descriptor is in the lowest quarter.
/// The system assigns the lowest free descriptor. With a second descriptor for each such file (O_DIRECT), half of all
/// are left to the program.
fn may_stay_open(file: &File) -> bool {
    u64::try_from(file.buffered_fd()).is_ok_and(|number| number < most_descriptors() / 4)
}

/// An open file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    identity: Identity,
    is_writable: bool,
    /// Whether it shares HDF5's lock, so that nothing may use it after HDF5 has closed the file.
    is_duplicate: bool,
}

struct Registry {
    files: HashMap<Key, Weak<File>>,
    /// With this many entries, those of closed files are removed.
    prune_at: usize,
}

static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(|| {
    Mutex::new(Registry {
        files: HashMap::new(),
        prune_at: FEW,
    })
});

const FEW: usize = 64;

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().recover()
}

impl Registry {
    fn find(&self, key: Key) -> Option<Arc<File>> {
        self.files.get(&key)?.upgrade()
    }

    /// Returns a file for requests of a file that HDF5 has open.
    fn find_shared(&self, identity: Identity, is_writable: bool) -> Option<Arc<File>> {
        let keys = [
            (is_writable, false),
            (true, false),
            (is_writable, true),
            (true, true),
        ];
        keys.into_iter().find_map(|(is_writable, is_duplicate)| {
            self.find(Key {
                identity,
                is_writable,
                is_duplicate,
            })
        })
    }

    fn add(&mut self, key: Key, file: &Arc<File>) {
        if self.files.len() >= self.prune_at {
            self.files.retain(|_, file| file.strong_count() > 0);
            self.prune_at = (2 * self.files.len()).max(FEW);
        }
        self.files.insert(key, Arc::downgrade(file));
    }
}

/// Returns the file, or the same one that another thread has opened meanwhile.
fn register(key: Key, opened: File) -> Arc<File> {
    // The descriptor that is not needed is closed after the lock is released.
    let opened = Arc::new(opened);
    let mut registry = registry();
    if let Some(other) = registry.find(key) {
        return other;
    }
    registry.add(key, &opened);
    opened
}

/// A file that is read without HDF5: a source of a virtual dataset, or an external file.
#[derive(Debug)]
pub struct SourceFile {
    path: PathBuf,
    identity: Identity,
    held: Option<Arc<File>>,
}

impl SourceFile {
    /// Makes one from a descriptor that HDF5 may close afterwards, of a file that HDF5 has opened by
    /// `name`. The file is held open if its name no longer leads to it.
    pub(crate) fn of_descriptor(descriptor: RawFd, name: &Path) -> Result<SourceFile> {
        let failed = |cause: std::io::Error| {
            let cause = format!("cannot find HDF5's descriptor of a source file: {cause}");
            Error::new(Kind::Io, cause)
        };
        let path = fs::read_link(format!("/proc/self/fd/{descriptor}"))
            .or_else(|_| std::path::absolute(name))
            .map_err(failed)?;
        let stat = stat_of(&descriptor).map_err(failed)?;
        let known = (stat.st_dev, stat.st_ino);
        let is_named = fs::metadata(&path).is_ok_and(|about| identity(&about) == known);
        // A duplicate would keep HDF5's lock.
        let open = || File::opened_again(descriptor, &path, Options::default());
        SourceFile::new(open, path.clone(), known, is_named)
    }

    pub(crate) fn of_path(path: &Path) -> Result<SourceFile> {
        let known = match fs::metadata(path) {
            Ok(about) if about.is_file() => identity(&about),
            _ => {
                let opened = File::open(path, Access::READ, Options::default())?;
                identity(&opened.metadata()?)
            }
        };
        let open = || File::open(path, Access::READ, Options::default());
        SourceFile::new(open, path.to_owned(), known, true)
    }

    fn new(
        open: impl Fn() -> Result<File>,
        path: PathBuf,
        identity: Identity,
        is_named: bool,
    ) -> Result<SourceFile> {
        refuse_fork()?;
        let mut source = SourceFile {
            path,
            identity,
            held: None,
        };
        match source.find_or_open(open) {
            Ok(file) if !is_named || may_stay_open(&file) => source.held = Some(file),
            Err(error) if !(is_named && error.is_out_of_descriptors()) => return Err(error),
            _ => {}
        }
        Ok(source)
    }

    fn find_or_open(&self, open: impl Fn() -> Result<File>) -> Result<Arc<File>> {
        let key = Key {
            identity: self.identity,
            is_writable: false,
            is_duplicate: false,
        };
        if let Some(open) = registry().find(key) {
            return Ok(open);
        }
        let opened = with_room(close_recent, open)?;
        self.verify(&opened.metadata()?)?;
        Ok(register(key, opened))
    }

    /// Returns the path of the file when the plan was made, for messages.
    pub fn name(&self) -> &Path {
        &self.path
    }

    /// Returns the path to open for reading, which is valid while this value lives.
    pub fn path(&self) -> PathBuf {
        match &self.held {
            Some(file) => PathBuf::from(format!("/proc/self/fd/{}", file.buffered_fd())),
            None => self.path.clone(),
        }
    }

    /// Returns an error if the file opened under [`SourceFile::path`] is another one.
    pub fn verify(&self, opened: &fs::Metadata) -> Result<()> {
        if identity(opened) == self.identity {
            return Ok(());
        }
        let cause = "the file was replaced while it was read";
        Err(Error::new(Kind::Io, cause).at(&self.path, 0, 0))
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    pub(crate) fn of_plan(self: &Arc<Self>) -> PlanFile {
        match &self.held {
            Some(file) => PlanFile::Open(Arc::clone(file)),
            None => PlanFile::OnDemand(Arc::clone(self) as Arc<dyn OnDemand>),
        }
    }
}

impl OnDemand for SourceFile {
    /// Other workers, which have taken the last descriptors, close theirs after a batch.
    fn open(&self) -> Result<Arc<File>> {
        const TRIES: usize = 1000;
        const PAUSE: Duration = Duration::from_millis(1);
        let find_or_open =
            || self.find_or_open(|| File::open(&self.path, Access::READ, Options::default()));
        let mut opened = find_or_open();
        let mut tries = 0;
        while tries < TRIES && opened.as_ref().is_err_and(Error::is_out_of_descriptors) {
            thread::sleep(PAUSE);
            opened = find_or_open();
            tries += 1;
        }
        opened.inspect(|file| keep_recent(self.identity, file))
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn identity(&self) -> (u64, u64) {
        self.identity
    }
}

impl Drop for SourceFile {
    fn drop(&mut self) {
        // In a forked child, a thread of the parent may hold the lock for ever.
        if self.held.is_none() && refuse_fork().is_ok() {
            drop(recent().take(|identity| identity == self.identity));
        }
    }
}

/// Files that workers have opened last.
struct Recent(VecDeque<(Identity, Arc<File>)>);

static RECENT: Mutex<Recent> = Mutex::new(Recent(VecDeque::new()));

fn recent() -> MutexGuard<'static, Recent> {
    RECENT.lock().recover()
}

impl Recent {
    /// Takes out files. The receiver closes them by dropping them, after it has released the lock.
    fn take(&mut self, is_it: impl Fn(Identity) -> bool) -> Vec<Arc<File>> {
        let all = std::mem::take(&mut self.0).into_iter();
        let (gone, stay): (Vec<_>, Vec<_>) = all.partition(|(identity, _)| is_it(*identity));
        self.0 = stay.into();
        gone.into_iter().map(|(_, file)| file).collect()
    }
}

fn keep_recent(identity: Identity, file: &Arc<File>) {
    const MOST: u64 = 32;
    let most = MOST.min(most_descriptors() / 16) as usize;
    let mut recent = recent();
    if recent.0.iter().any(|(other, _)| *other == identity) {
        return;
    }
    recent.0.push_back((identity, Arc::clone(file)));
    let is_full = recent.0.len() > most;
    let oldest = is_full.then(|| recent.0.pop_front());
    drop(recent);
    drop(oldest);
}

fn close_recent() {
    let all = recent().take(|_| true);
    drop(all);
}
