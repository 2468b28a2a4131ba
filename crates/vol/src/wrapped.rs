//! The wrappers that HDF5 holds for files, groups, datasets, attributes, named datatypes and requests, and the
//! ways from a callback on a wrapper to a call of the connector below.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{CStr, c_void};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use penstock_engine::error::Result;
use penstock_sys::hdf5::connector::Req;
use penstock_sys::hdf5::herr_t;

use super::background::{self, AsyncOperation, DatasetAccess, TemporaryId, TemporaryState};
use super::calling_library::Quiet;
use super::container::Container;
use super::log::Execution;
use super::report_order::ReportOrder;
use super::request;
use super::under::Under;
use super::visit::Visit;
use penstock_hdf5::dataset::DatasetInfo;
use penstock_hdf5::library::Session;
use penstock_hdf5::library::callback::{FAIL, SUCCEED};
use penstock_hdf5::transfer::conflicts::AccessSet;
use penstock_hdf5::transfer::is_inside;

/// The pointer for a request if a call has no event set.
pub(crate) const NO_REQUEST: Req = std::ptr::null_mut();

/// A call of the application, for the log, and the pointer for its request. The pointer is null if the call has
/// no event set.
#[derive(Clone, Copy)]
pub(crate) struct ApiCall {
    pub(crate) call: &'static CStr,
    pub(crate) req: Req,
}

/// The wrapper of an object of the connector below, or a request of this connector.
pub(crate) struct Wrapped {
    under: *mut c_void,
    container: Arc<Container>,
    role: Role,
    /// The properties for the access sets of a dataset, once they are known.
    access: OnceLock<DatasetAccess>,
    /// The description of a dataset that cannot change any more.
    fixed_info: OnceLock<DatasetInfo>,
    /// Whether a failed call has closed the object. HDF5 keeps its identifier.
    is_gone: AtomicBool,
}

/// The purpose of a wrapper.
enum Role {
    /// HDF5 closes the object through this wrapper.
    Owned,
    /// HDF5 closes the object through another wrapper.
    Temporary(Arc<TemporaryState>),
    Request(Arc<AsyncOperation>, ReportOrder),
}

/// The addresses of all wrappers.
fn wrappers() -> MutexGuard<'static, BTreeSet<usize>> {
    static WRAPPERS: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
    WRAPPERS.lock().unwrap_or_else(|e| e.into_inner())
}

impl Wrapped {
    /// Makes a wrapper for HDF5, which [`Wrapped::release`] drops. Null stays null.
    pub(crate) fn wrap(under: *mut c_void, container: &Arc<Container>) -> *mut c_void {
        match under.is_null() {
            true => under,
            false => Wrapped::boxed(under, container, Role::Owned),
        }
    }

    /// As [`Wrapped::wrap`], for an object with a temporary identifier.
    pub(crate) fn wrap_temporary(
        under: *mut c_void,
        container: &Arc<Container>,
        state: Arc<TemporaryState>,
    ) -> *mut c_void {
        Wrapped::boxed(under, container, Role::Temporary(state))
    }

    /// Makes a request of this connector, for HDF5.
    pub(crate) fn request(
        operation: &Arc<AsyncOperation>,
        container: &Arc<Container>,
    ) -> *mut c_void {
        let role = Role::Request(Arc::clone(operation), ReportOrder::new());
        Wrapped::boxed(std::ptr::null_mut(), container, role)
    }

    fn boxed(under: *mut c_void, container: &Arc<Container>, role: Role) -> *mut c_void {
        let wrapped = Wrapped {
            under,
            container: Arc::clone(container),
            role,
            access: OnceLock::new(),
            fixed_info: OnceLock::new(),
            is_gone: AtomicBool::new(false),
        };
        let object: *mut c_void = Box::into_raw(Box::new(wrapped)).cast();
        wrappers().insert(object as usize);
        object
    }

    /// Whether `object` is a wrapper. HDF5 (1.14.4, 2.2.0) passes objects of a second handle of a file to the
    /// connector of the first, even if the second handle has no connector.
    pub(crate) fn is_wrapper(object: *const c_void) -> bool {
        wrappers().contains(&(object as usize))
    }

    /// # Safety
    /// `object` is a wrapper, and exists as long as the answer.
    pub(crate) unsafe fn of<'a>(object: *const c_void) -> &'a Wrapped {
        // SAFETY: the caller guarantees this.
        unsafe { &*object.cast::<Wrapped>() }
    }

    /// The operation, if this is a request of this connector.
    pub(crate) fn operation(&self) -> Option<&Arc<AsyncOperation>> {
        self.own_request().map(|(operation, _)| operation)
    }

    /// The operation and its position in the order of reports, if this is a request of this connector.
    pub(crate) fn own_request(&self) -> Option<(&Arc<AsyncOperation>, &ReportOrder)> {
        match &self.role {
            Role::Request(operation, order) => Some((operation, order)),
            Role::Owned | Role::Temporary(_) => None,
        }
    }

    pub(crate) fn temporary(&self) -> Option<&Arc<TemporaryState>> {
        match &self.role {
            Role::Temporary(state) if !state.is_handed_over() => Some(state),
            Role::Owned | Role::Temporary(_) | Role::Request(..) => None,
        }
    }

    /// Whether the object is closed, though HDF5 keeps the identifier.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }

    pub(crate) fn container(&self) -> &Arc<Container> {
        &self.container
    }

    /// Returns the properties for the access sets of a dataset.
    ///
    /// # Safety
    /// The thread is inside a callback on `under`, which this wraps, and `id` is an identifier of
    /// it.
    pub(crate) unsafe fn dataset_access(
        &self,
        under: &Under,
        id: &TemporaryId,
    ) -> Result<DatasetAccess> {
        if let Some(known) = self.access.get() {
            return Ok(known.clone());
        }
        // SAFETY: the caller guarantees this.
        let access = unsafe { DatasetAccess::of(under, id)? };
        Ok(self.access.get_or_init(|| access).clone())
    }

    /// Returns the answer of an earlier [`Wrapped::dataset_access`].
    pub(crate) fn known_dataset_access(&self) -> Option<&DatasetAccess> {
        self.access.get()
    }

    /// Returns the description of a dataset. Asks HDF5 if the dataset may have changed.
    pub(crate) fn info(&self, session: &Session<'_>, id: &TemporaryId) -> Result<DatasetInfo> {
        // With readers, HDF5 may describe another state of the file.
        let may_reuse = !self.container.has_readers.load(Relaxed);
        if let Some(known) = self.fixed_info.get().filter(|_| may_reuse) {
            return Ok(known.clone());
        }
        let info = DatasetInfo::read(session, id.get())?;
        if info.is_final() {
            let _ = self.fixed_info.set(info.clone());
        }
        Ok(info)
    }

    /// Returns the object, for one call.
    pub(crate) fn under(&self) -> Under {
        let below = &self.container.below;
        Under {
            is_internal: self.temporary().is_some() || is_inside(),
            is_gone: self.is_gone(),
            object: self.under,
            id: below.id,
            calls: below.library.calls,
            container: Arc::clone(&self.container),
        }
    }

    /// Drops a wrapper.
    ///
    /// # Safety
    /// `object` is a wrapper, and HDF5 releases it.
    pub(crate) unsafe fn release(object: *mut c_void) {
        wrappers().remove(&(object as usize));
        // SAFETY: the caller guarantees this.
        drop(unsafe { Box::from_raw(object.cast::<Wrapped>()) });
    }
}

/// The reason in the log why an operation that this connector forwards is synchronous.
pub(crate) const METADATA: &str = "HDF5 works on metadata on the thread that calls it";

impl ApiCall {
    pub(crate) const NONE: ApiCall = ApiCall::of(c"", NO_REQUEST);

    pub(crate) const fn of(call: &'static CStr, req: Req) -> ApiCall {
        ApiCall { call, req }
    }

    /// Called after the connector below has succeeded. Wraps the request that it has returned, if any, and logs
    /// the call.
    ///
    /// # Safety
    /// `req` is null, or points to null or to a request of the connector below.
    pub(crate) unsafe fn succeeded(self, container: &Arc<Container>, why: &str) {
        if self.req.is_null() {
            return;
        }
        // SAFETY: the caller guarantees this.
        let (execution, why) = match unsafe { request::wrap(self.req, container) } {
            true => (Execution::Async, "by the connector below"),
            false => (Execution::Sync, why),
        };
        container.policy.log(self.call, execution, 0, why);
    }
}

/// Runs an operation on an object.
///
/// # Safety
/// HDF5 holds `object`, `api_call.req` is null or a pointer for a request, and `call` only makes the call that
/// HDF5 has asked for.
pub(crate) unsafe fn operate(
    object: *const c_void,
    api_call: ApiCall,
    call: impl FnOnce(&Under) -> herr_t,
) -> herr_t {
    // SAFETY: the caller guarantees this.
    unsafe { attempt(object, api_call, |under| Ok(under.quietly(|| call(under)))) }
}

/// Runs an operation whose `call` may return an error of this connector, or may call functions of the
/// application. HDF5 prints errors of these functions.
///
/// # Safety
/// As for [`operate`].
pub(crate) unsafe fn attempt(
    object: *const c_void,
    api_call: ApiCall,
    call: impl FnOnce(&Under) -> Result<herr_t>,
) -> herr_t {
    // SAFETY: the caller guarantees this.
    let under = unsafe { Wrapped::of(object) }.under();
    let body = || {
        let status = call(&under)?;
        if status >= 0 {
            // SAFETY: the caller guarantees this.
            unsafe { api_call.succeeded(&under.container, METADATA) };
        }
        Ok(status)
    };
    under.caught(body).unwrap_or(FAIL)
}

/// Runs an operation. `visits` says whether it iterates: it calls a function of the application for each item.
///
/// # Safety
/// As for [`operate`].
pub(crate) unsafe fn operate_or_visit(
    object: *const c_void,
    api_call: ApiCall,
    visits: bool,
    call: impl FnOnce(&Under) -> herr_t,
) -> herr_t {
    // SAFETY: the caller guarantees this.
    unsafe {
        match visits {
            true => attempt(object, api_call, |under| {
                let _visit = Visit::begin();
                Ok(call(under))
            }),
            false => operate(object, api_call, call),
        }
    }
}

/// Runs an operation on two objects. One may be null, and then stands for the location of the other.
///
/// # Safety
/// As for [`operate`], for both.
pub(crate) unsafe fn operate_on_two(
    one: *mut c_void,
    other: *mut c_void,
    api_call: ApiCall,
    call: impl FnOnce(&Under, *mut c_void, *mut c_void) -> herr_t,
) -> herr_t {
    let under_or_null = |object: *mut c_void, beside: &Under| match object.is_null() {
        true => Ok(object),
        false => {
            // SAFETY: the caller guarantees this.
            let under = unsafe { Wrapped::of(object) }.under();
            beside.together_with(&under)?;
            Ok(under.object)
        }
    };
    // SAFETY: the caller guarantees this.
    unsafe {
        attempt(if one.is_null() { other } else { one }, api_call, |under| {
            let objects = (under_or_null(one, under)?, under_or_null(other, under)?);
            Ok(under.quietly(|| call(under, objects.0, objects.1)))
        })
    }
}

/// Runs an operation that makes an object.
///
/// # Safety
/// As for [`operate`].
pub(crate) unsafe fn make(
    object: *const c_void,
    api_call: ApiCall,
    call: impl FnOnce(&Under) -> *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller guarantees this.
    let under = unsafe { Wrapped::of(object) }.under();
    let body = || {
        let made = under.quietly(|| call(&under));
        if !made.is_null() {
            // SAFETY: the caller guarantees this.
            unsafe { api_call.succeeded(&under.container, METADATA) };
        }
        Ok(Wrapped::wrap(made, &under.container))
    };
    under.caught(body).unwrap_or(std::ptr::null_mut())
}

/// Runs an operation that closes the object if it succeeds.
///
/// # Safety
/// As for [`operate`].
pub(crate) unsafe fn close(
    object: *mut c_void,
    api_call: ApiCall,
    call: impl FnOnce(&Under) -> herr_t,
) -> herr_t {
    // SAFETY: the caller guarantees this.
    if let Some(status) = unsafe { close_temporary(object) } {
        return status;
    }
    // SAFETY: the caller guarantees this.
    let status = unsafe { operate(object, api_call, call) };
    if status >= 0 {
        // SAFETY: HDF5 releases a closed object.
        unsafe { Wrapped::release(object) };
    }
    status
}

/// As [`close`], for an object that may have pending operations. The close waits for them, or becomes a deferred
/// operation.
///
/// # Safety
/// As for [`close`]. `native` makes the call, now or later.
pub(crate) unsafe fn close_after(
    object: *mut c_void,
    api_call: ApiCall,
    set: impl FnOnce(&Under) -> AccessSet,
    native: impl Fn(&Under, Req) -> herr_t + 'static,
) -> herr_t {
    // SAFETY: the caller guarantees this.
    unsafe { close_and_report(object, api_call, set, native, |_| Ok(())) }
}

/// As [`close_after`]. If this call has closed the object, it then returns the error of `report`, if there is one.
/// In this case the call fails, and HDF5 keeps the identifier, which is invalid until the application closes
/// it again.
///
/// # Safety
/// As for [`close_after`]. HDF5 keeps the identifier of such an object if its close fails.
pub(crate) unsafe fn close_and_report(
    object: *mut c_void,
    api_call: ApiCall,
    set: impl FnOnce(&Under) -> AccessSet,
    native: impl Fn(&Under, Req) -> herr_t + 'static,
    report: impl FnOnce(&Under) -> Result<()>,
) -> herr_t {
    // SAFETY: the caller guarantees this.
    if let Some(status) = unsafe { close_temporary(object) } {
        return status;
    }
    // SAFETY: the caller guarantees this.
    if unsafe { Wrapped::of(object) }.is_gone() {
        // SAFETY: HDF5 releases the object now.
        unsafe { Wrapped::release(object) };
        return SUCCEED;
    }
    let is_deferred = Cell::new(false);
    // SAFETY: the caller guarantees this.
    unsafe {
        let status = attempt(object, ApiCall::NONE, |under| {
            let _quiet = Quiet::begin(under.container.below.library);
            let native = Rc::new(native);
            if background::may_conflict(under) {
                let native = Rc::clone(&native);
                let act = move |under: &Under| native(under, NO_REQUEST);
                if background::defer(api_call, under, set(under), act)? {
                    is_deferred.set(true);
                    return Ok(SUCCEED);
                }
            }
            let status = native(under, api_call.req);
            if status >= 0 {
                api_call.succeeded(&under.container, NOTHING_PENDING);
            }
            Ok(status)
        });
        if status < 0 {
            return status;
        }
        let under = Wrapped::of(object).under();
        if !is_deferred.get() && under.caught(|| report(&under)).is_none() {
            Wrapped::of(object).is_gone.store(true, Relaxed);
            return FAIL;
        }
        Wrapped::release(object);
        status
    }
}

/// The reason in the log why an object is closed at once.
pub(crate) const NOTHING_PENDING: &str = "nothing is pending that it would have to come after";

/// Drops the wrapper of an object with a temporary identifier, and leaves the object open. `None` for another
/// object.
///
/// # Safety
/// HDF5 releases the object.
unsafe fn close_temporary(object: *mut c_void) -> Option<herr_t> {
    // SAFETY: the caller guarantees this.
    unsafe {
        let state = Arc::clone(Wrapped::of(object).temporary()?);
        let under = Wrapped::of(object).under();
        state.closes();
        background::unwrap(&under);
        Wrapped::release(object);
    }
    Some(SUCCEED)
}
