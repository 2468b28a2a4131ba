//! Keys of the cache: open files and their datasets.

use penstock_engine::error::Result;
use penstock_sys::hdf5::hid_t;

use crate::library::Session;

/// An open file: the copy of HDF5, and its number of the file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileNumber {
    pub hdf5: usize,
    pub number: u64,
}

/// An open dataset: its file, and its token there.
pub(super) type DatasetKey = (FileNumber, [u8; 16]);

pub(super) fn key(session: &Session<'_>, object: hid_t) -> Result<DatasetKey> {
    let (number, token) = session.object(object)?;
    let hdf5 = session.hdf5.copy();
    Ok((FileNumber { hdf5, number }, token))
}
