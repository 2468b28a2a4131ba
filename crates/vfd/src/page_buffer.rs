//! Turns off HDF5's page buffer for files that are open for writing.
//!
//! A large read of raw data copies changed pages of the page buffer over what the driver has read.
//! HDF5 1.14.4 to 2.2.0 copies them to the wrong place if the read does not start at a page, or if
//! a page between two others is not in the buffer (`H5PB_read`). HDF5's own drivers return wrong
//! elements, too, but more rarely because of their sieve buffer. Pages of a file that is open only
//! for reading never change.
//!
//! HDF5 reads the size from the access property list after the driver has opened the file, and
//! creates the page buffer later. `H5FDopen` of HDF5's driver ros3 changes the same property.

use std::ffi::c_uint;

use penstock_engine::error::{Error, Result};
use penstock_hdf5::library::Session;
use penstock_sys::hdf5::{Hdf5, herr_t, hid_t};

/// The saved page buffer settings of an access property list. Dropping this value restores them.
pub(crate) struct TurnedOff {
    hdf5: &'static Hdf5,
    fapl: hid_t,
    size: usize,
    min_metadata: c_uint,
    min_raw: c_uint,
}

/// Turns the page buffer of an access property list off. Returns `None` if it has none.
///
/// # Safety
/// `fapl` is a file access property list of `hdf5`, whose lock is held now and when the result is
/// dropped.
pub(crate) unsafe fn turn_off(hdf5: &'static Hdf5, fapl: hid_t) -> Result<Option<TurnedOff>> {
    let (mut size, mut min_metadata, mut min_raw) = (0, 0, 0);
    // SAFETY: all results have places of their types; the caller guarantees the list.
    check(unsafe {
        (hdf5.H5Pget_page_buffer_size)(fapl, &mut size, &mut min_metadata, &mut min_raw)
    })?;
    if size == 0 {
        return Ok(None);
    }
    // SAFETY: as above.
    check(unsafe { (hdf5.H5Pset_page_buffer_size)(fapl, 0, 0, 0) })?;
    Ok(Some(TurnedOff {
        hdf5,
        fapl,
        size,
        min_metadata,
        min_raw,
    }))
}

fn check(status: herr_t) -> Result<()> {
    if status >= 0 {
        return Ok(());
    }
    let cause =
        "HDF5 does not let the driver turn off the page buffer of a file that is open for writing";
    Err(Error::invalid(cause).remedy("open the file without H5Pset_page_buffer_size"))
}

impl Drop for TurnedOff {
    fn drop(&mut self) {
        // SAFETY: `turn_off`'s caller guarantees the lock. The list exists while HDF5 opens a file by
        // it; after `H5FDopen` it may not, which HDF5 checks, and must not print.
        unsafe {
            let session = Session::begin(self.hdf5);
            (session.hdf5.H5Pset_page_buffer_size)(
                self.fapl,
                self.size,
                self.min_metadata,
                self.min_raw,
            );
        }
    }
}
