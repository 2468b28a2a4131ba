//! What this connector asks of MPI: on the thread and at the time of the program's calls, as HDF5 does.

use std::ptr;

use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::hid_t;
use penstock_sys::mpi::{Handle, Mpi};

use super::calling_library::CallingLibrary;

/// The processes that have opened a file together. Messages of the program and of HDF5 have other communicators.
pub(crate) struct Communicator {
    mpi: &'static Mpi,
    handle: Handle,
}

impl Communicator {
    /// Duplicates the communicator of a file access property list, which all its processes do together.
    ///
    /// # Safety
    /// The thread is inside a call of `library`, which checks the list. The driver of the list is that of MPI-IO.
    pub(crate) unsafe fn of(
        library: CallingLibrary,
        mpi: &'static Mpi,
        fapl: hid_t,
    ) -> Result<Communicator> {
        let mut handle: Handle = 0;
        let failed =
            || Error::invalid("HDF5 cannot copy the communicator of the file access property list");
        let get = library.calls.H5Pget_fapl_mpio.ok_or_else(failed)?;
        // SAFETY: the caller guarantees this. The copy has a place, and null asks for no information.
        let status = library
            .keeping_errors(|| unsafe { get(fapl, (&raw mut handle).cast(), ptr::null_mut()) });
        match status < 0 {
            true => Err(failed()),
            false => Ok(Communicator { mpi, handle }),
        }
    }

    /// Waits until all processes have called this.
    pub(crate) fn meet(&self) {
        if self.mpi.is_running() {
            // SAFETY: the communicator exists until it is dropped, and the thread makes a call of HDF5 that all
            // processes make. HDF5 has set errors of the copy to be returned; an error ends no wait of the others.
            unsafe { (self.mpi.MPI_Barrier)(self.handle) };
        }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        if self.mpi.is_running() {
            // SAFETY: the communicator is this object's own, and all processes close the file.
            unsafe { (self.mpi.MPI_Comm_free)(&mut self.handle) };
        }
    }
}
