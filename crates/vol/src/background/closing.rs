//! Closes and flushes objects with pending operations: immediately after these have finished, or as
//! a deferred operation.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};

use penstock_engine::Recover;
use penstock_engine::error::Result;
use penstock_sys::hdf5::connector::{H5I_FILE, H5I_GROUP};
use penstock_sys::hdf5::herr_t;

use super::pending::{add_pending, begin_conflicting, conflicting_with, may_conflict};
use crate::access_sets::file_access;
use crate::api_call::ApiCall;
use crate::calling_library::CallingLibrary;
use crate::container::Container;
use crate::log::Execution;
use crate::operation::{AsyncOperation, DeferredCall, State};
use crate::policy::StartsAt;
use crate::temporary_id::TemporaryId;
use crate::under::Under;
use crate::wrapped::Wrapped;
use penstock_hdf5::library::Session;
use penstock_hdf5::library::callback::SUCCEED;
use penstock_hdf5::transfer::conflicts::{self, AccessSet, Identity, Pending, Shared};
use penstock_hdf5::transfer::{cannot_flush, wait_for_path};

/// A file that stays open until its operations have finished.
struct DeferredClose {
    file: Option<Identity>,
    operation: Weak<AsyncOperation>,
}

static DEFERRED_CLOSES: Mutex<Vec<DeferredClose>> = Mutex::new(Vec::new());

/// When a call that closes or flushes is carried out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// In the call, by the caller. It also reports the failures of operations without a request.
    Now,
    /// By an operation, which reports these failures.
    Later,
}

/// Defers `act`, which closes or flushes `under`, until the pending operations that conflict with
/// the access set have finished. Waits for them instead if `act` must not be deferred.
///
/// # Errors
/// They cannot finish in this call, and `act` cannot be deferred.
///
/// # Safety
/// The thread is inside a callback on `under`, which stays open until `act` is done. `api_call.req` is null
/// or a pointer for the request.
pub(crate) unsafe fn defer(
    api_call: ApiCall,
    under: &Under,
    set: impl FnOnce() -> AccessSet,
    act: impl FnOnce(&Under) -> herr_t + 'static,
) -> Result<When> {
    if !may_conflict(under) {
        return Ok(When::Now);
    }
    let ApiCall { call, req } = api_call;
    let policy = &under.container.policy;
    let set = set();
    let before = conflicting_with(under, &set);
    // A close without an event set returns only after operations with a request have finished: the
    // program expects its reads to be complete after it has closed the dataset.
    let may_continue = || !before.iter().any(|operation| operation.has_request());
    let is_implicit = req.is_null()
        && policy.settings.implicit
        && call == CLOSE_DATASET
        && !under.container.is_closed.load(Relaxed)
        && may_continue();
    if before.is_empty() || (req.is_null() && !is_implicit && !is_left(&before)) {
        return Ok(When::Now);
    }
    let begins_now = match policy.starts_at {
        StartsAt::Now => false,
        StartsAt::DatasetClose => true,
        StartsAt::GroupClose | StartsAt::FileClose => call != CLOSE_DATASET,
    };
    if begins_now {
        begin_conflicting(under.library(), &set);
    }
    // HDF5 closes a file by an identifier, and the application has closed its own by then.
    let id = if call == CLOSE_FILE {
        // SAFETY: the caller guarantees this.
        let id = unsafe { TemporaryId::of(under, H5I_FILE) };
        // SAFETY: the caller guarantees this.
        let can_wait = |id: &TemporaryId| unsafe { allows_open_objects(under, id) };
        // Without this condition, the close would fail, or close objects that the application
        // still uses.
        match id.ok().filter(can_wait) {
            Some(id) => Some(Rc::new(id)),
            None if is_left(&before) => return Err(cannot_flush()),
            None => return Ok(When::Now),
        }
    } else {
        None
    };
    let kept = (under.clone(), id.clone());
    let action = call.to_string_lossy();
    let act = move || {
        let (under, id) = kept;
        // SAFETY: the thread is inside a call of this HDF5.
        let session = unsafe { Session::begin(under.library().hdf5) };
        let status = if id.as_ref().is_some_and(|id| id.hand_over()) {
            SUCCEED
        } else {
            act(&under)
        };
        let done = session.check(status, &format!("carry out {action}"));
        done.and_then(|_| report(call, &under.container))
    };
    let failures = req.is_null().then(|| Arc::clone(&policy.failures));
    let deferred = DeferredCall {
        after: before,
        flushes: call != CLOSE_DATASET,
        call: Box::new(act),
    };
    let name = match (req.is_null(), call == CLOSE_FILE) {
        (true, false) => c"H5Dclose",
        (true, true) => c"H5Fclose",
        (false, _) => call,
    };
    let operation = AsyncOperation::new(name, failures, State::Deferred(deferred));
    add_pending(under.library(), vec![set], &operation);
    if let Some(id) = id {
        id.set_user(&operation);
    }
    policy.log(
        name,
        Execution::Deferred,
        0,
        "comes after what is pending on the same object",
    );
    if !req.is_null() {
        // SAFETY: the caller guarantees this.
        unsafe { *req = Wrapped::request(&operation, &under.container) };
    }
    if call == CLOSE_FILE {
        let mut closing = DEFERRED_CLOSES.lock().recover();
        closing.retain(|other| other.operation.strong_count() > 0);
        closing.push(DeferredClose {
            file: under.container.identity.get().copied(),
            operation: Arc::downgrade(&operation),
        });
    }
    Ok(When::Later)
}

/// Reports the failures of operations without a request, if this call is to report them. Such calls
/// close or flush a file, or close a dataset after its file.
fn report(call: &CStr, container: &Container) -> Result<()> {
    if call == CLOSE_DATASET && !container.is_closed.load(Relaxed) {
        Ok(())
    } else {
        container.policy.failures.take()
    }
}

/// Returns the pending operations on the file of an object, if processes share the file. Calls no
/// function of HDF5.
pub(crate) fn pending_in_shared_file(under: &Under) -> Vec<Shared> {
    let file = under.container.shared.get().map(|shared| shared.key);
    file.map_or_else(Vec::new, |key| {
        conflicting_with(under, &AccessSet::File(key))
    })
}

/// Finishes the pending operations on the file of an object, if processes share it.
pub(super) fn finish_in_shared_file(under: &Under) {
    pending_in_shared_file(under)
        .into_iter()
        .for_each(Pending::finish);
}

/// Leaves a shared file to HDF5 before another file is mounted in it, or it in another. A path
/// through the mount leads to the other file.
pub(crate) fn mounts(under: &Under) {
    if let Some(shared) = under.container.shared.get() {
        finish_in_shared_file(under);
        shared.is_mounted.store(true, Relaxed);
    }
}

/// Returns the pending operations on a shared file or dataset that is about to be closed, after
/// those that a close without a request waits for. HDF5 closes it immediately, because the
/// processes close a file together, and the operations need neither HDF5 nor the object.
pub(crate) fn pending_on_closed(api_call: ApiCall, under: &Under, object: &Wrapped) -> Vec<Shared> {
    let is_file = api_call.call == CLOSE_FILE;
    let pending = match (is_file, object.known_dataset_access()) {
        (true, _) => pending_in_shared_file(under),
        (false, Some(access)) => conflicting_with(under, &AccessSet::Object(access.key)),
        (false, None) => Vec::new(),
    };
    let shared = under.container.shared.get();
    let waits_for_all = is_file || shared.is_some_and(|shared| shared.may_free.load(Relaxed));
    let is_waited_for = |operation: &&Shared| {
        let continues = !operation.has_request() && under.container.policy.settings.implicit;
        waits_for_all || !continues
    };
    if api_call.req.is_null() || (waits_for_all && !is_file) {
        let waits = pending.iter().filter(is_waited_for);
        waits.cloned().for_each(Pending::finish);
    }
    pending
}

/// Makes the request of a call that HDF5 has already carried out. The request completes after the
/// pending operations.
///
/// # Safety
/// The thread is inside the callback on `under`. `api_call.req` is null or a pointer for the request.
pub(crate) unsafe fn complete_after(
    api_call: ApiCall,
    under: &Under,
    pending: Vec<Shared>,
) -> When {
    let ApiCall { call, req } = api_call;
    let is_over = pending.iter().all(|operation| operation.has_ended());
    if req.is_null() || is_over {
        // SAFETY: the caller guarantees this; HDF5 was called without a request.
        unsafe { api_call.succeeded(&under.container, TOGETHER) };
        return When::Now;
    }
    let container = Arc::clone(&under.container);
    let deferred = DeferredCall {
        after: pending,
        flushes: false,
        call: Box::new(move || report(call, &container)),
    };
    let operation = AsyncOperation::new(call, None, State::Deferred(deferred));
    add_pending(under.library(), Vec::new(), &operation);
    under
        .container
        .policy
        .log(call, Execution::Sync, 0, TOGETHER);
    // SAFETY: the caller guarantees this.
    unsafe { *req = Wrapped::request(&operation, &under.container) };
    When::Later
}

/// Reason in the log why a call on a shared file is not deferred.
const TOGETHER: &str = "the processes make this call together";

/// Waits for operations. Returns whether some are postponed and still use the object to be closed.
fn is_left(before: &[Shared]) -> bool {
    before.iter().cloned().for_each(Pending::finish);
    before.iter().any(|operation| operation.is_postponed())
}

/// Begins the queued operations of a file, if the environment requests that at the close of a
/// group.
///
/// # Safety
/// The thread is inside the callback on `under`.
pub(crate) unsafe fn group_closes(under: &Under) {
    if under.container.policy.starts_at == StartsAt::GroupClose && may_conflict(under) {
        // SAFETY: the caller guarantees this.
        let file = unsafe { file_access(under, H5I_GROUP) };
        begin_conflicting(under.library(), &file);
    }
}

/// Returns whether the objects of a file may stay open after its close.
///
/// # Safety
/// The thread is inside a callback on `under`, a file, and `id` is an identifier of it.
unsafe fn allows_open_objects(under: &Under, id: &TemporaryId) -> bool {
    let library = under.library();
    // SAFETY: the caller guarantees this.
    library.keeping_errors(|| unsafe {
        let list = (library.hdf5.H5Fget_access_plist)(id.get());
        let allows = library.lets_objects_stay_open(list);
        (library.hdf5.H5Pclose)(list);
        allows
    })
}

pub(crate) const CLOSE_FILE: &CStr = c"H5Fclose_async";
pub(crate) const CLOSE_DATASET: &CStr = c"H5Dclose_async";

/// Finishes the deferred close of a file that the application is about to open, create or delete.
///
/// # Safety
/// `name` is null or a C string; the thread is inside a call of HDF5.
pub(crate) unsafe fn finish_deferred_close(name: *const c_char) {
    let closing: Vec<(Option<Identity>, Arc<AsyncOperation>)> = {
        let closing = DEFERRED_CLOSES.lock().recover();
        let alive = closing
            .iter()
            .filter_map(|c| Some((c.file, c.operation.upgrade()?)));
        alive.collect()
    };
    if closing.is_empty() {
        return;
    }
    // SAFETY: the caller guarantees this.
    let wanted = unsafe { file_identity(name) };
    for (file, operation) in closing {
        if file.is_none() || file == wanted {
            operation.wait_if_possible();
        }
    }
}

/// As [`finish_deferred_close`], for a file that the application is about to replace or delete.
/// Also waits for transfers of the file that do not involve HDF5.
///
/// # Safety
/// As for [`finish_deferred_close`].
pub(crate) unsafe fn finish_before_replacing(library: CallingLibrary, name: *const c_char) {
    // SAFETY: the caller guarantees this.
    unsafe {
        finish_deferred_close(name);
        if let Some(path) = path_of(name) {
            wait_for_path(library.hdf5, path);
        }
    }
}

/// Returns the identity of the file with this name; `None` if it does not exist.
///
/// # Safety
/// As for [`finish_deferred_close`].
pub(crate) unsafe fn file_identity(name: *const c_char) -> Option<Identity> {
    // SAFETY: the caller guarantees this.
    unsafe { path_of(name) }.and_then(conflicts::identity)
}

/// # Safety
/// `name` is null or a C string that exists as long as the answer.
unsafe fn path_of<'a>(name: *const c_char) -> Option<&'a Path> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees this.
    let name = unsafe { CStr::from_ptr(name) };
    Some(Path::new(OsStr::from_bytes(name.to_bytes())))
}
