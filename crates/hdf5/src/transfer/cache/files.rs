//! The files of which datasets are cached.
//!
//! A file that this process has open only for reading, and not for SWMR, looks the same until it is
//! closed, unless a program writes to it without a lock. [`Unchanged`] detects such a change, and the
//! entry of the file is dropped. Entries are found by HDF5's number of the open file, which no later
//! file gets until HDF5 closes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use penstock_array::ChunkCache;
use penstock_engine::Recover;
use penstock_engine::error::Result;
use penstock_engine::file::File;
use penstock_engine::file::unchanged::Unchanged;
use penstock_sys::hdf5::hid_t;

use super::cached_dataset::CachedDataset;
use super::dataset_key::{DatasetKey, FileNumber, key};
use super::lingering::Lingering;
use crate::dataset::FileInfo;
use crate::library::Session;
use crate::transfer::hdf5_state::{MarkedFile, open_file_numbers};

/// The cache entry of an open file.
pub(super) struct OpenFile {
    pub info: Arc<FileInfo>,
    /// The file, which stays open while small reads follow each other.
    pub lingers: Lingering<File>,
    pub chunks: Arc<ChunkCache>,
    pub forgotten: Arc<AtomicBool>,
    /// Detects changes of the file.
    pub unchanged: Arc<Unchanged>,
    pub marked: MarkedFile,
    /// Entries of datasets, by token.
    pub datasets: HashMap<[u8; 16], Arc<CachedDataset>>,
    /// Bytes of the chunk tables of all datasets.
    pub tables: u64,
}

/// All cache entries.
pub(super) struct Files {
    pub files: HashMap<FileNumber, OpenFile>,
    /// Number of files at which entries of closed files are dropped.
    pub look_at: usize,
    /// Whether a thread closes files that are idle.
    pub has_closer: bool,
}

static FILES: LazyLock<Mutex<Files>> = LazyLock::new(|| {
    Mutex::new(Files {
        files: HashMap::new(),
        look_at: FEW_FILES,
        has_closer: false,
    })
});

/// Number of files below which entries of closed files may stay. HDF5 does not report that it closes one.
const FEW_FILES: usize = 4;
/// Largest number of cached datasets of a file.
const MOST_DATASETS: usize = 4096;
/// Largest number of bytes of the chunk tables of a file. A table of 10^6 chunks has 28 MB at most.
const MOST_TABLES: u64 = 256 << 20;

pub(super) fn files() -> MutexGuard<'static, Files> {
    FILES.lock().recover()
}

pub(super) fn find((file, token): DatasetKey) -> Option<Arc<CachedDataset>> {
    drop_changed(file);
    let cached = files().files.get(&file)?.datasets.get(&token).cloned()?;
    cached.unchanged.holds().then_some(cached)
}

/// Drops the entry of a file if the file may have changed.
fn drop_changed(number: FileNumber) {
    let known = || Some(Arc::clone(&files().files.get(&number)?.unchanged));
    // The system is queried without the lock, because a network file system may not answer.
    let Some(changed) = known().filter(|unchanged| !unchanged.holds()) else {
        return;
    };
    let gone =
        files().take(|other, file| *other == number && Arc::ptr_eq(&file.unchanged, &changed));
    drop(gone);
}

/// Returns the description of a dataset's file, if the file has an entry.
pub(super) fn known_file((file, _): DatasetKey) -> Option<Arc<FileInfo>> {
    drop_changed(file);
    let files = files();
    let file = files.files.get(&file)?;
    Some(Arc::clone(&file.info))
}

/// Drops the entries of all files of a copy of HDF5, which is about to number its files anew.
pub(in crate::transfer) fn forget(copy: usize) {
    let gone = files().take(|file, _| file.hdf5 == copy);
    drop(gone);
}

/// Drops the entry of the file of an object.
pub(in crate::transfer) fn forget_file(session: &Session<'_>, object: hid_t) -> Result<()> {
    let (file, _) = key(session, object)?;
    // The memory is freed without the lock.
    let gone = files().files.remove(&file);
    drop(gone);
    Ok(())
}

/// Drops the entries of files that this copy of HDF5 has closed.
pub(super) fn drop_closed(session: &Session<'_>) {
    let hdf5 = session.hdf5.copy();
    let open = open_file_numbers(session);
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
    /// Frees the chunks, although readers of the file may still exist, and makes these readers refuse.
    fn drop(&mut self) {
        self.forgotten.store(true, Relaxed);
        self.chunks.close();
    }
}

impl OpenFile {
    /// Adds the entry of a dataset, in place of all others if there are too many.
    pub(super) fn add(&mut self, token: [u8; 16], cached: &Arc<CachedDataset>) {
        if self.datasets.len() >= MOST_DATASETS {
            self.datasets.clear();
            self.tables = 0;
        }
        self.datasets.insert(token, Arc::clone(cached));
    }
}

impl Files {
    /// Returns whether it is time to look for files that were closed.
    pub(super) fn has_many(&self) -> bool {
        self.files.len() >= self.look_at
    }

    /// Removes the entries for which `is_gone` is true. The caller drops them without the lock.
    pub(super) fn take(
        &mut self,
        is_gone: impl Fn(&FileNumber, &OpenFile) -> bool,
    ) -> Vec<OpenFile> {
        let gone = self.files.extract_if(|number, file| is_gone(number, file));
        gone.map(|(_, file)| file).collect()
    }
}

/// Counts the bytes of a dataset's chunk table, and drops the other datasets of its file if their
/// tables take too much memory.
pub(super) fn count_table(cached: &CachedDataset, bytes: u64) {
    let mut files = files();
    if let Some(file) = files.files.get_mut(&cached.file) {
        file.tables += bytes;
        if file.tables > MOST_TABLES {
            file.datasets
                .retain(|_, other| std::ptr::eq(&**other, cached));
            file.tables = bytes;
        }
    }
}
