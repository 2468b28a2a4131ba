//! Caches what HDF5 has returned for the identifiers of the last transfer.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use penstock_sys::hdf5::connector::{H5I_DATASPACE, H5I_DATATYPE};
use penstock_sys::hdf5::hid_t;

use super::calling_library::CallingLibrary;
use super::dataspace::is_special;

/// Results of HDF5 for the datatype and the dataspace of the memory in the last transfer. HDF5
/// never reuses an identifier.
#[derive(Default)]
pub(crate) struct LastIds {
    datatype: AtomicI64,
    size: AtomicU64,
    dataspace: AtomicI64,
}

impl LastIds {
    /// Returns the size of an element in bytes, possibly as it was in an earlier transfer. Returns
    /// `None` if the identifier is not that of a datatype; HDF5 then prints no error.
    ///
    /// # Safety
    /// The thread is inside a call of `library`.
    pub(crate) unsafe fn size(&self, library: CallingLibrary, id: hid_t) -> Option<u64> {
        if self.datatype.load(Relaxed) == id && id > 0 {
            return Some(self.size.load(Relaxed));
        }
        // SAFETY: the caller guarantees this; HDF5 checks the identifier.
        let size = unsafe {
            if (library.calls.H5Iget_type)(id) != H5I_DATATYPE {
                return None;
            }
            (library.hdf5.H5Tget_size)(id) as u64
        };
        if size == 0 {
            return None;
        }
        self.datatype.store(0, Relaxed);
        self.size.store(size, Relaxed);
        self.datatype.store(id, Relaxed);
        Some(size)
    }

    /// Returns whether an identifier is that of a dataspace. HDF5 prints no error otherwise.
    ///
    /// # Safety
    /// As for [`LastIds::size`].
    pub(crate) unsafe fn is_dataspace(&self, library: CallingLibrary, id: hid_t) -> bool {
        if is_special(id) {
            return false;
        }
        if self.dataspace.load(Relaxed) == id {
            return true;
        }
        // SAFETY: the caller guarantees this; HDF5 checks the identifier.
        let is_that = unsafe { (library.calls.H5Iget_type)(id) } == H5I_DATASPACE;
        if is_that {
            self.dataspace.store(id, Relaxed);
        }
        is_that
    }
}
