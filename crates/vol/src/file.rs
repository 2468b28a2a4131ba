//! Files, `H5F`.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{H5E_DEFAULT, H5P_DEFAULT, herr_t, hid_t};

use super::NAME;
use super::background::{self, before_end, before_open, identity};
use super::host::{Host, Quiet};
use super::info::Info;
use super::wrapped::{
    Ask, Container, METADATA, NONE, NOTHING_PENDING, Under, Wrapped, attempt, close_and_tell,
    operate,
};
use penstock_hdf5::library::callback::{FAIL, SUCCEED, What, caught, what};

const OPEN: What = what(c"penstock_async_open", "H5E_VOL_g", "H5E_CANTOPENFILE_g");
const SPECIFIC: What = what(c"penstock_async_file", "H5E_VOL_g", "H5E_CANTOPERATE_g");

/// A file access property list for the connector below.
struct Access {
    host: Host,
    container: Arc<Container>,
    fapl: hid_t,
}

impl Access {
    /// From the list that an application, or the connector above, has given.
    ///
    /// # Safety
    /// The thread is inside a call of `host`, of whose HDF5 `fapl` is a file access property list.
    unsafe fn of(host: Host, fapl: hid_t) -> Result<Access> {
        // SAFETY: passed on.
        let info = unsafe { Info::of_access_list(host, fapl)? };
        // SAFETY: HDF5 checks the identifier.
        let fapl = unsafe { (host.calls.H5Pcopy)(fapl) };
        if fapl < 0 {
            return Err(Error::invalid(
                "HDF5 does not copy the file access property list",
            ));
        }
        let access = Access {
            host,
            // SAFETY: passed on.
            container: info.container(unsafe { is_parallel(host, fapl) })?,
            fapl,
        };
        // SAFETY: the connector is held, and the information, which HDF5 copies, is its own.
        let status = unsafe { (host.calls.H5Pset_vol)(fapl, info.below.id, info.under_info()) };
        match status < 0 {
            true => Err(Error::invalid("HDF5 does not set the connector below")),
            false => Ok(access),
        }
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        // SAFETY: the list was made by this object, and is used no more.
        self.host
            .keeping_errors(|| unsafe { (self.host.hdf5.H5Pclose)(self.fapl) });
    }
}

/// Whether the list is for a file that the processes of an MPI program share.
///
/// # Safety
/// As for [`Access::of`].
unsafe fn is_parallel(host: Host, fapl: hid_t) -> bool {
    let mut flags = 0;
    // SAFETY: HDF5 checks the identifiers, and there is a place for the answer.
    host.keeping_errors(|| unsafe {
        let driver = (host.hdf5.H5Pget_driver)(fapl);
        driver >= 0 && (host.calls.H5FDdriver_query)(driver, &mut flags) >= 0
    }) && flags & H5FD_FEAT_HAS_MPI != 0
}

/// # Safety
/// HDF5 gives the name of a file, a file access property list, and null or a place for a request.
unsafe fn opened(
    slot: usize,
    name: *const c_char,
    fapl_id: hid_t,
    ask: Ask,
    call: impl FnOnce(&Host, hid_t) -> *mut c_void,
) -> *mut c_void {
    let Some(host) = Host::of(slot) else {
        return ptr::null_mut();
    };
    let body = || {
        // SAFETY: passed on.
        let access = unsafe { Access::of(host, fapl_id)? };
        let _quiet = Quiet::begin(host);
        // SAFETY: passed on.
        unsafe { before_open(name) };
        let file = call(&host, access.fapl);
        if file.is_null() {
            return Ok(file);
        }
        let _ = access.container.file.set(file as usize);
        // SAFETY: passed on.
        if let Some(identity) = unsafe { identity(name) } {
            let _ = access.container.identity.set(identity);
        }
        // SAFETY: passed on.
        unsafe { ask.answered(&access.container, METADATA) };
        Ok(Wrapped::wrap(file, &access.container))
    };
    caught(host.hdf5, OPEN, body).unwrap_or(ptr::null_mut())
}

unsafe extern "C" fn create<const SLOT: usize>(
    name: *const c_char,
    flags: c_uint,
    fcpl_id: hid_t,
    fapl_id: hid_t,
    dxpl_id: hid_t,
    req: Req,
) -> *mut c_void {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        opened(
            SLOT,
            name,
            fapl_id,
            Ask::of(c"H5Fcreate_async", req),
            |host, fapl| {
                before_end(*host, name);
                (host.calls.H5VLfile_create)(name, flags, fcpl_id, fapl, dxpl_id, req)
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
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        opened(
            SLOT,
            name,
            fapl_id,
            Ask::of(c"H5Fopen_async", req),
            |host, fapl| (host.calls.H5VLfile_open)(name, flags, fapl, dxpl_id, req),
        )
    }
}

forward! {
    operate get = H5VLfile_get, c"H5Fget";
}

/// An operation on a file that is known by its name only.
///
/// # Safety
/// As for [`opened`], and `args` are those of `operation`, for the list that it is given.
unsafe fn by_name(
    slot: usize,
    fapl_id: hid_t,
    dxpl_id: hid_t,
    req: Req,
    operation: c_int,
    args: impl FnOnce(hid_t) -> FileSpecific,
) -> herr_t {
    let Some(host) = Host::of(slot) else {
        return FAIL;
    };
    let body = || {
        // SAFETY: passed on.
        let access = unsafe { Access::of(host, fapl_id)? };
        let container = &access.container;
        let _quiet = Quiet::begin(host);
        let mut args = H5VL_file_specific_args_t {
            op_type: operation,
            args: args(access.fapl),
        };
        // SAFETY: passed on; an operation on a name has no object.
        unsafe {
            let (none, id) = (ptr::null_mut(), container.below.id);
            let status = (host.calls.H5VLfile_specific)(none, id, &mut args, dxpl_id, req);
            if status >= 0 {
                Ask::of(c"H5Fis_accessible_async", req).answered(container, METADATA);
            }
            Ok(status)
        }
    };
    caught(host.hdf5, SPECIFIC, body).unwrap_or(FAIL)
}

/// Whether HDF5 asks in the course of opening a file, which has failed: where no connector was asked
/// for, it tries all that it finds. What the native connector cannot open is not for this one, which
/// would only ask the native one again.
fn is_search(slot: usize) -> bool {
    // A call of the application begins with no errors.
    // SAFETY: the thread is inside a call of this HDF5.
    Host::of(slot).is_some_and(|host| unsafe { (host.calls.H5Eget_num)(H5E_DEFAULT) } > 0)
}

unsafe extern "C" fn specific<const SLOT: usize>(
    obj: *mut c_void,
    args: *mut H5VL_file_specific_args_t,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on; the member of the union is the one of the operation.
    unsafe {
        match (*args).op_type {
            H5VL_FILE_IS_ACCESSIBLE if is_search(SLOT) => {
                *(*args).args.is_accessible.accessible = false;
                SUCCEED
            }
            operation @ H5VL_FILE_IS_ACCESSIBLE => {
                let asked = (*args).args.is_accessible;
                before_open(asked.filename);
                by_name(SLOT, asked.fapl_id, dxpl_id, req, operation, |fapl_id| {
                    let is_accessible = FileIsAccessible { fapl_id, ..asked };
                    FileSpecific { is_accessible }
                })
            }
            operation @ H5VL_FILE_DELETE => {
                let asked = (*args).args.del;
                if let Some(host) = Host::of(SLOT) {
                    before_end(host, asked.filename);
                }
                by_name(SLOT, asked.fapl_id, dxpl_id, req, operation, |fapl_id| {
                    let del = FileDelete { fapl_id, ..asked };
                    FileSpecific { del }
                })
            }
            H5VL_FILE_FLUSH => flush(obj, args, dxpl_id, req),
            // The second file of H5VL_FILE_IS_EQUAL is the one at the bottom already.
            operation => operate(obj, Ask::of(c"H5Freopen_async", req), |under| {
                let status =
                    (under.calls.H5VLfile_specific)(under.object, under.id, args, dxpl_id, req);
                if status >= 0 && operation == H5VL_FILE_REOPEN {
                    let file = (*args).args.reopen;
                    *file = under.wrap(*file);
                }
                status
            }),
        }
    }
}

/// Operations of the native connector (`H5VLnative.h`) that look at the bytes of the file. The others
/// are not worth waiting for what is pending: plans are made with some of them.
const GET_FILE_IMAGE: c_int = 1;
const START_SWMR_WRITE: c_int = 13;

unsafe extern "C" fn optional(
    obj: *mut c_void,
    args: *mut H5VL_optional_args_t,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        attempt(obj, Ask::of(c"H5F", req), |under| {
            let _quiet = Quiet::begin(under.container.below.host);
            if matches!((*args).op_type, GET_FILE_IMAGE | START_SWMR_WRITE) {
                background::settle(under, || background::file_of(under, H5I_FILE))?;
            }
            if (*args).op_type == START_SWMR_WRITE {
                under.container.has_readers.store(true, Relaxed);
            }
            Ok((under.calls.H5VLfile_optional)(
                under.object,
                under.id,
                args,
                dxpl_id,
                req,
            ))
        })
    }
}

/// # Safety
/// As for the callback, and the operation is [`H5VL_FILE_FLUSH`].
unsafe fn flush(
    obj: *mut c_void,
    args: *mut H5VL_file_specific_args_t,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        let asked = (*args).args.flush;
        let native = move |under: &Under, req: Req| {
            let mut args = H5VL_file_specific_args_t {
                op_type: H5VL_FILE_FLUSH,
                args: FileSpecific { flush: asked },
            };
            (under.calls.H5VLfile_specific)(under.object, under.id, &mut args, dxpl_id, req)
        };
        attempt(obj, Ask::NONE, |under| {
            let _quiet = Quiet::begin(under.container.below.host);
            if under.is_lent {
                return Ok(native(under, req));
            }
            let set = || background::file_of(under, asked.obj_type);
            // Another object than a file may be closed before.
            let ask = Ask::of(c"H5Fflush_async", req);
            let is_request = !req.is_null() && asked.obj_type == H5I_FILE;
            if is_request && background::concerns(under) {
                let deferred = move |under: &Under| native(under, NONE);
                if background::later(ask, under, set(), deferred)? {
                    return Ok(SUCCEED);
                }
            }
            background::settle(under, set)?;
            let status = native(under, req);
            if status >= 0 {
                ask.answered(&under.container, NOTHING_PENDING);
            }
            Ok(status)
        })
    }
}

unsafe extern "C" fn close_file(file: *mut c_void, _dxpl_id: hid_t, req: Req) -> herr_t {
    let native = |under: &Under, req: Req| {
        under.container.closes(under.object);
        // SAFETY: HDF5 closes the file, or has asked for it when something was pending.
        unsafe { (under.calls.H5VLfile_close)(under.object, under.id, H5P_DEFAULT, req) }
    };
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        let set = |under: &Under| background::file_of(under, H5I_FILE);
        // Failures of writes that nobody has waited for: those of the file's end with this call.
        let tell = |under: &Under| under.container.policy.failures.take();
        close_and_tell(
            file,
            Ask::of(background::CLOSE_FILE, req),
            set,
            native,
            tell,
        )
    }
}

/// Closes the files that the application has left open when the library closes. HDF5 would do so, but
/// looks through the identifiers of files meanwhile, up to 2.2.0 also at those that it has just freed: it
/// asks connectors about what is no object any more.
///
/// # Safety
/// The thread is inside a call of `host`.
pub unsafe fn close_all(host: Host) {
    const EVERYWHERE: hid_t = 0x1f;
    const FILES: c_uint = 1;
    let calls = host.calls;
    let is_own = |file: &hid_t| {
        let mut name = [0u8; NAME.count_bytes() + 2];
        // SAFETY: HDF5 checks the identifier, and there is room for as much as is said.
        let length =
            unsafe { (calls.H5VLget_connector_name)(*file, name.as_mut_ptr().cast(), name.len()) };
        length == NAME.count_bytes() as isize && name.starts_with(NAME.to_bytes())
    };
    let _quiet = Quiet::begin(host);
    // SAFETY: there is room for as many identifiers as is said; HDF5 checks those that it gets.
    host.keeping_errors(|| unsafe {
        let count = (calls.H5Fget_obj_count)(EVERYWHERE, FILES);
        let mut files = vec![0; usize::try_from(count).unwrap_or(0)];
        let found = (calls.H5Fget_obj_ids)(EVERYWHERE, FILES, files.len(), files.as_mut_ptr());
        files.truncate(usize::try_from(found).unwrap_or(0));
        for file in files.into_iter().filter(is_own) {
            while (calls.H5Idec_ref)(file) > 0 {}
        }
    });
}

pub(super) const fn class<const SLOT: usize>() -> H5VL_file_class_t {
    H5VL_file_class_t {
        create: Some(create::<SLOT>),
        open: Some(open::<SLOT>),
        get: Some(get),
        specific: Some(specific::<SLOT>),
        optional: Some(optional),
        close: Some(close_file),
    }
}
