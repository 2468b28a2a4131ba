//! What HDF5 holds for a file, group, dataset, attribute, named datatype or request of the connector,
//! and how a callback on one becomes a call of the connector below.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{CStr, c_void};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use penstock_engine::error::{Error, Result};
use penstock_engine::file::File;
use penstock_sys::hdf5::connector::Req;
use penstock_sys::hdf5::pass_through::Functions;
use penstock_sys::hdf5::{herr_t, hid_t};

use super::background::{self, About, Lent, Loan, Manner, Operation, Policy};
use super::host::{Below, Quiet};
use super::reported::Place;
use super::request;
use penstock_hdf5::dataset::{DatasetInfo, FileInfo};
use penstock_hdf5::library::Session;
use penstock_hdf5::library::callback::{FAIL, SUCCEED, What, caught, what};
use penstock_hdf5::transfer::conflicts::{AccessSet, FileKey, Identity};
use penstock_hdf5::transfer::is_inside;

pub const NONE: Req = std::ptr::null_mut();

/// What the application has called, and the place for its request; null if it has no event set.
#[derive(Clone, Copy)]
pub struct Ask {
    pub call: &'static CStr,
    pub req: Req,
}

/// What the objects of one file share.
pub struct Container {
    pub below: Arc<Below>,
    pub policy: Policy,
    /// Whether the connector at the bottom is the native one; asked once.
    pub is_native: OnceLock<bool>,
    /// Whether the processes of an MPI program share the file, so that only HDF5 may touch it.
    pub is_parallel: bool,
    /// Of the file on its device, if it is one file with a name.
    pub identity: OnceLock<Identity>,
    /// Whether other processes may follow what is written, from now on.
    pub has_readers: AtomicBool,
    /// The file as the engine has opened it, with HDF5's number of it: objects of other files can be
    /// reached from this one.
    pub opened: Mutex<Option<(FileKey, Arc<File>)>>,
    /// The address of the file, as the connector below knows it. Others may be reached from it, and
    /// are closed by themselves.
    pub file: OnceLock<usize>,
    pub is_closed: AtomicBool,
}

/// An object of the connector below, wrapped; or a request of this one.
pub struct Wrapped {
    under: *mut c_void,
    container: Arc<Container>,
    role: Role,
    /// Of a dataset, when it is known.
    about: OnceLock<About>,
    /// The same for one of which nothing changes any more.
    settled: OnceLock<DatasetInfo>,
    /// Whether the object was closed by a call that failed for another reason: HDF5 keeps the identifier.
    is_gone: AtomicBool,
}

/// What a wrapper is for.
enum Role {
    /// HDF5 closes the object by it.
    Owned,
    /// The object is closed by another wrapper.
    Lent(Arc<Lent>),
    Request(Arc<Operation>, Place),
}

/// An object taken apart for one call. It holds on to what the call needs when the object is gone:
/// a refresh closes it, and opens it anew.
#[derive(Clone)]
pub struct Under {
    /// The object, as the connector below knows it.
    pub object: *mut c_void,
    /// The connector below.
    pub id: hid_t,
    pub calls: &'static Functions,
    pub container: Arc<Container>,
    /// Whether Penstock itself is what uses it, in the course of an operation or a transfer.
    pub is_lent: bool,
    /// Whether it was closed, though HDF5 has the identifier still.
    is_gone: bool,
}

const CALL: What = what(c"penstock_async", "H5E_VOL_g", "H5E_CANTOPERATE_g");

/// The addresses of all there are.
fn made() -> MutexGuard<'static, BTreeSet<usize>> {
    static MADE: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
    MADE.lock().unwrap_or_else(|e| e.into_inner())
}

impl Wrapped {
    /// For HDF5, which gives it back to [`Wrapped::release`].
    pub fn wrap(under: *mut c_void, container: &Arc<Container>) -> *mut c_void {
        Wrapped::boxed(under, container, Role::Owned)
    }

    /// As [`Wrapped::wrap`], of an object that is lent.
    pub fn lend(under: *mut c_void, container: &Arc<Container>, lent: Arc<Lent>) -> *mut c_void {
        Wrapped::boxed(under, container, Role::Lent(lent))
    }

    /// A request of this connector, for HDF5.
    pub fn request(operation: &Arc<Operation>, container: &Arc<Container>) -> *mut c_void {
        let role = Role::Request(Arc::clone(operation), Place::new());
        Wrapped::boxed(std::ptr::null_mut(), container, role)
    }

    fn boxed(under: *mut c_void, container: &Arc<Container>, role: Role) -> *mut c_void {
        let wrapped = Wrapped {
            under,
            container: Arc::clone(container),
            role,
            about: OnceLock::new(),
            settled: OnceLock::new(),
            is_gone: AtomicBool::new(false),
        };
        let object: *mut c_void = Box::into_raw(Box::new(wrapped)).cast();
        made().insert(object as usize);
        object
    }

    /// Whether `object` was made here. HDF5 (1.14.4, 2.2.0) asks the connector by which a file is open
    /// first to unwrap what it has of a second handle, be that without any connector.
    pub fn is_one(object: *const c_void) -> bool {
        made().contains(&(object as usize))
    }

    /// # Safety
    /// `object` was made here and is not released while the answer is used.
    pub unsafe fn of<'a>(object: *const c_void) -> &'a Wrapped {
        // SAFETY: passed on.
        unsafe { &*object.cast::<Wrapped>() }
    }

    /// The operation of a request that is this connector's own.
    pub fn operation(&self) -> Option<&Arc<Operation>> {
        self.own_request().map(|(operation, _)| operation)
    }

    /// The operation of a request that is this connector's own, and when to tell of its end.
    pub fn own_request(&self) -> Option<(&Arc<Operation>, &Place)> {
        match &self.role {
            Role::Request(operation, place) => Some((operation, place)),
            Role::Owned | Role::Lent(_) => None,
        }
    }

    pub fn lent(&self) -> Option<&Arc<Lent>> {
        match &self.role {
            Role::Lent(lent) if !lent.is_given() => Some(lent),
            Role::Owned | Role::Lent(_) | Role::Request(..) => None,
        }
    }

    /// Whether the object was closed, though HDF5 has the identifier still.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }

    pub fn container(&self) -> &Arc<Container> {
        &self.container
    }

    /// What is to be known of a dataset.
    ///
    /// # Safety
    /// The thread is inside a callback on `under`, which this wraps, and `loan` is an identifier of
    /// it.
    pub unsafe fn about(&self, under: &Under, loan: &Loan) -> Result<About> {
        if let Some(known) = self.about.get() {
            return Ok(known.clone());
        }
        // SAFETY: passed on.
        let about = unsafe { About::of(under, loan)? };
        Ok(self.about.get_or_init(|| about).clone())
    }

    /// What [`Wrapped::about`] has told before.
    pub fn about_known(&self) -> Option<&About> {
        self.about.get()
    }

    /// A dataset as it is now: asked of HDF5 if it can have changed.
    pub fn info(&self, session: &Session<'_>, loan: &Loan) -> Result<DatasetInfo> {
        // HDF5 tells another state of the file then.
        let may_know = !self.container.has_readers.load(Relaxed);
        if let Some(known) = self.settled.get().filter(|_| may_know) {
            return Ok(known.clone());
        }
        let info = DatasetInfo::read(session, loan.id())?;
        if info.is_settled() {
            let _ = self.settled.set(info.clone());
        }
        Ok(info)
    }

    /// # Safety
    /// HDF5 gives the object up, which [`Wrapped::wrap`] made.
    pub unsafe fn release(object: *mut c_void) {
        made().remove(&(object as usize));
        // SAFETY: passed on.
        drop(unsafe { Box::from_raw(object.cast::<Wrapped>()) });
    }
}

impl Container {
    /// The file of a dataset, opened for whatever HDF5 has opened it for; `None` if that is not one
    /// plain file.
    pub fn opened(&self, key: FileKey, info: &FileInfo) -> Result<Option<Arc<File>>> {
        let Some(descriptor) = info.descriptor.filter(|_| info.is_plain) else {
            return Ok(None);
        };
        let mut opened = self.opened.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((of, file)) = &*opened
            && of.is_same(&key)
            && file.access().write == info.is_writable
        {
            return Ok(Some(Arc::clone(file)));
        }
        let options = self.policy.options();
        let file = File::of_descriptor(descriptor, &info.name, info.is_writable, options)?;
        let file = Arc::new(file);
        if !self.is_closed.load(Relaxed) {
            *opened = Some((key, Arc::clone(&file)));
        }
        Ok(Some(file))
    }

    /// The application has closed this file, the container's or one reached from it. Objects of it may
    /// still be open, and HDF5 may keep what is wrapped of it longer than that: no descriptor is kept for
    /// them.
    pub fn closes(&self, file: *mut c_void) {
        /// A worker that has carried its last block lets go of the file in a moment.
        const A_MOMENT: Duration = Duration::from_millis(5);
        if self.file.get() == Some(&(file as usize)) {
            self.is_closed.store(true, Relaxed);
        }
        let opened = self.opened.lock().unwrap_or_else(|e| e.into_inner()).take();
        if let Some((_, file)) = opened {
            let since = Instant::now();
            while Arc::strong_count(&file) > 1 && since.elapsed() < A_MOMENT {
                thread::yield_now();
            }
        }
    }
}

impl Under {
    /// # Safety
    /// `object` was made by [`Wrapped::wrap`] and is not released yet.
    pub unsafe fn of(object: *const c_void) -> Under {
        // SAFETY: passed on.
        let object = unsafe { Wrapped::of(object) };
        Under {
            is_lent: object.lent().is_some() || is_inside(),
            is_gone: object.is_gone(),
            object: object.under,
            id: object.container.below.id,
            calls: object.container.below.host.calls,
            container: Arc::clone(&object.container),
        }
    }

    /// What HDF5 gets for an object that the connector below has made; null stays null.
    pub fn wrap(&self, made: *mut c_void) -> *mut c_void {
        match made.is_null() {
            true => made,
            false => Wrapped::wrap(made, &self.container),
        }
    }

    /// Runs a callback's body. What the connector below says of a failure is on the error stack
    /// already.
    pub fn caught<T>(&self, body: impl FnOnce() -> Result<T>) -> Option<T> {
        let body = || self.refuse_gone().and_then(|()| body());
        caught(self.container.below.host.hdf5, CALL, body)
    }

    fn refuse_gone(&self) -> Result<()> {
        match self.is_gone {
            true => Err(Error::invalid(
                "the file was closed by the call that told of a failed write",
            )),
            false => Ok(()),
        }
    }

    /// Makes a call that prints nothing when it fails: HDF5 prints when the application's call ends.
    pub fn quietly<T>(&self, call: impl FnOnce() -> T) -> T {
        let _quiet = Quiet::begin(self.container.below.host);
        call()
    }

    /// Whether the connector below is the same for another object.
    pub fn together_with(&self, other: &Under) -> Result<()> {
        other.refuse_gone()?;
        let (one, other) = (&self.container, &other.container);
        match Arc::ptr_eq(one, other) || one.below.compare(&other.below) == 0 {
            true => Ok(()),
            false => Err(Error::invalid(
                "the objects belong to connectors that differ below penstock_async",
            )),
        }
    }
}

/// Why the operations that this connector leaves to the one below do not go on.
pub const METADATA: &str = "HDF5 works on metadata on the thread that calls it";

impl Ask {
    pub const NONE: Ask = Ask::of(c"", NONE);

    pub const fn of(call: &'static CStr, req: Req) -> Ask {
        Ask { call, req }
    }

    /// After a call of the connector below that has succeeded: the request is wrapped that it may
    /// have left.
    ///
    /// # Safety
    /// The place for a request holds null or one of the connector below.
    pub unsafe fn answered(self, container: &Arc<Container>, why: &str) {
        if self.req.is_null() {
            return;
        }
        // SAFETY: passed on.
        let (manner, why) = match unsafe { request::wrap(self.req, container) } {
            true => (Manner::Async, "by the connector below"),
            false => (Manner::Sync, why),
        };
        container.policy.tell(self.call, manner, 0, why);
    }
}

/// An operation on an object.
///
/// # Safety
/// `object` is one that HDF5 holds, `req` is null or a place for a request, and `call` only makes the
/// call that HDF5 has asked for.
pub unsafe fn operate(
    object: *const c_void,
    ask: Ask,
    call: impl FnOnce(&Under) -> herr_t,
) -> herr_t {
    // SAFETY: passed on.
    unsafe { attempt(object, ask, |under| Ok(under.quietly(|| call(under)))) }
}

/// An operation that may turn out to be none for the connector below, or that calls functions of the
/// application, of which HDF5 prints the errors.
///
/// # Safety
/// As for [`operate`].
pub unsafe fn attempt(
    object: *const c_void,
    ask: Ask,
    call: impl FnOnce(&Under) -> Result<herr_t>,
) -> herr_t {
    // SAFETY: passed on.
    let under = unsafe { Under::of(object) };
    let body = || {
        let status = call(&under)?;
        if status >= 0 {
            // SAFETY: passed on.
            unsafe { ask.answered(&under.container, METADATA) };
        }
        Ok(status)
    };
    under.caught(body).unwrap_or(FAIL)
}

/// An operation that `visits` if it calls a function of the application for each of several things.
///
/// # Safety
/// As for [`operate`].
pub unsafe fn operate_or_visit(
    object: *const c_void,
    ask: Ask,
    visits: bool,
    call: impl FnOnce(&Under) -> herr_t,
) -> herr_t {
    // SAFETY: passed on.
    unsafe {
        match visits {
            true => attempt(object, ask, |under| {
                let _visit = background::Visit::begin();
                Ok(call(under))
            }),
            false => operate(object, ask, call),
        }
    }
}

/// An operation on two objects, of which one may be null: HDF5 means the location of the other.
///
/// # Safety
/// As for [`operate`], for both.
pub unsafe fn operate_on_two(
    one: *mut c_void,
    other: *mut c_void,
    ask: Ask,
    call: impl FnOnce(&Under, *mut c_void, *mut c_void) -> herr_t,
) -> herr_t {
    let under_or_null = |object: *mut c_void, beside: &Under| match object.is_null() {
        true => Ok(object),
        false => {
            // SAFETY: passed on.
            let under = unsafe { Under::of(object) };
            beside.together_with(&under)?;
            Ok(under.object)
        }
    };
    // SAFETY: passed on.
    unsafe {
        attempt(if one.is_null() { other } else { one }, ask, |under| {
            let objects = (under_or_null(one, under)?, under_or_null(other, under)?);
            Ok(under.quietly(|| call(under, objects.0, objects.1)))
        })
    }
}

/// An operation that makes an object.
///
/// # Safety
/// As for [`operate`].
pub unsafe fn make(
    object: *const c_void,
    ask: Ask,
    call: impl FnOnce(&Under) -> *mut c_void,
) -> *mut c_void {
    // SAFETY: passed on.
    let under = unsafe { Under::of(object) };
    let body = || {
        let made = under.quietly(|| call(&under));
        if !made.is_null() {
            // SAFETY: passed on.
            unsafe { ask.answered(&under.container, METADATA) };
        }
        Ok(under.wrap(made))
    };
    under.caught(body).unwrap_or(std::ptr::null_mut())
}

/// An operation after which the object is no more, if it succeeds.
///
/// # Safety
/// As for [`operate`].
pub unsafe fn close(object: *mut c_void, ask: Ask, call: impl FnOnce(&Under) -> herr_t) -> herr_t {
    // SAFETY: passed on.
    if let Some(status) = unsafe { close_lent(object) } {
        return status;
    }
    // SAFETY: passed on.
    let status = unsafe { operate(object, ask, call) };
    if status >= 0 {
        // SAFETY: HDF5 gives a closed object up.
        unsafe { Wrapped::release(object) };
    }
    status
}

/// As [`close`], of an object on which operations may be pending. It is closed after them: by an
/// operation of its own, if it may be closed after this call.
///
/// # Safety
/// As for [`close`], where `native` makes the call, now or later.
pub unsafe fn close_after(
    object: *mut c_void,
    ask: Ask,
    set: impl FnOnce(&Under) -> AccessSet,
    native: impl Fn(&Under, Req) -> herr_t + 'static,
) -> herr_t {
    // SAFETY: passed on.
    unsafe { close_and_tell(object, ask, set, native, |_| Ok(())) }
}

/// As [`close_after`]. Once the object is closed in this call, `tell` says whether there is a failure to
/// tell of. Then the call fails, and HDF5 keeps the identifier, which stands for nothing until it is
/// closed once more.
///
/// # Safety
/// As for [`close_after`], for an object of which HDF5 keeps the identifier where closing it fails.
pub unsafe fn close_and_tell(
    object: *mut c_void,
    ask: Ask,
    set: impl FnOnce(&Under) -> AccessSet,
    native: impl Fn(&Under, Req) -> herr_t + 'static,
    tell: impl FnOnce(&Under) -> Result<()>,
) -> herr_t {
    // SAFETY: passed on.
    if let Some(status) = unsafe { close_lent(object) } {
        return status;
    }
    // SAFETY: passed on.
    if unsafe { Wrapped::of(object) }.is_gone() {
        // SAFETY: HDF5 gives it up now.
        unsafe { Wrapped::release(object) };
        return SUCCEED;
    }
    let is_put_off = Cell::new(false);
    // SAFETY: passed on.
    unsafe {
        let status = attempt(object, Ask::NONE, |under| {
            let _quiet = Quiet::begin(under.container.below.host);
            let native = Rc::new(native);
            if background::concerns(under) {
                let native = Rc::clone(&native);
                let act = move |under: &Under| native(under, NONE);
                if background::later(ask, under, set(under), act)? {
                    is_put_off.set(true);
                    return Ok(SUCCEED);
                }
            }
            let status = native(under, ask.req);
            if status >= 0 {
                ask.answered(&under.container, NOTHING_PENDING);
            }
            Ok(status)
        });
        if status < 0 {
            return status;
        }
        let under = Under::of(object);
        if !is_put_off.get() && under.caught(|| tell(&under)).is_none() {
            Wrapped::of(object).is_gone.store(true, Relaxed);
            return FAIL;
        }
        Wrapped::release(object);
        status
    }
}

/// Why an object is closed at once.
pub const NOTHING_PENDING: &str = "nothing is pending that it would have to come after";

/// Closes the wrapper of an object that is lent, and leaves the object open. `None` for another.
///
/// # Safety
/// HDF5 gives the object up.
unsafe fn close_lent(object: *mut c_void) -> Option<herr_t> {
    // SAFETY: passed on.
    unsafe {
        let lent = Arc::clone(Wrapped::of(object).lent()?);
        let under = Under::of(object);
        lent.closes();
        background::unwrap(&under);
        Wrapped::release(object);
    }
    Some(SUCCEED)
}
