//! The stream of a transfer property list: a property of its own.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::OnceLock;

use penstock_engine::Stream;
use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::{H5P_DEFAULT, hid_t};

use super::host::Host;
use penstock_hdf5::library::copies::SLOTS;

const STREAM: &CStr = c"penstock_stream";

/// What a transfer property list says.
pub struct Found {
    /// The stream that GPU memory is ready after; none for the legacy default stream.
    pub stream: Option<Stream>,
    /// Whether it says nothing else that differs from the default list.
    pub is_plain: bool,
}

/// The list that H5P_DEFAULT stands for, if HDF5 tells.
///
/// # Safety
/// The thread is inside a call of `host`.
unsafe fn default_list(host: Host) -> Option<hid_t> {
    static ADDRESSES: [OnceLock<Option<usize>>; SLOTS] = [const { OnceLock::new() }; SLOTS];
    let address = ADDRESSES.get(host.slot)?.get_or_init(|| {
        let found = host.hdf5.address_of("H5P_LST_DATASET_XFER_ID_g");
        found.map(|address| address as usize)
    });
    // SAFETY: it is a variable of this HDF5, which is never closed.
    address.map(|address| unsafe { *(address as *const hid_t) })
}

/// # Safety
/// The thread is inside a call of `host`, which checks the identifier.
pub unsafe fn stream_of(host: Host, list: hid_t) -> Result<Found> {
    // SAFETY: passed on.
    let default = unsafe { default_list(host) };
    if list == H5P_DEFAULT || default == Some(list) {
        return Ok(Found {
            stream: None,
            is_plain: true,
        });
    }
    let default = default.unwrap_or(H5P_DEFAULT);
    let equals = |list| {
        // SAFETY: passed on.
        unsafe { (host.calls.H5Pequal)(list, default) > 0 }
    };
    // SAFETY: passed on; there is a place for the value, which is a pointer.
    host.keeping_errors(|| unsafe {
        if (host.calls.H5Pexist)(list, STREAM.as_ptr()) <= 0 {
            return Ok(Found {
                stream: None,
                is_plain: equals(list),
            });
        }
        let mut handle: *mut c_void = ptr::null_mut();
        if (host.calls.H5Pget)(list, STREAM.as_ptr(), (&raw mut handle).cast()) < 0 {
            return Err(Error::invalid("HDF5 does not tell the stream of the list"));
        }
        let rest = (host.calls.H5Pcopy)(list);
        let removed = (host.calls.H5Premove)(rest, STREAM.as_ptr()) >= 0;
        let is_plain = removed && equals(rest);
        (host.hdf5.H5Pclose)(rest);
        Ok(Found {
            stream: Some(Stream::from_raw(handle)),
            is_plain,
        })
    })
}

/// Sets the stream of a transfer property list.
///
/// # Safety
/// `list` is an identifier of `host`, whose lock is held. `stream` is a live CUDA stream as long as
/// the list is used.
pub unsafe fn set_stream(host: Host, list: hid_t, mut stream: *mut c_void) -> Result<()> {
    let value: *mut c_void = (&raw mut stream).cast();
    let none = ptr::null();
    // SAFETY: HDF5 checks the identifier, and copies the value, which has the size that is said.
    let status = unsafe {
        match (host.calls.H5Pexist)(list, STREAM.as_ptr()) {
            0 => (host.calls.H5Pinsert2)(
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
            exists if exists > 0 => (host.calls.H5Pset)(list, STREAM.as_ptr(), value),
            _ => -1,
        }
    };
    match status < 0 {
        true => Err(Error::invalid("HDF5 does not set the stream of the list")
            .remedy("give the identifier of a dataset transfer property list")),
        false => Ok(()),
    }
}
