//! Dataspaces: the elements and bytes that a selection spans.

use std::ops::Range;
use std::ptr;

use penstock_sys::hdf5::hid_t;

use super::calling_library::CallingLibrary;
use penstock_hdf5::dataset::dataspace;

/// Whether a number stands for a dataspace without being an identifier, as H5S_ALL does.
pub(crate) fn is_special(space: hid_t) -> bool {
    (0..16).contains(&space)
}

/// Returns the first and the last selected element along each dimension. `None` if nothing is selected, or
/// `space` is no identifier.
///
/// # Safety
/// The thread is inside a call of HDF5, which checks the identifier.
pub(crate) unsafe fn bounds(library: CallingLibrary, space: hid_t) -> Option<(Vec<u64>, Vec<u64>)> {
    if is_special(space) {
        return None;
    }
    library.keeping_errors(|| dataspace::bounds(library.hdf5, space))
}

/// A dataspace that this connector has made, and closes.
pub(crate) struct OwnedSpace {
    library: CallingLibrary,
    pub(crate) id: hid_t,
}

impl Drop for OwnedSpace {
    fn drop(&mut self) {
        // SAFETY: the identifier is open, and nothing uses it later.
        self.library
            .keeping_errors(|| unsafe { (self.library.hdf5.H5Sclose)(self.id) });
    }
}

/// Copies a dataspace, and moves the selection to the first element. The address of the first selected
/// element is then the address of the buffer. `None` if the selection is there already.
///
/// # Safety
/// As for [`bounds`].
pub(crate) unsafe fn shifted_to_first(library: CallingLibrary, space: hid_t) -> Option<OwnedSpace> {
    // SAFETY: the caller guarantees this.
    let (low, _) = unsafe { bounds(library, space)? };
    if low.iter().all(|at| *at == 0) {
        return None;
    }
    // SAFETY: HDF5 checks the identifier, and each list has a number for each dimension.
    unsafe {
        let id = (library.hdf5.H5Scopy)(space);
        if id < 0 {
            return None;
        }
        let space = OwnedSpace { library, id };
        // H5Sselect_adjust does not take the offset of H5Soffset_simple into account.
        let no_offset = vec![0i64; low.len()];
        if (library.hdf5.H5Soffset_simple)(id, no_offset.as_ptr()) < 0 {
            return None;
        }
        let (low, _) = bounds(library, id)?;
        let low: Option<Vec<i64>> = low.iter().map(|at| i64::try_from(*at).ok()).collect();
        ((library.calls.H5Sselect_adjust)(id, low?.as_ptr()) >= 0).then_some(space)
    }
}

/// The range from the first to the last byte that a selection in memory touches.
///
/// # Safety
/// As for [`bounds`].
pub(crate) unsafe fn touched_bytes(
    library: CallingLibrary,
    space: hid_t,
    element: u64,
) -> Option<Range<u64>> {
    // SAFETY: the caller guarantees this.
    let (low, high) = unsafe { bounds(library, space)? };
    let mut sizes = vec![0u64; low.len()];
    // SAFETY: `sizes` has a number for each dimension.
    let rank = unsafe {
        (library.hdf5.H5Sget_simple_extent_dims)(space, sizes.as_mut_ptr(), ptr::null_mut())
    };
    if usize::try_from(rank) != Ok(low.len()) {
        return None;
    }
    let offset = |corner: &[u64]| {
        let sides = corner.iter().zip(&sizes);
        sides.fold(0u64, |sum, (at, size)| {
            sum.wrapping_mul(*size).wrapping_add(*at)
        })
    };
    let (first, last) = (offset(&low), offset(&high));
    Some(first.checked_mul(element)?..last.checked_add(1)?.checked_mul(element)?)
}
