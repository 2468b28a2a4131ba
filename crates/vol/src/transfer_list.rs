//! Dataset transfer property lists. Penstock stores a stream in them, as its own property.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::OnceLock;

use penstock_engine::Stream;
use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::connector::{H5FD_MPIO_COLLECTIVE, H5FD_MPIO_INDEPENDENT};
use penstock_sys::hdf5::{H5P_DEFAULT, hid_t};

use super::calling_library::CallingLibrary;
use super::owned_id::OwnedId;
use penstock_hdf5::library::copies::SLOTS;

const STREAM: &CStr = c"penstock_stream";

/// The contents of a dataset transfer property list.
pub(crate) struct TransferList {
    /// The stream after which GPU memory is ready. `None` is the legacy default stream.
    pub(crate) stream: Option<Stream>,
    /// Whether all other properties equal those of the default list.
    pub(crate) is_plain: bool,
}

/// Returns the identifier of the list that H5P_DEFAULT denotes; `None` if this HDF5 does not export
/// it.
///
/// # Safety
/// The thread is inside a call of `library`.
unsafe fn default_list(library: CallingLibrary) -> Option<hid_t> {
    static ADDRESSES: [OnceLock<Option<usize>>; SLOTS] = [const { OnceLock::new() }; SLOTS];
    let address = ADDRESSES.get(library.slot)?.get_or_init(|| {
        let found = library.hdf5.address_of("H5P_LST_DATASET_XFER_ID_g");
        found.map(|address| address as usize)
    });
    // SAFETY: the address is that of a variable of this HDF5, which the process never unloads.
    address.map(|address| unsafe { *(address as *const hid_t) })
}

/// Reads a dataset transfer property list.
///
/// # Safety
/// The thread is inside a call of `library`, which checks the identifier.
pub(crate) unsafe fn read_transfer_list(
    library: CallingLibrary,
    list: hid_t,
) -> Result<TransferList> {
    // SAFETY: the caller guarantees this.
    let default = unsafe { default_list(library) };
    if list == H5P_DEFAULT || default == Some(list) {
        return Ok(TransferList {
            stream: None,
            is_plain: true,
        });
    }
    let default = default.unwrap_or(H5P_DEFAULT);
    // SAFETY: the caller guarantees this; `handle` receives the value, which is a pointer.
    library.keeping_errors(|| unsafe {
        let mut stream = None;
        if (library.calls.H5Pexist)(list, STREAM.as_ptr()) > 0 {
            let mut handle: *mut c_void = ptr::null_mut();
            if (library.calls.H5Pget)(list, STREAM.as_ptr(), (&raw mut handle).cast()) < 0 {
                return Err(Error::invalid(
                    "HDF5 cannot read the stream from the transfer property list",
                ));
            }
            stream = Some(Stream::from_raw(handle));
        }
        let is_plain = stream.is_none() && (library.calls.H5Pequal)(list, default) > 0
            || is_plain_but_for_results(library, list, default);
        Ok(TransferList { stream, is_plain })
    })
}

/// Returns whether a list equals the default one, apart from the stream and from results that HDF5
/// with MPI has stored for the last transfer.
///
/// # Safety
/// As for [`read_transfer_list`].
unsafe fn is_plain_but_for_results(library: CallingLibrary, list: hid_t, default: hid_t) -> bool {
    const RESULTS: [&CStr; 6] = [
        c"actual_chunk_opt_mode",
        c"actual_io_mode",
        c"local_no_collective_cause",
        c"global_no_collective_cause",
        c"no_selection_io_cause",
        c"actual_selection_io_mode",
    ];
    // SAFETY: the caller guarantees this.
    let rest_of = |list, also: Option<&CStr>| unsafe {
        let rest = OwnedId::of(library, (library.calls.H5Pcopy)(list))?;
        for name in RESULTS.into_iter().chain(also) {
            if (library.calls.H5Pexist)(rest.id, name.as_ptr()) > 0 {
                (library.calls.H5Premove)(rest.id, name.as_ptr());
            }
        }
        Some(rest)
    };
    let rests = rest_of(list, Some(STREAM)).zip(rest_of(default, None));
    // SAFETY: as above.
    rests.is_some_and(|(rest, of_default)| unsafe {
        (library.calls.H5Pequal)(rest.id, of_default.id) > 0
    })
}

/// Returns whether HDF5 makes transfers with this list collectively.
///
/// # Safety
/// As for [`read_transfer_list`].
pub(crate) unsafe fn is_collective(library: CallingLibrary, list: hid_t) -> bool {
    let mut mode = H5FD_MPIO_INDEPENDENT;
    let Some(get) = library
        .calls
        .H5Pget_dxpl_mpio
        .filter(|_| list != H5P_DEFAULT)
    else {
        return false;
    };
    // SAFETY: the caller guarantees this; `mode` receives the answer.
    let status = library.keeping_errors(|| unsafe { get(list, &mut mode) });
    status >= 0 && mode == H5FD_MPIO_COLLECTIVE
}

/// Copies a list, and makes transfers with the copy independent.
///
/// # Safety
/// As for [`read_transfer_list`].
pub(crate) unsafe fn independent(library: CallingLibrary, list: hid_t) -> Result<OwnedId> {
    // SAFETY: the caller guarantees this.
    let copied = library.keeping_errors(|| unsafe {
        let set = library.calls.H5Pset_dxpl_mpio?;
        let copy = OwnedId::of(library, (library.calls.H5Pcopy)(list))?;
        (set(copy.id, H5FD_MPIO_INDEPENDENT) >= 0).then_some(copy)
    });
    copied.ok_or_else(|| Error::invalid("HDF5 cannot copy the transfer property list"))
}

/// Sets the stream of a dataset transfer property list.
///
/// # Safety
/// `list` is an identifier of `library`, and the thread holds the lock of that library. `stream` is a live
/// CUDA stream as long as the list is in use.
pub(crate) unsafe fn set_stream(
    library: CallingLibrary,
    list: hid_t,
    mut stream: *mut c_void,
) -> Result<()> {
    let value: *mut c_void = (&raw mut stream).cast();
    let none = ptr::null();
    // SAFETY: HDF5 checks the identifier, and copies the value, which has the given size.
    let status = unsafe {
        match (library.calls.H5Pexist)(list, STREAM.as_ptr()) {
            0 => (library.calls.H5Pinsert2)(
                list,
                STREAM.as_ptr(),
                size_of::<*mut c_void>(),
                value,
                none,
                none,
                none,
                none,
                none,
                none,
            ),
            exists if exists > 0 => (library.calls.H5Pset)(list, STREAM.as_ptr(), value),
            _ => -1,
        }
    };
    if status < 0 {
        Err(Error::invalid("HDF5 cannot set the stream in the list")
            .remedy("give the identifier of a dataset transfer property list"))
    } else {
        Ok(())
    }
}
