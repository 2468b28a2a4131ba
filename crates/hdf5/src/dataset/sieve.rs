//! HDF5's sieve buffer over a contiguous dataset: one window, of at most the size in the file's access properties,
//! which may have changed elements.

use std::ffi::c_void;
use std::ptr;
use std::sync::Mutex;

use penstock_engine::Recover;
use penstock_engine::error::Result;
use penstock_sys::hdf5::{H5D_SELECTION_IO_MODE_ON, H5P_DEFAULT, H5S_SELECT_SET, hid_t};

use super::DatasetInfo;
use crate::library::{Id, Session, drop_at_close};

/// Returns whether the sieve buffer may hold all elements of a dataset.
pub(crate) fn may_hold_all(info: &DatasetInfo) -> Result<bool> {
    let reach = info.bytes()?.saturating_sub(info.element.size().0);
    Ok(reach < info.file.sieve_buffer as u64)
}

/// Makes HDF5 write the changes that the sieve buffer holds, unless the buffer holds all elements.
///
/// A read of an element outside the window writes the changes. The window is no longer than the
/// distance from the first element to the last, so one of them is outside. HDF5 reads an element past
/// a buffer that holds no changes.
pub(crate) fn write_out(session: &Session<'_>, dataset: hid_t, info: &DatasetInfo) -> Result<()> {
    if let Some(list) = kept_list(session) {
        return read_ends(session, dataset, &info.shape, list);
    }
    let list = past_sieve(session)?;
    read_ends(
        session,
        dataset,
        &info.shape,
        list.as_ref().map_or(H5P_DEFAULT, Id::get),
    )?;
    if let Some(list) = list
        && drop_at_close(session.hdf5, &[forget])
    {
        KEPT.lock()
            .recover()
            .push((session.hdf5.copy(), list.keep()));
    }
    Ok(())
}

/// Lists of [`past_sieve`] for reads, which report nothing in them, by the copy of HDF5, which closes them when it
/// closes. It takes HDF5 20 us to make one.
static KEPT: Mutex<Vec<(usize, hid_t)>> = Mutex::new(Vec::new());

fn kept_list(session: &Session<'_>) -> Option<hid_t> {
    let copy = session.hdf5.copy();
    let kept = KEPT.lock().recover();
    kept.iter()
        .find(|(of, _)| *of == copy)
        .map(|(_, list)| *list)
}

fn forget(copy: usize) {
    KEPT.lock().recover().retain(|(of, _)| *of != copy);
}

/// Reads the first and the last of a dataset's elements. `list` is a transfer property list.
pub(crate) fn read_ends(
    session: &Session<'_>,
    dataset: hid_t,
    shape: &[u64],
    list: hid_t,
) -> Result<()> {
    let hdf5 = session.hdf5;
    let last: Vec<u64> = shape.iter().map(|size| size.saturating_sub(1)).collect();
    let one = vec![1; last.len()];
    for at in [&vec![0; last.len()], &last] {
        with_some(session, dataset, (at, &one), |file_type, memory, space| {
            // SAFETY: HDF5 checks the identifier.
            let mut bytes = vec![0u8; unsafe { (hdf5.H5Tget_size)(file_type) }];
            let buffer: *mut c_void = bytes.as_mut_ptr().cast();
            // SAFETY: the buffer has room for the one selected element in its own type. Its strings and sequences,
            // null before the read, are HDF5's to free.
            unsafe {
                let status = (hdf5.H5Dread)(dataset, file_type, memory, space, list, buffer);
                (hdf5.H5Treclaim)(file_type, memory, H5P_DEFAULT, buffer);
                status
            }
        })?;
    }
    Ok(())
}

/// Returns a transfer property list with which HDF5 bypasses the sieve buffer: for reads if the buffer
/// holds no changes, for writes if it has never been used. `None` from versions that cannot report
/// whether they did.
pub(crate) fn past_sieve(session: &Session<'_>) -> Result<Option<Id>> {
    let hdf5 = session.hdf5;
    let (Some(set), Some(_)) = (hdf5.H5Pset_selection_io, hdf5.H5Pget_no_selection_io_cause) else {
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

/// Calls HDF5 with some elements selected. `call` receives their type, their memory dataspace and
/// their file dataspace.
pub(crate) fn with_some(
    session: &Session<'_>,
    dataset: hid_t,
    (start, count): (&[u64], &[u64]),
    mut call: impl FnMut(hid_t, hid_t, hid_t) -> i32,
) -> Result<()> {
    let (file_type, space) = (session.type_of(dataset)?, session.space_of(dataset)?);
    let memory = session.simple_space(&[count.iter().product()])?;
    if !start.is_empty() {
        // SAFETY: there are as many numbers as dimensions.
        let status = unsafe {
            (session.hdf5.H5Sselect_hyperslab)(
                space.get(),
                H5S_SELECT_SET,
                start.as_ptr(),
                ptr::null(),
                count.as_ptr(),
                ptr::null(),
            )
        };
        session.check(status, "select elements of the dataset")?;
    }
    let status = call(file_type.get(), memory.get(), space.get());
    session
        .check(status, "access elements of the dataset")
        .map(drop)
}
