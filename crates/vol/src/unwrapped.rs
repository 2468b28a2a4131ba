//! Files of the native connector without a wrapper. HDF5 (1.14.4, 2.0.0, 2.2.0) keeps one connector
//! for all handles of a file, that of the first. It passes the file of each handle to that
//! connector, for elements of variable length and references, also if the handle was opened with
//! another connector:
//!
//! * If the first handle has this connector, and the second has none, this connector gets the
//!   native file of the second ([`of_caller`]).
//! * If the first has none, the native connector gets what [`wrap`](crate::wrap) returns for the
//!   file of the second. It must be the native file itself ([`is_natives`]).

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex};

use penstock_engine::Recover;
use penstock_sys::hdf5::connector::{
    FileGet, H5I_FILE, H5I_type_t, H5VL_FILE_GET_FAPL, H5VL_file_get_args_t,
};
use penstock_sys::hdf5::{H5P_DEFAULT, hid_t};

use super::calling_function::calling_library;
use super::calling_library::CallingLibrary;
use super::connector_below::ConnectorBelow;
use super::container::Container;
use super::info::ConnectorInfo;
use super::owned_id::OwnedId;
use super::under::NATIVE;
use penstock_hdf5::library::copies::SLOTS;
use penstock_hdf5::library::may_flush;

/// A container for each copy of HDF5, which has only the native connector and default settings.
static CONTAINERS: [Mutex<Option<Arc<Container>>>; SLOTS] = [const { Mutex::new(None) }; SLOTS];

/// Returns the container of native files without a wrapper in the HDF5 that has called this
/// function's caller.
pub(crate) fn of_caller() -> Option<Arc<Container>> {
    let library = calling_library()?;
    let mut container = CONTAINERS[library.slot].lock().recover();
    if container.is_none() {
        let make = || {
            let info = ConnectorInfo::native(library)?;
            Container::new(&info.below, &info.settings, false)
        };
        *container = library.keeping_errors(make).ok();
    }
    container.clone()
}

/// Takes the container, which holds an identifier of the library. A library that has closed has
/// forgotten the identifier.
pub(crate) fn take_container(library: CallingLibrary) -> Option<Arc<Container>> {
    CONTAINERS[library.slot].lock().recover().take()
}

/// Returns whether HDF5 will pass the wrapped object to the native connector: it is a file that was
/// already open without this connector.
///
/// # Safety
/// `object` is an object of the connector at the bottom, and the thread is inside the callback that
/// wraps it.
pub(crate) unsafe fn is_natives(
    object: *mut c_void,
    kind: H5I_type_t,
    container: &Container,
) -> bool {
    let below = &container.below;
    // HDF5 wraps such a file within a call of the native connector: in the last part of an opening,
    // or when it follows an external link. Handles of files that processes share have nothing in
    // common.
    if kind != H5I_FILE || may_flush() || container.is_parallel || below.value() != Some(NATIVE) {
        return false;
    }
    let library = below.library;
    let mut args = H5VL_file_get_args_t {
        op_type: H5VL_FILE_GET_FAPL,
        args: FileGet { fapl_id: -1 },
    };
    // The list of a file has the connector that HDF5 keeps.
    // SAFETY: the caller guarantees this, HDF5 checks the identifiers, and the pointers are valid for
    // the answers.
    library.keeping_errors(|| unsafe {
        let (get, none) = (library.calls.H5VLfile_get, ptr::null_mut());
        if get(object, below.id, &mut args, H5P_DEFAULT, none) < 0 {
            return false;
        }
        let list = OwnedId::of(library, args.args.fapl_id);
        let mut id: hid_t = -1;
        list.is_some_and(|list| (library.calls.H5Pget_vol_id)(list.id, &mut id) >= 0)
            && ConnectorBelow { library, id }.compare(below) == 0
    })
}
