//! Files that the processes of an MPI program share.
//!
//! HDF5 opens such a file with MPI-IO. A process can transfer datasets whose elements have fixed
//! addresses in the file ([`StoredDataset`]) without the others. The engine does so, on a
//! descriptor of this process, without MPI and HDF5. HDF5 transfers all other datasets.
//! [`protocol`](super::protocol) says when the processes wait for each other.
//!
//! MPI-IO may write a range of the file outside the program's selection, with bytes that it has
//! read from there before. It does so between the pieces of a collective write, but never around
//! those of an independent one, which HDF5 writes one by one. Concurrent writes of an engine to
//! that range would be lost. If the program has metadata written collectively, which HDF5 does in
//! many calls, [hints](super::mpi::forbid_sieving) make MPI-IO write only the pieces, also of
//! elements. Otherwise nothing else is in progress during such a write.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use penstock_engine::Recover;
use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::file::system::{FileSystem, Sharing};
use penstock_engine::file::{Access, File};
use penstock_engine::options::Options;
use penstock_sys::environment;
use penstock_sys::hdf5::{herr_t, hid_t};

use super::agreement::of_another;
use super::calling_library::CallingLibrary;
use super::mpi::{Communicator, forbid_sieving};
use super::protocol::{Elements, FileState};
use super::settings::Collective;
use penstock_hdf5::library::Session;
use penstock_hdf5::transfer::conflicts::{FileKey, ObjectKey, key_of_file};
use penstock_hdf5::transfer::{Planned, Refused, StoredDataset};

/// Row length below which HDF5 transfers, if the processes may be on several machines. On Lustre,
/// each write takes the lock of a stripe, which has 1 MiB or more.
const SHORT_ROW: u64 = 1 << 20;

/// Environment variable that makes HDF5 call `MPI_File_sync` after each write.
pub(crate) const FILE_SYNC: &str = "HDF5_DO_MPI_FILE_SYNC";

/// One process's state of a shared file.
pub(crate) struct SharedFile {
    /// `None` if this process cannot open the file, which the others do not know.
    pub(crate) file: Option<Arc<File>>,
    pub(crate) key: FileKey,
    pub(crate) opening: Opening,
    /// Whether the program has enabled MPI's atomic mode, which only MPI-IO supports.
    pub(crate) is_atomic: AtomicBool,
    /// Whether a file is or was mounted in this one, or this one in another. Calls by a path
    /// through the mount belong to the other file for this connector, which then cannot see what
    /// they change.
    pub(crate) is_mounted: AtomicBool,
    extents: Mutex<Extents>,
    /// Whether the close of a dataset may free its storage, because some were deleted or never had
    /// a name.
    pub(crate) may_free: AtomicBool,
    /// Whether a collective transfer may be unfinished in some process.
    is_unfinished: AtomicBool,
    /// The processes, if none must be in a call of HDF5 while another reads metadata.
    processes: Mutex<Option<Communicator>>,
    /// Number of the program's handles of the file.
    handles: AtomicUsize,
}

/// What holds in a collective transfer, in one process or in any of them: a set.
#[derive(Clone, Copy)]
pub(crate) struct Facts(u8);

impl Facts {
    /// A process cannot take part.
    pub(crate) const FAILED: Facts = Facts(1);
    /// HDF5 carries out the call as the program requests.
    pub(crate) const BY_HDF5: Facts = Facts(1 << 1);
    /// Each process carries out its own part.
    pub(crate) const BY_EACH: Facts = Facts(1 << 2);
    /// The transfer may continue after the call.
    pub(crate) const CONTINUES: Facts = Facts(1 << 3);
    /// Earlier transfers of the file are pending.
    pub(crate) const PENDING: Facts = Facts(1 << 4);

    pub(crate) fn has(self, fact: Facts) -> bool {
        self.0 & fact.0 != 0
    }

    pub(crate) fn add_if(self, holds: bool, fact: Facts) -> Facts {
        Facts(self.0 | (u8::from(holds) * fact.0))
    }
}

/// Number of changes of extents. Chunks are allocated and freed then.
#[derive(Default)]
struct Extents {
    /// Whether a call of all processes has changed one.
    by_all: bool,
    /// Number by the token of the dataset.
    of: HashMap<[u8; 16], u64>,
    of_any: u64,
}

/// The open files, with the copies of HDF5 that have them open. HDF5 opens a file once for all
/// handles.
type OpenFiles = Vec<(usize, Weak<SharedFile>)>;

fn open_files() -> MutexGuard<'static, OpenFiles> {
    static OPEN: Mutex<OpenFiles> = Mutex::new(Vec::new());
    OPEN.lock().recover()
}

/// Forgets the open files of a library that starts again and restarts the numbers of its files.
pub(crate) fn forget_open_files(library: CallingLibrary) {
    open_files().retain(|(slot, _)| *slot != library.slot);
}

/// Description of a dataset, with the number of changes of its extent at that time.
pub(crate) type VersionedDescription = (u64, Arc<Planned<StoredDataset>>);

impl SharedFile {
    /// Returns the file that HDF5 has open with this number, or the reason why only HDF5 can access
    /// its bytes. The result is the same in all processes.
    pub(crate) fn of(
        library: CallingLibrary,
        (number, name): (u64, &CStr),
        opening: Opening,
        processes: Communicator,
    ) -> Arc<SharedFile> {
        let path = Path::new(OsStr::from_bytes(name.to_bytes()));
        let mut open = open_files();
        open.retain(|(_, file)| file.strong_count() > 0);
        let mut others = open.iter().filter(|(slot, _)| *slot == library.slot);
        let is_it = |other: &Arc<SharedFile>| other.key.number == Some(number);
        let same = others.find_map(|(_, file)| file.upgrade().filter(is_it));
        if let Some(same) = same {
            same.opened();
            return same;
        }
        let access = Access {
            read: true,
            write: opening.is_writable,
            ..Access::default()
        };
        let file = File::open(path, access, Options::default())
            .ok()
            .map(Arc::new);
        if let (Some(file), Sharing::OnOneMachine) = (&file, opening.sharing) {
            file.set_writers(processes.size());
            if opening.is_writable {
                file.let_rows_be_mapped();
            }
        }
        let identity = file
            .as_ref()
            .and_then(key_of_file)
            .and_then(|key| key.identity);
        let shared = Arc::new(SharedFile {
            file,
            key: FileKey {
                number: Some(number),
                identity,
            },
            is_atomic: AtomicBool::new(false),
            is_mounted: AtomicBool::new(false),
            extents: Mutex::default(),
            may_free: AtomicBool::new(false),
            is_unfinished: AtomicBool::new(false),
            // If processes read metadata together, HDF5 may wait inside a transfer of one process for
            // the next call of the others, so the others must not wait for that process.
            processes: Mutex::new((!opening.reads_together).then_some(processes)),
            opening,
            handles: AtomicUsize::new(1),
        });
        open.push((library.slot, Arc::downgrade(&shared)));
        shared
    }

    /// Records that the program has one more handle of the file.
    pub(crate) fn opened(&self) {
        self.handles.fetch_add(1, Relaxed);
    }

    /// Records that HDF5 has closed a handle of the file, in all processes.
    pub(crate) fn closed(&self) {
        if self.handles.fetch_sub(1, Relaxed) == 1 {
            drop(self.processes().take());
            open_files().retain(|(_, file)| !ptr::eq(file.as_ptr(), self));
        }
    }

    fn processes(&self) -> MutexGuard<'_, Option<Communicator>> {
        self.processes.lock().recover()
    }

    /// Returns who can access the elements of a dataset in a transfer, and why HDF5 carries it out if it
    /// does. The result is the same in all processes.
    pub(crate) fn elements<'a>(
        &self,
        stored: &'a Planned<StoredDataset>,
        operation: Operation,
        wanted: Collective,
    ) -> (Elements, &'a str) {
        let is_short = |stored: &StoredDataset| match wanted {
            Collective::Hdf5 => true,
            Collective::Engine => false,
            Collective::Auto => {
                self.opening.sharing != Sharing::OnOneMachine && stored.row() < SHORT_ROW
            }
        };
        let hdf5s = |why| (Elements::Hdf5s, why);
        match stored {
            Err(Refused(why)) => hdf5s(why.as_str()),
            Ok(_) if self.is_atomic.load(Relaxed) => hdf5s("the file is in MPI's atomic mode"),
            Ok(_) if self.is_mounted.load(Relaxed) => {
                hdf5s("the file is mounted in another file, or another in it")
            }
            Ok(stored) if !stored.is_independent(operation) => {
                (Elements::Unallocated, "HDF5 has to allocate storage")
            }
            Ok(stored) if is_short(stored) => {
                let why = "HDF5 carries out collective transfers of short rows";
                (Elements::Short, why)
            }
            Ok(_) => {
                let why = "the processes read the metadata of a file together that they write";
                (Elements::Fixed, why)
            }
        }
    }

    /// Returns what all processes know of the file.
    pub(crate) fn state(&self) -> FileState {
        FileState {
            can_meet: self.processes().is_some(),
            is_writable: self.opening.is_writable,
            is_sieved: self.opening.is_sieved,
            has_gaps: self.opening.has_gaps || self.extents().by_all,
            may_free: self.may_free.load(Relaxed),
            is_unfinished: self.is_unfinished.load(Relaxed),
        }
    }

    /// Waits until all processes that share the file arrive, if they may wait for each other.
    pub(crate) fn meet(&self) {
        if let Some(processes) = &*self.processes() {
            processes.meet();
        }
    }

    /// Returns what holds in any of the processes. A collective call. Where processes must not wait for each
    /// other, returns what holds in this one.
    ///
    /// # Errors
    /// The call fails in all processes, because another process cannot take part.
    pub(crate) fn agree(&self, own: Facts) -> Result<Facts> {
        let agreed = match &*self.processes() {
            Some(processes) => Facts(processes.any(own.0)),
            None => own,
        };
        if agreed.has(Facts::FAILED) {
            return Err(of_another());
        }
        if agreed.has(Facts::BY_HDF5) && agreed.has(Facts::BY_EACH) {
            return Err(
                Error::invalid("the processes found different storage of the dataset")
                    .remedy("close the dataset in all processes and open it again"),
            );
        }
        let remains = self.is_unfinished.load(Relaxed) && agreed.has(Facts::PENDING);
        let is_unfinished = agreed.has(Facts::CONTINUES) || remains;
        self.is_unfinished.store(is_unfinished, Relaxed);
        Ok(agreed)
    }

    /// Describes a dataset.
    ///
    /// # Errors
    /// HDF5 cannot describe it.
    pub(crate) fn describe(
        &self,
        session: &Session<'_>,
        dataset: hid_t,
        key: &ObjectKey,
    ) -> Result<VersionedDescription> {
        let changes = self.changes_of(key);
        let stored = if key.file.number == self.key.number {
            StoredDataset::read(session, dataset, self.opening.reads_together)?
        } else {
            let why = "the dataset is in another file, to which a link leads";
            Err(Refused(why.to_owned()))
        };
        Ok((changes, Arc::new(stored)))
    }

    /// Records that the extent of a dataset may have changed, in a call of all processes or of this one; without
    /// a key, that of any dataset.
    pub(crate) fn extent_changed(&self, key: Option<&ObjectKey>, by_all: bool) {
        let mut extents = self.extents();
        extents.by_all |= by_all;
        match key {
            Some(key) => *extents.of.entry(key.token).or_default() += 1,
            None => extents.of_any += 1,
        }
    }

    pub(crate) fn changes_of(&self, key: &ObjectKey) -> u64 {
        let extents = self.extents();
        extents.of_any + extents.of.get(&key.token).copied().unwrap_or(0)
    }

    fn extents(&self) -> MutexGuard<'_, Extents> {
        self.extents.lock().recover()
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // The program has not closed the file. This may be any thread, but only the program's
        // threads may call MPI.
        std::mem::forget(self.processes().take());
    }
}

/// How processes open a shared file. They compare these values.
pub(crate) struct Opening {
    is_writable: bool,
    /// Whether all processes take part when one reads metadata (`H5Pset_all_coll_metadata_ops`).
    pub(crate) reads_together: bool,
    /// Whether MPI-IO may write more than a call selects.
    is_sieved: bool,
    /// Whether HDF5 may find gaps between storage: it aligns allocations, or the file tracks free
    /// space.
    pub(crate) has_gaps: bool,
    /// What the processes see of each other's writes: in the folder, because the file need not exist yet.
    pub(crate) sharing: Sharing,
}

impl Opening {
    /// Prepares to open a file with this list, to which it adds hints for MPI-IO. Returns the reason if
    /// only HDF5 can access the bytes of the file. Makes no collective call.
    ///
    /// # Safety
    /// The thread is inside a call of `library`, which checks the list. It belongs to this connector.
    pub(crate) unsafe fn of(
        library: CallingLibrary,
        name: &CStr,
        (fapl, is_writable): (hid_t, bool),
    ) -> Result<Planned<Opening>> {
        let refused = |why: &str| Ok(Err(Refused(why.to_owned())));
        // SAFETY: the caller guarantees this.
        if !unsafe { is_of_mpi_io(library, fapl) } {
            return refused("the driver of the file is not that of MPI-IO");
        }
        // SAFETY: as above.
        if unsafe { library.lets_objects_stay_open(fapl) } {
            return refused("datasets of the file may stay open after it (H5F_CLOSE_WEAK)");
        }
        if has_prefix(name) {
            return refused("MPI-IO may take the start of the file's name for a file system");
        }
        if syncs_each_write() {
            return refused("HDF5 synchronizes each write, and then writes nothing independently");
        }
        let Some(mpi) = library.hdf5.mpi() else {
            return refused("the functions of the MPI library cannot be found");
        };
        // SAFETY: the caller guarantees this.
        let is_set = |property| unsafe { is_set(library, property, fapl) };
        let reads_together = is_set(library.calls.H5Pget_all_coll_metadata_ops);
        let has_hints =
            is_writable && (reads_together || is_set(library.calls.H5Pget_coll_metadata_write));
        if has_hints && mpi.is_open_mpi() {
            return refused("Open MPI may write other bytes with collective metadata");
        }
        // The file need not exist yet.
        let path = Path::new(OsStr::from_bytes(name.to_bytes()));
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let sharing = match sharing_at(folder.unwrap_or(Path::new("."))) {
            Ok(sharing) => sharing,
            Err(why) => return Ok(Err(why)),
        };
        if has_hints {
            // SAFETY: the caller guarantees this.
            unsafe { forbid_sieving(library, mpi, fapl)? };
        }
        let (mut threshold, mut alignment) = (0, 1);
        // SAFETY: the caller guarantees this; the pointers are valid for the answers.
        library.keeping_errors(|| unsafe {
            (library.calls.H5Pget_alignment)(fapl, &mut threshold, &mut alignment)
        });
        Ok(Ok(Opening {
            has_gaps: alignment > 1,
            is_writable,
            reads_together,
            is_sieved: is_writable && !has_hints,
            sharing,
        }))
    }

    /// Returns what must be the same in all processes, as text.
    pub(crate) fn traits(&self) -> String {
        let Opening {
            is_writable,
            reads_together,
            is_sieved,
            has_gaps,
            sharing,
        } = self;
        format!("{is_writable} {reads_together} {is_sieved} {has_gaps} {sharing:?}")
    }
}

/// Returns whether HDF5 calls `MPI_File_sync` after each write of this process.
pub(crate) fn syncs_each_write() -> bool {
    let sync = environment::text(FILE_SYNC);
    sync.is_some_and(|sync| sync == "TRUE" || sync == "1")
}

/// Returns what processes see of each other's writes at a path, or the reason if they may miss some. The
/// result differs if some processes run on the server of a network file system.
pub(crate) fn sharing_at(path: &Path) -> Planned<Sharing> {
    match FileSystem::sharing_at(path) {
        Some(sharing) if sharing != Sharing::Unknown => Ok(sharing),
        _ => {
            let why = "the bytes of this file system may differ between machines";
            Err(Refused(why.to_owned()))
        }
    }
}

/// Returns whether the driver of a list is that of MPI-IO. Other drivers also share files, in their
/// own pieces (subfiling).
///
/// # Safety
/// The thread is inside a call of `library`, which checks the identifier.
pub(crate) unsafe fn is_of_mpi_io(library: CallingLibrary, fapl: hid_t) -> bool {
    let Some(get) = library.calls.H5Pget_fapl_mpio else {
        return false;
    };
    // SAFETY: the caller guarantees this. Null requests neither the communicator nor the information.
    library.keeping_errors(|| unsafe { get(fapl, ptr::null_mut(), ptr::null_mut()) >= 0 })
}

/// Returns whether a property of a list is set. Returns true if this HDF5 does not answer.
///
/// # Safety
/// As for [`is_of_mpi_io`]; `get` takes a list and a place for the answer.
unsafe fn is_set(library: CallingLibrary, get: Option<Property>, fapl: hid_t) -> bool {
    let Some(get) = get else {
        return true;
    };
    let mut is_set = false;
    // SAFETY: the caller guarantees this; `is_set` receives the answer.
    let status = library.keeping_errors(|| unsafe { get(fapl, &mut is_set) });
    status < 0 || is_set
}

type Property = unsafe extern "C" fn(hid_t, *mut bool) -> herr_t;

/// Returns whether MPI-IO may take the start of a name for that of a file system, as in "ufs:file".
fn has_prefix(name: &CStr) -> bool {
    let name = name.to_bytes();
    let letters = name.iter().take_while(|byte| byte.is_ascii_alphanumeric());
    name.get(letters.count()) == Some(&b':')
}

#[cfg(test)]
mod tests {
    use super::has_prefix;

    #[test]
    fn prefixes_of_file_systems_are_recognised() {
        assert!(has_prefix(c"ufs:file"));
        assert!(has_prefix(c"nfs:/a/file"));
        assert!(!has_prefix(c"/a/b:c"));
        assert!(!has_prefix(c"a.b:c"));
        assert!(!has_prefix(c"file"));
    }
}
