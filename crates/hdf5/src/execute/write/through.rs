//! Writing what only HDF5 can: workers gather the elements in host memory, and HDF5 writes them in
//! the submitter's turn.

use std::path::PathBuf;
use std::sync::Mutex;

use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::report::Path;
use penstock_engine::request::{Duty, Remaining, Share};
use penstock_sys::hdf5::{H5P_DEFAULT, H5S_ALL, hid_t};

use super::feed::Feed;
use super::gather::Array;
use super::{Native, Writing};
use crate::execute::place::Target;
use crate::library::{Id, Session};
use crate::transfer::read::dense_space;

/// What HDF5 needs besides the elements.
pub struct Dense {
    pub native: Native,
    pub memory_type: hid_t,
    /// H5S_ALL or a dataspace.
    pub file_space: hid_t,
    pub transfer: hid_t,
    pub elements: u64,
    pub bytes: u64,
}

impl Dense {
    /// Keeps copies of type and dataspace, which the caller may close before they are needed. They
    /// are closed by [`close`](Self::close).
    pub fn keep(mut self, session: &Session<'_>) -> Result<Dense> {
        let hdf5 = session.hdf5;
        // SAFETY: takes an identifier, which HDF5 checks; the answer is ours to close.
        let memory_type = unsafe { (hdf5.H5Tcopy)(self.memory_type) };
        let memory_type = session.own(memory_type, hdf5.H5Tclose, "copy the memory type")?;
        if self.file_space != H5S_ALL {
            // SAFETY: as above.
            let space = unsafe { (hdf5.H5Scopy)(self.file_space) };
            let space = session.own(space, hdf5.H5Sclose, "copy the dataspace")?;
            self.file_space = space.keep();
        }
        self.memory_type = memory_type.keep();
        Ok(self)
    }

    /// # Safety
    /// `buffer` holds the elements, one after the other.
    pub unsafe fn write(&self, session: &Session<'_>, buffer: *const u8) -> Result<()> {
        let space: Id = dense_space(session, self.elements)?;
        let transfer = match self.transfer {
            0 => H5P_DEFAULT,
            own => own,
        };
        // SAFETY: HDF5 checks the identifiers; the caller vouches for the buffer.
        let status = unsafe {
            (session.hdf5.H5Dwrite)(
                self.native.dataset,
                self.memory_type,
                space.get(),
                self.file_space,
                transfer,
                buffer.cast(),
            )
        };
        session
            .check(status, "write the dataset")
            .map(drop)
            .map_err(|e| self.native.named(e))?;
        self.native.make_durable(session)
    }

    /// To be called once, after [`keep`](Self::keep).
    fn close(&self, session: &Session<'_>) {
        // SAFETY: both were copied by `keep`, and nothing uses them any more.
        unsafe {
            (session.hdf5.H5Tclose)(self.memory_type);
            if self.file_space != H5S_ALL {
                (session.hdf5.H5Sclose)(self.file_space);
            }
        }
    }
}

/// The duty of writing through HDF5.
pub struct ThroughHdf5 {
    writing: Writing,
    array: Array,
    dense: Dense,
    path: PathBuf,
    feed: Mutex<Feed>,
    /// The elements, one after the other. Workers write each their own parts of it.
    gathered: Vec<u8>,
    target: Target,
}

impl ThroughHdf5 {
    /// `dense` was kept.
    pub fn new(writing: Writing, array: Array, dense: Dense, path: PathBuf) -> Result<Self> {
        let mut gathered = Vec::new();
        let length = usize::try_from(dense.bytes).unwrap_or(usize::MAX);
        gathered.try_reserve_exact(length).map_err(|_| {
            let text = format!("no memory for {length} bytes that HDF5 is to write");
            Error::new(Kind::Memory, text)
        })?;
        gathered.resize(length, 0);
        // SAFETY: the memory does not move with its owner, the duty, and is used by nothing else
        // before all workers have left.
        let target = unsafe { Target::new(gathered.as_mut_ptr(), dense.bytes) };
        Ok(ThroughHdf5 {
            feed: Mutex::new(Feed::new(&writing)),
            writing,
            array,
            dense,
            path,
            gathered,
            target,
        })
    }
}

impl Duty for ThroughHdf5 {
    fn serve(&self, share: &Share<'_>) -> Result<()> {
        self.array.each(
            &self.writing,
            share,
            || self.feed.lock().unwrap_or_else(|e| e.into_inner()).bite(),
            |numbered, filled| {
                let job = &numbered.changed.job;
                // SAFETY: blocks are disjoint, and each is handed out once.
                let to = unsafe { self.target.slice(job.address, job.decoded_size) };
                to.copy_from_slice(filled.bytes);
                let moved = self.writing.moved(&numbered.changed);
                share.counters().moved(Path::Hdf5, moved);
                Ok(())
            },
        )
    }

    /// No worker asks for a turn, so it comes when all have left.
    fn turn(&self, _share: &Share<'_>) -> Result<Remaining> {
        // SAFETY: whoever takes the turn may call HDF5, as the submitter has promised.
        let session = unsafe { self.dense.native.session() };
        // SAFETY: all elements were gathered.
        unsafe { self.dense.write(&session, self.gathered.as_ptr())? };
        Ok(Remaining::Nothing)
    }

    fn end_turns(&self) {
        // SAFETY: as above.
        let session = unsafe { self.dense.native.session() };
        self.dense.close(&session);
    }

    fn named(&self, error: Error) -> Error {
        error.in_file(&self.path)
    }

    fn operation(&self) -> Operation {
        Operation::Write
    }
}
