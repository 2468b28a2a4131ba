//! Files, `H5F`.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use penstock_engine::error::Result;
use penstock_engine::file::File;
use penstock_engine::options_without_engine;
use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{H5E_DEFAULT, H5F_ACC_RDWR, H5F_SCOPE_LOCAL, H5P_DEFAULT, herr_t, hid_t};

use super::access_sets::file_access;
use super::api_call::{ApiCall, METADATA, NO_REQUEST};
use super::background::{
    self, When, file_identity, finish_before_replacing, finish_deferred_close,
};
use super::callback::{NOTHING_PENDING, attempt, close_and_report, operate};
use super::calling_library::{CallingLibrary, Quiet};
use super::opening::{Prepared, prepare, prepare_by_name, share, was_not_opened};
use super::registration::NAME;
use super::temporary_id::TemporaryId;
use super::under::Under;
use super::wrapped::Wrapped;
use penstock_hdf5::library::Session;
use penstock_hdf5::library::callback::{ErrorSite, FAIL, SUCCEED, error_site, run_callback};
use penstock_hdf5::transfer::conflicts::Pending;
use penstock_hdf5::transfer::file_to_sync;

const OPEN: ErrorSite = error_site(c"penstock_async_open", "H5E_VOL_g", "H5E_CANTOPENFILE_g");
const SPECIFIC: ErrorSite = error_site(c"penstock_async_file", "H5E_VOL_g", "H5E_CANTOPERATE_g");

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenMode {
    New,
    ForWriting,
    ForReading,
}

/// Opens or creates a file by `call`, with the property list for the connector below. Calls
/// `before` first.
///
/// # Safety
/// HDF5 has passed the name of a file, a file access property list, and null or a place for a request.
unsafe fn open_below(
    slot: usize,
    name: *const c_char,
    fapl_id: hid_t,
    mode: OpenMode,
    api_call: ApiCall,
    before: impl FnOnce(CallingLibrary),
    call: impl FnOnce(&CallingLibrary, hid_t) -> *mut c_void,
) -> *mut c_void {
    let Some(library) = CallingLibrary::of(slot) else {
        return ptr::null_mut();
    };
    let body = || {
        let _quiet = Quiet::begin(library);
        // SAFETY: the caller guarantees this.
        let prepared = unsafe { prepare(library, name, fapl_id, mode != OpenMode::ForReading)? };
        let Prepared { access, opening } = prepared;
        // SAFETY: the caller guarantees this.
        unsafe { finish_deferred_close(name) };
        before(library);
        let file = access.container.in_call(|| call(&library, access.fapl.id));
        if file.is_null() {
            if let Some(opening) = opening {
                was_not_opened(opening);
            }
            return Ok(file);
        }
        let _ = access.container.file.set(file as usize);
        // SAFETY: the caller guarantees this.
        if let Some(identity) = unsafe { file_identity(name) } {
            let _ = access.container.identity.set(identity);
        }
        // SAFETY: the caller guarantees this.
        unsafe { api_call.succeeded(&access.container, METADATA) };
        let wrapped = Wrapped::wrap(file, &access.container);
        if let Some(opening) = opening {
            // SAFETY: HDF5 gets the wrapper later; the caller guarantees the name.
            unsafe {
                share(library, CStr::from_ptr(name), wrapped, opening);
                if mode == OpenMode::New {
                    write_first_metadata(&Wrapped::of(wrapped).under());
                }
            }
        }
        Ok(wrapped)
    };
    run_callback(library.hdf5, OPEN, body).unwrap_or(ptr::null_mut())
}

/// Writes the metadata of a file that processes have just created together. While HDF5 2.2.0
/// terminates, it skips all functions of a package that it has not used before, such as those of
/// its page buffer, with which it writes. A file that is never closed would have no metadata if
/// only this connector had written elements.
///
/// # Safety
/// The thread is inside the call that creates the file, which all its processes make.
unsafe fn write_first_metadata(under: &Under) {
    let mut args = H5VL_file_specific_args_t {
        op_type: H5VL_FILE_FLUSH,
        args: FileSpecific {
            flush: FileFlush {
                obj_type: H5I_FILE,
                scope: H5F_SCOPE_LOCAL,
            },
        },
    };
    let call = under.calls.H5VLfile_specific;
    // An error here recurs when the file is closed.
    // SAFETY: the caller guarantees this.
    under.library().keeping_errors(|| unsafe {
        let none = ptr::null_mut();
        under.quietly(|| call(under.object, under.id, &mut args, H5P_DEFAULT, none))
    });
}

unsafe extern "C" fn create<const SLOT: usize>(
    name: *const c_char,
    flags: c_uint,
    fcpl_id: hid_t,
    fapl_id: hid_t,
    dxpl_id: hid_t,
    req: Req,
) -> *mut c_void {
    // SAFETY: the call passes HDF5's arguments on.
    unsafe {
        open_below(
            SLOT,
            name,
            fapl_id,
            OpenMode::New,
            ApiCall::of(c"H5Fcreate_async", req),
            |library| finish_before_replacing(library, name),
            |library, fapl| {
                (library.calls.H5VLfile_create)(name, flags, fcpl_id, fapl, dxpl_id, req)
            },
        )
    }
}

unsafe extern "C" fn open<const SLOT: usize>(
    name: *const c_char,
    flags: c_uint,
    fapl_id: hid_t,
    dxpl_id: hid_t,
    req: Req,
) -> *mut c_void {
    let mode = if flags & H5F_ACC_RDWR != 0 {
        OpenMode::ForWriting
    } else {
        OpenMode::ForReading
    };
    // SAFETY: the call passes HDF5's arguments on.
    unsafe {
        open_below(
            SLOT,
            name,
            fapl_id,
            mode,
            ApiCall::of(c"H5Fopen_async", req),
            |_| (),
            |library, fapl| (library.calls.H5VLfile_open)(name, flags, fapl, dxpl_id, req),
        )
    }
}

forward! {
    operate get = H5VLfile_get, c"H5Fget";
}

/// Runs an operation on the name of a file. If processes share it, all of them do so, or none.
///
/// # Safety
/// As for [`open_below`], and `args` returns the arguments of `operation` with the given property list.
unsafe fn by_name(
    slot: usize,
    fapl_id: hid_t,
    dxpl_id: hid_t,
    req: Req,
    operation: c_int,
    args: impl FnOnce(hid_t) -> FileSpecific,
) -> herr_t {
    let Some(library) = CallingLibrary::of(slot) else {
        return FAIL;
    };
    let body = || {
        let _quiet = Quiet::begin(library);
        // SAFETY: the caller guarantees this.
        let access = unsafe { prepare_by_name(library, fapl_id)? };
        let container = &access.container;
        let mut args = H5VL_file_specific_args_t {
            op_type: operation,
            args: args(access.fapl.id),
        };
        // SAFETY: the caller guarantees this; an operation on a name takes no object.
        unsafe {
            let (none, id) = (ptr::null_mut(), container.below.id);
            let specific = library.calls.H5VLfile_specific;
            let status = container.in_call(|| specific(none, id, &mut args, dxpl_id, req));
            if status >= 0 {
                ApiCall::of(c"H5Fis_accessible_async", req).succeeded(container, METADATA);
            }
            Ok(status)
        }
    };
    run_callback(library.hdf5, SPECIFIC, body).unwrap_or(FAIL)
}

/// Returns whether HDF5 is searching for a connector that can open a file. If the application has
/// named none and the native connector fails, HDF5 tries all connectors that it finds. This
/// connector would only try the native one again.
fn is_searching(slot: usize) -> bool {
    // The error stack is empty when a call of the application begins.
    // SAFETY: the thread is inside a call of this HDF5.
    CallingLibrary::of(slot)
        .is_some_and(|library| unsafe { (library.calls.H5Eget_num)(H5E_DEFAULT) } > 0)
}

unsafe extern "C" fn specific<const SLOT: usize>(
    obj: *mut c_void,
    args: *mut H5VL_file_specific_args_t,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: the call passes HDF5's arguments on; the member of the union belongs to the operation.
    unsafe {
        match (*args).op_type {
            H5VL_FILE_IS_ACCESSIBLE if is_searching(SLOT) => {
                *(*args).args.is_accessible.accessible = false;
                SUCCEED
            }
            operation @ H5VL_FILE_IS_ACCESSIBLE => {
                let passed = (*args).args.is_accessible;
                finish_deferred_close(passed.filename);
                by_name(SLOT, passed.fapl_id, dxpl_id, req, operation, |fapl_id| {
                    let is_accessible = FileIsAccessible { fapl_id, ..passed };
                    FileSpecific { is_accessible }
                })
            }
            operation @ H5VL_FILE_DELETE => {
                let passed = (*args).args.del;
                if let Some(library) = CallingLibrary::of(SLOT) {
                    finish_before_replacing(library, passed.filename);
                }
                by_name(SLOT, passed.fapl_id, dxpl_id, req, operation, |fapl_id| {
                    let del = FileDelete { fapl_id, ..passed };
                    FileSpecific { del }
                })
            }
            H5VL_FILE_FLUSH => flush(obj, args, dxpl_id, req),
            // The second file of H5VL_FILE_IS_EQUAL is already an object of the connector at the
            // bottom.
            operation => operate(obj, ApiCall::of(c"H5Freopen_async", req), |under| {
                let status =
                    (under.calls.H5VLfile_specific)(under.object, under.id, args, dxpl_id, req);
                if status >= 0 && operation == H5VL_FILE_REOPEN {
                    let file = (*args).args.reopen;
                    *file = Wrapped::wrap(*file, &under.container);
                    if let Some(shared) = under.container.shared.get() {
                        shared.opened();
                    }
                }
                status
            }),
        }
    }
}

/// Operations of the native connector (`H5VLnative.h`) that depend on the bytes of the file. The
/// others do not wait for pending operations, because Penstock plans transfers with some of them.
const GET_FILE_IMAGE: c_int = 1;
const START_SWMR_WRITE: c_int = 13;
const SET_MPI_ATOMICITY: c_int = 27;
/// HDF5 adds it to each call that creates or opens a file, with the pointer for that call's request.
const POST_OPEN: c_int = 28;

unsafe extern "C" fn optional(
    obj: *mut c_void,
    args: *mut H5VL_optional_args_t,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: the call passes HDF5's arguments on.
    unsafe {
        let api_call = match (*args).op_type {
            POST_OPEN => ApiCall::part_of_another(req),
            _ => ApiCall::of(c"H5F", req),
        };
        attempt(obj, api_call, |under| {
            let _quiet = Quiet::begin(under.library());
            if matches!((*args).op_type, GET_FILE_IMAGE | START_SWMR_WRITE) {
                background::finish_conflicting(under, || file_access(under, H5I_FILE))?;
            }
            if (*args).op_type == START_SWMR_WRITE {
                under.container.has_readers.store(true, Relaxed);
            }
            if let (SET_MPI_ATOMICITY, Some(shared)) =
                ((*args).op_type, under.container.shared.get())
            {
                shared.is_atomic.store(true, Relaxed);
            }
            let call = under.calls.H5VLfile_optional;
            let container = &under.container;
            Ok(container.in_call(|| call(under.object, under.id, args, dxpl_id, req)))
        })
    }
}

/// Returns the file of an object, to be synced, if its settings request durability and it is open for
/// writing.
///
/// # Safety
/// The thread is inside a callback on `under`, an object of this kind.
unsafe fn durable_file(under: &Under, kind: H5I_type_t) -> Result<Option<Arc<File>>> {
    let container = &under.container;
    let options = options_without_engine(container.policy.settings.options)?;
    if options.durable != Some(true) || container.is_parallel {
        return Ok(None);
    }
    // SAFETY: the caller guarantees this.
    let id = unsafe { TemporaryId::of(under, kind)? };
    // SAFETY: the thread is inside a call of this HDF5.
    let session = unsafe { Session::begin(under.library().hdf5) };
    file_to_sync(&session, id.get())
}

/// Flushes a file, or the file of another object, after the pending operations on it.
///
/// # Safety
/// As for the callback, and the operation is [`H5VL_FILE_FLUSH`].
unsafe fn flush(
    obj: *mut c_void,
    args: *mut H5VL_file_specific_args_t,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: the call passes HDF5's arguments on.
    unsafe {
        let passed = (*args).args.flush;
        let native = move |under: &Under, req: Req| {
            let mut args = H5VL_file_specific_args_t {
                op_type: H5VL_FILE_FLUSH,
                args: FileSpecific { flush: passed },
            };
            let call = under.calls.H5VLfile_specific;
            let container = &under.container;
            let status =
                container.in_call(|| call(under.object, under.id, &mut args, dxpl_id, req));
            if status < 0 || under.is_internal {
                return status;
            }
            let synced = under.run_callback(|| match durable_file(under, passed.obj_type)? {
                Some(file) => file.sync(),
                None => Ok(()),
            });
            synced.map_or(FAIL, |()| status)
        };
        attempt(obj, ApiCall::NONE, |under| {
            let _quiet = Quiet::begin(under.library());
            if under.is_internal {
                return Ok(native(under, req));
            }
            let api_call = ApiCall::of(c"H5Fflush_async", req);
            if under.container.shared.get().is_some() {
                let pending = background::pending_in_shared_file(under);
                if req.is_null() {
                    pending.iter().cloned().for_each(Pending::finish);
                }
                let status = native(under, NO_REQUEST);
                if status >= 0 && background::complete_after(api_call, under, pending) == When::Now
                {
                    under.container.policy.failures.take()?;
                }
                return Ok(status);
            }
            let set = || file_access(under, passed.obj_type);
            // The application may close an object before its deferred flush. A file stays open.
            let is_request = !req.is_null() && passed.obj_type == H5I_FILE;
            let later = move |under: &Under| native(under, NO_REQUEST);
            if is_request && background::defer(api_call, under, set, later)? == When::Later {
                return Ok(SUCCEED);
            }
            background::finish_conflicting(under, set)?;
            let status = native(under, req);
            if status >= 0 {
                api_call.succeeded(&under.container, NOTHING_PENDING);
            }
            Ok(status)
        })
    }
}

unsafe extern "C" fn close_file(file: *mut c_void, _dxpl_id: hid_t, req: Req) -> herr_t {
    let native = |under: &Under, req: Req| {
        // HDF5 writes until it has closed its descriptor.
        // SAFETY: HDF5 closes the file, now or in an earlier call that deferred the close.
        let to_sync = unsafe { durable_file(under, H5I_FILE) };
        under.container.closes(under.object);
        // SAFETY: as above.
        let status =
            unsafe { (under.calls.H5VLfile_close)(under.object, under.id, H5P_DEFAULT, req) };
        if status >= 0
            && let Err(error) = to_sync.and_then(|file| file.map_or(Ok(()), |file| file.sync()))
        {
            under.container.policy.failures.add(error);
        }
        if let (true, Some(shared)) = (status >= 0, under.container.shared.get()) {
            shared.closed();
        }
        status
    };
    // SAFETY: the call passes HDF5's arguments on.
    unsafe {
        let set = |under: &Under| file_access(under, H5I_FILE);
        // This call is the last that can report failures of writes without a request.
        let report = |under: &Under| under.container.policy.failures.take();
        close_and_report(
            file,
            ApiCall::of(background::CLOSE_FILE, req),
            set,
            native,
            report,
        )
    }
}

/// Closes all open objects when the library closes: first the objects in files, then the files.
/// HDF5 (up to 2.2.0) would read identifiers of files that it has just freed, and pass freed
/// objects to connectors. Also, a file with open objects may refuse to close in one process only,
/// although the processes close it together.
///
/// # Safety
/// The thread is inside a call of `library`.
pub(crate) unsafe fn close_all(library: CallingLibrary) {
    const EVERYWHERE: hid_t = 0x1f;
    const FILES: c_uint = 1;
    const OBJECTS: c_uint = 0x1e;
    let calls = library.calls;
    let is_own = |id: &hid_t| {
        let mut name = [0u8; NAME.count_bytes() + 2];
        // SAFETY: HDF5 checks the identifier, and `name` has the given length.
        let length =
            unsafe { (calls.H5VLget_connector_name)(*id, name.as_mut_ptr().cast(), name.len()) };
        length == NAME.count_bytes() as isize && name.starts_with(NAME.to_bytes())
    };
    let _quiet = Quiet::begin(library);
    // SAFETY: `ids` has the given length, and HDF5 checks the identifiers.
    let close = |kinds: c_uint| unsafe {
        let count = (calls.H5Fget_obj_count)(EVERYWHERE, kinds);
        let mut ids = vec![0; usize::try_from(count).unwrap_or(0)];
        let found = (calls.H5Fget_obj_ids)(EVERYWHERE, kinds, ids.len(), ids.as_mut_ptr());
        ids.truncate(usize::try_from(found).unwrap_or(0));
        for id in ids.into_iter().filter(is_own) {
            while (calls.H5Idec_ref)(id) > 0 {}
        }
    };
    library.keeping_errors(|| {
        close(OBJECTS);
        close(FILES);
    });
}

pub(crate) const fn class<const SLOT: usize>() -> H5VL_file_class_t {
    H5VL_file_class_t {
        create: Some(create::<SLOT>),
        open: Some(open::<SLOT>),
        get: Some(get),
        specific: Some(specific::<SLOT>),
        optional: Some(optional),
        close: Some(close_file),
    }
}
