//! The MPI library with which a parallel HDF5 is linked.
//!
//! Handles (`MPI_Comm`, `MPI_Info`) are ints in MPICH and in the libraries that share its binary interface, and
//! pointers in Open MPI. A [`Handle`] holds either: on a little-endian machine, an int is its lower half, in
//! memory and in a register.

use std::ffi::{c_char, c_int};

use crate::library::Library;

pub type Handle = usize;

/// Functions of MPI by their C names. They may be called while MPI [is running](Mpi::is_running), by the thread on
/// which the program calls MPI.
#[allow(non_snake_case)]
pub struct Mpi {
    pub MPI_Barrier: unsafe extern "C" fn(comm: Handle) -> c_int,
    pub MPI_Comm_size: unsafe extern "C" fn(comm: Handle, size: *mut c_int) -> c_int,
    /// Makes a communicator of the processes that pass the same color.
    pub MPI_Comm_split:
        unsafe extern "C" fn(comm: Handle, color: c_int, key: c_int, newcomm: *mut Handle) -> c_int,
    /// Replaces the handle by the null handle, as `MPI_Info_free` does.
    pub MPI_Comm_free: unsafe extern "C" fn(comm: *mut Handle) -> c_int,
    pub MPI_Info_create: unsafe extern "C" fn(info: *mut Handle) -> c_int,
    pub MPI_Info_set:
        unsafe extern "C" fn(info: Handle, key: *const c_char, value: *const c_char) -> c_int,
    pub MPI_Info_free: unsafe extern "C" fn(info: *mut Handle) -> c_int,
    MPI_Initialized: unsafe extern "C" fn(flag: *mut c_int) -> c_int,
    MPI_Finalized: unsafe extern "C" fn(flag: *mut c_int) -> c_int,
    /// Whether this is Open MPI, whose MPI-IO (OMPIO) ignores the hints of ROMIO.
    pub is_open_mpi: bool,
}

/// The result of a successful function.
pub const MPI_SUCCESS: c_int = 0;

impl Mpi {
    /// The functions that a library or its dependencies export. `None` if one is missing.
    pub(crate) fn of(library: &Library) -> Option<Mpi> {
        if cfg!(target_endian = "big") {
            return None;
        }
        // SAFETY: the signatures are those of mpi.h, with `Handle` for either kind of handle. The last symbol is a
        // variable, and only its presence is used.
        unsafe {
            Some(Mpi {
                MPI_Barrier: library.optional(&["MPI_Barrier"])?,
                MPI_Comm_size: library.optional(&["MPI_Comm_size"])?,
                MPI_Comm_split: library.optional(&["MPI_Comm_split"])?,
                MPI_Comm_free: library.optional(&["MPI_Comm_free"])?,
                MPI_Info_create: library.optional(&["MPI_Info_create"])?,
                MPI_Info_set: library.optional(&["MPI_Info_set"])?,
                MPI_Info_free: library.optional(&["MPI_Info_free"])?,
                MPI_Initialized: library.optional(&["MPI_Initialized"])?,
                MPI_Finalized: library.optional(&["MPI_Finalized"])?,
                is_open_mpi: library
                    .optional::<*const u8>(&["ompi_mpi_info_null"])
                    .is_some(),
            })
        }
    }

    /// Whether the program has initialised MPI and not finalized it.
    pub fn is_running(&self) -> bool {
        let (mut has_begun, mut has_ended) = (0, 0);
        // SAFETY: both functions may be called at any time, and the results have a place.
        unsafe {
            (self.MPI_Initialized)(&mut has_begun);
            (self.MPI_Finalized)(&mut has_ended);
        }
        has_begun != 0 && has_ended == 0
    }
}
