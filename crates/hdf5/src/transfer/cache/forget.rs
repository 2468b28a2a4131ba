//! Drops the cache entries of a file on request.

use penstock_engine::error::Result;
use penstock_sys::hdf5::{Hdf5, hid_t};

use super::{files, virtual_fits, virtual_sources};
use crate::dataset::FileInfo;
use crate::library::Session;
use crate::open_files::identity_of;
use crate::transfer::hdf5_state::inside;

/// Drops the cache entries of the datasets of an object's file.
///
/// # Safety
/// This thread may call HDF5.
pub unsafe fn forget(hdf5: &'static Hdf5, object: hid_t) -> Result<()> {
    inside(hdf5, || {
        // SAFETY: the caller may call HDF5.
        let session = unsafe { Session::begin(hdf5) };
        virtual_fits::forget();
        if virtual_sources::are_known() {
            let file = FileInfo::of(&session, object)?;
            if let Some(reader) = file.descriptor.and_then(identity_of) {
                virtual_sources::forget(Some(reader));
            }
        }
        files::forget_file(&session, object)
    })
}
