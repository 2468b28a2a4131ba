//! Calls of MPI by this connector. They run on the thread and at the time of the program's calls,
//! as HDF5's do.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr;

use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::hid_t;
use penstock_sys::mpi::{Handle, MPI_SUCCESS, Mpi};

use super::calling_library::CallingLibrary;

/// An identifier of nothing, `H5I_INVALID_HID`.
const NO_LIST: hid_t = -1;

/// The processes that have opened a file together. Messages of the program and of HDF5 use other
/// communicators.
pub(crate) struct Communicator {
    mpi: &'static Mpi,
    handle: Handle,
    reduction: Option<Reduction>,
}

/// What [`Communicator::any`] needs. Only the header of the MPI library defines its handles of bytes
/// and of operations.
struct Reduction {
    byte: Handle,
    or: Handle,
}

impl Communicator {
    /// Duplicates the communicator of a file access property list, collectively. Returns `None` if
    /// the list has none: HDF5 has then initialised MPI itself, and opens the file for all
    /// processes of the program.
    ///
    /// # Safety
    /// The thread is inside a call of `library`, which checks the list. The driver of the list is that of MPI-IO.
    pub(crate) unsafe fn of(
        library: CallingLibrary,
        mpi: &'static Mpi,
        fapl: hid_t,
    ) -> Result<Option<Communicator>> {
        let failed =
            || Error::invalid("HDF5 cannot copy the communicator of the file access property list");
        let get = library.calls.H5Pget_fapl_mpio.ok_or_else(failed)?;
        let copy_of = |list| {
            let mut handle: Handle = 0;
            // SAFETY: the caller guarantees this. `handle` receives the copy, and null requests no information.
            let status = unsafe { get(list, (&raw mut handle).cast(), ptr::null_mut()) };
            (handle, status >= 0)
        };
        library.keeping_errors(|| {
            // For an invalid list, HDF5 returns MPI_COMM_NULL, which only the header of the MPI
            // library defines.
            let (null, _) = copy_of(NO_LIST);
            match copy_of(fapl) {
                (_, false) => Err(failed()),
                (handle, true) if handle == null => Ok(None),
                (handle, true) => Ok(Some(Communicator {
                    mpi,
                    handle,
                    reduction: None,
                })),
            }
        })
    }

    /// Returns the number of processes.
    pub(crate) fn size(&self) -> usize {
        let mut size = 0;
        // SAFETY: the communicator exists until it is dropped. `handle` receives the answer.
        let status = unsafe { (self.mpi.MPI_Comm_size)(self.handle, &mut size) };
        match status {
            MPI_SUCCESS => usize::try_from(size).unwrap_or(1),
            _ => 1,
        }
    }

    /// Returns whether all processes pass the same number. A collective call.
    pub(crate) fn have_same(&self, number: c_int) -> bool {
        let (mut same, mut all_processes, mut these) = (0, 0, 0);
        // A reduction would need a datatype and an operation, whose handles only the header of the
        // MPI library defines.
        // SAFETY: the communicator exists until it is dropped, and the thread makes a call of HDF5 that all processes
        // make. The pointers are valid for the answers.
        unsafe {
            if (self.mpi.MPI_Comm_split)(self.handle, number, 0, &mut same) != MPI_SUCCESS {
                return false;
            }
            (self.mpi.MPI_Comm_size)(self.handle, &mut all_processes);
            (self.mpi.MPI_Comm_size)(same, &mut these);
            (self.mpi.MPI_Comm_free)(&mut same);
        }
        these == all_processes
    }

    /// Prepares [`Communicator::any`]. Returns false if the MPI library does not provide what it
    /// needs.
    ///
    /// # Safety
    /// `file` is a handle of an open file of MPI-IO whose view HDF5 has left at bytes.
    pub(crate) unsafe fn can_reduce(&mut self, file: Handle) -> bool {
        let (mut at, mut byte, mut of_file, mut or): (i64, Handle, Handle, Handle) = (0, 0, 0, 0);
        let mut name: [c_char; 1024] = [0; 1024];
        // SAFETY: the caller guarantees the file, and the pointers are valid for the answers.
        let is_ready = unsafe {
            let name = name.as_mut_ptr();
            let view = self.mpi.MPI_File_get_view;
            view(file, &mut at, &mut byte, &mut of_file, name) == MPI_SUCCESS
                && (self.mpi.MPI_Op_create)(or_bytes, 1, &mut or) == MPI_SUCCESS
        };
        if is_ready {
            self.reduction = Some(Reduction { byte, or });
        }
        is_ready
    }

    /// Returns the bits that any process has set. A collective call, in which each process waits for all
    /// others. Without [`Communicator::can_reduce`] it returns the bits of this one.
    pub(crate) fn any(&self, own: u8) -> u8 {
        let Some(Reduction { byte, or }) = &self.reduction else {
            return own;
        };
        let mut all = own;
        let (from, to) = ((&raw const own).cast(), (&raw mut all).cast());
        // SAFETY: the communicator and the operation exist until this is dropped, and the thread makes a call of HDF5
        // that all processes make. The pointers are valid for a byte.
        let status = unsafe { (self.mpi.MPI_Allreduce)(from, to, 1, *byte, *or, self.handle) };
        if status == MPI_SUCCESS { all } else { own }
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
            // SAFETY: the handles are this object's own, and all processes close the file.
            unsafe {
                if let Some(reduction) = &mut self.reduction {
                    (self.mpi.MPI_Op_free)(&mut reduction.or);
                }
                (self.mpi.MPI_Comm_free)(&mut self.handle);
            }
        }
    }
}

/// An operation of MPI: combines bytes by "or".
///
/// # Safety
/// As for `user_fn` of `MPI_Op_create`; the elements are bytes.
unsafe extern "C" fn or_bytes(
    from: *const c_void,
    to: *mut c_void,
    count: *const c_int,
    _datatype: *const Handle,
) {
    let (from, to): (*const u8, *mut u8) = (from.cast(), to.cast());
    // SAFETY: the caller guarantees the arrays and their length.
    unsafe {
        for at in 0..usize::try_from(*count).unwrap_or(0) {
            *to.add(at) |= *from.add(at);
        }
    }
}

/// Hints that prevent MPI-IO from filling the gaps between the pieces of a write with bytes that it
/// has read earlier. They are those of ROMIO, which MPICH and its derivatives contain. Other
/// values of the last two would override the first two.
const HINTS: [(&CStr, &CStr); 4] = [
    (c"romio_ds_write", c"disable"),
    (c"romio_cb_write", c"disable"),
    (c"romio_cb_pfr", c"disable"),
    (c"romio_no_indep_rw", c"false"),
];

/// Adds [`HINTS`] to the program's own in a file access property list.
///
/// # Safety
/// The thread is inside a call of `library`. The list belongs to this connector, and its driver is that of MPI-IO.
pub(crate) unsafe fn forbid_sieving(
    library: CallingLibrary,
    mpi: &'static Mpi,
    fapl: hid_t,
) -> Result<()> {
    const PROPERTY: &CStr = c"mpi_params_info";
    let calls = library.calls;
    let body = || {
        let mut present: Handle = 0;
        // SAFETY: the property of this name (1.14, 2.x) is an `MPI_Info`, for which a handle has room. The answer
        // is a copy.
        if unsafe { (calls.H5Pget)(fapl, PROPERTY.as_ptr(), (&raw mut present).cast()) } < 0 {
            return None;
        }
        let info = if present == MpiInfo::new(mpi)?.free() {
            MpiInfo::new(mpi)?
        } else {
            MpiInfo {
                mpi,
                handle: present,
            }
        };
        for (key, value) in HINTS {
            info.set(key, value)?;
        }
        // SAFETY: as above. HDF5 sets a copy.
        let status =
            unsafe { (calls.H5Pset)(fapl, PROPERTY.as_ptr(), (&raw const info.handle).cast()) };
        (status >= 0).then_some(())
    };
    library.keeping_errors(body).ok_or_else(|| {
        Error::invalid("the hints for MPI-IO cannot be added to the file access property list")
    })
}

/// An `MPI_Info` that belongs to this connector.
struct MpiInfo {
    mpi: &'static Mpi,
    handle: Handle,
}

impl MpiInfo {
    fn new(mpi: &'static Mpi) -> Option<MpiInfo> {
        let mut handle: Handle = 0;
        // SAFETY: MPI is running, because the program has made a list with a communicator. `handle` receives the answer.
        let status = unsafe { (mpi.MPI_Info_create)(&mut handle) };
        (status == MPI_SUCCESS).then_some(MpiInfo { mpi, handle })
    }

    fn set(&self, key: &CStr, value: &CStr) -> Option<()> {
        // SAFETY: the handle is valid, and MPI copies the strings.
        let status = unsafe { (self.mpi.MPI_Info_set)(self.handle, key.as_ptr(), value.as_ptr()) };
        (status == MPI_SUCCESS).then_some(())
    }

    /// Returns `MPI_INFO_NULL`, which only the header of the library defines.
    fn free(self) -> Handle {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: the handle is valid, and is not used later.
        unsafe { (this.mpi.MPI_Info_free)(&mut this.handle) };
        this.handle
    }
}

impl Drop for MpiInfo {
    fn drop(&mut self) {
        // SAFETY: as in `free`.
        unsafe { (self.mpi.MPI_Info_free)(&mut self.handle) };
    }
}
