//! Selections of single elements, given by their coordinates.

use penstock_array::Selection;
use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::{Hdf5, hid_t};

use crate::dataset::dataspace;
use crate::library::Session;
use crate::transfer::hdf5_state::inside;

/// Returns the selection of single elements of a dataset, each given by as many coordinates as the
/// dataset has dimensions.
///
/// # Errors
/// The coordinates are not those of elements of the dataset.
///
/// # Safety
/// This thread may call HDF5.
pub unsafe fn points(
    hdf5: &'static Hdf5,
    dataset: hid_t,
    rank: usize,
    coordinates: &[u64],
) -> Result<Selection> {
    inside(hdf5, || {
        // SAFETY: the caller may call HDF5.
        let session = unsafe { Session::begin(hdf5) };
        let space = session.space_of(dataset)?;
        let (shape, _) = dataspace::extent(&session, space.get())?;
        points_of(&shape, rank, coordinates)
    })
}

/// Returns what [`points`] does, for a dataset of this shape.
pub fn points_of(shape: &[u64], rank: usize, coordinates: &[u64]) -> Result<Selection> {
    if shape.len() != rank {
        return Err(Error::invalid(format!(
            "the selection has {rank} dimensions, but the dataset has {}",
            shape.len()
        )));
    }
    Selection::points(shape, coordinates)
}
