//! Encoded chunks handed to HDF5.

use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;

use penstock_array::execute::{ChunkSink, ChunkStep, EncodedChunk};
use penstock_engine::error::Result;
use penstock_sys::hdf5::{H5D_CHUNK_IDX_EARRAY, H5P_DEFAULT, HADDR_UNDEF, herr_t};

use super::written::WrittenDataset;
use crate::dataset::FileInfo;
use crate::library::Session;

/// The chunks of a dataset, written by HDF5.
pub(super) struct ChunkWriter(pub WrittenDataset);

impl ChunkSink for ChunkWriter {
    fn step(&self) -> Box<dyn ChunkStep + '_> {
        Box::new(Step {
            dataset: &self.0,
            // SAFETY: whoever takes the step may call HDF5, as the submitter has promised.
            session: unsafe { self.0.session() },
            before: None,
            last: None,
        })
    }

    fn finish(&self) -> Result<()> {
        // SAFETY: as above.
        let session = unsafe { self.0.session() };
        self.0.make_durable(&session)
    }
}

struct Step<'a> {
    dataset: &'a WrittenDataset,
    session: Session<'static>,
    /// The chunks that were written last.
    before: Option<Vec<u64>>,
    last: Option<Vec<u64>>,
}

impl ChunkStep for Step<'_> {
    fn write(&mut self, chunk: EncodedChunk<'_>) -> Result<()> {
        let EncodedChunk { first, mask, bytes } = chunk;
        self.dataset
            .write_chunk(&self.session, &first, mask, bytes)?;
        self.before = self.last.replace(first);
        Ok(())
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        if let (Some(last), true) = (&self.last, self.dataset.has_filters) {
            let before = self.before.as_deref();
            self.dataset.evict_lookup(&self.session, last, before);
        }
    }
}

impl WrittenDataset {
    /// Hands an encoded chunk to HDF5.
    ///
    /// HDF5 (1.14.4, 2.2.0) writes the filter mask into the index only if the size of the chunk changes.
    /// Where the old one, of the same size, could have another mask, the size is changed twice.
    pub(super) fn write_chunk(
        &self,
        session: &Session<'_>,
        first: &[u64],
        mask: u32,
        bytes: &[u8],
    ) -> Result<()> {
        let decoded = self.chunk.iter().product::<u64>() * self.element;
        let length = bytes.len() as u64;
        let may_differ = self.has_filters && (mask != 0 || length == decoded);
        if may_differ && self.stored_size(session, first) == Some(length) {
            let other = bytes.split_last().map_or(bytes, |(_, shorter)| shorter);
            let other = if other.is_empty() { &[0; 2] } else { other };
            self.write_stored(session, first, mask, other)?;
        }
        self.write_stored(session, first, mask, bytes)
    }

    fn write_stored(
        &self,
        session: &Session<'_>,
        first: &[u64],
        mask: u32,
        bytes: &[u8],
    ) -> Result<()> {
        if self.store(session, first, mask, bytes) < 0 {
            let error = self.named(session.failed(&format!("write the chunk at {first:?}")));
            self.put_back(session, first, bytes.len() as u64);
            return Err(error);
        }
        Ok(())
    }

    /// What `H5Dwrite_chunk` answers.
    fn store(&self, session: &Session<'_>, first: &[u64], mask: u32, bytes: &[u8]) -> herr_t {
        // SAFETY: HDF5 checks the identifier; there are as many offsets as dimensions, and as many
        // bytes as is said.
        unsafe {
            (session.hdf5.H5Dwrite_chunk)(
                self.dataset,
                H5P_DEFAULT,
                mask,
                first.as_ptr(),
                bytes.len(),
                bytes.as_ptr().cast(),
            )
        }
    }

    /// After so many bytes of a chunk could not be written.
    ///
    /// HDF5 (1.14.4, 2.0.0, 2.2.0) remembers storage for them that the index does not have. Where the chunk
    /// had storage of another length, that is free, and still in the index: others would get it, and lose
    /// it when the chunk is written again. So what was there is written once more, to storage that the
    /// index then has. Where that is impossible, HDF5 is made to forget what it remembers.
    fn put_back(&self, session: &Session<'_>, first: &[u64], length: u64) {
        let (mut mask, mut address, mut size) = (0, HADDR_UNDEF, 0);
        // SAFETY: there are as many offsets as dimensions, and places of their types for the answers.
        let status = unsafe {
            (session.hdf5.H5Dget_chunk_info_by_coord)(
                self.dataset,
                first.as_ptr(),
                &mut mask,
                &mut address,
                &mut size,
            )
        };
        let is_freed = self.has_filters
            && status >= 0
            && address != HADDR_UNDEF
            && size != length
            && self.stored_size(session, first) == Some(length);
        if is_freed
            && !self.may_be_told_wrongly(session)
            && let Some(bytes) = self.bytes_at(session, address, size)
        {
            // A failure leaves things as they are.
            self.store(session, first, mask, &bytes);
        }
        self.evict_lookup(session, first, None);
    }

    /// Whether HDF5 may take other chunks for those at coordinates: see `dataset::swizzle`.
    fn may_be_told_wrongly(&self, session: &Session<'_>) -> bool {
        let mut index = 0;
        // SAFETY: the kind of the index has a place of its type.
        let status = unsafe { (session.hdf5.H5Dget_chunk_index_type)(self.dataset, &mut index) };
        let unlimited = self.max_shape.iter().position(Option::is_none);
        status < 0 || (index == H5D_CHUNK_IDX_EARRAY && unlimited.is_some_and(|at| at > 0))
    }

    /// Bytes of the file, as they are there.
    fn bytes_at(&self, session: &Session<'_>, address: u64, size: u64) -> Option<Vec<u8>> {
        let decoded = self.chunk.iter().product::<u64>() * self.element;
        // What an index claims to store is no reason to run out of memory.
        if size > most_stored(decoded) {
            return None;
        }
        let descriptor = FileInfo::of(session, self.dataset).ok()?.descriptor?;
        // SAFETY: HDF5 has the descriptor open throughout the session, and closes it.
        let file = ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(descriptor) });
        let mut bytes = vec![0u8; size as usize];
        file.read_exact_at(&mut bytes, address).ok()?;
        Some(bytes)
    }

    /// Makes HDF5 look the chunk at `last`, which was written last, up again when it needs it: the one
    /// lookup that it remembers keeps the filter mask from before the write (seen in 2.0.0), and after
    /// one that failed an address that the index lacks (seen in 1.14.4 and 2.2.0). The
    /// lookup of another chunk takes its place, if that is not found in the chunk cache: not one that
    /// was written just `before`, nor one that is not there.
    pub(super) fn evict_lookup(&self, session: &Session<'_>, last: &[u64], before: Option<&[u64]>) {
        if let Some(before) = before {
            self.stored_size(session, before);
            return;
        }
        let sides = || self.shape.iter().zip(&self.chunk);
        let mut other = last.to_vec();
        // Behind the dataset, where it can still grow.
        let ends = sides().map(|(size, side)| size.div_ceil(*side).saturating_mul(*side));
        let grows = self.max_shape.iter().zip(ends).enumerate();
        let free = |(_, (most, end)): &(usize, (&Option<u64>, u64))| most.is_none_or(|m| m > *end);
        if let Some((at, (_, end))) = grows.into_iter().find(free) {
            other[at] = end;
            self.stored_size(session, &other);
            return;
        }
        match sides().position(|(size, side)| size > side) {
            // The index is that of a single chunk, or a tree.
            None => {
                if let (Some(at), Some(side)) = (other.first_mut(), self.chunk.first()) {
                    *at += side;
                }
                self.stored_size(session, &other);
            }
            Some(at) => {
                other[at] = if last[at] == 0 { self.chunk[at] } else { 0 };
                self.read_stored(session, &other);
            }
        }
    }

    fn stored_size(&self, session: &Session<'_>, first: &[u64]) -> Option<u64> {
        let mut size = 0;
        // SAFETY: there are as many offsets as dimensions, and a place for the size.
        let status = unsafe {
            (session.hdf5.H5Dget_chunk_storage_size)(self.dataset, first.as_ptr(), &mut size)
        };
        (status >= 0).then_some(size)
    }

    /// Reads a chunk as it is stored, which puts it out of the chunk cache.
    fn read_stored(&self, session: &Session<'_>, first: &[u64]) {
        let decoded = self.chunk.iter().product::<u64>() * self.element;
        // Where no size is told there is no address, and nothing is read.
        let size = self.stored_size(session, first).unwrap_or(0);
        // What an index claims to store is no reason to run out of memory.
        if size > most_stored(decoded) {
            return;
        }
        let size = size.max(decoded);
        let (mut bytes, mut mask) = (vec![0u8; size as usize], 0);
        // SAFETY: there is room for the bytes, as many as HDF5 has just said.
        unsafe {
            (session.hdf5.H5Dread_chunk)(
                self.dataset,
                H5P_DEFAULT,
                first.as_ptr(),
                &mut mask,
                bytes.as_mut_ptr().cast(),
            )
        };
    }
}

/// Bytes that a chunk of so many has at most in the file.
fn most_stored(decoded: u64) -> u64 {
    decoded.saturating_mul(2).saturating_add(1 << 16)
}
