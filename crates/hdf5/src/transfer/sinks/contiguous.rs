//! The storage of contiguous datasets, and HDF5's sieve buffer over it.

use penstock_array::execute::BlockSink;
use penstock_engine::error::Result;
use penstock_sys::hdf5::{H5D_SEL_IO_NO_VECTOR_OR_SELECTION_IO_CB, H5P_DEFAULT};

use super::written_dataset::WrittenDataset;
use crate::dataset::sieve;
use crate::library::{Id, Session};

/// A contiguous dataset whose storage is written without HDF5.
pub(in crate::transfer) struct ContiguousStorage(pub WrittenDataset);

impl BlockSink for ContiguousStorage {
    fn may_finish(&self) -> bool {
        self.0.may_finish()
    }

    fn finish(&self) -> Result<()> {
        self.0.finish_in_step()
    }

    fn end(&self) {
        // SAFETY: the submitter guarantees that HDF5 may be called on the thread of the step.
        let session = unsafe { self.0.session() };
        // On failure HDF5's buffer keeps old data, but HDF5 cannot read this dataset either.
        let _ = self.0.refill_sieve(&session);
    }
}

impl WrittenDataset {
    /// Refills HDF5's sieve buffer with the current bytes of the file, after HDF5 has written the
    /// changes that it buffers.
    ///
    /// The buffer is one window, no longer than the distance from the first element to the last. So
    /// at least one of the two reads finds its element outside, and refills the window.
    pub(in crate::transfer) fn refill_sieve(&self, session: &Session<'_>) -> Result<()> {
        sieve::read_ends(session, self.dataset, &self.info.shape, H5P_DEFAULT)
            .map_err(|e| self.named(e))
    }

    /// Makes HDF5 allocate contiguous storage without buffering any of it, by writing the fill
    /// value to elements that are about to be written. They keep it if the write fails or is cancelled.
    ///
    /// The last elements are best, because the file then gets its final length. Every write here
    /// may wait for writes in the background, which hold the lock of the file.
    ///
    /// The elements must bypass the sieve buffer: HDF5 (1.14.4, 2.0.0) cannot close a dataset whose
    /// sieve buffer cannot be written because the disk is full, and uses the closed dataset when
    /// the file is flushed. They bypass it by `past_sieve`, or if they have more bytes than the
    /// buffer.
    pub(in crate::transfer) fn allocate(
        &self,
        session: &Session<'_>,
        (start, count): (&[u64], &[u64]),
        fill: Option<&[u8]>,
        past_sieve: Option<Id>,
    ) -> Result<()> {
        let elements = count.iter().product::<u64>() as usize;
        let size = self.info.element.size().0 as usize;
        let bytes = match fill.filter(|fill| fill.len() == size) {
            Some(fill) => fill.repeat(elements),
            None => vec![0u8; elements * size],
        };
        let list = past_sieve.as_ref().map_or(H5P_DEFAULT, Id::get);
        let write = |file_type, memory, space| {
            // SAFETY: the buffer holds the selected elements in their own type.
            unsafe {
                (session.hdf5.H5Dwrite)(
                    self.dataset,
                    file_type,
                    memory,
                    space,
                    list,
                    bytes.as_ptr().cast(),
                )
            }
        };
        sieve::with_some(session, self.dataset, (start, count), write)
            .map_err(|error| self.named(error))?;
        let mut cause = 0;
        if let (Some(list), Some(get)) = (&past_sieve, session.hdf5.H5Pget_no_selection_io_cause) {
            // SAFETY: the list is of the class that has this property, which has a place for its
            // value.
            let status = unsafe { get(list.get(), &mut cause) };
            session.check(status, "find how the storage was allocated")?;
            // A driver without selection I/O receives each range by itself.
            if cause & !H5D_SEL_IO_NO_VECTOR_OR_SELECTION_IO_CB == 0 {
                return Ok(());
            }
        }
        self.refill_sieve(session)
    }
}
