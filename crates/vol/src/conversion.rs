//! The datatype of a dataset, and whether HDF5 converts to it.

use std::ptr;

use penstock_engine::file::position::Operation;
use penstock_sys::hdf5::connector::H5I_DATASET;
use penstock_sys::hdf5::hid_t;

use super::owned_id::OwnedId;
use super::temporary_id::TemporaryId;
use super::under::Under;

/// Makes a copy of a dataset's datatype. Returns `None` if HDF5 cannot.
///
/// # Safety
/// The thread is inside a callback on this dataset.
pub(crate) unsafe fn type_of(under: &Under) -> Option<OwnedId> {
    let library = under.library();
    // SAFETY: the caller guarantees this.
    library.keeping_errors(|| unsafe {
        let dataset = TemporaryId::of(under, H5I_DATASET).ok()?;
        OwnedId::of(library, (library.hdf5.H5Dget_type)(dataset.get()))
    })
}

/// Returns whether HDF5 converts between a type in memory and that of a dataset. Returns true if it does not
/// return the latter.
///
/// # Safety
/// As for [`type_of`]; HDF5 checks the identifier.
pub(crate) unsafe fn is_converted(under: &Under, operation: Operation, in_memory: hid_t) -> bool {
    // SAFETY: the caller guarantees this.
    let Some(in_file) = (unsafe { type_of(under) }) else {
        return true;
    };
    let (from, to) = match operation {
        Operation::Read => (in_file.id, in_memory),
        Operation::Write => (in_memory, in_file.id),
    };
    let (library, mut data) = (under.library(), ptr::null_mut());
    // SAFETY: HDF5 checks the identifiers, and `data` receives an address.
    let found = library.keeping_errors(|| unsafe { (library.calls.H5Tfind)(from, to, &mut data) });
    !found.is_null()
}
