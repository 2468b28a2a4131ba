//! Support for a copy of the library in a forked child.

use penstock_hdf5::transfer::TransferHandle;
use penstock_sys::hdf5::Hdf5;
use penstock_sys::is_copy;

/// Waits for a transfer of a dataset if HDF5 has the connector of the parent's library. That
/// connector cannot see transfers of this library, so calls of HDF5 must find none pending.
///
/// # Safety
/// This thread may call HDF5.
pub(crate) unsafe fn end_for_connector(hdf5: &Hdf5, transfer: &TransferHandle) {
    // SAFETY: by contract of this function.
    if is_copy() && unsafe { penstock_vol::is_registered(hdf5) } {
        transfer.wait_at_most(&|| None);
    }
}
