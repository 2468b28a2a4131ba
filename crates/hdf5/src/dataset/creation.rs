//! The creation properties of a dataset.

use std::ptr;

use penstock_engine::error::Result;
use penstock_sys::hdf5::{H5P_DEFAULT, H5T_STRING, H5T_VLEN, hid_t};

use crate::library::{Id, Session};

/// Returns a copy of the creation properties of a dataset. No other function of Penstock calls
/// `H5Dget_create_plist`.
///
/// The copy converts the fill value to its form in memory. For elements of variable length, HDF5
/// (1.14.4 to 2.2.0) reads the value from the heap of the file handle that the stored type names. All
/// handles of a file share the type. If it names a closed handle, HDF5 crashes. `H5Dread` first stores the
/// dataset's own handle in the type, so a read of no elements precedes. It does not store it in such types
/// inside structures and arrays: there HDF5 itself crashes when it reads.
pub fn creation_properties(session: &Session<'_>, dataset: hid_t) -> Result<Id> {
    let hdf5 = session.hdf5;
    let kind = session.type_of(dataset)?;
    if has_variable_length(session, &kind)? {
        read_nothing(session, dataset, &kind)?;
    }
    // SAFETY: takes an identifier, which HDF5 checks, and returns an owned one.
    let list = unsafe { (hdf5.H5Dget_create_plist)(dataset) };
    session.own(list, hdf5.H5Pclose, "get the creation properties")
}

fn has_variable_length(session: &Session<'_>, kind: &Id) -> Result<bool> {
    let hdf5 = session.hdf5;
    // SAFETY: takes an owned identifier.
    let class = unsafe { (hdf5.H5Tget_class)(kind.get()) };
    if session.check(class, "get the class of a type")? != H5T_STRING {
        return Ok(class == H5T_VLEN);
    }
    // SAFETY: as above.
    let is_variable = unsafe { (hdf5.H5Tis_variable_str)(kind.get()) };
    Ok(session.check(is_variable, "get the kind of a string")? > 0)
}

/// Makes HDF5 store the dataset's own handle in its type, which it does before anything in a read can fail.
fn read_nothing(session: &Session<'_>, dataset: hid_t, kind: &Id) -> Result<()> {
    let hdf5 = session.hdf5;
    let space = session.space_of(dataset)?;
    // SAFETY: takes owned identifiers. HDF5 accepts a null buffer for no elements.
    unsafe {
        let status = (hdf5.H5Sselect_none)(space.get());
        session.check(status, "select no elements")?;
        let (space, buffer) = (space.get(), ptr::null_mut());
        (hdf5.H5Dread)(dataset, kind.get(), space, space, H5P_DEFAULT, buffer);
    }
    Ok(())
}
