//! Cache of the sources of virtual datasets, whose files HDF5 opens for each read.
//!
//! Between two reads, other programs may write to such a file. So an entry is valid as long as the status
//! of the file is the same: see [`FileInfo::unchanged`](crate::dataset::FileInfo::unchanged).

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use penstock_array::{ArrayChunks, ChunkTable};
use penstock_engine::Recover;
use penstock_engine::file::unchanged::Status;
use penstock_sys::hdf5::{H5F_OBJ_FILE, hid_t};

use super::cached_dataset::{CachedDataset, is_sooner_by_hdf5};
use crate::dataset::{DatasetInfo, TouchedChunks};
use crate::library::Session;
use crate::open_files::Identity;
use crate::transfer::conflicts;
use crate::transfer::hdf5_state::drop_at_close;
use crate::virtual_dataset::{CachedSource, SourceDataset};

/// A source in a file that HDF5 opens for each read.
struct Source {
    info: DatasetInfo,
    status: Status,
    /// HDF5's number of the open file when the status was found.
    number: u64,
    /// The file of the virtual dataset.
    reader: Identity,
    table: OnceLock<Arc<ChunkTable>>,
    left_to_hdf5: AtomicU64,
}

/// Sources, by file and token.
type Known = BTreeMap<(Identity, [u8; 16]), Arc<Source>>;

static SOURCES: Mutex<Known> = Mutex::new(BTreeMap::new());

/// Largest number of bytes of the chunk tables of all sources.
const MOST_TABLES: usize = 256 << 20;
/// Largest number of sources.
const MOST_SOURCES: usize = 4096;

fn sources() -> MutexGuard<'static, Known> {
    SOURCES.lock().recover()
}

/// Returns the cache entry of a source; `None` if the source may not be cached.
pub(in crate::transfer) fn of(
    session: &Session<'_>,
    source: &SourceDataset<'_>,
) -> Option<Arc<dyn CachedSource>> {
    if source.is_same_file || is_open_elsewhere(session, source.file) {
        return CachedDataset::of_described(session, source.dataset, source.info)
            .map(|cached| cached as Arc<dyn CachedSource>);
    }
    let status = source.info.file.unchanged.as_ref()?.status()?;
    let (number, token) = session.object(source.dataset).ok()?;
    let key = (status.file, token);
    if let Some(known) = sources().get(&key) {
        if known.status == status {
            return Some(Arc::clone(known) as Arc<dyn CachedSource>);
        }
        // HDF5 opened the file before it changed, and may buffer its old contents.
        if known.number == number {
            return None;
        }
    }
    drop_at_close(session.hdf5, &[conflicts::forget, forget_all]);
    let new = Arc::new(Source {
        info: source.info.clone(),
        status,
        number,
        reader: source.reader,
        table: OnceLock::new(),
        left_to_hdf5: AtomicU64::new(0),
    });
    let mut sources = sources();
    let bytes = |source: &Arc<Source>| source.table.get().map_or(0, |table| table.bytes());
    let is_full =
        sources.len() >= MOST_SOURCES || sources.values().map(bytes).sum::<usize>() >= MOST_TABLES;
    let all = if is_full {
        std::mem::take(&mut *sources)
    } else {
        BTreeMap::new()
    };
    let old = sources.insert(key, Arc::clone(&new));
    drop(sources);
    drop((all, old));
    Some(new)
}

/// Returns whether any source has an entry.
pub(super) fn are_known() -> bool {
    !sources().is_empty()
}

/// Drops the entries of the sources of virtual datasets in a file; all entries if it is `None`.
pub(in crate::transfer) fn forget(reader: Option<Identity>) {
    let mut sources = sources();
    let all = std::mem::take(&mut *sources).into_iter();
    let is_gone = |source: &Arc<Source>| reader.is_none_or(|reader| source.reader == reader);
    let (gone, stay): (Known, Known) = all.partition(|(_, source)| is_gone(source));
    *sources = stay;
    drop(sources);
    drop(gone);
}

fn forget_all(_: usize) {
    forget(None);
}

/// Returns whether the program has the file open, besides the identifier `file`.
fn is_open_elsewhere(session: &Session<'_>, file: hid_t) -> bool {
    let Ok(calls) = session.hdf5.pass_through() else {
        return true;
    };
    // SAFETY: takes an identifier, which HDF5 checks.
    unsafe { (calls.H5Fget_obj_count)(file, H5F_OBJ_FILE) != 1 }
}

impl CachedSource for Source {
    fn table(&self) -> Option<Arc<ChunkTable>> {
        self.table.get().cloned()
    }

    fn add_table(&self, table: &Arc<ChunkTable>) {
        self.table.get_or_init(|| Arc::clone(table));
    }

    fn is_for_hdf5(&self, touched: TouchedChunks) -> bool {
        is_sooner_by_hdf5(&self.info, touched, &self.left_to_hdf5)
    }

    fn decoded(&self) -> Option<Arc<ArrayChunks>> {
        None
    }
}

impl CachedSource for CachedDataset {
    fn table(&self) -> Option<Arc<ChunkTable>> {
        self.known_table()
    }

    fn add_table(&self, table: &Arc<ChunkTable>) {
        // A table that does not fit fails the read that has found it.
        let _ = self.set_table(Arc::clone(table));
    }

    fn is_for_hdf5(&self, touched: TouchedChunks) -> bool {
        self.is_for_hdf5(touched)
    }

    fn decoded(&self) -> Option<Arc<ArrayChunks>> {
        Some(Arc::clone(&self.chunks))
    }
}
