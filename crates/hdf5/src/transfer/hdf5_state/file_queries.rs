//! Queries of HDF5 about its open files.

use std::collections::HashSet;

use penstock_engine::chunk_cache_bytes;
use penstock_sys::hdf5::{H5F_ACC_RDWR, H5F_OBJ_ALL, H5F_OBJ_FILE, hid_t};

use crate::library::Session;

/// Returns whether the file of a dataset is open for writing, without describing it.
pub(in crate::transfer) fn is_writable(session: &Session<'_>, dataset: hid_t) -> Option<bool> {
    let hdf5 = session.hdf5;
    // SAFETY: takes an identifier, which HDF5 checks, and returns an owned one.
    let file = unsafe { (hdf5.H5Iget_file_id)(dataset) };
    let file = session.own(file, hdf5.H5Fclose, "get the file").ok()?;
    let mut intent = 0;
    // SAFETY: an owned identifier, and a place for the result.
    let status = unsafe { (hdf5.H5Fget_intent)(file.get(), &mut intent) };
    (status >= 0).then_some(intent & H5F_ACC_RDWR != 0)
}

/// Returns the size of the cache of decoded chunks of a file: that of any file or, if this is more, that
/// of HDF5's own cache. It is 0 if Penstock's cache is turned off.
pub(in crate::transfer) fn chunk_cache_bytes_of(
    session: &Session<'_>,
    dataset: hid_t,
) -> Option<u64> {
    let own = chunk_cache_bytes().ok()?;
    if own == 0 {
        return Some(0);
    }
    let hdf5 = session.hdf5;
    // SAFETY: each takes a checked identifier and returns an owned one.
    let file = unsafe { (hdf5.H5Iget_file_id)(dataset) };
    let file = session.own(file, hdf5.H5Fclose, "get the file").ok()?;
    // SAFETY: as above.
    let access = unsafe { (hdf5.H5Fget_access_plist)(file.get()) };
    let access = session
        .own(access, hdf5.H5Pclose, "get the access properties")
        .ok()?;
    let (mut unused, mut slots, mut bytes, mut preemption) = (0, 0, 0usize, 0.0);
    // SAFETY: an owned identifier, and places for the results.
    let status = unsafe {
        (hdf5.H5Pget_cache)(
            access.get(),
            &mut unused,
            &mut slots,
            &mut bytes,
            &mut preemption,
        )
    };
    (status >= 0).then_some(own.max(bytes as u64))
}

/// Returns the numbers of the files that HDF5 has open; `None` if it does not report them.
pub(in crate::transfer) fn open_file_numbers(session: &Session<'_>) -> Option<HashSet<u64>> {
    let calls = session.hdf5.pass_through().ok()?;
    let all = hid_t::from(H5F_OBJ_ALL);
    // SAFETY: takes no memory.
    let count = unsafe { (calls.H5Fget_obj_count)(all, H5F_OBJ_FILE) };
    let mut ids = vec![0; usize::try_from(count).ok()?];
    // SAFETY: there is room for as many identifiers as is passed.
    let got = unsafe { (calls.H5Fget_obj_ids)(all, H5F_OBJ_FILE, ids.len(), ids.as_mut_ptr()) };
    ids.truncate(usize::try_from(got).ok()?);
    let numbers = ids.iter().map(|id| session.object(*id));
    numbers
        .map(|found| found.ok().map(|(number, _)| number))
        .collect()
}
