//! Chunk indexes with an entry for each chunk of the extent, whether it is stored or not.

use penstock_engine::error::Result;
use penstock_sys::hdf5::{H5D_CHUNK_IDX_EARRAY, H5D_CHUNK_IDX_NONE, hid_t};

use crate::library::Session;

/// Number of entries at which HDF5 takes longer to list all chunks than to look up a few.
pub(super) const LARGE: u64 = 1 << 16;

/// Returns the number of chunks of the extent. Saturates.
pub(super) fn chunk_count(shape: &[u64], chunk: &[u64]) -> u64 {
    let sides = shape.iter().zip(chunk);
    sides
        .map(|(side, chunk)| side.div_ceil((*chunk).max(1)))
        .fold(1, u64::saturating_mul)
}

/// Returns whether the index has an entry for each chunk of the extent. Queries only large indexes.
pub(super) fn lists_extent(
    session: &Session<'_>,
    dataset: hid_t,
    (shape, chunk): (&[u64], &[u64]),
) -> Result<bool> {
    if chunk_count(shape, chunk) < LARGE {
        return Ok(false);
    }
    let mut index = 0;
    // SAFETY: takes an identifier, which HDF5 checks; the index type has a place of its type.
    let status = unsafe { (session.hdf5.H5Dget_chunk_index_type)(dataset, &mut index) };
    session.check(status, "get the kind of the chunk index")?;
    Ok((H5D_CHUNK_IDX_NONE..=H5D_CHUNK_IDX_EARRAY).contains(&index))
}
