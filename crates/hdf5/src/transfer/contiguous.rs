//! The storage of contiguous datasets, and the buffer in which HDF5 holds some of it.

use std::ptr;

use penstock_array::execute::BlockSink;
use penstock_engine::error::Result;
use penstock_sys::hdf5::{
    H5D_SEL_IO_NO_VECTOR_OR_SELECTION_IO_CB, H5D_SELECTION_IO_MODE_ON, H5P_DEFAULT, H5S_SELECT_SET,
    hid_t,
};

use super::written::WrittenDataset;
use crate::library::{Id, Session};

/// A contiguous dataset whose blocks are written past HDF5.
pub(super) struct BlockEnd(pub WrittenDataset);

impl BlockSink for BlockEnd {
    fn finish(&self) -> Result<()> {
        // SAFETY: whoever takes the step may call HDF5, as the submitter has promised.
        let session = unsafe { self.0.session() };
        self.0.make_durable(&session)
    }

    fn end(&self) {
        // SAFETY: as above.
        let session = unsafe { self.0.session() };
        // A failure leaves HDF5 with what it knew of a dataset that it cannot read either.
        let _ = self.0.refill_sieve(&session);
    }
}

impl WrittenDataset {
    /// Makes HDF5's sieve buffer hold the bytes that are in the file now, after those that it has kept
    /// back have been written.
    ///
    /// The buffer is one window, no longer than the distance of the first element from the last. So
    /// at least one of the two reads finds its element outside, and fills the window anew.
    pub(super) fn refill_sieve(&self, session: &Session<'_>) -> Result<()> {
        let last: Vec<u64> = self.shape.iter().map(|size| size - 1).collect();
        let one = vec![1; last.len()];
        for at in [&vec![0; last.len()], &last] {
            let mut element = vec![0u8; self.element as usize];
            self.some(session, (at, &one), |file_type, memory, space| {
                // SAFETY: the buffer has room for the one element that is selected, in its own type.
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

    /// A transfer property list by which HDF5 writes past its sieve buffer, if that has never been used;
    /// none from versions that cannot tell whether they have.
    pub(super) fn past_sieve(&self, session: &Session<'_>) -> Result<Option<Id>> {
        let hdf5 = session.hdf5;
        let (Some(set), Some(_)) = (hdf5.H5Pset_selection_io, hdf5.H5Pget_no_selection_io_cause)
        else {
            return Ok(None);
        };
        let Some(class) = hdf5.identifier("H5P_CLS_DATASET_XFER_ID_g") else {
            return Ok(None);
        };
        let action = "make a list of transfer properties";
        // SAFETY: HDF5 checks the class; the answer is ours to close.
        let list = session.own(unsafe { (hdf5.H5Pcreate)(class) }, hdf5.H5Pclose, action)?;
        // SAFETY: the list is of the class that has this property.
        session.check(unsafe { set(list.get(), H5D_SELECTION_IO_MODE_ON) }, action)?;
        Ok(Some(list))
    }

    /// Makes HDF5 allocate contiguous storage, by writing the fill value to elements that are about to be
    /// written, and keep nothing of it back. A write that is cancelled or fails leaves them so.
    ///
    /// The last ones are best: the file is as long then as it has to be. Every write here may wait for
    /// those in the background, which hold the lock of the file.
    ///
    /// They have to go past the sieve buffer: HDF5 (1.14.4, 2.0.0) cannot close a dataset whose sieve
    /// buffer cannot be written, because the disk is full, and uses the closed dataset when the file is
    /// flushed. They do by `past_sieve`, or if they have more bytes than the buffer.
    pub(super) fn allocate(
        &self,
        session: &Session<'_>,
        (start, count): (&[u64], &[u64]),
        fill: Option<&[u8]>,
        past_sieve: Option<Id>,
    ) -> Result<()> {
        let elements = count.iter().product::<u64>() as usize;
        let bytes = match fill.filter(|fill| fill.len() as u64 == self.element) {
            Some(fill) => fill.repeat(elements),
            None => vec![0u8; elements * self.element as usize],
        };
        let list = past_sieve.as_ref().map_or(H5P_DEFAULT, Id::get);
        self.some(session, (start, count), |file_type, memory, space| {
            // SAFETY: the buffer holds the elements that are selected, in their own type.
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
            // SAFETY: the list is of the class that has this property; there is a place for it.
            let status = unsafe { get(list.get(), &mut cause) };
            session.check(status, "find how the storage was allocated")?;
            // A driver without selections gets each range by itself.
            if cause & !H5D_SEL_IO_NO_VECTOR_OR_SELECTION_IO_CB == 0 {
                return Ok(());
            }
        }
        self.refill_sieve(session)
    }

    /// Calls HDF5 with some elements selected: their type, their place in memory, and the dataspace.
    fn some(
        &self,
        session: &Session<'_>,
        (start, count): (&[u64], &[u64]),
        mut call: impl FnMut(hid_t, hid_t, hid_t) -> i32,
    ) -> Result<()> {
        let hdf5 = session.hdf5;
        // SAFETY: both take an identifier, which HDF5 checks; the answers are ours to close.
        let (file_type, space) = unsafe {
            (
                (hdf5.H5Dget_type)(self.dataset),
                (hdf5.H5Dget_space)(self.dataset),
            )
        };
        let action = "reach elements of the dataset";
        let file_type = session.own(file_type, hdf5.H5Tclose, action)?;
        let space = session.own(space, hdf5.H5Sclose, action)?;
        let length = count.iter().product();
        // SAFETY: one dimension, whose length is given; the answer is ours to close.
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
