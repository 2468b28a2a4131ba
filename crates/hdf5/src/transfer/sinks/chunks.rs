//! Passes encoded chunks to HDF5.

use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;

use penstock_array::execute::{ChunkSink, ChunkStep, EncodedChunk, zeroed};
use penstock_engine::error::{Error, Kind, Result};
use penstock_sys::hdf5::{H5D_CHUNK_IDX_EARRAY, H5P_DEFAULT, HADDR_UNDEF, herr_t};

use super::written_dataset::WrittenDataset;
use crate::dataset::{DatasetInfo, FileInfo, single_chunk};
use crate::library::Session;

/// A dataset whose chunks HDF5 writes.
pub(in crate::transfer) struct ChunkWriter(pub WrittenDataset);

impl ChunkSink for ChunkWriter {
    fn step(&self) -> Box<dyn ChunkStep + '_> {
        Box::new(Step {
            dataset: &self.0,
            // SAFETY: the submitter guarantees that HDF5 may be called on the thread of the step.
            session: unsafe { self.0.session() },
            before: None,
            last: None,
        })
    }

    fn may_finish(&self) -> bool {
        self.0.may_finish()
    }

    fn finish(&self) -> Result<()> {
        self.0.finish_in_step()
    }
}

struct Step<'a> {
    dataset: &'a WrittenDataset,
    session: Session<'static>,
    before: Option<Vec<u64>>,
    last: Option<Vec<u64>>,
}

impl ChunkStep for Step<'_> {
    fn write(&mut self, chunk: EncodedChunk<'_>) -> Result<()> {
        let chunks = StoredChunks::of(self.dataset, &self.session);
        chunks.write(&chunk, self.last.as_deref())?;
        self.before = self.last.replace(chunk.first);
        Ok(())
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        if let (Some(last), false) = (&self.last, self.dataset.info.filters.is_empty()) {
            let chunks = StoredChunks::of(self.dataset, &self.session);
            // An error only means that the lookup is not evicted.
            let _ = chunks.evict_lookup(last, self.before.as_deref());
        }
    }
}

/// The chunks of a dataset as HDF5 stores them.
pub(in crate::transfer) struct StoredChunks<'a> {
    session: &'a Session<'static>,
    dataset: &'a WrittenDataset,
    info: &'a DatasetInfo,
}

impl<'a> StoredChunks<'a> {
    pub(in crate::transfer) fn of(
        dataset: &'a WrittenDataset,
        session: &'a Session<'static>,
    ) -> StoredChunks<'a> {
        StoredChunks {
            session,
            dataset,
            info: &dataset.info,
        }
    }

    /// Writes an encoded chunk through HDF5. `before` is the chunk that was written just before.
    ///
    /// HDF5 (1.14.4, 2.0.0, 2.2.0) writes the filter mask into the index only if the length of the
    /// chunk changes. A chunk that keeps its length, but not its mask, is therefore written with
    /// another length first. If storage is allocated late, the first write to the dataset allocates
    /// all chunks before it writes its own: a new chunk can have the length and another mask then.
    fn write(&self, chunk: &EncodedChunk<'_>, before: Option<&[u64]>) -> Result<()> {
        let EncodedChunk { first, mask, bytes } = chunk;
        let stored = self.stored_size(first).unwrap_or(0);
        let may_be_first = stored == 0
            && self.info.filters.iter().any(|filter| filter.optional)
            && before.is_none();
        if may_be_first {
            self.write_stored(first, *mask, bytes)?;
        } else if stored != bytes.len() as u64 || self.info.filters.is_empty() {
            return self.write_stored(first, *mask, bytes);
        }
        let old = self.indexed(first, before)?;
        match &old {
            Some((old, _)) if old == mask && may_be_first => return Ok(()),
            Some((old, _)) if old == mask => return self.write_stored(first, *mask, bytes),
            _ => {}
        }
        let other: &[u8] = if bytes.len() == 1 { &[0; 2] } else { &[0] };
        self.write_stored(first, *mask, other)?;
        if let Err(error) = self.write_stored(first, *mask, bytes) {
            let is_back = old.is_some_and(|(mask, old)| self.store(first, mask, &old) >= 0);
            let remedy =
                "write all elements of this chunk again: those that were stored before are lost";
            return Err(if is_back { error } else { error.remedy(remedy) });
        }
        let written = self.indexed(first, before)?;
        if written.is_some_and(|(written, _)| written == *mask) {
            return Ok(());
        }
        let text = format!("HDF5 did not record the filter mask of the chunk at {first:?}");
        let remedy = "write the elements of this chunk to a new dataset";
        let error = Error::new(Kind::Io, text).remedy(remedy);
        Err(self.dataset.named(error))
    }

    /// Returns the filter mask of a chunk in the index, and the stored bytes.
    ///
    /// HDF5's cached lookup may have the mask of the last write instead, so it is evicted first. The
    /// caller has queried the stored size, which makes HDF5 write a changed chunk of its chunk cache.
    fn indexed(&self, first: &[u64], before: Option<&[u64]>) -> Result<Option<(u32, Vec<u8>)>> {
        self.evict_lookup(first, before)?;
        self.read_stored(first)
    }

    fn write_stored(&self, first: &[u64], mask: u32, bytes: &[u8]) -> Result<()> {
        if self.store(first, mask, bytes) < 0 {
            let error = self.dataset.named(
                self.session
                    .failed(&format!("write the chunk at {first:?}")),
            );
            self.put_back(first, bytes.len() as u64);
            return Err(error);
        }
        if !self.is_lost(first) {
            return Ok(());
        }
        let error = Error::new(
            Kind::Io,
            format!(
                "HDF5 wrote the chunk at {first:?} but did not record it in the file, as happens after \
                 a write that failed: the data are lost"
            ),
        );
        let remedy = "close the dataset wherever it is open, open it again, and write it again";
        Err(self.dataset.named(error.remedy(remedy)))
    }

    /// Returns whether HDF5 has written a dataset's only chunk to storage that the index lacks.
    ///
    /// HDF5 (2.0.0) caches the address of a chunk before it writes it. If that fails, the next write
    /// goes there and succeeds, but the index of a single chunk never gets the address. No lookup
    /// evicts it, because there is no other chunk.
    fn is_lost(&self, first: &[u64]) -> bool {
        let mut sides = self.info.shape.iter().zip(self.info.chunk());
        sides.all(|(size, side)| size <= side)
            && matches!(self.stored_at(first), Some((_, HADDR_UNDEF, _)))
    }

    fn stored_at(&self, first: &[u64]) -> Option<(u32, u64, u64)> {
        single_chunk::in_index(self.session, self.dataset.dataset, &self.info.file, first)
    }

    fn store(&self, first: &[u64], mask: u32, bytes: &[u8]) -> herr_t {
        // SAFETY: HDF5 checks the identifier; there are as many offsets as dimensions, and the size
        // is that of the bytes.
        unsafe {
            (self.session.hdf5.H5Dwrite_chunk)(
                self.dataset.dataset,
                H5P_DEFAULT,
                mask,
                first.as_ptr(),
                bytes.len(),
                bytes.as_ptr().cast(),
            )
        }
    }

    /// Restores a chunk after `length` bytes of it could not be written.
    ///
    /// HDF5 (1.14.4, 2.0.0, 2.2.0) caches storage for these bytes that the index does not have. If
    /// the chunk had storage of another length, that storage is free but still in the index: other
    /// data would be placed in it, and be lost when the chunk is written again. So the old contents
    /// are written once more, to storage that the index then has. If that is impossible, HDF5's
    /// cached lookup is evicted.
    fn put_back(&self, first: &[u64], length: u64) {
        let stored = self.stored_at(first);
        let freed = stored.filter(|(_, address, size)| {
            !self.info.filters.is_empty()
                && *address != HADDR_UNDEF
                && *size != length
                && self.stored_size(first) == Some(length)
        });
        if let Some((mask, address, size)) = freed
            && !self.may_confuse_chunks()
            && let Some(bytes) = self.bytes_at(address, size)
        {
            // A failure leaves the chunk as it is.
            self.store(first, mask, &bytes);
        }
        // The caller returns an error already. An error here only means that the lookup is not evicted.
        let _ = self.evict_lookup(first, None);
    }

    /// Returns whether HDF5 may confuse chunks when it looks them up by coordinates: see
    /// `dataset::swizzle`.
    pub(in crate::transfer) fn may_confuse_chunks(&self) -> bool {
        let unlimited = self.info.max_shape.iter().position(Option::is_none);
        single_chunk::index_kind(self.session, self.dataset.dataset).map_or(true, |kind| {
            kind == H5D_CHUNK_IDX_EARRAY && unlimited > Some(0)
        })
    }

    /// Returns bytes of the file as they are stored.
    fn bytes_at(&self, address: u64, size: u64) -> Option<Vec<u8>> {
        // A forged size in the index must not exhaust memory.
        if size > most_stored(self.decoded_size()) {
            return None;
        }
        let descriptor = FileInfo::of(self.session, self.dataset.dataset)
            .ok()?
            .descriptor?;
        // SAFETY: HDF5 keeps the descriptor open throughout the session, and closes it itself.
        let file = ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(descriptor) });
        let mut bytes = zeroed(usize::try_from(size).ok()?)?;
        file.read_exact_at(&mut bytes, address).ok()?;
        Some(bytes)
    }

    /// Evicts HDF5's cached lookup of the chunk at `last`.
    ///
    /// HDF5 caches one lookup. After a write it still has the old filter mask (2.0.0), and after a failed
    /// write an address that the index lacks (1.14.4, 2.2.0). The lookup of another chunk replaces it, unless
    /// that chunk is in the chunk cache. Neither the chunk written just `before` nor one that does not exist
    /// is in the chunk cache.
    fn evict_lookup(&self, last: &[u64], before: Option<&[u64]>) -> Result<()> {
        if let Some(before) = before {
            self.stored_size(before);
            return Ok(());
        }
        let sides = || self.info.shape.iter().zip(self.info.chunk());
        let mut other = last.to_vec();
        // The first chunk past the end of a dimension that can still grow does not exist.
        let ends = sides().map(|(size, side)| size.div_ceil(*side).saturating_mul(*side));
        let grows = self.info.max_shape.iter().zip(ends).enumerate();
        let free = |(_, (most, end)): &(usize, (&Option<u64>, u64))| most.is_none_or(|m| m > *end);
        if let Some((at, (_, end))) = grows.into_iter().find(free) {
            other[at] = end;
            self.stored_size(&other);
            return Ok(());
        }
        match sides().position(|(size, side)| size > side) {
            // The index is that of a single chunk, or a tree.
            None => {
                if let (Some(at), Some(side)) = (other.first_mut(), self.info.chunk().first()) {
                    *at += side;
                }
                self.stored_size(&other);
            }
            Some(at) => {
                other[at] = if last[at] == 0 {
                    self.info.chunk()[at]
                } else {
                    0
                };
                self.read_stored(&other)?;
            }
        }
        Ok(())
    }

    fn stored_size(&self, first: &[u64]) -> Option<u64> {
        single_chunk::stored_size(self.session, self.dataset.dataset, first)
    }

    /// Reads a chunk as it is stored, which evicts it from the chunk cache. Returns its filter mask and bytes.
    ///
    /// # Errors
    /// There is no memory for the bytes, so nothing is evicted.
    pub(in crate::transfer) fn read_stored(&self, first: &[u64]) -> Result<Option<(u32, Vec<u8>)>> {
        let decoded = self.decoded_size();
        let sizes = (decoded, most_stored(decoded));
        single_chunk::read_stored(self.session, self.dataset.dataset, first, sizes)
            .map_err(|e| self.dataset.named(e))
    }

    fn decoded_size(&self) -> u64 {
        self.info.chunk().iter().product::<u64>() * self.info.element.size().0
    }
}

/// Returns the largest plausible stored size of a chunk of `decoded` bytes.
fn most_stored(decoded: u64) -> u64 {
    decoded.saturating_mul(2).saturating_add(1 << 16)
}
