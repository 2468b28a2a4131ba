//! Drivers whose files are plain files: HDF5's offsets are offsets in one file, and
//! `H5Fget_vfd_handle` returns the address of its descriptor. HDF5's default driver is one;
//! Penstock's registers itself here.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use penstock_engine::error::Result;
use penstock_engine::options::Options;
use penstock_sys::hdf5::{Hdf5, hid_t};

/// A driver of plain files other than HDF5's own.
pub struct PlainDriver {
    /// Returns whether this driver, with no other driver above it, has opened the file with this
    /// driver identifier and handle, as returned by `H5Pget_driver` and `H5Fget_vfd_handle`.
    pub has_opened: fn(hid_t, *const c_void) -> bool,
    /// Returns the options of the file that the driver has open with this descriptor; the defaults
    /// if it has no such file.
    pub options_of: fn(c_int) -> Options,
    /// Writes what the driver buffers of the file that it has open with this descriptor, if it has such a
    /// file, and drops what it has read of it.
    pub write_out: fn(c_int) -> Result<()>,
}

static REGISTERED: OnceLock<PlainDriver> = OnceLock::new();

/// Registers a driver before it opens its first file. A process has one; further calls have no
/// effect.
pub fn register(driver: PlainDriver) {
    let _ = REGISTERED.set(driver);
}

/// Returns whether offsets of a file with this driver and handle are those of one plain file.
pub(crate) fn is_plain(hdf5: &Hdf5, driver: hid_t, handle: *const c_void) -> bool {
    let is_registered = || {
        REGISTERED
            .get()
            .is_some_and(|known| (known.has_opened)(driver, handle))
    };
    driver >= 0 && (hdf5.sec2_driver() == Some(driver) || is_registered())
}

/// Returns the options that a file's own driver has for it.
pub fn options_of(descriptor: c_int) -> Options {
    REGISTERED
        .get()
        .map(|known| (known.options_of)(descriptor))
        .unwrap_or_default()
}

/// Writes what a file's driver buffers of it, before bytes move past the driver.
pub(crate) fn write_out(descriptor: c_int) -> Result<()> {
    match REGISTERED.get() {
        Some(known) => (known.write_out)(descriptor),
        None => Ok(()),
    }
}
