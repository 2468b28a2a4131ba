//! Elements that contain pointers to host memory.

use std::ffi::c_int;

use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::{
    H5T_ARRAY, H5T_COMPOUND, H5T_REFERENCE, H5T_STRING, H5T_VLEN, Hdf5, hid_t,
};

/// Returns an error if elements of this type, in GPU memory, contain pointers: HDF5 would
/// dereference those that it finds, and store pointers to memory that only it can free.
///
/// # Safety
/// This thread may call HDF5, which checks the identifier.
pub unsafe fn refuse(hdf5: &Hdf5, memory_type: hid_t) -> Result<()> {
    // SAFETY: upheld by the caller.
    if !unsafe { has_pointers(hdf5, memory_type, 0) } {
        return Ok(());
    }
    let cause =
        "variable-length elements and references cannot be transferred to or from GPU memory";
    Err(Error::invalid(cause).remedy("use host memory for them"))
}

/// # Safety
/// As for [`refuse`].
unsafe fn has_pointers(hdf5: &Hdf5, id: hid_t, depth: usize) -> bool {
    /// HDF5's types do not nest this deep; anything deeper counts as containing pointers.
    const DEEPEST: usize = 64;
    /// `H5R_REF_BUF_SIZE`: the older kinds of references are smaller, and plain data.
    const REFERENCE: usize = 64;
    let part = |part: hid_t| {
        // SAFETY: upheld by the caller; the part is owned and closed here.
        unsafe {
            let has = part < 0 || has_pointers(hdf5, part, depth + 1);
            (hdf5.H5Tclose)(part);
            has
        }
    };
    if depth > DEEPEST {
        return true;
    }
    // SAFETY: upheld by the caller.
    unsafe {
        match (hdf5.H5Tget_class)(id) {
            H5T_VLEN => true,
            H5T_STRING => (hdf5.H5Tis_variable_str)(id) > 0,
            H5T_REFERENCE => (hdf5.H5Tget_size)(id) >= REFERENCE,
            H5T_ARRAY => part((hdf5.H5Tget_super)(id)),
            H5T_COMPOUND => {
                let members: c_int = (hdf5.H5Tget_nmembers)(id);
                (0..members.max(0) as u32).any(|member| part((hdf5.H5Tget_member_type)(id, member)))
            }
            _ => false,
        }
    }
}
