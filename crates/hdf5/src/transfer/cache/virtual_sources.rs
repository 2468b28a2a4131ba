//! Cache of the sources of virtual datasets, whose files HDF5 opens for each read.
//!
//! Between two reads, other programs may write to such a file. So an entry is valid as long as the status
//! of the file is the same: see [`FileInfo::unchanged`](crate::dataset::FileInfo::unchanged). A source of
//! which everything is known is read without HDF5, unless this process has its file open for writing. Its file
//! stays open while reads follow each other.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use penstock_array::{ArrayChunks, ChunkTable};
use penstock_engine::Recover;
use penstock_engine::file::unchanged::Status;
use penstock_sys::hdf5::{H5F_ACC_RDWR, H5F_OBJ_FILE, hid_t};

use super::cached_dataset::{CachedDataset, is_sooner_by_hdf5};
use super::idle_files::{LingeringSource, keep_source};
use crate::SourceFile;
use crate::dataset::{DatasetInfo, Layout, TouchedChunks};
use crate::library::Session;
use crate::open_files::Identity;
use crate::transfer::conflicts;
use crate::transfer::hdf5_state::drop_at_close;
use crate::virtual_dataset::{CachedSource, KeptSource, SourceCache, SourceDataset};

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
    /// The description of its stored elements, without HDF5's descriptor.
    stored: OnceLock<Arc<DatasetInfo>>,
    path: PathBuf,
    file: Arc<LingeringSource>,
}

/// Sources, by file and name.
type Known = BTreeMap<(Identity, CString), Arc<Source>>;

static SOURCES: Mutex<Known> = Mutex::new(BTreeMap::new());

/// Largest number of bytes of the chunk tables of all sources.
const MOST_TABLES: usize = 256 << 20;
/// Largest number of sources.
const MOST_SOURCES: usize = 4096;

fn sources() -> MutexGuard<'static, Known> {
    SOURCES.lock().recover()
}

/// The cache, for one read.
pub(in crate::transfer) struct VirtualSources<'a> {
    session: &'a Session<'a>,
    /// The files that the process has open for writing; `None` if they are many, or one is not known.
    written: OnceCell<Option<Vec<Identity>>>,
}

impl<'a> VirtualSources<'a> {
    pub(in crate::transfer) fn of(session: &'a Session<'a>) -> Self {
        VirtualSources {
            session,
            written: OnceCell::new(),
        }
    }

    /// Returns the files that the process has open for writing. HDF5 may buffer changes of them.
    fn written(&self) -> Option<Vec<Identity>> {
        /// The identities of as many are known.
        const MOST: usize = 32;
        let session = self.session;
        let mut written = Vec::new();
        for file in session.open_ids(H5F_OBJ_FILE)? {
            let mut intent = 0;
            // SAFETY: HDF5 checks the identifier; the result has a place.
            let status = unsafe { (session.hdf5.H5Fget_intent)(file, &mut intent) };
            if status < 0 || intent & H5F_ACC_RDWR != 0 {
                if written.len() == MOST {
                    return None;
                }
                let number = conflicts::number_of_file(session, file).ok()?;
                let known = conflicts::known_identity(session.hdf5, number);
                let find = || conflicts::identity_of_file(session, file, number);
                written.push(known.unwrap_or_else(find)?);
            }
        }
        Some(written)
    }
}

impl SourceCache for VirtualSources<'_> {
    fn kept(&self, status: &Status, name: &CStr) -> Option<KeptSource> {
        let key = (status.file, name.to_owned());
        let source = sources().get(&key).cloned()?;
        let info = Arc::clone(source.stored.get()?);
        let is_whole =
            source.table.get().is_some() || !matches!(info.layout, Layout::Chunked { .. });
        if source.status != *status || !is_whole {
            return None;
        }
        let written = self.written.get_or_init(|| self.written()).as_ref()?;
        if written.contains(&status.file) {
            return None;
        }
        let file = source.file()?;
        Some(KeptSource {
            info,
            file,
            cached: source,
        })
    }

    fn entry(&self, source: &SourceDataset<'_>) -> Option<Arc<dyn CachedSource>> {
        let session = self.session;
        let path = source
            .path
            .filter(|_| !is_open_elsewhere(session, source.file));
        let Some(path) = path else {
            return CachedDataset::of_described(session, source.dataset, source.info)
                .map(|cached| cached as Arc<dyn CachedSource>);
        };
        let status = source.info.file.unchanged.as_ref()?.status()?;
        if status.file != source.found {
            return None; // its name is that of a link, in another file
        }
        let (number, _) = session.object(source.dataset).ok()?;
        let key = (status.file, source.name.to_owned());
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
            stored: OnceLock::new(),
            path: path.to_owned(),
            file: Arc::default(),
        });
        let mut sources = sources();
        let bytes = |source: &Arc<Source>| source.table.get().map_or(0, |table| table.bytes());
        let is_full = sources.len() >= MOST_SOURCES
            || sources.values().map(bytes).sum::<usize>() >= MOST_TABLES;
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

impl Source {
    /// Returns the file, if it can be opened and is the one of the status.
    fn file(&self) -> Option<Arc<SourceFile>> {
        if let Some(open) = self.file.lock().recover().get() {
            return Some(open);
        }
        let open = Arc::new(SourceFile::of_path(&self.path).ok()?);
        (open.identity() == self.status.file).then(|| {
            keep_source(&self.file, &open);
            open
        })
    }
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

    fn keep(&self, info: &Arc<DatasetInfo>, file: &Arc<SourceFile>) {
        self.stored.get_or_init(|| Arc::clone(info));
        keep_source(&self.file, file);
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

    fn keep(&self, _: &Arc<DatasetInfo>, _: &Arc<SourceFile>) {
        // HDF5 has the file open, and finds the dataset at once.
    }
}
