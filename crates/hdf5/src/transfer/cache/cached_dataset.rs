//! The cache entry of a dataset that cannot change.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

use penstock_array::{ArrayChunks, ChunkTable, Source, StoredArray};
use penstock_engine::Recover;
use penstock_engine::error::{Error, Result};
use penstock_engine::file::unchanged::Unchanged;
use penstock_sys::hdf5::hid_t;

use super::dataset_key::FileNumber;
use crate::conversion::Conversion;
use crate::dataset::{DatasetInfo, MemoryType, TouchedChunks};
use crate::library::Session;
use crate::transfer::conflicts::ObjectKey;
use crate::transfer::hdf5_state::MarkedFile;

/// The cache entry of a dataset in a file that is open only for reading.
pub(in crate::transfer) struct CachedDataset {
    pub info: DatasetInfo,
    pub(super) file: FileNumber,
    /// Key of the dataset in access sets.
    pub key: ObjectKey,
    /// Decoded chunks of the dataset, in the cache of its file.
    pub chunks: Arc<ArrayChunks>,
    /// Whether the entry of the file was dropped.
    pub(super) forgotten: Arc<AtomicBool>,
    pub(super) unchanged: Arc<Unchanged>,
    pub(super) marked: MarkedFile,
    /// The array, or the reason why only HDF5 can read it.
    pub(super) array: OnceLock<std::result::Result<StoredArray, String>>,
    /// Work of the reads that were left to HDF5 because the chunk table was not known.
    pub(super) left_to_hdf5: AtomicU64,
    /// Conversions to types in memory for which this HDF5 gives the same results as Penstock.
    pub(super) conversions: Mutex<Vec<(MemoryType, Conversion)>>,
}

impl CachedDataset {
    /// Returns whether the dataset may have changed since it was described, or the file is closed.
    pub(in crate::transfer) fn is_forgotten(&self) -> bool {
        self.forgotten.load(Relaxed) || !self.unchanged.holds()
    }

    /// Returns an error if HDF5 has closed the file, even if it is open again.
    pub(in crate::transfer) fn check_open(&self) -> Result<()> {
        if self.marked.is_open() {
            Ok(())
        } else {
            Err(closed().in_file(&self.info.file.name))
        }
    }

    /// Returns whether HDF5 reads the touched chunks faster than it lists a large index that is not known yet.
    /// Counts the request: HDF5 reads until this has taken as long as the listing would.
    pub(in crate::transfer) fn is_for_hdf5(&self, touched: TouchedChunks) -> bool {
        self.array.get().is_none() && is_sooner_by_hdf5(&self.info, touched, &self.left_to_hdf5)
    }

    /// Sets the array, if it is not known yet.
    pub(super) fn set_array(
        &self,
        table: Option<Arc<ChunkTable>>,
    ) -> Result<std::result::Result<&StoredArray, &str>> {
        let array = self.info.array_to_read(table)?;
        let known = self.array.get_or_init(|| array);
        Ok(known.as_ref().map_err(String::as_str))
    }

    pub(in crate::transfer) fn known_table(&self) -> Option<Arc<ChunkTable>> {
        match &self.known_array()?.source {
            Source::Chunks(table) => Some(Arc::clone(table)),
            _ => None,
        }
    }

    /// Returns the array, if it is known.
    pub(in crate::transfer) fn known_array(&self) -> Option<&StoredArray> {
        self.array.get()?.as_ref().ok()
    }

    /// Returns the conversion to a type in memory, or why HDF5 must convert the elements.
    pub(in crate::transfer) fn conversion(
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
}

/// As [`CachedDataset::is_for_hdf5`], for a dataset whose chunk table is not known. `left` counts the work
/// that was left to HDF5, in the unit of [`DatasetInfo::entries_for`].
pub(in crate::transfer) fn is_sooner_by_hdf5(
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

fn closed() -> Error {
    Error::invalid("HDF5 has closed the file of the dataset")
        .remedy("read the dataset while its file is open")
}
