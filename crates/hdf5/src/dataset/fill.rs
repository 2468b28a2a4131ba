//! What HDF5 reads where no element was ever written.

use std::ffi::c_int;

use penstock_engine::error::Result;
use penstock_sys::hdf5::{
    H5D_FILL_TIME_NEVER, H5D_FILL_VALUE_DEFAULT, H5D_FILL_VALUE_UNDEFINED, H5D_VIRTUAL,
};

use super::FileType;
use crate::library::{Id, Session};

/// What a read finds in elements that were never written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fill {
    /// This stored element.
    Value(Vec<u8>),
    /// Nothing: HDF5 leaves the memory unchanged.
    Nothing,
    /// Nothing, as the fill value is undefined; and HDF5 refuses to read before the dataset has storage.
    Undefined,
    /// A value of which HDF5 alone reads a part.
    OnlyHdf5,
}

impl Fill {
    /// Returns the stored element.
    pub fn value(&self) -> Option<&[u8]> {
        match self {
            Fill::Value(value) => Some(value),
            Fill::Nothing | Fill::Undefined | Fill::OnlyHdf5 => None,
        }
    }

    /// Reads what the creation properties of a dataset of this layout say. `of_element` is HDF5's type of
    /// the elements.
    pub(super) fn read(
        session: &Session<'_>,
        creation: &Id,
        layout: c_int,
        (of_element, element): (&Id, &FileType),
    ) -> Result<Fill> {
        let (time, defined) = fill_state(session, creation)?;
        // HDF5 fills elements of a virtual dataset that no mapping covers at all times.
        let is_virtual = layout == H5D_VIRTUAL;
        let zeros = || vec![0u8; element.size().0 as usize];
        match defined {
            _ if time == H5D_FILL_TIME_NEVER && !is_virtual => Ok(Fill::Nothing),
            H5D_FILL_VALUE_UNDEFINED if is_virtual => Ok(Fill::Nothing),
            H5D_FILL_VALUE_UNDEFINED => Ok(Fill::Undefined),
            H5D_FILL_VALUE_DEFAULT => Ok(Fill::Value(zeros())),
            _ if element.only_hdf5().is_some() => Ok(Fill::OnlyHdf5),
            _ => {
                let mut value = zeros();
                // SAFETY: the value is requested in the dataset's own type. Types of another size in memory,
                // and those whose values own memory of HDF5, were excluded above.
                let status = unsafe {
                    let place = value.as_mut_ptr().cast();
                    (session.hdf5.H5Pget_fill_value)(creation.get(), of_element.get(), place)
                };
                session.check(status, "get the fill value")?;
                Ok(Fill::Value(value))
            }
        }
    }
}

/// Returns HDF5's constants of the fill time, and of the state of the fill value.
pub(crate) fn fill_state(session: &Session<'_>, creation: &Id) -> Result<(c_int, c_int)> {
    let hdf5 = session.hdf5;
    let (mut time, mut value) = (0, 0);
    // SAFETY: the list is owned, and the results have places of their types.
    unsafe {
        let status = (hdf5.H5Pget_fill_time)(creation.get(), &mut time);
        session.check(status, "get the fill time")?;
        let status = (hdf5.H5Pfill_value_defined)(creation.get(), &mut value);
        session.check(status, "get the state of the fill value")?;
    }
    Ok((time, value))
}
