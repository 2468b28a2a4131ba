//! The MPI library with which a parallel HDF5 is linked.
//!
//! Handles (`MPI_Comm`, `MPI_Info`) are ints in MPICH and in the libraries that share its binary
//! interface, and pointers in Open MPI. A [`Handle`] holds either: on a little-endian machine, an int
//! is its lower half, in memory and in a register.

use std::ffi::{c_char, c_int, c_void};

use crate::library::table;

pub type Handle = usize;

table! {
    /// Functions of MPI by their C names. They may be called while MPI [is running](Mpi::is_running),
    /// by the thread on which the program calls MPI.
    Mpi {
        required {
            fn MPI_Barrier(comm: Handle) -> c_int;
            fn MPI_Allreduce(
                sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: Handle, op: Handle, comm: Handle
            ) -> c_int;
            /// `user_fn` combines elements: it takes two arrays, of which the second receives the result, the
            /// number of elements and their datatype.
            fn MPI_Op_create(
                user_fn: unsafe extern "C" fn(*const c_void, *mut c_void, *const c_int, *const Handle),
                commute: c_int,
                op: *mut Handle
            ) -> c_int;
            /// Replaces the handle by the null handle.
            fn MPI_Op_free(op: *mut Handle) -> c_int;
            /// `datarep` has room for `MPI_MAX_DATAREP_STRING` characters, which is 128 in MPICH and Open MPI.
            fn MPI_File_get_view(
                file: Handle, displacement: *mut i64, etype: *mut Handle, filetype: *mut Handle, datarep: *mut c_char
            ) -> c_int;
            fn MPI_Comm_size(comm: Handle, size: *mut c_int) -> c_int;
            /// Makes a communicator of the processes that pass the same color.
            fn MPI_Comm_split(comm: Handle, color: c_int, key: c_int, newcomm: *mut Handle) -> c_int;
            /// Replaces the handle by the null handle, as `MPI_Info_free` does.
            fn MPI_Comm_free(comm: *mut Handle) -> c_int;
            fn MPI_Info_create(info: *mut Handle) -> c_int;
            fn MPI_Info_set(info: Handle, key: *const c_char, value: *const c_char) -> c_int;
            fn MPI_Info_free(info: *mut Handle) -> c_int;
            fn MPI_Initialized(flag: *mut c_int) -> c_int;
            fn MPI_Finalized(flag: *mut c_int) -> c_int;
        }
        optional {
            /// A variable of Open MPI, of which only the presence is used.
            fn ompi_mpi_info_null();
        }
    }
}

/// The result of a successful function.
pub const MPI_SUCCESS: c_int = 0;

impl Mpi {
    /// Whether this is Open MPI, whose MPI-IO (OMPIO) ignores the hints of ROMIO.
    pub fn is_open_mpi(&self) -> bool {
        self.ompi_mpi_info_null.is_some()
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
