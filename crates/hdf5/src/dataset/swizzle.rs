//! Corrects chunk coordinates that HDF5 reports wrongly.
//!
//! An extensible array stores chunks in the order in which the one unlimited dimension is the
//! slowest. `H5Dchunk_iter` (and `H5Dget_chunk_info`, also by coordinates) iterates as if that were
//! the first dimension. Where it is another one, all coordinates but the first few are wrong: in
//! 1.14.4, 1.14.6, 2.0.0 and 2.2.0. Reading a single stored chunk is right, so one such read
//! decides whether the iteration is correct; a version of HDF5 without this defect is believed.

use std::ffi::c_int;

use penstock_engine::error::{Error, Kind, Result};
use penstock_sys::hdf5::{H5D_CHUNK_IDX_EARRAY, H5P_DEFAULT, hid_t};

use crate::dataset::{DatasetInfo, Layout};
use crate::library::Session;
use penstock_array::{StoredChunk, TableBuilder};

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
        let mut index = 0;
        // SAFETY: the index type has a place of its type.
        let status = unsafe { (session.hdf5.H5Dget_chunk_index_type)(dataset, &mut index) };
        session.check(status, "get the kind of the chunk index")?;
        if index != H5D_CHUNK_IDX_EARRAY {
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
        let room = self
            .firsts
            .try_reserve(first.len())
            .and_then(|()| self.stored.try_reserve(1));
        room.map_err(|error| {
            Error::new(
                Kind::Memory,
                format!(
                    "no memory for the table of more than {} chunks: {error}",
                    self.stored.len()
                ),
            )
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
                return Err(Error::new(
                    Kind::Io,
                    format!(
                        "HDF5 lists a chunk at element {first:?} in its index but cannot find it"
                    ),
                ));
            };
            builder.add(&right, *stored)?;
        }
        Ok(())
    }

    /// Returns whether the chunk has an address. Its size alone does not tell, because an unwritten
    /// chunk in HDF5's cache has one, too. So the chunk is read, which also evicts it from the
    /// cache. No chunk has more than `most` bytes.
    fn is_allocated(
        &self,
        session: &Session<'_>,
        dataset: hid_t,
        first: &[u64],
        most: u64,
    ) -> Result<bool> {
        let hdf5 = session.hdf5;
        let (mut size, mut mask) = (0, 0);
        // SAFETY: there are as many offsets as dimensions, and a place for the size.
        let status =
            unsafe { (hdf5.H5Dget_chunk_storage_size)(dataset, first.as_ptr(), &mut size) };
        if status < 0 || size > most {
            return absent(session, status);
        }
        let mut bytes: Vec<u8> = Vec::new();
        if bytes.try_reserve_exact(size as usize).is_err() {
            let cause = format!("no memory for a chunk of {size} bytes");
            return Err(Error::new(Kind::Memory, cause));
        }
        // SAFETY: the buffer has the size that HDF5 has just reported.
        let status = unsafe {
            (hdf5.H5Dread_chunk)(
                dataset,
                H5P_DEFAULT,
                first.as_ptr(),
                &mut mask,
                bytes.as_mut_ptr().cast(),
            )
        };
        match status < 0 {
            true => absent(session, status),
            false => Ok(true),
        }
    }

    /// Returns the first element of the chunk that the iteration reported at `told`: its place in
    /// the array, decoded with the unlimited dimension as the slowest.
    fn corrected(&self, told: &[u64]) -> Option<Vec<u64>> {
        let mut place = 0u64;
        for ((at, side), most) in told
            .iter()
            .zip(&self.chunk)
            .zip(&self.most)
            .skip(self.unlimited)
        {
            let most = if place == 0 { 1 } else { *most };
            place = place.checked_mul(most)?.checked_add(at / side)?;
        }
        let mut right = vec![0; told.len()];
        for at in (0..told.len()).rev().filter(|at| *at != self.unlimited) {
            right[at] = place.checked_rem(self.most[at])? * self.chunk[at];
            place /= self.most[at];
        }
        right[self.unlimited] = place.checked_mul(self.chunk[self.unlimited])?;
        Some(right)
    }
}

/// Returns that a chunk is absent, or an error if a system call failed, which says nothing about
/// the chunk's place.
fn absent(session: &Session<'_>, status: c_int) -> Result<bool> {
    match session.check(status, "look at a chunk") {
        Err(error) if error.os_errno() != 0 => Err(error),
        _ => Ok(false),
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
                    let told = [0, place / 2 * 5, place % 2 * 6];
                    let right = vec![outer * 4, along * 5, inner * 6];
                    assert_eq!(swizzle.corrected(&told), Some(right), "{place}");
                    place += 1;
                }
            }
        }
    }
}
