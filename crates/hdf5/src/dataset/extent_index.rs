//! Chunk indexes with an entry for each chunk of the extent, whether it is stored or not.

use penstock_engine::error::Result;
use penstock_sys::hdf5::{H5D_CHUNK_IDX_EARRAY, H5D_CHUNK_IDX_NONE, hid_t};

use super::single_chunk;
use crate::library::Session;

/// Number of entries at which HDF5 takes longer to list all chunks than to look up a few.
pub(super) const LARGE: u64 = 1 << 16;

/// Returns whether the index is large and has an entry for each chunk of the extent.
pub(super) fn lists_extent(
    session: &Session<'_>,
    dataset: hid_t,
    (shape, chunk): (&[u64], &[u64]),
) -> Result<bool> {
    let arrays = H5D_CHUNK_IDX_NONE..=H5D_CHUNK_IDX_EARRAY;
    Ok(chunk_count(shape, chunk) >= LARGE
        && arrays.contains(&single_chunk::index_kind(session, dataset)?))
}

/// Returns the number of chunks of the extent, whether they have storage or not. Saturates.
pub(super) fn chunk_count(shape: &[u64], chunk: &[u64]) -> u64 {
    let sides = shape.iter().zip(chunk);
    sides
        .map(|(side, chunk)| side.div_ceil((*chunk).max(1)))
        .fold(1, u64::saturating_mul)
}
