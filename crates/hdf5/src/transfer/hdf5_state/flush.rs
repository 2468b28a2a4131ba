//! Makes what HDF5 buffers of a file durable.

use std::sync::Arc;

use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::File;
use penstock_engine::file::medium;
use penstock_engine::file::position::Operation;
use penstock_sys::hdf5::{H5F_SCOPE_LOCAL, hid_t};

use crate::dataset::{DatasetInfo, FileInfo, Layout};
use crate::library::Session;
use crate::open_files::shared;

/// Flushes HDF5's buffers of an object's file, and syncs the file by HDF5's own descriptor.
///
/// # Errors
/// Also that of [`refuse_unsyncable`].
pub(in crate::transfer) fn flush_and_sync(session: &Session<'_>, object: hid_t) -> Result<()> {
    // SAFETY: takes an identifier, which HDF5 checks.
    let status = unsafe { (session.hdf5.H5Fflush)(object, H5F_SCOPE_LOCAL) };
    session.check(status, "flush the file")?;
    let info = FileInfo::of(session, object)?;
    let Some(descriptor) = info.descriptor else {
        return refuse_unsyncable(&info);
    };
    medium::sync(descriptor, &info.name)
}

/// Refuses durability for a file that is open for writing by a driver without a descriptor of one plain
/// file. A file in memory alone has nothing to sync.
pub(in crate::transfer) fn refuse_unsyncable(file: &FileInfo) -> Result<()> {
    if file.descriptor.is_some() || file.is_in_memory || !file.is_writable {
        return Ok(());
    }
    let cause = "durable is not available: HDF5's driver of the file does not use one plain file";
    let remedy = "leave the option out, or open the file by the driver sec2 or penstock";
    Err(Error::new(Kind::Unavailable, cause)
        .remedy(remedy)
        .in_file(&file.name))
}

/// Refuses durability for a dataset whose elements are not in the file that is synced. Those of a file that is open
/// for reading do not change.
pub(in crate::transfer) fn refuse_elsewhere(info: &DatasetInfo) -> Result<()> {
    if !info.file.is_writable {
        return Ok(());
    }
    let (cause, remedy) = match info.layout {
        Layout::External(_) => (
            "durable is not available for a dataset in external files",
            "leave the option out, and sync the external files after a flush",
        ),
        Layout::Virtual(_) => (
            "durable is not available for a virtual dataset",
            "write to its source datasets",
        ),
        _ => return refuse_unsyncable(&info.file),
    };
    Err(info.name_in(Error::new(Kind::Unavailable, cause).remedy(remedy)))
}

/// Returns the file of an object, for a sync that HDF5's own writes precede: also its last ones, in
/// the close of the file. `None` if the file is not open for writing.
///
/// # Errors
/// [`refuse_unsyncable`], or the file cannot be opened.
pub fn file_to_sync(session: &Session<'_>, object: hid_t) -> Result<Option<Arc<File>>> {
    let info = FileInfo::of(session, object)?;
    refuse_unsyncable(&info)?;
    info.is_writable
        .then(|| shared(&info, Operation::Write))
        .transpose()
}
