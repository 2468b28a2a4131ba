//! Which datasets may be cached.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};

use penstock_array::{ArrayChunks, ChunkCache};
use penstock_sys::hdf5::hid_t;

use super::cached_dataset::CachedDataset;
use super::dataset_key::DatasetKey;
use super::files::{self, MOST_DATASETS, OpenFile, drop_closed, files};
use crate::dataset::{DatasetInfo, Layout};
use crate::library::Session;
use crate::transfer::conflicts::{self, FileKey, ObjectKey, identity_of};
use crate::transfer::hdf5_state::{MarkedFile, chunk_cache_bytes_of, drop_at_close};

/// Adds a dataset to the cache. Returns `None` if it may change.
pub(super) fn add_to_cache(
    session: &Session<'_>,
    dataset: hid_t,
    (number, token): DatasetKey,
    info: &DatasetInfo,
) -> Option<Arc<CachedDataset>> {
    let file = &info.file;
    let descriptor = file.descriptor?;
    // The file has not changed since before its description was read.
    let unchanged = file
        .unchanged
        .as_ref()
        .filter(|unchanged| unchanged.holds())?;
    let has_place = matches!(
        info.layout,
        Layout::Contiguous { offset: Some(_) } | Layout::Chunked { .. }
    );
    let identity = identity_of(descriptor)?;
    // After H5close, other files get the same numbers.
    if info.is_null
        || !has_place
        || !drop_at_close(session.hdf5, &[conflicts::forget, files::forget])
    {
        return None;
    }
    // HDF5 is not called with the lock: its driver may be written in Python and read through Penstock.
    let is_new = !files().files.contains_key(&number);
    let bytes = if is_new {
        chunk_cache_bytes_of(session, dataset)?
    } else {
        0
    };
    if is_new && files().has_many() {
        drop_closed(session);
    }
    let gone = if is_new {
        files().take(|other, file| *other != number && file.info.descriptor == Some(descriptor))
    } else {
        Vec::new()
    };
    drop(gone);
    let mut files = files();
    let file = files.files.entry(number).or_insert_with(|| OpenFile {
        info: Arc::clone(&info.file),
        lingers: None,
        is_in_use: false,
        chunks: ChunkCache::new(bytes),
        forgotten: Arc::default(),
        unchanged: Arc::clone(unchanged),
        marked: MarkedFile::mark(descriptor),
        datasets: HashMap::new(),
        tables: 0,
    });
    if file.datasets.len() >= MOST_DATASETS {
        file.datasets.clear();
        file.tables = 0;
    }
    let cached = Arc::new(CachedDataset {
        info: info.clone(),
        file: number,
        key: ObjectKey {
            file: FileKey {
                number: Some(number.number),
                identity: Some(identity),
            },
            token,
        },
        chunks: Arc::new(ArrayChunks::new(
            &file.chunks,
            info.chunk_count(),
            info.chunk_bytes(),
        )),
        forgotten: Arc::clone(&file.forgotten),
        unchanged: Arc::clone(unchanged),
        marked: file.marked,
        array: OnceLock::new(),
        left_to_hdf5: AtomicU64::new(0),
        conversions: Mutex::default(),
    });
    file.datasets.insert(token, Arc::clone(&cached));
    Some(cached)
}
