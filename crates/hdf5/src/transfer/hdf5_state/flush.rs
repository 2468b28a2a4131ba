//! Makes what HDF5 buffers of a file durable.

use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;

use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::{H5F_SCOPE_LOCAL, hid_t};

use crate::dataset::FileInfo;
use crate::library::Session;

/// Flushes HDF5's buffers of an object's file, and syncs the file by HDF5's own descriptor. If the
/// driver has no descriptor, the file is only flushed.
pub(in crate::transfer) fn flush_and_sync(session: &Session<'_>, object: hid_t) -> Result<()> {
    // SAFETY: takes an identifier, which HDF5 checks.
    let status = unsafe { (session.hdf5.H5Fflush)(object, H5F_SCOPE_LOCAL) };
    session.check(status, "flush the file")?;
    let info = FileInfo::of(session, object)?;
    let Some(descriptor) = info.descriptor else {
        return Ok(());
    };
    // SAFETY: HDF5 keeps the descriptor open throughout the session, and closes it itself.
    let file = ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(descriptor) });
    file.sync_data().map_err(|error| {
        Error::os(&error, "cannot bring the data to the medium").in_file(&info.name)
    })
}
