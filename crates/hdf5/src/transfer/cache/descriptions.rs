//! Descriptions of datasets, from the cache where it has them.

use std::sync::Arc;

use penstock_array::{ChunkTable, StoredArray};
use penstock_engine::error::Result;
use penstock_sys::hdf5::hid_t;

use super::cached_dataset::CachedDataset;
use super::dataset_key::{DatasetKey, key};
use super::eligibility::add_to_cache;
use super::files::{count_table, find, known_file};
use crate::dataset::{Common, DatasetInfo, Layout, read_chunk_table};
use crate::library::Session;
use crate::transfer::hdf5_state::is_writable;

/// The description of a dataset for one transfer.
pub struct TransferDescription {
    /// The description.
    pub info: DatasetInfo,
    /// The cache entry of the dataset, if it cannot change.
    pub(in crate::transfer) cached: Option<Arc<CachedDataset>>,
}

impl From<DatasetInfo> for TransferDescription {
    fn from(info: DatasetInfo) -> TransferDescription {
        TransferDescription { info, cached: None }
    }
}

impl TransferDescription {
    /// Describes a dataset by its cache entry, or else through HDF5.
    pub(in crate::transfer) fn of(
        session: &Session<'_>,
        dataset: hid_t,
    ) -> Result<TransferDescription> {
        let key = key(session, dataset).ok();
        if let Some(cached) = key.and_then(find) {
            let info = cached.info.clone();
            let cached = Some(cached);
            return Ok(TransferDescription { info, cached });
        }
        let info = describe(session, dataset, key)?;
        let cached = key.and_then(|key| add_to_cache(session, dataset, key, &info));
        Ok(TransferDescription { info, cached })
    }
}

impl CachedDataset {
    /// Returns the cache entry of a dataset, which is added if there is none. `None` if the dataset may
    /// change, or cannot be described.
    pub(in crate::transfer) fn of(
        session: &Session<'_>,
        dataset: hid_t,
    ) -> Option<Arc<CachedDataset>> {
        let key = key(session, dataset).ok()?;
        find(key).or_else(|| {
            if known_file(key).is_none() && is_writable(session, dataset)? {
                return None;
            }
            let info = describe(session, dataset, Some(key)).ok()?;
            add_to_cache(session, dataset, key, &info)
        })
    }

    /// As [`of`](Self::of), for a dataset that was described.
    pub(in crate::transfer) fn of_described(
        session: &Session<'_>,
        dataset: hid_t,
        info: &DatasetInfo,
    ) -> Option<Arc<CachedDataset>> {
        let key = key(session, dataset).ok()?;
        find(key).or_else(|| add_to_cache(session, dataset, key, info))
    }

    /// Returns the array, or the reason why only HDF5 can read it. The first call reads the chunk table.
    pub(in crate::transfer) fn array(
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

    /// Lists the chunks if they are not listed yet. `None` if that fails, or if only HDF5 can read the dataset.
    pub(in crate::transfer) fn list_chunks(
        &self,
        session: &Session<'_>,
        dataset: hid_t,
    ) -> Option<()> {
        let found = self.array(session, dataset).ok()?;
        found.ok().map(|_| ())
    }

    pub(in crate::transfer) fn set_table(
        &self,
        table: Arc<ChunkTable>,
    ) -> Result<std::result::Result<&StoredArray, &str>> {
        count_table(self, (table.bytes() + self.chunks.list_bytes()) as u64);
        self.set_array(Some(table))
    }
}

/// Describes a dataset. The description of its file is reused if the file has an entry.
fn describe(session: &Session<'_>, dataset: hid_t, key: Option<DatasetKey>) -> Result<DatasetInfo> {
    let Some(file) = key.and_then(known_file) else {
        return DatasetInfo::read(session, dataset);
    };
    let mut common = Common::of_file(session, dataset, file)?;
    let described = DatasetInfo::read_among(session, dataset, None, &mut common)?;
    Ok(described.0)
}
