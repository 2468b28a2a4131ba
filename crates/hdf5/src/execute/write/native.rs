//! What a write needs HDF5 for while it is under way.

use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::ptr;
use std::sync::Arc;

use penstock_engine::error::{Error, Result};
use penstock_engine::file::File;
use penstock_sys::hdf5::{
    H5D_CHUNK_IDX_EARRAY, H5D_SEL_IO_NO_VECTOR_OR_SELECTION_IO_CB, H5D_SELECTION_IO_MODE_ON,
    H5F_SCOPE_LOCAL, H5P_DEFAULT, H5S_SELECT_SET, HADDR_UNDEF, Hdf5, herr_t, hid_t,
};

use crate::dataset::{DatasetInfo, FileInfo, Layout, in_dataset};
use crate::library::{Id, Session};

/// The dataset that is written, as HDF5 knows it. The submitter keeps it open.
#[derive(Clone)]
pub struct Native {
    pub hdf5: &'static Hdf5,
    pub dataset: hid_t,
    /// Its name and shape.
    pub name: String,
    pub shape: Vec<u64>,
    pub max_shape: Vec<Option<u64>>,
    /// Empty if it is not chunked.
    pub chunk: Vec<u64>,
    pub element: u64,
    pub has_filters: bool,
    /// Brought to the medium at the end, where the caller wants that.
    pub durable: Option<Arc<File>>,
}

impl Native {
    pub fn new(session: &Session<'static>, dataset: hid_t, info: &DatasetInfo) -> Native {
        Native {
            hdf5: session.hdf5,
            dataset,
            name: info.name.clone(),
            shape: info.shape.clone(),
            max_shape: info.max_shape.clone(),
            chunk: match &info.layout {
                Layout::Chunked { chunk, .. } => chunk.clone(),
                _ => Vec::new(),
            },
            element: info.element.size() as u64,
            has_filters: !info.filters.is_empty(),
            durable: None,
        }
    }

    /// # Safety
    /// This thread may call HDF5, and goes on to do so, until the session is dropped.
    pub unsafe fn session(&self) -> Session<'static> {
        // SAFETY: passed on.
        unsafe { Session::begin(self.hdf5) }
    }

    /// Hands an encoded chunk to HDF5.
    ///
    /// HDF5 (1.14.4, 2.2.0) writes the filter mask into the index only if the size of the chunk changes.
    /// Where the old one, of the same size, could have another mask, the size is changed twice.
    pub fn write_chunk(
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
        self.forget_lookup(session, first, None);
    }

    /// Whether HDF5 may take other chunks for those at coordinates: see [`crate::dataset::swizzle`].
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
    pub fn forget_lookup(&self, session: &Session<'_>, last: &[u64], before: Option<&[u64]>) {
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

    /// Makes HDF5's sieve buffer hold the bytes that are in the file now, after those that it has kept
    /// back have been written.
    ///
    /// The buffer is one window, no longer than the distance of the first element from the last. So
    /// at least one of the two reads finds its element outside, and fills the window anew.
    pub fn forget_sieve(&self, session: &Session<'_>) -> Result<()> {
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
    pub fn past_sieve(&self, session: &Session<'_>) -> Result<Option<Id>> {
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
    pub fn allocate(
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
        self.forget_sieve(session)
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

    /// What HDF5 holds back goes into the file, and the file to the medium, if the caller wants so.
    pub fn make_durable(&self, session: &Session<'_>) -> Result<()> {
        let Some(file) = &self.durable else {
            return Ok(());
        };
        // SAFETY: takes an identifier, which HDF5 checks.
        let status = unsafe { (session.hdf5.H5Fflush)(self.dataset, H5F_SCOPE_LOCAL) };
        session.check(status, "flush the file")?;
        file.sync()
    }

    pub fn named(&self, error: Error) -> Error {
        in_dataset(error, &self.name)
    }
}

/// Bytes that a chunk of so many has at most in the file.
fn most_stored(decoded: u64) -> u64 {
    decoded.saturating_mul(2).saturating_add(1 << 16)
}

impl std::fmt::Debug for Native {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Native")
            .field("dataset", &self.dataset)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
