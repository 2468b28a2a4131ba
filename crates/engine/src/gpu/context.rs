//! The program's CUDA contexts: the owners of the memory and the streams that requests touch.
//!
//! In them the engine records and queries events, and queues what belongs on a stream of the
//! program's. All other work takes place in a context of the engine's own ([`OwnContext`]).

use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock};

use penstock_sys::cuda::{self, CUcontext, CUevent, CUstream, CUstreamCaptureMode};

use super::own_context::OwnContext;
use super::queue::new_stream;
use super::{Driver, driver};
use crate::error::{Error, Kind, Result};
use crate::sync::Recover;

/// A CUDA context of the program. This is kept until the process ends or the context is destroyed.
pub struct Context {
    pub(super) handle: CUcontext,
    /// The driver's number of the context. A later context may get the same handle, but not the
    /// same number.
    id: u64,
    /// The CUDA ordinal of the context's device.
    pub device: i32,
    /// The driver that the context belongs to.
    pub driver: &'static Driver,
    /// Events that are kept for the next user.
    events: Mutex<Vec<CUevent>>,
    has_kept_page: Once,
    lenders: OnceLock<LendersStream>,
    own: OnceLock<Arc<OwnContext>>,
}

/// The stream of [`Context::lenders_stream`], which is never destroyed.
struct LendersStream(CUstream);

// SAFETY: a CUstream may be used from any thread.
unsafe impl Send for LendersStream {}
// SAFETY: as above.
unsafe impl Sync for LendersStream {}

// SAFETY: a CUcontext may be used from any thread; the driver locks it itself.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

static CONTEXTS: Mutex<Vec<Arc<Context>>> = Mutex::new(Vec::new());
static PRIMARY: Mutex<Vec<(i32, Arc<Context>)>> = Mutex::new(Vec::new());

impl Context {
    /// The device's primary context, the one that the CUDA runtime, PyTorch and CuPy use.
    pub(crate) fn primary(device: i32) -> Result<Arc<Context>> {
        let mut known = PRIMARY.lock().recover();
        // cudaDeviceReset ends a primary context although it is retained.
        known.retain(|(_, context)| context.is_alive());
        if let Some((_, context)) = known.iter().find(|(d, _)| *d == device) {
            return Ok(Arc::clone(context));
        }
        let driver = driver()?;
        let _relaxed = Relaxed::begin(driver);
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` is a valid place for the answer. The context is never released, because
        // other parts of the process share it.
        let code = unsafe { (driver.cuda.cuDevicePrimaryCtxRetain)(&mut handle, device) };
        driver.check(code, "cuDevicePrimaryCtxRetain")?;
        let context = Context::of(handle)?;
        known.push((device, Arc::clone(&context)));
        Ok(context)
    }

    /// The context with this handle.
    pub fn of(handle: CUcontext) -> Result<Arc<Context>> {
        let driver = driver()?;
        let mut known = CONTEXTS.lock().recover();
        let id = id_of(driver, handle);
        if let Some(context) = known.iter().find(|c| c.handle == handle && c.id == id) {
            return Ok(Arc::clone(context));
        }
        // An earlier context with this handle no longer exists.
        known.retain(|c| c.handle != handle);
        let context = Arc::new(Context {
            handle,
            id,
            device: device_of(driver, handle)?,
            driver,
            events: Mutex::default(),
            has_kept_page: Once::new(),
            lenders: OnceLock::new(),
            own: OnceLock::new(),
        });
        known.push(Arc::clone(&context));
        Ok(context)
    }

    /// The contexts of a device that are known and exist.
    pub(super) fn all_of(device: i32) -> Vec<Arc<Context>> {
        let known = CONTEXTS.lock().recover();
        let found = known.iter().filter(|c| c.device == device && c.is_alive());
        found.cloned().collect()
    }

    /// Whether the context still exists: cudaDeviceReset ends primary contexts although they are
    /// retained, and a new context may get the handle, with another number.
    pub(crate) fn is_alive(&self) -> bool {
        id_of(self.driver, self.handle) == self.id
    }

    /// # Errors
    /// [`Kind::Gpu`] if the context was destroyed or reset.
    pub(crate) fn must_be_alive(&self) -> Result<()> {
        if self.is_alive() {
            return Ok(());
        }
        Err(
            Error::new(Kind::Gpu, "the CUDA context was destroyed or reset").remedy(
                "do not call cudaDeviceReset, or destroy a context, while a request uses it",
            ),
        )
    }

    /// The engine's own context of the device, for work with memory of this context.
    ///
    /// # Errors
    /// [`Kind::Gpu`] if this context was destroyed or reset; those of [`OwnContext::of`].
    pub fn own(&self) -> Result<&Arc<OwnContext>> {
        self.must_be_alive()?;
        if let Some(own) = self.own.get() {
            return Ok(own);
        }
        let own = OwnContext::of(self.device)?;
        Ok(self.own.get_or_init(|| own))
    }

    /// Makes the context current on this thread until the result is dropped.
    ///
    /// # Errors
    /// [`Kind::Gpu`] if the context was destroyed or reset.
    pub fn enter(&self) -> Result<Entered> {
        self.must_be_alive()?;
        // SAFETY: the handle is of a live context, as was checked just now; the application must
        // not end the context while it is used.
        unsafe { Entered::push(self.driver, self.handle) }
    }

    /// A stream that has no work but waits: lenders of memory make it wait for theirs, and requests
    /// follow it. The first call creates it. Two first calls at the same time may create two, one of
    /// which remains unused.
    pub(super) fn lenders_stream(&self) -> Result<CUstream> {
        if let Some(known) = self.lenders.get() {
            return Ok(known.0);
        }
        let made = {
            let _entered = self.enter()?;
            new_stream(self.driver)?
        };
        Ok(self.lenders.get_or_init(|| LendersStream(made)).0)
    }

    /// Waits until all work queued in the context is done.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let _entered = self.enter()?;
        // SAFETY: a context is current.
        let code = unsafe { (self.driver.cuda.cuCtxSynchronize)() };
        self.driver.check(code, "cuCtxSynchronize")
    }

    /// Keeps a page of GPU memory mapped from which the driver serves small allocations, by an
    /// allocation that is never freed. Otherwise the first allocation maps a page and the last one
    /// unmaps it, which took 45 and 37 us on an H100 with driver 580, instead of 3 each. The
    /// context must be current.
    pub(crate) fn keep_page(&self) {
        self.has_kept_page.call_once(|| {
            let mut address = 0;
            // SAFETY: `address` is a place for the result. If the allocation fails, each later one
            // takes longer.
            unsafe { (self.driver.cuda.cuMemAlloc)(&mut address, 1) };
        });
    }

    /// An event for the sole use of the caller: a kept one, or else a new one, whose creation takes
    /// longer than the rest of a submission. The context must be current.
    pub(super) fn event(&self) -> Result<CUevent> {
        match self.idle_events().pop() {
            Some(event) => Ok(event),
            None => new_event(self.driver),
        }
    }

    /// Returns an event to the context. It may be recorded again, even before its work is done.
    pub(super) fn keep_event(&self, event: CUevent) {
        self.idle_events().push(event);
    }

    fn idle_events(&self) -> MutexGuard<'_, Vec<CUevent>> {
        self.events.lock().recover()
    }
}

/// An event of the current context.
pub(super) fn new_event(driver: &Driver) -> Result<CUevent> {
    let mut event = ptr::null_mut();
    let flags = cuda::CU_EVENT_DISABLE_TIMING | cuda::CU_EVENT_BLOCKING_SYNC;
    // SAFETY: `event` is a valid place for the answer.
    let code = unsafe { (driver.cuda.cuEventCreate)(&mut event, flags) };
    driver.check(code, "cuEventCreate")?;
    Ok(event)
}

/// Until it is dropped, calls of this thread end no capture of another thread into a CUDA graph.
pub(super) struct Relaxed {
    driver: &'static Driver,
    /// The capture mode that the thread had before.
    before: Option<CUstreamCaptureMode>,
    /// Undone on the same thread.
    _of_this_thread: std::marker::PhantomData<*const ()>,
}

impl Relaxed {
    pub(super) fn begin(driver: &'static Driver) -> Relaxed {
        Relaxed {
            driver,
            before: exchange_capture_mode(driver, cuda::CU_STREAM_CAPTURE_MODE_RELAXED),
            _of_this_thread: std::marker::PhantomData,
        }
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        if let Some(mode) = self.before {
            exchange_capture_mode(self.driver, mode);
        }
    }
}

/// Keeps a context current on this thread until it is dropped.
pub struct Entered(Relaxed);

impl Entered {
    /// # Safety
    /// The handle is of a context that exists until the result is dropped.
    pub(super) unsafe fn push(driver: &'static Driver, handle: CUcontext) -> Result<Entered> {
        // SAFETY: by contract.
        let code = unsafe { (driver.cuda.cuCtxPushCurrent)(handle) };
        driver.check(code, "cuCtxPushCurrent")?;
        Ok(Entered(Relaxed::begin(driver)))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        pop(self.0.driver);
    }
}

/// Undoes the last push of this thread.
pub(super) fn pop(driver: &Driver) {
    let mut popped = ptr::null_mut();
    // SAFETY: `popped` is a place for the answer.
    unsafe { (driver.cuda.cuCtxPopCurrent)(&mut popped) };
}

/// The device of a context. The driver reports it only for the current context.
fn device_of(driver: &Driver, handle: CUcontext) -> Result<i32> {
    // SAFETY: the driver refuses a handle that is of no context.
    let code = unsafe { (driver.cuda.cuCtxPushCurrent)(handle) };
    driver.check(code, "cuCtxPushCurrent")?;
    let mut device = 0;
    // SAFETY: `device` is a place for the answer.
    let code = unsafe { (driver.cuda.cuCtxGetDevice)(&mut device) };
    pop(driver);
    driver.check(code, "cuCtxGetDevice")?;
    Ok(device)
}

/// The driver's number of a context; 0 for a handle of no context, and from drivers that do not
/// number them.
fn id_of(driver: &Driver, handle: CUcontext) -> u64 {
    let mut id = 0;
    if let Some(get) = driver.cuda.cuCtxGetId {
        // SAFETY: the driver refuses a handle that is of no context; `id` is a place for the answer.
        unsafe { get(handle, &mut id) };
    }
    id
}

/// Sets how calls of this thread affect captures of CUDA graphs by other threads; in the default
/// mode, pinning memory ends such a capture. Returns the mode before.
fn exchange_capture_mode(
    driver: &Driver,
    mut mode: CUstreamCaptureMode,
) -> Option<CUstreamCaptureMode> {
    let exchange = driver.cuda.cuThreadExchangeStreamCaptureMode?;
    // SAFETY: `mode` is read and written by the call.
    let code = unsafe { exchange(&mut mode) };
    (code == cuda::CUDA_SUCCESS).then_some(mode)
}
