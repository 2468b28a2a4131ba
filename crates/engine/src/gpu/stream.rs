//! Order between requests and the caller's streams.
//!
//! A request that comes after a stream is started by a host function on that stream. A stream that
//! comes after a request waits for a flag in pinned memory, which the request raises. An event
//! could not express that, because the stream's wait is queued before the request has queued its
//! copies.

use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use penstock_sys::cuda::{self, CUdeviceptr, CUevent, CUresult, CUstream, Cuda};

use super::{Context, Driver, OwnContext, Pages, driver};
use crate::error::{Error, Kind, Result};

/// A stream of the caller's. The caller keeps it alive during the calls that get it; later work
/// does not use it.
#[derive(Clone, Copy)]
pub struct Stream(CUstream);

// SAFETY: a CUstream may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// The legacy default stream, which waits for blocking streams, and for which they wait.
    pub(crate) const LEGACY: Stream = Stream(cuda::CU_STREAM_LEGACY);

    /// # Safety
    /// `handle` is a live CUstream, or 0, 1 or 2 for the default streams.
    pub unsafe fn from_raw(handle: *mut c_void) -> Stream {
        Stream(handle)
    }

    /// Queues a copy between any two addresses that the GPU reaches, as work of this stream.
    ///
    /// # Safety
    /// Both memories are valid for `bytes`. Only work of this stream touches them in a conflicting
    /// way until the copy is done.
    pub(crate) unsafe fn copy(
        self,
        memory: &Arc<Context>,
        to: usize,
        from: usize,
        bytes: usize,
    ) -> Result<()> {
        self.in_context(memory, |context| {
            let driver = context.driver;
            self.refuse_capture(driver)?;
            // SAFETY: the stream is live, as `from_raw` requires; the caller vouches for the memory.
            let code =
                unsafe { (driver.cuda.cuMemcpyAsync)(to as u64, from as u64, bytes, self.0) };
            driver.check(code, "cuMemcpyAsync")
        })
    }

    /// Calls `act` in the stream's context. For a default stream that is the given context of the
    /// request's memory, whichever context is current on this thread.
    fn in_context<T>(
        self,
        memory: &Arc<Context>,
        act: impl FnOnce(&Arc<Context>) -> Result<T>,
    ) -> Result<T> {
        let _entered = memory.enter()?;
        if self.is_default() {
            return act(memory);
        }
        let context = self.own_context()?;
        if Arc::ptr_eq(&context, memory) {
            return act(memory);
        }
        let _inner = context.enter()?;
        act(&context)
    }

    /// The stream's context. For a default stream that is the current context of this thread, or
    /// the primary one of device 0.
    pub(crate) fn context(self) -> Result<Arc<Context>> {
        let driver = driver()?;
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` is a valid place for the answer.
        let code = unsafe { (driver.cuda.cuCtxGetCurrent)(&mut handle) };
        driver.check(code, "cuCtxGetCurrent")?;
        let current = if handle.is_null() {
            Context::primary(0)?
        } else {
            Context::of(handle)?
        };
        if self.is_default() {
            return Ok(current);
        }
        let _entered = current.enter()?;
        self.own_context()
    }

    /// Whether it is one of the default streams, whose handles are the same in all contexts.
    pub(crate) fn is_default(self) -> bool {
        self.0.is_null() || self.0 == cuda::CU_STREAM_LEGACY || self.0 == cuda::CU_STREAM_PER_THREAD
    }

    /// The context that the stream was made in. Some context must be current.
    fn own_context(self) -> Result<Arc<Context>> {
        let driver = driver()?;
        let mut handle = ptr::null_mut();
        // SAFETY: the stream is live, as `from_raw` requires.
        let code = unsafe { (driver.cuda.cuStreamGetCtx)(self.0, &mut handle) };
        driver.check(code, "cuStreamGetCtx")?;
        Context::of(handle)
    }

    /// Waits until the work queued on the stream is done. `device` is the CUDA ordinal whose
    /// default stream is meant.
    ///
    /// # Errors
    /// The failure of that work; [`Kind::Invalid`] while the stream is captured into a CUDA graph.
    pub fn synchronize(self, device: i32) -> Result<()> {
        crate::fork::refuse_fork()?;
        self.in_context(&Context::primary(device)?, |context| {
            let driver = context.driver;
            self.refuse_capture(driver)?;
            // SAFETY: the stream is live, as `from_raw` requires.
            let code = unsafe { (driver.cuda.cuStreamSynchronize)(self.0) };
            driver.check(code, "cuStreamSynchronize")
        })
    }

    /// A stream of the device that lenders of memory make wait for their work, and that requests then
    /// follow. Unlike a default stream, it is of one device whichever context is current, and waits
    /// for no other work.
    pub fn of_lenders(device: i32) -> Result<Stream> {
        crate::fork::refuse_fork()?;
        Context::primary(device)?.lenders_stream().map(Stream)
    }

    /// The handle.
    pub fn as_raw(self) -> *mut c_void {
        self.0
    }

    /// Waits until all work queued on any stream of the program's on the device is done, in the primary
    /// context and in those of which the engine knows memory or a stream.
    ///
    /// # Errors
    /// The failure of that work, or that of the call while a stream is captured.
    pub fn synchronize_all(device: i32) -> Result<()> {
        crate::fork::refuse_fork()?;
        Context::primary(device)?;
        let all = Context::all_of(device);
        all.iter().try_for_each(|context| context.synchronize())
    }

    /// Whether all work queued on the stream is done; false if a capture forbids the query. No
    /// capture is disturbed. `device` is as for [`synchronize`](Self::synchronize).
    ///
    /// # Errors
    /// The failure of that work.
    pub fn is_idle(self, device: i32) -> Result<bool> {
        crate::fork::refuse_fork()?;
        self.is_idle_in(&Context::primary(device)?)
    }

    /// As [`is_idle`](Self::is_idle), with the context whose default stream is meant. The legacy
    /// default stream is idle if all blocking streams are: driver 580 behaves so, though CUDA does
    /// not document it.
    ///
    /// # Errors
    /// The failure of that work.
    pub fn is_idle_in(self, memory: &Arc<Context>) -> Result<bool> {
        self.in_context(memory, |context| {
            let driver = context.driver;
            if self.is_capturing(driver) {
                return Ok(false);
            }
            // SAFETY: the stream is live, as `from_raw` requires.
            match unsafe { (driver.cuda.cuStreamQuery)(self.0) } {
                cuda::CUDA_ERROR_NOT_READY => Ok(false),
                // A capture has just begun.
                code if is_about_capture(code) => Ok(false),
                code => driver.check(code, "cuStreamQuery").map(|()| true),
            }
        })
    }

    /// Whether the stream takes no work because of a capture: its own or, for the legacy default
    /// stream, that of a blocking stream. No capture is disturbed. The stream's context must be
    /// current.
    fn is_capturing(self, driver: &Driver) -> bool {
        let mut status = cuda::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: `status` is a valid place for the answer.
        let code = unsafe { (driver.cuda.cuStreamIsCapturing)(self.0, &mut status) };
        match code {
            cuda::CUDA_SUCCESS => status != cuda::CU_STREAM_CAPTURE_STATUS_NONE,
            _ => is_about_capture(code),
        }
    }

    fn refuse_capture(self, driver: &Driver) -> Result<()> {
        if !self.is_capturing(driver) {
            return Ok(());
        }
        Err(Error::new(
            Kind::Invalid,
            "the stream is being captured into a CUDA graph",
        )
        .remedy("file I/O cannot be part of a graph: submit it outside the capture"))
    }

    /// Calls `start` when all work queued on the stream so far is done, on a thread of the driver,
    /// which must not call CUDA. Returns a mark before that call.
    pub(crate) fn then(
        self,
        memory: &Arc<Context>,
        start: Box<dyn FnOnce() + Send>,
    ) -> Result<Mark> {
        unsafe extern "C" fn run(data: *mut c_void) {
            // SAFETY: `data` is the box leaked below, and the driver calls this once.
            let start = unsafe { Box::from_raw(data.cast::<Box<dyn FnOnce() + Send>>()) };
            // A panic must not reach the driver. `start` only queues tasks.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(start));
        }
        self.in_context(memory, |context| {
            let mark = self.mark_here(context)?;
            let data = Box::into_raw(Box::new(start)).cast::<c_void>();
            // SAFETY: `run` takes the box back.
            let code = unsafe { (context.driver.cuda.cuLaunchHostFunc)(self.0, run, data) };
            if code != cuda::CUDA_SUCCESS {
                // SAFETY: the driver refused, so it will not call `run`.
                drop(unsafe { Box::from_raw(data.cast::<Box<dyn FnOnce() + Send>>()) });
            }
            context.driver.check(code, "cuLaunchHostFunc")?;
            Ok(mark)
        })
    }

    /// Sets a mark behind the work queued so far.
    pub(crate) fn mark(self, memory: &Arc<Context>) -> Result<Mark> {
        self.in_context(memory, |context| self.mark_here(context))
    }

    /// Queues copies from host memory as work of this stream, and waits until they are done. Calls
    /// `queue` with a function that queues one copy: its source, its destination on the GPU, and
    /// its length. No copy is in progress afterwards, even after an error.
    ///
    /// # Safety
    /// Both memories of each copy are valid, and no other code touches them meanwhile.
    pub(crate) unsafe fn copy_to_gpu(
        self,
        memory: &Arc<Context>,
        queue: impl FnOnce(&mut dyn FnMut(*const u8, u64, u64) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        self.in_context(memory, |context| {
            let driver = context.driver;
            self.refuse_capture(driver)?;
            let unless_waited = Synchronize(driver, self.0);
            let queued = queue(&mut |from, to, bytes| {
                // SAFETY: the stream is live, as `from_raw` requires; the caller vouches for the memory.
                let code = unsafe {
                    (driver.cuda.cuMemcpyHtoDAsync)(to, from.cast(), bytes as usize, self.0)
                };
                driver.check(code, "cuMemcpyHtoDAsync")
            });
            // The wait does not cover work that other threads queue on the stream meanwhile.
            let done = self.mark_here(context)?.wait_in_context();
            std::mem::forget(unless_waited);
            queued.and(done)
        })
    }

    /// Calls `queue` to queue work on the stream, in its context. Returns false, without a call or
    /// without work, while the stream takes no work because of a capture.
    pub(crate) fn queue_unless_captured(
        self,
        memory: &Arc<Context>,
        call: &str,
        queue: impl FnOnce(&Cuda, CUstream) -> CUresult,
    ) -> Result<bool> {
        self.in_context(memory, |context| {
            let driver = context.driver;
            if self.is_capturing(driver) {
                return Ok(false);
            }
            match queue(driver.cuda, self.0) {
                // A capture has just begun.
                code if is_about_capture(code) => Ok(false),
                code => driver.check(code, call).map(|()| true),
            }
        })
    }

    /// As [`mark`](Self::mark); `None` while the stream takes no work because of a capture.
    pub(crate) fn mark_unless_captured(self, memory: &Arc<Context>) -> Result<Option<Mark>> {
        self.in_context(memory, |context| {
            if self.is_capturing(context.driver) {
                return Ok(None);
            }
            match self.record(context) {
                // A capture has just begun.
                Err(error) if is_about_capture(error.gpu_code()) => Ok(None),
                recorded => recorded.map(Some),
            }
        })
    }

    /// As [`mark`](Self::mark), in the stream's context, which is current.
    fn mark_here(self, context: &Arc<Context>) -> Result<Mark> {
        self.refuse_capture(context.driver)?;
        self.record(context)
    }

    fn record(self, context: &Arc<Context>) -> Result<Mark> {
        let mark = Mark {
            event: context.event()?,
            context: Arc::clone(context),
        };
        // SAFETY: event and stream are live and of the same context.
        let code = unsafe { (context.driver.cuda.cuEventRecord)(mark.event, self.0) };
        context.driver.check(code, "cuEventRecord")?;
        Ok(mark)
    }

    /// Checks that [`wait_for`](Self::wait_for) can work.
    pub(crate) fn can_wait(self, memory: &Arc<Context>) -> Result<()> {
        self.in_context(memory, |context| {
            let driver = context.driver;
            wait_value(driver)?;
            self.refuse_capture(driver)
        })
    }

    /// Makes work queued on the stream from now on wait until the flag is raised.
    pub(crate) fn wait_for(self, memory: &Arc<Context>, flag: FlagTarget) -> Result<()> {
        self.in_context(memory, |context| {
            let driver = context.driver;
            self.refuse_capture(driver)?;
            let wait = wait_value(driver)?;
            let condition = cuda::CU_STREAM_WAIT_VALUE_GEQ;
            // SAFETY: the flag lies in pinned memory that is never freed.
            let code = unsafe { wait(self.0, flag.device, flag.value, condition) };
            driver.check(code, "cuStreamWaitValue32")
        })
    }
}

/// Waits for a stream when it is dropped, for instance by a panic.
struct Synchronize<'a>(&'a Driver, CUstream);

impl Drop for Synchronize<'_> {
    fn drop(&mut self) {
        // SAFETY: the stream is live. The error cannot be reported from drop.
        unsafe { (self.0.cuda.cuStreamSynchronize)(self.1) };
    }
}

/// Whether a code, from 900 on, means that a call is not allowed during a capture.
fn is_about_capture(code: CUresult) -> bool {
    (cuda::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED..=908).contains(&code)
}

/// A mark on a stream of the caller's. It is an event of our own, which the driver keeps even if
/// the stream is destroyed.
pub(crate) struct Mark {
    event: CUevent,
    context: Arc<Context>,
}

// SAFETY: a CUevent may be used from any thread.
unsafe impl Send for Mark {}
// SAFETY: as above.
unsafe impl Sync for Mark {}

impl Mark {
    /// Whether the work before the mark is done; an error if the stream has failed and never
    /// reaches the mark.
    pub(crate) fn reached(&self) -> Result<bool> {
        let _entered = self.context.enter()?;
        let driver = self.context.driver;
        // SAFETY: the event lives as long as this.
        match unsafe { (driver.cuda.cuEventQuery)(self.event) } {
            cuda::CUDA_ERROR_NOT_READY => Ok(false),
            code => driver
                .check(code, "the stream before the request")
                .map(|()| true),
        }
    }

    /// Waits until the work before the mark is done.
    pub(crate) fn wait(&self) -> Result<()> {
        let _entered = self.context.enter()?;
        self.wait_in_context()
    }

    /// Waits until the work before the mark uses no memory any more. Returns false if that is unknown.
    pub(crate) fn is_over(&self) -> bool {
        self.wait().is_ok() || !self.context.is_alive()
    }

    /// As [`wait`](Self::wait), with the mark's context current. Polls for the time that a small
    /// copy takes, before the driver puts the thread to sleep.
    fn wait_in_context(&self) -> Result<()> {
        const POLLS: usize = 200;
        let driver = self.context.driver;
        for _ in 0..POLLS {
            // SAFETY: the event lives as long as this.
            match unsafe { (driver.cuda.cuEventQuery)(self.event) } {
                cuda::CUDA_ERROR_NOT_READY => std::hint::spin_loop(),
                code => return driver.check(code, "the stream before the request"),
            }
        }
        // SAFETY: the event lives as long as this.
        let code = unsafe { (driver.cuda.cuEventSynchronize)(self.event) };
        driver.check(code, "the stream before the request")
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.context.keep_event(self.event);
    }
}

type WaitValue = unsafe extern "C" fn(CUstream, CUdeviceptr, u32, c_uint) -> CUresult;

fn wait_value(driver: &Driver) -> Result<WaitValue> {
    driver.cuda.cuStreamWaitValue32.ok_or_else(|| {
        Error::new(
            Kind::Unavailable,
            "this CUDA driver has no cuStreamWaitValue32",
        )
        .remedy("wait for the request on the host, or update the driver")
    })
}

/// Streams that wait for a request now.
static WAITS: AtomicUsize = AtomicUsize::new(0);

/// Returns whether a stream waits for a request now.
pub fn any_stream_waits() -> bool {
    WAITS.load(Ordering::Acquire) > 0
}

/// A word of pinned memory that streams can wait for. It serves one request at a time.
///
/// The value only grows (modulo 2^32, which the comparison GEQ handles), so a stream that still
/// waits for an earlier request does not wait for a later request that uses the same word.
pub(crate) struct Flag {
    word: FlagWord,
    value: u32,
    /// The context that pinned the word.
    home: Arc<OwnContext>,
}

/// The condition of a waiting stream: the word at a device address must reach a value.
#[derive(Clone, Copy)]
pub(crate) struct FlagTarget {
    device: u64,
    value: u32,
}

/// A word that a CPU writes and GPUs read, whatever the context.
#[derive(Clone, Copy)]
pub(super) struct FlagWord {
    host: &'static AtomicU32,
    /// The address on the device.
    device: u64,
}

impl Flag {
    /// A flag that is not raised, for streams of this context.
    pub(crate) fn new(context: &Context) -> Result<Flag> {
        let home = Arc::clone(context.own()?);
        let idle = home.flags().pop();
        let word = match idle {
            Some(word) => word,
            None => {
                let mut made = FlagWord::page(&home)?;
                let first = made
                    .pop()
                    .ok_or_else(|| Error::new(Kind::Internal, "a page of flags holds no flag"))?;
                home.flags().extend(made);
                first
            }
        };
        let value = word.host.load(Ordering::Relaxed).wrapping_add(1);
        WAITS.fetch_add(1, Ordering::AcqRel);
        Ok(Flag { word, value, home })
    }

    pub(crate) fn target(&self) -> FlagTarget {
        FlagTarget {
            device: self.word.device,
            value: self.value,
        }
    }
}

impl Drop for Flag {
    /// Raises the flag, so that the streams continue.
    fn drop(&mut self) {
        // No stream may be left waiting, whatever the outcome of the request.
        self.word.host.store(self.value, Ordering::Release);
        WAITS.fetch_sub(1, Ordering::AcqRel);
        self.home.flags().push(self.word);
    }
}

impl FlagWord {
    /// A page of words, which is never unpinned.
    fn page(home: &Arc<OwnContext>) -> Result<Vec<FlagWord>> {
        const BYTES: usize = 4096;
        let _entered = home.enter()?;
        let driver = home.driver;
        // The page is memory of the engine, so the CPU may use it even if the context has failed.
        let mut page = Pages::anonymous(BYTES)
            .map_err(|e| Error::os(&e, "cannot allocate a page of flags"))?;
        let flags = cuda::CU_MEMHOSTREGISTER_PORTABLE | cuda::CU_MEMHOSTREGISTER_DEVICEMAP;
        let code = page.pin(home, flags)?;
        driver.check(code, "cuMemHostRegister of flags")?;
        let host: *mut c_void = page.start().cast();
        let mut device = 0;
        // SAFETY: `host` was registered just now.
        let code = unsafe { (driver.cuda.cuMemHostGetDevicePointer)(&mut device, host, 0) };
        driver.check(code, "cuMemHostGetDevicePointer")?;
        std::mem::forget(page);
        // SAFETY: the page is zeroed, writable, aligned, and never unmapped.
        let words: &'static [AtomicU32] =
            unsafe { std::slice::from_raw_parts(host.cast(), BYTES / size_of::<AtomicU32>()) };
        Ok(words
            .iter()
            .enumerate()
            .map(|(i, host)| FlagWord {
                host,
                device: device + (i * size_of::<AtomicU32>()) as u64,
            })
            .collect())
    }
}
