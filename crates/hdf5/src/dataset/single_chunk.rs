//! Queries of a single chunk, by its first element, and of the kind of the index.

use std::ffi::c_int;

use penstock_array::execute::zeroed;
use penstock_engine::error::{Error, Kind, Result};
use penstock_sys::hdf5::{H5P_DEFAULT, HADDR_UNDEF, hid_t};

use super::file_info::FileInfo;
use crate::library::Session;

pub(crate) fn index_kind(session: &Session<'_>, dataset: hid_t) -> Result<c_int> {
    let mut kind = 0;
    // SAFETY: HDF5 checks the identifier; the kind has a place of its type.
    let status = unsafe { (session.hdf5.H5Dget_chunk_index_type)(dataset, &mut kind) };
    session.check(status, "get the kind of the chunk index")?;
    Ok(kind)
}

/// Returns the filter mask, the offset in the file and the size of a chunk according to the index. HDF5
/// first writes the changed chunks of its cache. `None` if it fails.
pub(crate) fn in_index(
    session: &Session<'_>,
    dataset: hid_t,
    file: &FileInfo,
    first: &[u64],
) -> Option<(u32, u64, u64)> {
    let (mut mask, mut address, mut size) = (0, HADDR_UNDEF, 0);
    let get = session.hdf5.H5Dget_chunk_info_by_coord;
    // SAFETY: there are as many offsets as dimensions, and places of their types for the results.
    let status = unsafe { get(dataset, first.as_ptr(), &mut mask, &mut address, &mut size) };
    (status >= 0).then(|| (mask, file.chunk_offset(session.hdf5, address), size))
}

/// Returns the stored size of a chunk, also of one that is only in HDF5's cache; `None` if HDF5 fails.
pub(crate) fn stored_size(session: &Session<'_>, dataset: hid_t, first: &[u64]) -> Option<u64> {
    let mut size = 0;
    let get = session.hdf5.H5Dget_chunk_storage_size;
    // SAFETY: there are as many offsets as dimensions, and a place for the size.
    let status = unsafe { get(dataset, first.as_ptr(), &mut size) };
    (status >= 0).then_some(size)
}

/// Reads a chunk as it is stored, which evicts it from HDF5's chunk cache. Returns its filter mask and
/// bytes; `None` if HDF5 fails, or if the index has a forged size of more than `most` bytes. HDF5 gets
/// memory for at least `least` bytes.
///
/// # Errors
/// There is no memory for the bytes, so nothing is evicted.
pub(crate) fn read_stored(
    session: &Session<'_>,
    dataset: hid_t,
    first: &[u64],
    (least, most): (u64, u64),
) -> Result<Option<(u32, Vec<u8>)>> {
    // A chunk without a size has no address: HDF5 evicts it and reads nothing.
    let stored = stored_size(session, dataset, first).unwrap_or(0);
    if stored > most {
        return Ok(None);
    }
    let size = usize::try_from(stored.max(least)).unwrap_or(usize::MAX);
    let mut bytes = zeroed(size).ok_or_else(|| {
        let cause = format!("no memory for the {size} bytes of the chunk at {first:?}");
        Error::new(Kind::Memory, cause)
    })?;
    let (mut mask, read) = (0, session.hdf5.H5Dread_chunk);
    let place = bytes.as_mut_ptr().cast();
    // SAFETY: the buffer has at least the size that HDF5 has just reported.
    let status = unsafe { read(dataset, H5P_DEFAULT, first.as_ptr(), &mut mask, place) };
    bytes.truncate(stored as usize);
    Ok((status >= 0).then_some((mask, bytes)))
}
