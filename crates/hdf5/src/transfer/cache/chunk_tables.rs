//! Chunk tables of the datasets of one request.

use std::collections::HashMap;
use std::sync::Arc;

use penstock_array::ChunkTable;
use penstock_engine::error::Result;
use penstock_sys::hdf5::hid_t;

use super::dataset_key::{DatasetKey, key};
use super::eligibility::add_to_cache;
use super::files::find;
use crate::dataset::{DatasetInfo, read_chunk_table};
use crate::library::Session;

/// Chunk tables of the datasets of one request. Each table is read once, even if a dataset occurs twice.
#[derive(Default)]
pub(in crate::transfer) struct ChunkTables(HashMap<DatasetKey, Arc<ChunkTable>>);

impl ChunkTables {
    /// Number of chunks at which a table is cached for later requests. Reading it then takes longer than
    /// describing the dataset again.
    const MANY: usize = 64;

    /// Returns whether the chunk table of a dataset need not be read.
    pub(in crate::transfer) fn know(&self, session: &Session<'_>, dataset: hid_t) -> bool {
        let is_known = |key: DatasetKey| {
            let is_cached = || find(key).is_some_and(|cached| cached.known_table().is_some());
            self.0.contains_key(&key) || is_cached()
        };
        key(session, dataset).is_ok_and(is_known)
    }

    /// Returns the chunk table of a dataset that cannot change.
    pub(in crate::transfer) fn of(
        &mut self,
        session: &Session<'_>,
        dataset: hid_t,
        info: &DatasetInfo,
    ) -> Result<Arc<ChunkTable>> {
        let key = key(session, dataset).ok();
        if let Some(known) = key.and_then(|key| self.0.get(&key)) {
            return Ok(Arc::clone(known));
        }
        let cached = key.and_then(find);
        let known = cached.as_ref().and_then(|cached| cached.known_table());
        let table = match known {
            Some(known) => known,
            None => {
                let read = read_chunk_table(session, dataset, info);
                let table = Arc::new(read.map_err(|error| info.name_in(error))?);
                if table.len() >= Self::MANY
                    && let Some(key) = key
                    && let Some(cached) =
                        cached.or_else(|| add_to_cache(session, dataset, key, info))
                {
                    // The caller gets the array, or the reason for HDF5, when it plans a read.
                    _ = cached.set_table(Arc::clone(&table))?;
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
