//! Dataspaces: the elements and bytes that a selection spans.

use std::ops::Range;
use std::{ptr, slice};

use penstock_sys::hdf5::connector::DatasetGetSpace;
use penstock_sys::hdf5::{H5P_DEFAULT, H5S_ALL, H5S_MAX_RANK, hid_t};

use super::calling_library::CallingLibrary;
use super::owned_id::OwnedId;
use super::under::{Below, Under};
use penstock_hdf5::dataset::dataspace;
use penstock_hdf5::library::callback::FAIL;

/// Placeholder for a dataspace of the memory: one block with the number of elements selected in the
/// file.
pub(crate) const H5S_BLOCK: hid_t = 1;

/// Returns whether a number denotes a dataspace without being an identifier, as H5S_ALL does.
pub(crate) fn is_special(space: hid_t) -> bool {
    (0..16).contains(&space)
}

/// Returns the first and the last selected element along each dimension. Returns `None` if nothing
/// is selected, or if `space` is not an identifier.
///
/// # Safety
/// The thread is inside a call of HDF5, which checks the identifier.
pub(crate) unsafe fn bounds(library: CallingLibrary, space: hid_t) -> Option<(Vec<u64>, Vec<u64>)> {
    if is_special(space) {
        return None;
    }
    library.keeping_errors(|| dataspace::bounds(library.hdf5, space))
}

/// The extent of a dataset.
pub(crate) struct Extent {
    pub(crate) elements: u64,
    /// Whether the extent can never change.
    pub(crate) is_fixed: bool,
}

/// Queries the connector below for the extent of a dataset; `None` if it does not return it.
///
/// # Safety
/// The thread is inside a callback on `under`, a dataset.
pub(crate) unsafe fn extent_of_dataset(under: &Under) -> Option<Extent> {
    let (library, none) = (under.library(), ptr::null_mut());
    let mut args = DatasetGetSpace::default();
    let (mut now, mut most) = ([0u64; H5S_MAX_RANK], [0u64; H5S_MAX_RANK]);
    // SAFETY: the caller guarantees this; the arguments belong to the operation, and both arrays have room for
    // the largest rank.
    unsafe {
        let place = args.as_args();
        let status = match under.below() {
            Below::Native(native) => native
                .get
                .map_or(FAIL, |get| get(under.object, place, H5P_DEFAULT, none)),
            Below::Other(under) => under.quietly(|| {
                let get = under.calls.H5VLdataset_get;
                get(under.object, under.id, place, H5P_DEFAULT, none)
            }),
        };
        if status < 0 {
            return None;
        }
        let space = OwnedId::of(library, args.space_id)?;
        let elements = (library.calls.H5Sget_simple_extent_npoints)(space.id);
        let (now, most) = (now.as_mut_ptr(), most.as_mut_ptr());
        let rank = (library.hdf5.H5Sget_simple_extent_dims)(space.id, now, most);
        let rank = usize::try_from(rank).ok()?;
        Some(Extent {
            elements: u64::try_from(elements).ok()?,
            is_fixed: slice::from_raw_parts(now, rank) == slice::from_raw_parts(most, rank),
        })
    }
}

/// Makes a copy of a dataset's dataspace without selected elements. Returns `None` if HDF5 cannot.
///
/// # Safety
/// As for [`extent_of_dataset`].
pub(crate) unsafe fn nothing_of(under: &Under) -> Option<OwnedId> {
    let (library, none) = (under.library(), ptr::null_mut());
    let mut args = DatasetGetSpace::default();
    // SAFETY: the caller guarantees this; the arguments belong to the operation.
    unsafe {
        let get = under.calls.H5VLdataset_get;
        let status =
            under.quietly(|| get(under.object, under.id, args.as_args(), H5P_DEFAULT, none));
        let space = (status >= 0).then(|| OwnedId::of(library, args.space_id))??;
        ((library.hdf5.H5Sselect_none)(space.id) >= 0).then_some(space)
    }
}

/// Returns the length of each dimension of a dataset; `None` if HDF5 does not return it.
///
/// # Safety
/// As for [`extent_of_dataset`].
pub(crate) unsafe fn lengths_of(under: &Under) -> Option<Vec<u64>> {
    let mut lengths = vec![0; H5S_MAX_RANK];
    // SAFETY: the caller guarantees this; there is room for the largest rank.
    let rank = unsafe {
        let space = nothing_of(under)?;
        let get = under.library().hdf5.H5Sget_simple_extent_dims;
        get(space.id, lengths.as_mut_ptr(), ptr::null_mut())
    };
    lengths.truncate(usize::try_from(rank).ok()?);
    Some(lengths)
}

/// Makes the dataspace that replaces [`H5S_BLOCK`] in a transfer with this dataspace of the file.
/// Returns `None` if HDF5 does not return the number of selected elements.
///
/// # Safety
/// As for [`extent_of_dataset`]; HDF5 checks the identifier.
pub(crate) unsafe fn block_for(under: &Under, file_space: hid_t) -> Option<OwnedId> {
    let library = under.library();
    // SAFETY: the caller guarantees this. The dataspace has one dimension, whose length is passed.
    unsafe {
        let elements = match file_space {
            H5S_ALL => extent_of_dataset(under)?.elements,
            space if is_special(space) => return None,
            space => library.keeping_errors(|| {
                u64::try_from((library.hdf5.H5Sget_select_npoints)(space)).ok()
            })?,
        };
        let create = library.hdf5.H5Screate_simple;
        let id = library.keeping_errors(|| create(1, &elements, ptr::null()));
        OwnedId::of(library, id)
    }
}

/// Copies a dataspace and moves the selection to the first element, so that the address of the
/// first selected element is that of the buffer. Returns `None` if the selection is already there.
///
/// # Safety
/// As for [`bounds`].
pub(crate) unsafe fn shifted_to_first(library: CallingLibrary, space: hid_t) -> Option<OwnedId> {
    // SAFETY: the caller guarantees this.
    let (low, _) = unsafe { bounds(library, space)? };
    if low.iter().all(|at| *at == 0) {
        return None;
    }
    // SAFETY: HDF5 checks the identifier, and each list has a number for each dimension.
    unsafe {
        let space = OwnedId::of(library, (library.hdf5.H5Scopy)(space))?;
        let id = space.id;
        // H5Sselect_adjust ignores the offset of H5Soffset_simple.
        let no_offset = vec![0i64; low.len()];
        if (library.hdf5.H5Soffset_simple)(id, no_offset.as_ptr()) < 0 {
            return None;
        }
        let (low, _) = bounds(library, id)?;
        let low: Option<Vec<i64>> = low.iter().map(|at| i64::try_from(*at).ok()).collect();
        ((library.calls.H5Sselect_adjust)(id, low?.as_ptr()) >= 0).then_some(space)
    }
}

/// Returns the range from the first to the last byte that a selection in memory touches. Returns
/// `None` if nothing is selected, or if `space` is not an identifier.
///
/// # Safety
/// As for [`bounds`].
pub(crate) unsafe fn touched_bytes(
    library: CallingLibrary,
    space: hid_t,
    element: u64,
) -> Option<Range<u64>> {
    if is_special(space) {
        return None;
    }
    // SAFETY: the caller guarantees this.
    library.keeping_errors(|| unsafe {
        let some = (library.hdf5.H5Sget_select_npoints)(space) > 0;
        some.then(|| touched_by_some(library, space, element))
            .flatten()
    })
}

/// As [`touched_bytes`], for a dataspace with a selection of some elements. May clear the error
/// stack.
///
/// # Safety
/// As for [`bounds`].
pub(crate) unsafe fn touched_by_some(
    library: CallingLibrary,
    space: hid_t,
    element: u64,
) -> Option<Range<u64>> {
    let mut sizes = [0u64; H5S_MAX_RANK];
    let (mut low, mut high) = ([0u64; H5S_MAX_RANK], [0u64; H5S_MAX_RANK]);
    let hdf5 = library.hdf5;
    // SAFETY: the caller guarantees this; each array has room for the largest rank.
    let rank = unsafe {
        let rank = (hdf5.H5Sget_simple_extent_dims)(space, sizes.as_mut_ptr(), ptr::null_mut());
        let rank = usize::try_from(rank).ok().filter(|rank| *rank > 0)?;
        let status = (hdf5.H5Sget_select_bounds)(space, low.as_mut_ptr(), high.as_mut_ptr());
        (status >= 0).then_some(rank)?
    };
    let offset = |corner: &[u64]| {
        let sides = corner[..rank].iter().zip(&sizes);
        sides.fold(0u64, |sum, (at, size)| {
            sum.wrapping_mul(*size).wrapping_add(*at)
        })
    };
    let (first, last) = (offset(&low), offset(&high));
    Some(first.checked_mul(element)?..last.checked_add(1)?.checked_mul(element)?)
}
