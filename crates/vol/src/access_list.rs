//! File access property lists for the connector below.

use std::sync::Arc;

use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::hid_t;

use super::calling_library::CallingLibrary;
use super::container::Container;
use super::info::ConnectorInfo;
use super::owned_id::OwnedId;

/// A file access property list for the connector below.
pub(crate) struct AccessList {
    pub(crate) container: Arc<Container>,
    pub(crate) fapl: OwnedId,
}

impl AccessList {
    /// Copies the property list of the application, or of the connector above, and sets the
    /// connector below in it.
    ///
    /// # Safety
    /// The thread is inside a call of `library`, and `fapl` is a file access property list of that library.
    pub(crate) unsafe fn of(library: CallingLibrary, fapl: hid_t) -> Result<AccessList> {
        // The processes copy a communicator of the list together, so no error may come before.
        // SAFETY: HDF5 checks the identifier.
        let copied = OwnedId::of(library, unsafe { (library.calls.H5Pcopy)(fapl) });
        // SAFETY: the caller guarantees this.
        let (info, is_parallel) = unsafe {
            let info = ConnectorInfo::of_access_list(library, fapl)?;
            (info, is_parallel(library, fapl))
        };
        let container = Container::new(&info.below, &info.settings, is_parallel)?;
        let fapl = copied
            .ok_or_else(|| Error::invalid("HDF5 cannot copy the file access property list"))?;
        let set = library.calls.H5Pset_vol;
        // SAFETY: the identifier is open. Its connector has made the information, which HDF5 copies.
        let status = unsafe { set(fapl.id, info.below.id, info.under_info) };
        if status < 0 {
            Err(Error::invalid(
                "HDF5 cannot set the connector below in the file access property list",
            ))
        } else {
            Ok(AccessList { container, fapl })
        }
    }
}

/// Returns whether the processes of an MPI program share a file opened with this list.
///
/// # Safety
/// As for [`AccessList::of`].
pub(crate) unsafe fn is_parallel(library: CallingLibrary, fapl: hid_t) -> bool {
    let mut flags = 0;
    // SAFETY: HDF5 checks the identifiers, and `flags` receives the answer.
    library.keeping_errors(|| unsafe {
        let driver = (library.hdf5.H5Pget_driver)(fapl);
        driver >= 0 && (library.calls.H5FDdriver_query)(driver, &mut flags) >= 0
    }) && flags & H5FD_FEAT_HAS_MPI != 0
}
