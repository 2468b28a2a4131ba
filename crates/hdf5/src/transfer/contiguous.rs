//! The storage of contiguous datasets, and HDF5's sieve buffer over it.

use std::ptr;

use penstock_array::execute::BlockSink;
use penstock_engine::error::Result;
use penstock_sys::hdf5::{
    H5D_SEL_IO_NO_VECTOR_OR_SELECTION_IO_CB, H5D_SELECTION_IO_MODE_ON, H5P_DEFAULT, H5S_SELECT_SET,
    hid_t,
};

use super::written::WrittenDataset;
use crate::library::{Id, Session};

/// A contiguous dataset whose blocks are written without HDF5.
pub(super) struct BlockEnd(pub WrittenDataset);

impl BlockSink for BlockEnd {
    fn finish(&self) -> Result<()> {
        self.0.finish_in_step()
    }

    fn end(&self) {
        // SAFETY: the submitter guarantees that HDF5 may be called on the thread of the step.
        let session = unsafe { self.0.session() };
        // On failure HDF5 keeps its old data of a dataset that it cannot read either.
        let _ = self.0.refill_sieve(&session);
    }
}

impl WrittenDataset {
    /// Refills HDF5's sieve buffer with the current bytes of the file, after HDF5 has written the
    /// changes that it buffers.
    ///
    /// The buffer is one window, no longer than the distance from the first element to the last. So
    /// at least one of the two reads finds its element outside, and refills the window.
    pub(super) fn refill_sieve(&self, session: &Session<'_>) -> Result<()> {
        let last: Vec<u64> = self.shape.iter().map(|size| size - 1).collect();
        let one = vec![1; last.len()];
        for at in [&vec![0; last.len()], &last] {
            let mut element = vec![0u8; self.element.0 as usize];
            self.some(session, (at, &one), |file_type, memory, space| {
                // SAFETY: the buffer has room for the one selected element in its own type.
                unsafe {
                    (session.hdf5.H5Dread)(
                        self.dataset,
                        file_type,
                        memory,
                        space,
                        H5P_DEFAULT,
                        element.as_mut_ptr().cast(),
                    )
                }
            })?;
        }
        Ok(())
    }

    /// Returns a transfer property list with which HDF5 bypasses its sieve buffer if the buffer has
    /// never been used; `None` from versions that cannot report whether they did.
    pub(super) fn past_sieve(&self, session: &Session<'_>) -> Result<Option<Id>> {
        let hdf5 = session.hdf5;
        let (Some(set), Some(_)) = (hdf5.H5Pset_selection_io, hdf5.H5Pget_no_selection_io_cause)
        else {
            return Ok(None);
        };
        let Some(class) = hdf5.identifier("H5P_CLS_DATASET_XFER_ID_g") else {
            return Ok(None);
        };
        let action = "create a transfer property list";
        // SAFETY: HDF5 checks the class; the result is owned.
        let list = session.own(unsafe { (hdf5.H5Pcreate)(class) }, hdf5.H5Pclose, action)?;
        // SAFETY: the list is of the class that has this property.
        session.check(unsafe { set(list.get(), H5D_SELECTION_IO_MODE_ON) }, action)?;
        Ok(Some(list))
    }

    /// Makes HDF5 allocate contiguous storage without buffering any of it, by writing the fill
    /// value to elements that are about to be written. A write that is cancelled or fails leaves
    /// them so.
    ///
    /// The last elements are best, because the file then gets its final length. Every write here
    /// may wait for writes in the background, which hold the lock of the file.
    ///
    /// The elements must bypass the sieve buffer: HDF5 (1.14.4, 2.0.0) cannot close a dataset whose
    /// sieve buffer cannot be written because the disk is full, and uses the closed dataset when
    /// the file is flushed. They bypass it by `past_sieve`, or if they have more bytes than the
    /// buffer.
    pub(super) fn allocate(
        &self,
        session: &Session<'_>,
        (start, count): (&[u64], &[u64]),
        fill: Option<&[u8]>,
        past_sieve: Option<Id>,
    ) -> Result<()> {
        let elements = count.iter().product::<u64>() as usize;
        let bytes = match fill.filter(|fill| fill.len() as u64 == self.element.0) {
            Some(fill) => fill.repeat(elements),
            None => vec![0u8; elements * self.element.0 as usize],
        };
        let list = past_sieve.as_ref().map_or(H5P_DEFAULT, Id::get);
        self.some(session, (start, count), |file_type, memory, space| {
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
        })?;
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

    /// Calls HDF5 with some elements selected. `call` receives their type, their memory dataspace
    /// and their file dataspace.
    fn some(
        &self,
        session: &Session<'_>,
        (start, count): (&[u64], &[u64]),
        mut call: impl FnMut(hid_t, hid_t, hid_t) -> i32,
    ) -> Result<()> {
        let hdf5 = session.hdf5;
        // SAFETY: both take an identifier, which HDF5 checks, and return owned ones.
        let (file_type, space) = unsafe {
            (
                (hdf5.H5Dget_type)(self.dataset),
                (hdf5.H5Dget_space)(self.dataset),
            )
        };
        let action = "select elements of the dataset";
        let file_type = session.own(file_type, hdf5.H5Tclose, action)?;
        let space = session.own(space, hdf5.H5Sclose, action)?;
        let length = count.iter().product();
        // SAFETY: one dimension, whose length is passed; the result is owned.
        let memory = unsafe { (hdf5.H5Screate_simple)(1, &length, ptr::null()) };
        let memory = session.own(memory, hdf5.H5Sclose, action)?;
        if !start.is_empty() {
            // SAFETY: there are as many numbers as dimensions.
            let status = unsafe {
                (hdf5.H5Sselect_hyperslab)(
                    space.get(),
                    H5S_SELECT_SET,
                    start.as_ptr(),
                    ptr::null(),
                    count.as_ptr(),
                    ptr::null(),
                )
            };
            session.check(status, action)?;
        }
        let status = call(file_type.get(), memory.get(), space.get());
        session
            .check(status, action)
            .map(drop)
            .map_err(|e| self.named(e))
    }
}
