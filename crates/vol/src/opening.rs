//! Opens files that the processes of an MPI program share: what they compare before and after HDF5 opens
//! them ([`agree`]), and what each prepares.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{H5P_DEFAULT, hid_t};

use super::access_list::{AccessList, is_parallel};
use super::access_sets::place_of;
use super::agreement::{Alike, agree};
use super::calling_library::CallingLibrary;
use super::mpi::Communicator;
use super::shared_file::{
    FILE_SYNC, Opening, SharedFile, is_of_mpi_io, sharing_at, syncs_each_write,
};
use super::temporary_id::TemporaryId;
use super::under::Under;
use super::wrapped::Wrapped;
use penstock_hdf5::library::callback::FAIL;
use penstock_hdf5::transfer::{Planned, Refused};

/// What is ready before HDF5 opens a file. `opening` is `None` if no other processes share the file, and
/// the same in all that do.
pub(crate) struct Prepared {
    pub(crate) access: AccessList,
    pub(crate) opening: Option<SharedOpening>,
}

/// An opening by several processes, or the reason if only HDF5 can access the bytes of the file.
pub(crate) type SharedOpening = Planned<(Opening, Communicator)>;

/// Prepares to open a file with a list. If processes share the file, all of them succeed, or none.
///
/// # Safety
/// HDF5 has passed the name of a file and a file access property list.
pub(crate) unsafe fn prepare(
    library: CallingLibrary,
    name: *const c_char,
    fapl: hid_t,
    is_writable: bool,
) -> Result<Prepared> {
    let refused = |why: &str| Some(Err(Refused(why.to_owned())));
    // SAFETY: the caller guarantees this.
    if !unsafe { is_parallel(library, fapl) } {
        // SAFETY: the caller guarantees this.
        let access = unsafe { AccessList::of(library, fapl)? };
        let opening = None;
        return Ok(Prepared { access, opening });
    }
    // SAFETY: the caller guarantees this.
    let processes = unsafe { processes_with(library, fapl)? };
    let own = || {
        // SAFETY: the caller guarantees the list and the name. The copied list is this connector's own.
        unsafe {
            let access = AccessList::of(library, fapl)?;
            if access.container.policy.settings.options.durable == Some(true) {
                let cause = "option durable is not available for files that processes share";
                let remedy =
                    "remove the option; H5Fflush, which all processes call, writes the metadata";
                return Err(Error::invalid(cause).remedy(remedy));
            }
            let of = (access.fapl.id, is_writable);
            let opening = Opening::of(library, CStr::from_ptr(name), of)?;
            Ok((access, opening))
        }
    };
    let Some(processes) = processes else {
        let (access, opening) = own()?;
        let opening = match opening {
            Ok(_) => refused("HDF5 has initialised MPI itself"),
            Err(why) => Some(Err(why)),
        };
        return Ok(Prepared { access, opening });
    };
    let alike = |(access, opening): &(AccessList, Planned<Opening>)| {
        let mut alike = access.container.policy.alike();
        alike.push(Alike {
            name: FILE_SYNC,
            value: syncs_each_write().to_string(),
            is_required: true,
        });
        alike.push(Alike {
            name: "the file access property list or the file system",
            value: match opening {
                Ok(opening) => opening.traits(),
                Err(Refused(why)) => why.clone(),
            },
            is_required: false,
        });
        alike
    };
    let ((access, opening), agreed) = agree(&processes, own(), alike)?;
    let opening = agreed.and_then(|()| opening.map(|opening| (opening, processes)));
    Ok(Prepared {
        access,
        opening: Some(opening),
    })
}

/// As [`prepare`], for a call on the name of a file that opens nothing.
///
/// # Safety
/// HDF5 has passed a file access property list.
pub(crate) unsafe fn prepare_by_name(library: CallingLibrary, fapl: hid_t) -> Result<AccessList> {
    // SAFETY: the caller guarantees this.
    let (processes, own) = unsafe {
        (
            processes_with(library, fapl)?,
            AccessList::of(library, fapl),
        )
    };
    match processes {
        Some(processes) => Ok(agree(&processes, own, |_| Vec::new())?.0),
        None => own,
    }
}

/// Returns the processes that share a file with this list. Without a communicator, they cannot agree on an
/// error. They copy it together, so MPI fails in all of them.
///
/// # Safety
/// As for [`prepare_by_name`].
unsafe fn processes_with(library: CallingLibrary, fapl: hid_t) -> Result<Option<Communicator>> {
    // SAFETY: the caller guarantees this.
    unsafe {
        let mpi = library.hdf5.mpi().filter(|_| is_of_mpi_io(library, fapl));
        mpi.map_or(Ok(None), |mpi| Communicator::of(library, mpi, fapl))
    }
}

/// What processes compare when HDF5 has opened a file.
const NOT_OPENED: c_int = 0;
const OPENED: c_int = 1;

/// Lets the other processes know that HDF5 has not opened the file in this one.
pub(crate) fn was_not_opened(opening: SharedOpening) {
    if let Ok((_, processes)) = opening {
        processes.have_same(NOT_OPENED);
    }
}

/// Finds the shared file, or records why only HDF5 accesses it. All processes for which `opening` is not
/// refused compare whether they can go on.
///
/// # Safety
/// The thread is inside the call, and `wrapped` is the file that it has opened.
pub(crate) unsafe fn share(
    library: CallingLibrary,
    name: &CStr,
    wrapped: *mut c_void,
    opening: SharedOpening,
) {
    // SAFETY: the caller guarantees this.
    let under = unsafe { Wrapped::of(wrapped) }.under();
    let shared = opening.and_then(|(mut opening, mut processes)| {
        // SAFETY: as above.
        let own = unsafe { can_share(&under, name, &mut opening, &mut processes) };
        let state = own.as_ref().map_or(NOT_OPENED, |_| {
            OPENED + 2 * opening.sharing as c_int + c_int::from(opening.has_gaps)
        });
        if !processes.have_same(state) {
            let why = "the processes differ after the opening of the file";
            return Err(own.err().unwrap_or_else(|| Refused(why.to_owned())));
        }
        Ok(SharedFile::of(library, (own?, name), opening, processes))
    });
    match shared {
        Ok(shared) => drop(under.container.shared.set(shared)),
        Err(Refused(why)) => drop(under.container.why_hdf5s.set(why)),
    }
}

/// Returns HDF5's number of a file that it has opened, and completes `opening`. Returns the reason if this process
/// cannot transfer its elements. Makes no collective call.
///
/// # Safety
/// As for [`share`].
unsafe fn can_share(
    under: &Under,
    name: &CStr,
    opening: &mut Opening,
    processes: &mut Communicator,
) -> Planned<u64> {
    let refused = |why: &str| Err(Refused(why.to_owned()));
    // SAFETY: the caller guarantees this.
    unsafe {
        if !under.ends_in_native() {
            return refused("the connector below does not store in HDF5's own files");
        }
        opening.has_gaps |= notes_free_space(under);
        opening.sharing = sharing_at(Path::new(OsStr::from_bytes(name.to_bytes())))?;
        if !handle_of(under).is_some_and(|handle| processes.can_reduce(handle)) {
            return refused("the MPI library does not describe the file");
        }
        match place_of(under, H5I_FILE) {
            Ok((number, _)) => Ok(number),
            Err(error) => Err(Refused(error.to_string())),
        }
    }
}

/// Returns MPI's handle of an open file; `None` if HDF5 does not return it.
///
/// # Safety
/// As for [`share`]; the driver of the file is that of MPI-IO.
unsafe fn handle_of(under: &Under) -> Option<usize> {
    /// An operation of the native connector, and its arguments (`H5VLnative.h`).
    const GET_VFD_HANDLE: c_int = 9;
    #[repr(C)]
    struct GetHandle {
        fapl: hid_t,
        handle: *mut *mut c_void,
    }
    let mut handle: *mut c_void = ptr::null_mut();
    let mut get = GetHandle {
        fapl: H5P_DEFAULT,
        handle: &mut handle,
    };
    let mut args = H5VL_optional_args_t {
        op_type: GET_VFD_HANDLE,
        args: (&raw mut get).cast(),
    };
    let call = under.calls.H5VLfile_optional;
    // HDF5 makes no identifiers while it opens a file.
    // SAFETY: the caller guarantees this; the arguments belong to the operation. `handle` receives the address of
    // MPI's handle, which exists as long as the file is open.
    unsafe {
        let none = ptr::null_mut();
        let status = under.library().keeping_errors(|| {
            under.quietly(|| call(under.object, under.id, &mut args, H5P_DEFAULT, none))
        });
        (status >= 0 && !handle.is_null()).then(|| *handle.cast::<usize>())
    }
}

/// Returns whether a file tracks its free space. Returns true if HDF5 does not answer.
///
/// # Safety
/// The thread is inside a call that has opened this file.
unsafe fn notes_free_space(under: &Under) -> bool {
    let library = under.library();
    let (mut strategy, mut notes, mut threshold) = (0, false, 0);
    let get = library.calls.H5Pget_file_space_strategy;
    // SAFETY: the caller guarantees this; HDF5 checks the identifiers, and the pointers are valid for the answers.
    let status = library.keeping_errors(|| unsafe {
        let Ok(file) = TemporaryId::of(under, H5I_FILE) else {
            return FAIL;
        };
        let list = (library.hdf5.H5Fget_create_plist)(file.get());
        let status = get(list, &mut strategy, &mut notes, &mut threshold);
        (library.hdf5.H5Pclose)(list);
        status
    });
    status < 0 || notes
}
