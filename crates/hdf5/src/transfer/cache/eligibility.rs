//! Which datasets may be cached.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};

use penstock_array::{ArrayChunks, ChunkCache};
use penstock_engine::file::unchanged::Unchanged;
use penstock_sys::hdf5::hid_t;

use super::cached_dataset::CachedDataset;
use super::dataset_key::DatasetKey;
use super::files::{self, OpenFile, drop_closed, files};
use super::lingering::Lingering;
use crate::dataset::{DatasetInfo, Layout};
use crate::library::Session;
use crate::transfer::conflicts::{self, FileKey, Identity, ObjectKey, identity_of};
use crate::transfer::hdf5_state::{MarkedFile, chunk_cache_bytes_of, drop_at_close};

/// A dataset with a place in a file that has not changed since before its description was read.
struct Unchanging<'a> {
    info: &'a DatasetInfo,
    descriptor: RawFd,
    identity: Identity,
    unchanged: &'a Arc<Unchanged>,
}

/// Adds a dataset to the cache. Returns `None` if it may change.
pub(super) fn add_to_cache(
    session: &Session<'_>,
    dataset: hid_t,
    key: DatasetKey,
    info: &DatasetInfo,
) -> Option<Arc<CachedDataset>> {
    let unchanging = Unchanging::of(session, info)?;
    let (number, token) = key;
    // HDF5 is not called with the lock: its driver may be written in Python and read through Penstock.
    let mut chunk_bytes = 0;
    if !files().files.contains_key(&number) {
        chunk_bytes = chunk_cache_bytes_of(session, dataset)?;
        if files().has_many() {
            drop_closed(session);
        }
        // Another file that had this descriptor is closed.
        let descriptor = Some(unchanging.descriptor);
        let gone =
            files().take(|other, file| *other != number && file.info.descriptor == descriptor);
        drop(gone);
    }
    let mut files = files();
    let file = files.files.entry(number);
    let file = file.or_insert_with(|| unchanging.file_entry(chunk_bytes));
    let cached = Arc::new(unchanging.dataset_entry(key, file));
    file.add(token, &cached);
    Some(cached)
}

impl<'a> Unchanging<'a> {
    /// Returns `None` if the dataset may change, has no place in the file, or could not be dropped when
    /// HDF5 closes.
    fn of(session: &Session<'_>, info: &'a DatasetInfo) -> Option<Unchanging<'a>> {
        let descriptor = info.file.descriptor?;
        let unchanged = info.file.unchanged.as_ref();
        let unchanged = unchanged.filter(|unchanged| unchanged.holds())?;
        let identity = identity_of(descriptor)?;
        let has_place = !info.is_null
            && matches!(
                info.layout,
                Layout::Contiguous { offset: Some(_) } | Layout::Chunked { .. }
            );
        // After H5close, other files get the same numbers.
        let forget = [conflicts::forget, files::forget];
        (has_place && drop_at_close(session.hdf5, &forget)).then_some(Unchanging {
            info,
            descriptor,
            identity,
            unchanged,
        })
    }

    /// Returns a new entry of the file, with room for this many bytes of chunks.
    fn file_entry(&self, chunk_bytes: u64) -> OpenFile {
        OpenFile {
            info: Arc::clone(&self.info.file),
            lingers: Lingering::default(),
            chunks: ChunkCache::new(chunk_bytes),
            forgotten: Arc::default(),
            unchanged: Arc::clone(self.unchanged),
            marked: MarkedFile::mark(self.descriptor),
            datasets: HashMap::new(),
            tables: 0,
        }
    }

    /// Returns a new entry of the dataset.
    fn dataset_entry(&self, (number, token): DatasetKey, file: &OpenFile) -> CachedDataset {
        let info = self.info.clone();
        CachedDataset {
            file: number,
            key: ObjectKey {
                file: FileKey {
                    number: Some(number.number),
                    identity: Some(self.identity),
                },
                token,
            },
            chunks: Arc::new(ArrayChunks::new(
                &file.chunks,
                info.chunk_count(),
                info.chunk_bytes(),
            )),
            info,
            forgotten: Arc::clone(&file.forgotten),
            unchanged: Arc::clone(self.unchanged),
            marked: file.marked,
            array: OnceLock::new(),
            left_to_hdf5: AtomicU64::new(0),
            conversions: Mutex::default(),
        }
    }
}
