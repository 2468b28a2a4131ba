//! Describes a dataset for reads and writes without HDF5, by another process or later.

use penstock_array::StoredArray;
use penstock_engine::error::Result;
use penstock_sys::hdf5::{Hdf5, hid_t};

use super::outcome::{Planned, Refused};
use crate::dataset::DatasetInfo;
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
        let elsewhere = info.layout.elsewhere().map(str::to_owned);
        let why = elsewhere.or_else(|| info.only_hdf5_filters());
        let empty = info
            .is_null
            .then(|| "the dataset has no elements".to_owned());
        if let Some(why) = why.or(empty) {
            return Ok(Err(Refused(why)));
        }
        let array = info.array_to_read(info.table(&session, dataset)?)?;
        Ok(array.map_err(Refused))
    })
}
