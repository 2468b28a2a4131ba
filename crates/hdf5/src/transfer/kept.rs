//! What is kept of datasets that cannot change, from one transfer to the next.
//!
//! A file that this process has open only for reading, and not for SWMR, looks the same until it is
//! closed, unless a program writes to it that takes no lock. What is kept goes when the file has changed:
//! [`Unchanged`] decides. The description of datasets, their chunk tables, and decoded
//! chunks are found by HDF5's number of the open file, which no later file gets, and the token of the
//! dataset; see [`numbers`].

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::Duration;

use penstock_array::{ChunkCache, ChunkTable, Source, StoredArray};
use penstock_engine::Recover;
use penstock_engine::chunk_cache_bytes;
use penstock_engine::error::{Error, Result};
use penstock_engine::file::File;
use penstock_engine::file::position::Operation;
use penstock_engine::file::unchanged::Unchanged;
use penstock_engine::threads;
use penstock_sys::hdf5::{H5F_ACC_RDWR, H5F_OBJ_ALL, H5F_OBJ_FILE, hid_t};

use super::conflicts::{FileKey, ObjectKey, identity_of};
use super::numbers;
use super::still_open::StillOpen;
use crate::conversion::Conversion;
use crate::dataset::{
    Common, DatasetInfo, FileInfo, Layout, MemoryType, TouchedChunks, read_chunk_table,
};
use crate::library::Session;
use crate::open_files::{shared, shared_as, with_room};

/// A dataset of a file that is open only for reading.
pub(super) struct Kept {
    pub info: DatasetInfo,
    file: FileNumber,
    /// What identifies the dataset among those that pending operations access.
    pub key: ObjectKey,
    /// Number of the dataset in `chunks`.
    pub number: u64,
    /// Decoded chunks of all datasets of the file.
    pub chunks: Arc<ChunkCache>,
    /// Whether all of the file was to be forgotten since.
    forgotten: Arc<AtomicBool>,
    unchanged: Arc<Unchanged>,
    still_open: StillOpen,
    /// The array; else why HDF5 alone reads it.
    array: OnceLock<std::result::Result<StoredArray, String>>,
    /// What HDF5 has read because the chunk table was not known.
    left_to_hdf5: AtomicU64,
    /// Conversions to types in memory, which this HDF5 was found to make as Penstock does.
    conversions: Mutex<Vec<(MemoryType, Conversion)>>,
}

/// The description of a dataset for one transfer.
pub struct Described {
    /// The description.
    pub info: DatasetInfo,
    /// What else is known of the dataset, if it cannot change.
    pub(super) kept: Option<Arc<Kept>>,
}

impl From<DatasetInfo> for Described {
    fn from(info: DatasetInfo) -> Described {
        Described { info, kept: None }
    }
}

impl Described {
    /// Describes a dataset by what is kept of it, or else through HDF5.
    pub(super) fn of(session: &Session<'_>, dataset: hid_t) -> Result<Described> {
        let key = key(session, dataset).ok();
        if let Some(kept) = key.and_then(find) {
            let info = kept.info.clone();
            let kept = Some(kept);
            return Ok(Described { info, kept });
        }
        let info = describe(session, dataset, key)?;
        let kept = key.and_then(|key| keep(session, dataset, key, &info));
        Ok(Described { info, kept })
    }
}

impl Kept {
    /// Returns what is kept of a dataset, which is described now if it was not before. `None` if it
    /// may change, or if it cannot be described.
    pub(super) fn of(session: &Session<'_>, dataset: hid_t) -> Option<Arc<Kept>> {
        let key = key(session, dataset).ok()?;
        find(key).or_else(|| {
            if known_file(key).is_none() && is_writable(session, dataset)? {
                return None;
            }
            let info = describe(session, dataset, Some(key)).ok()?;
            keep(session, dataset, key, &info)
        })
    }

    /// As [`of`](Self::of), for a dataset that was described.
    pub(super) fn of_described(
        session: &Session<'_>,
        dataset: hid_t,
        info: &DatasetInfo,
    ) -> Option<Arc<Kept>> {
        let key = key(session, dataset).ok()?;
        find(key).or_else(|| keep(session, dataset, key, info))
    }

    /// Returns whether the dataset may have changed since it was described, or the file is closed.
    pub(super) fn is_forgotten(&self) -> bool {
        self.forgotten.load(Relaxed) || !self.unchanged.holds()
    }

    /// Returns an error if HDF5 has closed the file, even if it is open again.
    pub(super) fn check_open(&self) -> Result<()> {
        match self.still_open.is_open() {
            true => Ok(()),
            false => Err(closed().in_file(&self.info.file.name)),
        }
    }

    /// Returns whether HDF5 reads what a request touches sooner than it lists a large index, which is not
    /// known yet, and counts the request: HDF5 reads until that has taken as long as the walk will.
    pub(super) fn is_for_hdf5(&self, touched: TouchedChunks) -> bool {
        self.array.get().is_none() && is_sooner_by_hdf5(&self.info, touched, &self.left_to_hdf5)
    }

    /// Returns the array, whose chunk table the first call reads, or why HDF5 alone reads it.
    pub(super) fn array(
        &self,
        session: &Session<'_>,
        dataset: hid_t,
    ) -> Result<std::result::Result<&StoredArray, &str>> {
        if let Some(known) = self.array.get() {
            return Ok(known.as_ref().map_err(String::as_str));
        }
        if matches!(self.info.layout, Layout::Chunked { .. }) {
            let table = read_chunk_table(session, dataset, &self.info)
                .map_err(|error| self.info.name_in(error))?;
            return self.set_table(Arc::new(table));
        }
        self.set_array(None)
    }

    fn set_array(
        &self,
        table: Option<Arc<ChunkTable>>,
    ) -> Result<std::result::Result<&StoredArray, &str>> {
        let array = self.info.array_to_read(table)?;
        let known = self.array.get_or_init(|| array);
        Ok(known.as_ref().map_err(String::as_str))
    }

    pub(super) fn known_table(&self) -> Option<Arc<ChunkTable>> {
        match &self.known_array()?.source {
            Source::Chunks(table) => Some(Arc::clone(table)),
            _ => None,
        }
    }

    pub(super) fn set_table(
        &self,
        table: Arc<ChunkTable>,
    ) -> Result<std::result::Result<&StoredArray, &str>> {
        self.count_table(table.bytes() as u64);
        self.set_array(Some(table))
    }

    /// Returns the array, if [`array`](Self::array) was called before.
    pub(super) fn known_array(&self) -> Option<&StoredArray> {
        self.array.get()?.as_ref().ok()
    }

    /// Returns the conversion to a type in memory, or why HDF5 must convert the elements.
    pub(super) fn conversion(
        &self,
        session: &Session<'_>,
        dataset: hid_t,
        memory_type: hid_t,
    ) -> Result<std::result::Result<Conversion, String>> {
        const MOST: usize = 8;
        let memory = MemoryType::read(session, memory_type)?;
        let known = || self.conversions.lock().recover();
        if let Some((_, found)) = known().iter().find(|(to, _)| *to == memory) {
            return Ok(Ok(*found));
        }
        let found = Conversion::from_dataset(session, (dataset, &self.info.element), memory_type)?;
        if let Ok(conversion) = found
            && known().len() < MOST
        {
            known().push((memory, conversion));
        }
        Ok(found)
    }

    /// Returns the file, without options of its own, for a request. HDF5 has it open, since the
    /// dataset is. Requests that overlap in time share it.
    pub(super) fn file(&self) -> Result<Arc<File>> {
        let identity = self.key.file.identity.unwrap_or_default();
        with_room(close_idle, || {
            shared_as(&self.info.file, identity, Operation::Read)
        })
    }

    /// Returns the file if it is still open for small reads.
    pub(super) fn lingering_file(&self) -> Option<Arc<File>> {
        let mut files = files();
        let file = files.files.get_mut(&self.file)?;
        let open = file.lingers.as_ref().map(Arc::clone)?;
        file.is_in_use = true;
        Some(open)
    }

    /// As [`file`](Self::file), for a small read: the file stays open a little longer, since to open
    /// it takes longer than the read.
    pub(super) fn file_for_small_read(&self) -> Result<Arc<File>> {
        if let Some(open) = self.lingering_file() {
            return Ok(open);
        }
        let open = self.file()?;
        let mut files = files();
        // A duplicate would keep HDF5's lock of the file.
        if !open.is_duplicate()
            && let Some(file) = files.files.get_mut(&self.file)
        {
            file.lingers = Some(Arc::clone(&open));
            file.is_in_use = true;
            files.close_idle();
        }
        Ok(open)
    }
}

impl Kept {
    /// Counts the bytes of this dataset's chunk table, and drops others if there are too many.
    fn count_table(&self, bytes: u64) {
        let mut files = files();
        if let Some(file) = files.files.get_mut(&self.file) {
            file.tables += bytes;
            if file.tables > MOST_TABLES {
                file.datasets.retain(|_, kept| kept.number == self.number);
                file.tables = bytes;
            }
        }
    }
}

/// See [`Kept::is_for_hdf5`], of a dataset whose chunk table is not known. `left` counts what was left to HDF5, as
/// [`DatasetInfo::entries_for`] does.
pub(super) fn is_sooner_by_hdf5(
    info: &DatasetInfo,
    touched: TouchedChunks,
    left: &AtomicU64,
) -> bool {
    if !info.is_sooner_by_hdf5(touched) {
        return false;
    }
    let entries = info.entries_for(touched);
    left.fetch_add(entries, Relaxed).saturating_add(entries) <= info.index_entries()
}

/// An open file: the copy of HDF5, and its number of the file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FileNumber {
    hdf5: usize,
    number: u64,
}

/// What is kept of an open file.
struct OpenFile {
    info: Arc<FileInfo>,
    /// The file itself, while small reads follow each other.
    lingers: Option<Arc<File>>,
    /// Whether a small read has used it since idle files were looked for.
    is_in_use: bool,
    chunks: Arc<ChunkCache>,
    forgotten: Arc<AtomicBool>,
    /// Whether all that is kept is still that of the file.
    unchanged: Arc<Unchanged>,
    still_open: StillOpen,
    /// By token.
    datasets: HashMap<[u8; 16], Arc<Kept>>,
    /// Bytes of the chunk tables of all datasets.
    tables: u64,
}

/// All that is kept.
struct Files {
    files: HashMap<FileNumber, OpenFile>,
    /// With so many files, those are dropped that were closed meanwhile.
    look_at: usize,
    /// Whether a thread closes files that are idle.
    has_closer: bool,
}

static FILES: LazyLock<Mutex<Files>> = LazyLock::new(|| {
    Mutex::new(Files {
        files: HashMap::new(),
        look_at: FEW_FILES,
        has_closer: false,
    })
});

/// So many files may stay that are closed: nothing tells when HDF5 closes one.
const FEW_FILES: usize = 4;
/// The most datasets of a file that are kept.
const MOST_DATASETS: usize = 4096;
/// The most bytes of the chunk tables of a file; those of 10^6 chunks have 28 MB at most.
const MOST_TABLES: u64 = 256 << 20;

fn files() -> MutexGuard<'static, Files> {
    FILES.lock().recover()
}

fn find((file, token): Key) -> Option<Arc<Kept>> {
    drop_changed(file);
    let kept = files().files.get(&file)?.datasets.get(&token).cloned()?;
    kept.unchanged.holds().then_some(kept)
}

/// Drops what is kept of a file that may have changed.
fn drop_changed(number: FileNumber) {
    let known = || Some(Arc::clone(&files().files.get(&number)?.unchanged));
    // The system is asked without the lock: a network file system may not answer.
    let Some(changed) = known().filter(|unchanged| !unchanged.holds()) else {
        return;
    };
    let gone =
        files().take(|other, file| *other == number && Arc::ptr_eq(&file.unchanged, &changed));
    drop(gone);
}

/// Chunk tables of the datasets of one request, each of which is read once, however often a dataset
/// occurs.
#[derive(Default)]
pub(super) struct Tables(HashMap<Key, Arc<ChunkTable>>);

impl Tables {
    /// With so many chunks, the table is kept for later requests: to read it takes longer than to
    /// describe the dataset again.
    const MANY: usize = 64;

    /// Returns whether the chunk table of a dataset need not be read.
    pub(super) fn know(&self, session: &Session<'_>, dataset: hid_t) -> bool {
        let is_known = |key: Key| {
            let is_kept = || find(key).is_some_and(|kept| kept.known_table().is_some());
            self.0.contains_key(&key) || is_kept()
        };
        key(session, dataset).is_ok_and(is_known)
    }

    /// Returns the chunk table of a dataset that cannot change.
    pub(super) fn of(
        &mut self,
        session: &Session<'_>,
        dataset: hid_t,
        info: &DatasetInfo,
    ) -> Result<Arc<ChunkTable>> {
        let key = key(session, dataset).ok();
        if let Some(known) = key.and_then(|key| self.0.get(&key)) {
            return Ok(Arc::clone(known));
        }
        let kept = key.and_then(find);
        let known = kept.as_ref().and_then(|kept| kept.known_table());
        let table = match known {
            Some(known) => known,
            None => {
                let read = read_chunk_table(session, dataset, info);
                let table = Arc::new(read.map_err(|error| info.name_in(error))?);
                if table.len() >= Self::MANY
                    && let Some(key) = key
                    && let Some(kept) = kept.or_else(|| keep(session, dataset, key, info))
                {
                    // The caller asks for the array, and why there may be none, when it plans a read.
                    _ = kept.set_table(Arc::clone(&table))?;
                }
                table
            }
        };
        if let Some(key) = key {
            self.0.insert(key, Arc::clone(&table));
        }
        Ok(table)
    }
}

/// Returns the description of a dataset's file, if others of its datasets are kept.
fn known_file((file, _): Key) -> Option<Arc<FileInfo>> {
    drop_changed(file);
    let files = files();
    let file = files.files.get(&file)?;
    Some(Arc::clone(&file.info))
}

/// Describes a dataset. What is known of its file is not asked for again.
fn describe(session: &Session<'_>, dataset: hid_t, key: Option<Key>) -> Result<DatasetInfo> {
    let Some(file) = key.and_then(known_file) else {
        return DatasetInfo::read(session, dataset);
    };
    let mut common = Common::of_file(session, dataset, file)?;
    let described = DatasetInfo::read_among(session, dataset, None, &mut common)?;
    Ok(described.0)
}

/// An open dataset: its file, and its token there.
type Key = (FileNumber, [u8; 16]);

fn key(session: &Session<'_>, object: hid_t) -> Result<Key> {
    let (number, token) = session.object(object)?;
    let hdf5 = session.hdf5.copy();
    Ok((FileNumber { hdf5, number }, token))
}

/// Returns whether the file of a dataset is open for writing, without describing it.
fn is_writable(session: &Session<'_>, dataset: hid_t) -> Option<bool> {
    let hdf5 = session.hdf5;
    // SAFETY: takes an identifier, which HDF5 checks, and returns an owned one.
    let file = unsafe { (hdf5.H5Iget_file_id)(dataset) };
    let file = session.own(file, hdf5.H5Fclose, "get the file").ok()?;
    let mut intent = 0;
    // SAFETY: an owned identifier, and a place for the result.
    let status = unsafe { (hdf5.H5Fget_intent)(file.get(), &mut intent) };
    (status >= 0).then_some(intent & H5F_ACC_RDWR != 0)
}

fn closed() -> Error {
    Error::invalid("HDF5 has closed the file of the dataset")
        .remedy("read the dataset while its file is open")
}

/// Drops what is kept of all files of a copy of HDF5, which is about to number its files anew.
pub(super) fn forget(copy: usize) {
    let gone = files().take(|file, _| file.hdf5 == copy);
    drop(gone);
}

/// Drops what is kept of the file of an object.
pub(super) fn forget_file(session: &Session<'_>, object: hid_t) -> Result<()> {
    let (file, _) = key(session, object)?;
    // What is dropped is freed without the lock.
    let gone = files().files.remove(&file);
    drop(gone);
    Ok(())
}

/// Keeps a dataset, if it cannot change.
fn keep(
    session: &Session<'_>,
    dataset: hid_t,
    (number, token): Key,
    info: &DatasetInfo,
) -> Option<Arc<Kept>> {
    static ARRAYS: AtomicU64 = AtomicU64::new(0);
    let file = &info.file;
    let descriptor = file.descriptor?;
    // Since before the description was read.
    let unchanged = file
        .unchanged
        .as_ref()
        .filter(|unchanged| unchanged.holds())?;
    let has_place = matches!(
        info.layout,
        Layout::Contiguous { offset: Some(_) } | Layout::Chunked { .. }
    );
    let identity = identity_of(descriptor)?;
    // Numbers of files must not be mistaken for those after H5close.
    if info.is_null || !has_place || !numbers::are_kept(session.hdf5) {
        return None;
    }
    // HDF5 is not called with the lock: its driver may be Python's, which may read by Penstock.
    let is_new = !files().files.contains_key(&number);
    let bytes = match is_new {
        true => chunk_cache(session, dataset)?,
        false => 0,
    };
    if is_new && files().has_many() {
        drop_closed(session);
    }
    let gone = match is_new {
        true => {
            files().take(|other, file| *other != number && file.info.descriptor == Some(descriptor))
        }
        false => Vec::new(),
    };
    drop(gone);
    let mut files = files();
    let file = files.files.entry(number).or_insert_with(|| OpenFile {
        info: Arc::clone(&info.file),
        lingers: None,
        is_in_use: false,
        chunks: Arc::new(ChunkCache::new(bytes)),
        forgotten: Arc::default(),
        unchanged: Arc::clone(unchanged),
        still_open: StillOpen::mark(descriptor),
        datasets: HashMap::new(),
        tables: 0,
    });
    if file.datasets.len() >= MOST_DATASETS {
        file.datasets.clear();
        file.tables = 0;
    }
    let kept = Arc::new(Kept {
        info: info.clone(),
        file: number,
        key: ObjectKey {
            file: FileKey {
                number: Some(number.number),
                identity: Some(identity),
            },
            token,
        },
        number: ARRAYS.fetch_add(1, Relaxed),
        chunks: Arc::clone(&file.chunks),
        forgotten: Arc::clone(&file.forgotten),
        unchanged: Arc::clone(unchanged),
        still_open: file.still_open,
        array: OnceLock::new(),
        left_to_hdf5: AtomicU64::new(0),
        conversions: Mutex::default(),
    });
    file.datasets.insert(token, Arc::clone(&kept));
    Some(kept)
}

/// Returns how many bytes of decoded chunks of a file are kept: those that Penstock keeps of any
/// file or, if these are more, those of HDF5's own cache, unless Penstock is to keep none.
fn chunk_cache(session: &Session<'_>, dataset: hid_t) -> Option<u64> {
    let own = chunk_cache_bytes().ok()?;
    if own == 0 {
        return Some(0);
    }
    let hdf5 = session.hdf5;
    // SAFETY: each takes a checked identifier and returns an owned one.
    let file = unsafe { (hdf5.H5Iget_file_id)(dataset) };
    let file = session.own(file, hdf5.H5Fclose, "get the file").ok()?;
    // SAFETY: as above.
    let access = unsafe { (hdf5.H5Fget_access_plist)(file.get()) };
    let access = session
        .own(access, hdf5.H5Pclose, "get the access properties")
        .ok()?;
    let (mut unused, mut slots, mut bytes, mut preemption) = (0, 0, 0usize, 0.0);
    // SAFETY: an owned identifier, and places for the results.
    let status = unsafe {
        (hdf5.H5Pget_cache)(
            access.get(),
            &mut unused,
            &mut slots,
            &mut bytes,
            &mut preemption,
        )
    };
    (status >= 0).then_some(own.max(bytes as u64))
}

/// Drops the files that this copy of HDF5 has closed.
fn drop_closed(session: &Session<'_>) {
    let hdf5 = session.hdf5.copy();
    let open = open_files(session);
    let mut files = files();
    let is_closed = |file: &FileNumber, _: &OpenFile| match &open {
        Some(open) => file.hdf5 == hdf5 && !open.contains(&file.number),
        None => false,
    };
    let gone = files.take(is_closed);
    files.look_at = FEW_FILES.max(2 * files.files.len());
    drop(files);
    drop(gone);
}

impl Drop for OpenFile {
    /// Frees the chunks although readers of the file may live on, and has these read no more.
    fn drop(&mut self) {
        self.forgotten.store(true, Relaxed);
        self.chunks.clear();
    }
}

impl Files {
    /// Returns whether it is time to look for files that were closed.
    fn has_many(&self) -> bool {
        self.files.len() >= self.look_at
    }

    /// Takes out the files for which `is_gone` is true. The receiver drops them without the lock.
    fn take(&mut self, is_gone: impl Fn(&FileNumber, &OpenFile) -> bool) -> Vec<OpenFile> {
        let gone = self.files.extract_if(|number, file| is_gone(number, file));
        gone.map(|(_, file)| file).collect()
    }

    /// Starts a thread that closes the files that are idle, and ends when none is open. A file that
    /// the program has closed, and may want to delete or to unmount, thus stays open for a moment
    /// only.
    fn close_idle(&mut self) {
        if self.has_closer {
            return;
        }
        match threads::start("penstock-idle", close_idle_files) {
            Ok(()) => self.has_closer = true,
            // Nobody would close them.
            Err(_) => self.files.values_mut().for_each(|file| file.lingers = None),
        }
    }
}

/// How long an idle file stays open, at least.
const LINGER: Duration = Duration::from_millis(50);

/// Returns the file that HDF5 has open, for a request. Idle files are closed rather than let this fail.
pub fn open_file(file: &FileInfo, operation: Operation) -> Result<Arc<File>> {
    with_room(close_idle, || shared(file, operation))
}

fn close_idle() {
    let idle: Vec<_> = files()
        .files
        .values_mut()
        .map(|f| f.lingers.take())
        .collect();
    drop(idle);
}

fn close_idle_files() {
    loop {
        thread::sleep(LINGER);
        let mut files = files();
        let mut idle = Vec::new();
        for file in files.files.values_mut() {
            if !std::mem::take(&mut file.is_in_use) {
                idle.extend(file.lingers.take());
            }
        }
        files.has_closer = files.files.values().any(|file| file.lingers.is_some());
        let is_last = !files.has_closer;
        drop(files);
        drop(idle);
        if is_last {
            return;
        }
    }
}

/// Returns the numbers of the files that HDF5 has open; `None` if it does not tell.
fn open_files(session: &Session<'_>) -> Option<HashSet<u64>> {
    let calls = session.hdf5.pass_through().ok()?;
    let all = hid_t::from(H5F_OBJ_ALL);
    // SAFETY: takes no memory.
    let count = unsafe { (calls.H5Fget_obj_count)(all, H5F_OBJ_FILE) };
    let mut ids = vec![0; usize::try_from(count).ok()?];
    // SAFETY: there is room for as many identifiers as is passed.
    let got = unsafe { (calls.H5Fget_obj_ids)(all, H5F_OBJ_FILE, ids.len(), ids.as_mut_ptr()) };
    ids.truncate(usize::try_from(got).ok()?);
    let numbers = ids.iter().map(|id| session.object(*id));
    numbers
        .map(|found| found.ok().map(|(number, _)| number))
        .collect()
}
