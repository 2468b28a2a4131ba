//! Describes a dataset for reads and writes without HDF5, by another process or later.

use std::sync::Arc;

use penstock_array::StoredArray;
use penstock_codec::Pipeline;
use penstock_engine::error::Result;
use penstock_sys::hdf5::{Hdf5, hid_t};

use super::outcome::{Planned, Refused};
use crate::dataset::{DatasetInfo, Layout, read_chunk_table};
use crate::library::Session;
use crate::transfer::hdf5_state::inside;

/// Returns where the elements of a dataset lie and how they are stored, or why only HDF5 can read
/// them. The description stays true as long as nothing changes the dataset's storage.
///
/// # Safety
/// This thread may call HDF5.
pub unsafe fn describe(hdf5: &'static Hdf5, dataset: hid_t) -> Result<Planned<StoredArray>> {
    inside(hdf5, || {
        // SAFETY: the caller may call HDF5.
        let session = unsafe { Session::begin(hdf5) };
        let info = DatasetInfo::read(&session, dataset)?;
        let pipeline = Pipeline {
            filters: info.filters.clone(),
        };
        let why = match (&info.layout, pipeline.unknown()) {
            (Layout::Compact, _) => "the dataset is compact".to_owned(),
            (Layout::Virtual(_), _) => "the dataset is virtual".to_owned(),
            (Layout::External(_), _) => "the dataset is in external files".to_owned(),
            (_, Some(filter)) => format!("only HDF5 knows {filter}"),
            _ if info.is_null => "the dataset has no elements".to_owned(),
            (Layout::Chunked { .. }, None) => {
                let table = read_chunk_table(&session, dataset, &info);
                let table = table.map_err(|error| info.name_in(error))?;
                return planned(info.array_to_read(Some(Arc::new(table)))?);
            }
            (Layout::Contiguous { .. }, None) => return planned(info.array_to_read(None)?),
        };
        Ok(Err(Refused(why)))
    })
}

fn planned(found: std::result::Result<StoredArray, String>) -> Result<Planned<StoredArray>> {
    Ok(found.map_err(Refused))
}
