//! Corrects chunk coordinates that HDF5 reports wrongly.
//!
//! An extensible array stores chunks in the order in which the one unlimited dimension is the
//! slowest. `H5Dchunk_iter` (and `H5Dget_chunk_info`, also by coordinates) iterates as if that were
//! the first dimension. Where it is another one, all coordinates but the first few are wrong: in
//! 1.14.4, 1.14.6, 2.0.0 and 2.2.0. HDF5 finds a single stored chunk correctly, so one such read decides
//! whether the coordinates need a correction.

use penstock_array::{StoredChunk, TableBuilder};
use penstock_engine::error::{Error, Kind, Result};
use penstock_sys::hdf5::{H5D_CHUNK_IDX_EARRAY, hid_t};

use super::{DatasetInfo, Layout, damaged, single_chunk};
use crate::library::Session;

/// The entries of an index whose coordinates are in doubt.
pub(crate) struct Swizzle {
    chunk: Vec<u64>,
    /// Number of chunks along each dimension at its maximum extent; meaningless for `unlimited`.
    most: Vec<u64>,
    unlimited: usize,
    /// First elements as reported, concatenated.
    firsts: Vec<u64>,
    stored: Vec<StoredChunk>,
}

impl Swizzle {
    /// Returns `None` if the coordinates are right in every version.
    pub(crate) fn suspected(
        session: &Session<'_>,
        dataset: hid_t,
        info: &DatasetInfo,
    ) -> Result<Option<Swizzle>> {
        let Layout::Chunked { chunk, .. } = &info.layout else {
            return Ok(None);
        };
        let unlimited = info.max_shape.iter().position(Option::is_none);
        let Some(unlimited) = unlimited.filter(|at| *at > 0) else {
            return Ok(None);
        };
        if single_chunk::index_kind(session, dataset)? != H5D_CHUNK_IDX_EARRAY {
            return Ok(None);
        }
        let sizes = info.max_shape.iter().zip(chunk);
        Ok(Some(Swizzle {
            chunk: chunk.clone(),
            most: sizes
                .map(|(size, side)| size.unwrap_or(0).div_ceil(*side))
                .collect(),
            unlimited,
            firsts: Vec::new(),
            stored: Vec::new(),
        }))
    }

    pub(crate) fn add(&mut self, first: &[u64], stored: StoredChunk) -> Result<()> {
        let room = self.firsts.try_reserve(first.len());
        room.and_then(|()| self.stored.try_reserve(1))
            .map_err(|error| {
                let count = self.stored.len();
                let cause = format!("no memory for the table of more than {count} chunks: {error}");
                Error::new(Kind::Memory, cause)
            })?;
        self.firsts.extend_from_slice(first);
        self.stored.push(stored);
        Ok(())
    }

    /// Decides whether the coordinates are right, and passes the entries on with the right ones.
    pub(crate) fn resolve(
        &self,
        session: &Session<'_>,
        dataset: hid_t,
        builder: &mut TableBuilder,
    ) -> Result<()> {
        let most = builder.file_size();
        let firsts = || self.firsts.chunks_exact(self.chunk.len());
        let is_wrong = match firsts().max_by_key(|first| first[self.unlimited]) {
            // A wrong iteration reports 0 along all dimensions before the unlimited one, and
            // reaches too far along the unlimited one.
            Some(far)
                if firsts().all(|first| first[..self.unlimited].iter().all(|at| *at == 0)) =>
            {
                !self.is_allocated(session, dataset, far, most)?
            }
            _ => false,
        };
        if !is_wrong {
            return firsts()
                .zip(&self.stored)
                .try_for_each(|(first, stored)| builder.add(first, *stored));
        }
        for (at, (first, stored)) in firsts().zip(&self.stored).enumerate() {
            // Looking up every chunk would take too long; the last is the one furthest off.
            let is_last = at + 1 == self.stored.len();
            let right = match self.corrected(first) {
                Some(right) if is_last && !self.is_allocated(session, dataset, &right, most)? => {
                    None
                }
                right => right,
            };
            let Some(right) = right else {
                let cause = format!(
                    "HDF5 lists a chunk at element {first:?} in its index but cannot find it"
                );
                return damaged(cause);
            };
            builder.add(&right, *stored)?;
        }
        Ok(())
    }

    /// Returns whether the chunk has an address. Its size does not show that: an unwritten chunk in HDF5's
    /// cache has one, too. So the chunk is read, which also evicts it from the cache. No chunk has more than
    /// `most` bytes.
    fn is_allocated(
        &self,
        session: &Session<'_>,
        dataset: hid_t,
        first: &[u64],
        most: u64,
    ) -> Result<bool> {
        let is_sized = single_chunk::stored_size(session, dataset, first).is_some();
        if is_sized && single_chunk::read_stored(session, dataset, first, (0, most))?.is_some() {
            return Ok(true);
        }
        // After a failed system call the place of the chunk is unknown.
        let error = session.failed("look at a chunk");
        if error.os_errno() == 0 {
            Ok(false)
        } else {
            Err(error)
        }
    }

    /// Returns the first element of the chunk that the iteration reported at `reported`: its place in
    /// the array, decoded with the unlimited dimension as the slowest.
    fn corrected(&self, reported: &[u64]) -> Option<Vec<u64>> {
        let mut place = 0u64;
        for ((at, side), most) in reported
            .iter()
            .zip(&self.chunk)
            .zip(&self.most)
            .skip(self.unlimited)
        {
            let most = if place == 0 { 1 } else { *most };
            place = place.checked_mul(most)?.checked_add(at / side)?;
        }
        let mut right = vec![0; reported.len()];
        for at in (0..reported.len()).rev().filter(|at| *at != self.unlimited) {
            right[at] = place.checked_rem(self.most[at])? * self.chunk[at];
            place /= self.most[at];
        }
        right[self.unlimited] = place.checked_mul(self.chunk[self.unlimited])?;
        Some(right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_the_array_gets_the_coordinates_it_has_there() {
        // 3 x unlimited x 2 chunks of 4 x 5 x 6.
        let swizzle = Swizzle {
            chunk: vec![4, 5, 6],
            most: vec![3, 0, 2],
            unlimited: 1,
            firsts: Vec::new(),
            stored: Vec::new(),
        };
        let mut place = 0;
        for along in 0..4 {
            for outer in 0..3 {
                for inner in 0..2 {
                    let reported = [0, place / 2 * 5, place % 2 * 6];
                    let right = vec![outer * 4, along * 5, inner * 6];
                    assert_eq!(swizzle.corrected(&reported), Some(right), "{place}");
                    place += 1;
                }
            }
        }
    }
}
