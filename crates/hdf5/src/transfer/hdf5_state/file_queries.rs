//! Queries of HDF5 about its open files.

use std::collections::HashSet;

use penstock_engine::chunk_cache_bytes;
use penstock_engine::error::Result;
use penstock_sys::hdf5::{H5F_ACC_RDWR, H5F_OBJ_FILE, hid_t};

use crate::library::Session;

/// Returns whether the file of a dataset is open for writing, without describing it.
pub(in crate::transfer) fn is_writable(session: &Session<'_>, dataset: hid_t) -> Option<bool> {
    let file = session.file_of(dataset).ok()?;
    Some(session.intent_of(&file).ok()? & H5F_ACC_RDWR != 0)
}

/// Returns the size of the cache of decoded chunks of a file: that of any file or, if this is more, that
/// of HDF5's own cache. It is 0 if Penstock's cache is turned off.
pub(in crate::transfer) fn chunk_cache_bytes_of(
    session: &Session<'_>,
    dataset: hid_t,
) -> Option<u64> {
    let own = chunk_cache_bytes().ok()?;
    if own == 0 {
        return Some(0);
    }
    let access = session
        .access_of_file(&session.file_of(dataset).ok()?)
        .ok()?;
    let (mut unused, mut slots, mut bytes, mut preemption) = (0, 0, 0usize, 0.0);
    let (list, get) = (access.get(), session.hdf5.H5Pget_cache);
    // SAFETY: an owned identifier, and places for the results.
    let status = unsafe { get(list, &mut unused, &mut slots, &mut bytes, &mut preemption) };
    (status >= 0).then_some(own.max(bytes as u64))
}

/// Returns how many bytes of decoded chunks HDF5 caches for a dataset; more than 0 without chunks.
pub(in crate::transfer) fn chunk_cache_of(session: &Session<'_>, dataset: hid_t) -> Result<u64> {
    let list = session.access_of_dataset(dataset)?;
    let (mut slots, mut bytes, mut weight) = (0, 0, 0.0);
    let get = session.hdf5.H5Pget_chunk_cache;
    // SAFETY: an owned identifier; the results have places of their types.
    let status = unsafe { get(list.get(), &mut slots, &mut bytes, &mut weight) };
    session.check(status, "get the size of the chunk cache")?;
    Ok(bytes as u64)
}

/// Returns the numbers of the files that HDF5 has open; `None` if it does not report them.
pub(in crate::transfer) fn open_file_numbers(session: &Session<'_>) -> Option<HashSet<u64>> {
    let numbers = session
        .open_ids(H5F_OBJ_FILE)?
        .into_iter()
        .map(|id| session.object(id));
    numbers
        .map(|found| found.ok().map(|(number, _)| number))
        .collect()
}
