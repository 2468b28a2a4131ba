//! Closing and flushing what operations are pending on: at once after them, or as an operation of its
//! own that comes after them.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};

use penstock_engine::error::Result;
use penstock_sys::hdf5::connector::H5I_FILE;
use penstock_sys::hdf5::{H5F_CLOSE_WEAK, herr_t};

use super::journal::Manner;
use super::lend::Loan;
use super::operation::{Operation, Work};
use super::{Begins, before_on, begin_before, concerns, enter};
use crate::host::Host;
use crate::wrapped::{Ask, Under, Wrapped};
use penstock_hdf5::library::Session;
use penstock_hdf5::library::callback::SUCCEED;
use penstock_hdf5::transfer::conflicts::{self, AccessSet, Identity, Pending};
use penstock_hdf5::transfer::settle_path;

/// A file that is to be closed when its operations are finished, and is open until then.
struct Closing {
    file: Option<Identity>,
    operation: Weak<Operation>,
}

static CLOSING: Mutex<Vec<Closing>> = Mutex::new(Vec::new());

/// Lets `act`, which closes or flushes `under`, come after the pending operations that conflict with
/// the access set. True if it is an operation now; false if there is nothing to wait for any more, and the
/// caller is to act itself.
///
/// # Safety
/// The thread is inside a callback on `under`, which stays open until `act` is done. The place for a
/// request is one.
pub unsafe fn later(
    ask: Ask,
    under: &Under,
    set: AccessSet,
    act: impl FnOnce(&Under) -> herr_t + 'static,
) -> Result<bool> {
    let Ask { call, req } = ask;
    let policy = &under.container.policy;
    let before = before_on(under, &set);
    // Only what has no event set either can be left to go on: a program that closes a
    // dataset knows then that its reads are done.
    let may_go_on = || !before.iter().any(|operation| operation.has_request());
    let is_implicit = req.is_null()
        && policy.is_implicit()
        && call == CLOSE_DATASET
        && !under.container.is_closed.load(Relaxed)
        && may_go_on();
    if before.is_empty() || (req.is_null() && !is_implicit) {
        before.into_iter().for_each(Pending::finish);
        return Ok(false);
    }
    let begins = match policy.begins {
        Begins::Now => false,
        Begins::DatasetClose => true,
        Begins::GroupClose | Begins::FileClose => call != CLOSE_DATASET,
    };
    if begins {
        begin_before(under.container.below.host, &set);
    }
    // HDF5 looks for an identifier of a file when it closes it, and the application's is gone then.
    let loan = match call == CLOSE_FILE {
        true => {
            // SAFETY: passed on.
            let loan = unsafe { Loan::of(under, H5I_FILE) };
            // SAFETY: passed on.
            let can_wait = |loan: &Loan| unsafe { may_stay_in_use(under, loan) };
            // Else closing the file closes what the application may be using then, or fails when the
            // application has no identifier of it any more.
            let Some(loan) = loan.ok().filter(can_wait) else {
                before.into_iter().for_each(Pending::finish);
                return Ok(false);
            };
            Some(Rc::new(loan))
        }
        false => None,
    };
    let kept = (under.clone(), loan.clone());
    let action = call.to_string_lossy();
    let act = move || {
        let (under, loan) = kept;
        // SAFETY: the thread is inside a call of this HDF5.
        let session = unsafe { Session::begin(under.container.below.host.hdf5) };
        let status = match loan.as_ref().is_some_and(|loan| loan.is_taken_over()) {
            true => SUCCEED,
            false => act(&under),
        };
        let done = session.check(status, &format!("do what {action} has asked for"));
        match call == CLOSE_DATASET && !under.container.is_closed.load(Relaxed) {
            true => done.map(drop),
            // Closing or flushing the file is where failures that nobody has waited for are told; and
            // closing a dataset, when the file is closed.
            false => done.and_then(|_| under.container.policy.failures.take()),
        }
    };
    let nobody_asks = is_implicit.then(|| Arc::clone(&policy.failures));
    let call = if is_implicit { c"H5Dclose" } else { call };
    let operation = Operation::new(call, nobody_asks, Work::After(before, Box::new(act)));
    enter(under.container.below.host, vec![set], &operation);
    if let Some(loan) = loan {
        loan.is_used_by(&operation);
    }
    policy.tell(
        call,
        Manner::Deferred,
        0,
        "comes after what is pending on the same object",
    );
    if !req.is_null() {
        // SAFETY: passed on.
        unsafe { *req = Wrapped::request(&operation, &under.container) };
    }
    if call == CLOSE_FILE {
        let mut closing = CLOSING.lock().unwrap_or_else(|e| e.into_inner());
        closing.retain(|other| other.operation.strong_count() > 0);
        closing.push(Closing {
            file: under.container.identity.get().copied(),
            operation: Arc::downgrade(&operation),
        });
    }
    Ok(true)
}

/// Whether objects of a file may be open when it is closed, and stay so.
///
/// # Safety
/// The thread is inside a callback on `under`, a file, of which `loan` is an identifier.
unsafe fn may_stay_in_use(under: &Under, loan: &Loan) -> bool {
    let host = under.container.below.host;
    let mut degree = -1;
    // SAFETY: passed on, with a place for the answer.
    host.keeping_errors(|| unsafe {
        let list = (host.hdf5.H5Fget_access_plist)(loan.id());
        (host.calls.H5Pget_fclose_degree)(list, &mut degree);
        (host.hdf5.H5Pclose)(list);
    });
    degree == H5F_CLOSE_WEAK
}

pub const CLOSE_FILE: &CStr = c"H5Fclose_async";
pub const CLOSE_DATASET: &CStr = c"H5Dclose_async";

/// The file with this name is about to be opened, made or deleted: it must not be open only because
/// it is yet to be closed.
///
/// # Safety
/// `name` is null or a C string; the thread is inside a call of HDF5.
pub unsafe fn before_open(name: *const c_char) {
    let closing: Vec<(Option<Identity>, Arc<Operation>)> = {
        let closing = CLOSING.lock().unwrap_or_else(|e| e.into_inner());
        let alive = closing
            .iter()
            .filter_map(|c| Some((c.file, c.operation.upgrade()?)));
        alive.collect()
    };
    if closing.is_empty() {
        return;
    }
    // SAFETY: passed on.
    let wanted = unsafe { identity(name) };
    for (file, operation) in closing {
        if file.is_none() || file == wanted {
            operation.settle();
        }
    }
}

/// As [`before_open`], of a file that is about to be made anew or deleted: also what is under way in it
/// without HDF5 having it open comes before.
///
/// # Safety
/// As for [`before_open`].
pub unsafe fn before_end(host: Host, name: *const c_char) {
    // SAFETY: passed on.
    unsafe {
        before_open(name);
        if let Some(path) = path_of(name) {
            settle_path(host.hdf5, path);
        }
    }
}

/// # Safety
/// As for [`before_open`].
pub unsafe fn identity(name: *const c_char) -> Option<Identity> {
    // SAFETY: passed on.
    unsafe { path_of(name) }.and_then(conflicts::identity)
}

/// # Safety
/// `name` is null or a C string that lives as long as the answer is used.
unsafe fn path_of<'a>(name: *const c_char) -> Option<&'a Path> {
    if name.is_null() {
        return None;
    }
    // SAFETY: passed on.
    let name = unsafe { CStr::from_ptr(name) };
    Some(Path::new(OsStr::from_bytes(name.to_bytes())))
}

/// Finishes what conflicts with an access set, and tells of a failure that nobody has waited for.
///
/// # Safety
/// The thread is inside a callback on `under`.
pub unsafe fn settle(under: &Under, set: impl FnOnce() -> AccessSet) -> Result<()> {
    if concerns(under) {
        let before = before_on(under, &set());
        before.into_iter().for_each(Pending::finish);
    }
    under.container.policy.failures.take()
}
