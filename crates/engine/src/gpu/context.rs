//! CUDA contexts: the owners of the memory that requests touch, and the copy queues kept for each.

use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock};

use penstock_sys::cuda::{self, CUcontext, CUevent, CUstream, CUstreamCaptureMode};

use super::holders::Holders;
use super::queue::new_stream;
use super::{CopyQueue, Driver, driver, idle, unpin};
use crate::error::{Error, Kind, Result};
use crate::sync::Recover;

/// A CUDA context that the engine works in, with the queues, events and memory kept for it. It is
/// kept until the process ends or the context is destroyed.
pub struct Context {
    handle: CUcontext,
    /// The driver's number of the context. A later context may get the same handle, but not the
    /// same number.
    id: u64,
    /// The CUDA ordinal of the context's device.
    pub device: i32,
    /// The host NUMA node nearest to the device.
    pub(crate) node: Option<u32>,
    /// Whether pages mapped read-only can be registered, which the mapped route does.
    pub(crate) registers_read_only: bool,
    /// The driver that the context belongs to.
    pub driver: &'static Driver,
    queues: Mutex<Vec<CopyQueue>>,
    spare: Mutex<Spare>,
    pub(super) holders: Holders,
    /// Events that are kept for the next user.
    events: Mutex<Vec<CUevent>>,
    has_kept_page: Once,
    lenders: OnceLock<LendersStream>,
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

/// The most bytes of GPU memory that are kept for the next user.
const MOST_SPARE: u64 = 256 << 20;

/// GPU memory that is kept for the next user, and freed after a while without use ([`idle`]).
#[derive(Default)]
struct Spare {
    /// Address and bytes of each piece.
    pieces: Vec<(u64, u64)>,
    /// The number of times that memory was kept or taken.
    uses: u64,
    /// The value of `uses` at the last visit of the thread that frees idle memory.
    uses_visited: u64,
    /// Whether that thread will visit.
    is_listed: bool,
}

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
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` is a valid place for the answer. The context is never released: other
        // parts of the process share it, and streams and pinned memory of ours live in it.
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
        // An earlier context with this handle no longer exists, nor does the memory that was kept
        // for it.
        known.retain(|c| c.handle != handle);
        let device = device_of(driver, handle)?;
        let read_only = cuda::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED;
        let context = Arc::new(Context {
            handle,
            id,
            device,
            node: driver.numa_node(device),
            registers_read_only: driver.attribute(device, read_only) != 0,
            driver,
            queues: Mutex::default(),
            spare: Mutex::default(),
            holders: Holders::default(),
            events: Mutex::default(),
            has_kept_page: Once::new(),
            lenders: OnceLock::new(),
        });
        known.push(Arc::clone(&context));
        Ok(context)
    }

    /// Whether the context still exists: cudaDeviceReset ends primary contexts although they are
    /// retained, and a new context may get the handle, with another number.
    pub(crate) fn is_alive(&self) -> bool {
        id_of(self.driver, self.handle) == self.id
    }

    /// Makes the context current on this thread until the result is dropped.
    ///
    /// # Errors
    /// [`Kind::Gpu`] if the context was destroyed or reset.
    pub fn enter(&self) -> Result<Entered<'_>> {
        if !self.is_alive() {
            return Err(
                Error::new(Kind::Gpu, "the CUDA context was destroyed or reset").remedy(
                    "do not call cudaDeviceReset, or destroy a context, while a request uses it",
                ),
            );
        }
        // SAFETY: the handle is of a live context, as was checked just now; the application must
        // not end the context while it is used.
        let code = unsafe { (self.driver.cuda.cuCtxPushCurrent)(self.handle) };
        self.driver.check(code, "cuCtxPushCurrent")?;
        Ok(Entered {
            context: self,
            capture_mode: exchange_capture_mode(self.driver, cuda::CU_STREAM_CAPTURE_MODE_RELAXED),
        })
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
    pub(super) fn synchronize(&self) -> Result<()> {
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

    /// A copy queue for the sole use of the caller: an idle one, or else a new one. The context
    /// must be current. [`keep`](Self::keep) returns the queue to the context.
    pub fn queue(self: &Arc<Self>) -> Result<CopyQueue> {
        let idle = self.queues.lock().recover().pop();
        match idle {
            Some(queue) => Ok(queue),
            None => CopyQueue::new(Arc::clone(self)),
        }
    }

    /// The address of kept GPU memory of exactly `bytes`, if there is any. The caller owns it from
    /// now on.
    pub fn spare(&self, bytes: u64) -> Option<u64> {
        let mut spare = self.lock_spare();
        spare.uses += 1;
        let at = spare.pieces.iter().position(|(_, size)| *size == bytes)?;
        Some(spare.pieces.swap_remove(at).0)
    }

    /// Keeps GPU memory for [`spare`](Self::spare), since an allocation takes as long as moving a
    /// few MiB. No work uses the memory any more. Returns false if enough is kept, or if no thread
    /// would free the memory later; the caller then frees it.
    pub fn keep_memory(self: &Arc<Self>, address: u64, bytes: u64) -> bool {
        let mut spare = self.lock_spare();
        spare.uses += 1;
        let kept: u64 = spare.pieces.iter().map(|(_, size)| size).sum();
        if kept + bytes > MOST_SPARE {
            return false;
        }
        spare.is_listed = spare.is_listed || idle::list(self);
        if spare.is_listed {
            spare.pieces.push((address, bytes));
        }
        spare.is_listed
    }

    fn lock_spare(&self) -> MutexGuard<'_, Spare> {
        self.spare.lock().recover()
    }

    /// Frees the memory that is kept, if none was used since the last call and no stream waits for
    /// a request. Returns whether no memory is kept any more; the context is then listed again with
    /// the next memory.
    pub(super) fn free_idle(self: &Arc<Self>) -> bool {
        self.is_idle() && unpin::free_unless_stream_waits(|| self.free_kept()) && self.is_unlisted()
    }

    fn is_idle(&self) -> bool {
        let mut spare = self.lock_spare();
        let is_idle = spare.uses == spare.uses_visited;
        spare.uses_visited = spare.uses;
        is_idle
    }

    /// Frees all kept memory. A context that was destroyed has freed its memory itself.
    fn free_kept(self: &Arc<Self>) {
        let Ok(_entered) = self.enter() else {
            self.lock_spare().pieces.clear();
            return;
        };
        if let Ok(mut queue) = self.queue()
            && self.free_spare(&mut queue).is_ok()
        {
            self.keep(queue);
        }
    }

    /// Whether no memory is left. Some may be left because no queue could be created, or because it
    /// was kept meanwhile.
    fn is_unlisted(&self) -> bool {
        let mut spare = self.lock_spare();
        spare.is_listed = !spare.pieces.is_empty();
        !spare.is_listed
    }

    /// Wakes threads that wait for memory, after a return of memory by code that is not counted
    /// among the holders.
    pub(crate) fn note_returned_memory(&self) {
        self.holders.enter();
        self.holders.leave(true);
    }

    /// Frees all memory that is kept, when the work of `queue` so far is done. Returns false if no
    /// memory is kept.
    ///
    /// # Errors
    /// The failure of that work.
    pub(super) fn free_spare(&self, queue: &mut CopyQueue) -> Result<bool> {
        // A thread that finds no kept memory meanwhile waits for this memory.
        self.holders.enter();
        let kept = std::mem::take(&mut self.lock_spare().pieces);
        let has_any = !kept.is_empty();
        for (address, _) in kept {
            // SAFETY: no work uses kept memory, and it has no other owner since it was taken just
            // now.
            unsafe { queue.free(address) };
        }
        let finished = if has_any { queue.finish() } else { Ok(()) };
        self.holders.leave(has_any);
        finished.map(|()| has_any)
    }

    /// An event for the sole use of the caller: a kept one, or else a new one, whose creation takes
    /// longer than the rest of a submission. The context must be current.
    pub fn event(&self) -> Result<CUevent> {
        if let Some(event) = self.idle_events().pop() {
            return Ok(event);
        }
        let mut event = ptr::null_mut();
        let flags = cuda::CU_EVENT_DISABLE_TIMING | cuda::CU_EVENT_BLOCKING_SYNC;
        // SAFETY: `event` is a valid place for the answer.
        let code = unsafe { (self.driver.cuda.cuEventCreate)(&mut event, flags) };
        self.driver.check(code, "cuEventCreate")?;
        Ok(event)
    }

    /// Returns an event to the context. It may be recorded again, even before its work is done.
    pub(crate) fn keep_event(&self, event: CUevent) {
        self.idle_events().push(event);
    }

    fn idle_events(&self) -> MutexGuard<'_, Vec<CUevent>> {
        self.events.lock().recover()
    }

    /// Returns a queue to the context. Its work is done.
    pub fn keep(&self, queue: CopyQueue) {
        self.queues.lock().recover().push(queue);
    }
}

/// Keeps a context current on this thread until it is dropped.
pub struct Entered<'a> {
    context: &'a Context,
    /// The capture mode that the thread had before.
    capture_mode: Option<CUstreamCaptureMode>,
}

/// The device of a context. The driver reports it only for the current context.
fn device_of(driver: &Driver, handle: CUcontext) -> Result<i32> {
    // SAFETY: the driver refuses a handle that is of no context.
    let code = unsafe { (driver.cuda.cuCtxPushCurrent)(handle) };
    driver.check(code, "cuCtxPushCurrent")?;
    let mut device = 0;
    // SAFETY: `device` is a place for the answer.
    let code = unsafe { (driver.cuda.cuCtxGetDevice)(&mut device) };
    let mut popped = ptr::null_mut();
    // SAFETY: undoes the push above.
    unsafe { (driver.cuda.cuCtxPopCurrent)(&mut popped) };
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

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(mode) = self.capture_mode {
            exchange_capture_mode(self.context.driver, mode);
        }
        let mut popped = ptr::null_mut();
        // SAFETY: undoes the push of `enter`, on the same thread since `Entered` holds a raw
        // handle through `Context` only by reference and is never sent.
        unsafe { (self.context.driver.cuda.cuCtxPopCurrent)(&mut popped) };
    }
}
