//! Devices, their primary contexts, and the stack of current contexts of each thread.

use std::cell::RefCell;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::arena::Arena;
use crate::status::{
    CONTEXT_IS_DESTROYED, CudaError, INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, NO_DEVICE,
    NOT_INITIALIZED, NOT_PERMITTED, Result, SUCCESS,
};
use crate::stream::{self, Kind, Stream};
use crate::{config, event, failure, memory, module};

pub const NAME: &std::ffi::CStr = c"Penstock stand-in GPU";

/// The primary context of each device. There are no other contexts.
static CONTEXTS: OnceLock<Vec<Context>> = OnceLock::new();

/// Whether this process is the forked child of one that had called `cuInit`.
static FORKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Never dropped, because exit handlers call the driver after thread-local values are dropped.
    static CURRENT: RefCell<ManuallyDrop<Vec<&'static Context>>> =
        const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

pub struct Context {
    pub device: usize,
    arena: Arena,
    active: AtomicBool,
    /// A new number each time that the context is created.
    id: AtomicU64,
    /// The error of an operation that failed asynchronously, which every later call returns.
    failure: AtomicI32,
    life: Mutex<Life>,
}

#[derive(Default)]
struct Life {
    retained: u32,
    legacy: Option<Arc<Stream>>,
    /// Every other stream, including per-thread default streams.
    streams: Vec<Arc<Stream>>,
}

pub fn initialize(flags: u32) -> Result {
    if FORKED.load(Ordering::Relaxed) {
        return Err(NOT_INITIALIZED);
    }
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    failure::check(failure::Kind::Init)?;
    static STARTING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = STARTING.lock().unwrap();
    if CONTEXTS.get().is_none() {
        if config::devices() == 0 {
            return Err(NO_DEVICE);
        }
        let capacity = config::device_memory();
        let contexts = (0..config::devices()).map(|device| Context::new(device, capacity));
        let contexts = contexts.collect::<Result<Vec<_>>>()?;
        // SAFETY: the handler only stores to an atomic, which is allowed in a forked child.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        let _ = CONTEXTS.set(contexts);
    }
    Ok(())
}

unsafe extern "C" fn forked() {
    FORKED.store(true, Ordering::Relaxed);
}

/// The checks with which every call begins, before it reads any argument.
fn contexts() -> Result<&'static [Context]> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(NOT_INITIALIZED);
    }
    if stream::in_host_function() {
        return Err(NOT_PERMITTED);
    }
    CONTEXTS.get().map(Vec::as_slice).ok_or(NOT_INITIALIZED)
}

pub fn count() -> Result<usize> {
    contexts().map(<[_]>::len)
}

/// The primary context of a device, retained or not.
pub fn device(ordinal: i32) -> Result<&'static Context> {
    let contexts = contexts()?;
    usize::try_from(ordinal)
        .ok()
        .and_then(|at| contexts.get(at))
        .ok_or(INVALID_DEVICE)
}

pub fn by_handle(handle: *mut c_void) -> Result<&'static Context> {
    contexts()?
        .iter()
        .find(|context| context.handle() == handle)
        .ok_or(INVALID_CONTEXT)
}

/// The top of the calling thread's stack of contexts, in any state.
pub fn top() -> Result<Option<&'static Context>> {
    contexts()?;
    Ok(CURRENT.with_borrow(|stack| stack.last().copied()))
}

/// The current context, even if it has failed.
pub fn current_or_failed() -> Result<&'static Context> {
    let context = top()?.ok_or(INVALID_CONTEXT)?;
    if context.is_active() {
        Ok(context)
    } else {
        Err(CONTEXT_IS_DESTROYED)
    }
}

/// The current context. Fails if no context is current, or if it has failed.
pub fn current() -> Result<&'static Context> {
    let context = current_or_failed()?;
    context.check()?;
    Ok(context)
}

/// Calls `release` in a context of any state, and then returns the failure of the context, if there
/// is one.
pub fn release_in_any_state(release: impl FnOnce() -> Result) -> Result {
    let context = current_or_failed()?;
    let released = release();
    context.check().and(released)
}

/// Replaces the top of the stack by `context`; `None` pops it.
pub fn set_current(context: Option<&'static Context>) {
    CURRENT.with_borrow_mut(|stack| {
        stack.pop();
        stack.extend(context);
    });
}

pub fn push(context: &'static Context) {
    CURRENT.with_borrow_mut(|stack| stack.push(context));
}

pub fn pop() -> Result<&'static Context> {
    contexts()?;
    CURRENT
        .with_borrow_mut(|stack| stack.pop())
        .ok_or(INVALID_CONTEXT)
}

/// Whether an address belongs to the memory of a device, allocated or not.
pub fn is_device_address(address: usize) -> bool {
    CONTEXTS
        .get()
        .into_iter()
        .flatten()
        .any(|context| context.arena.contains(address))
}

/// Clears asynchronous failures, which the real driver never does, once the streams have dropped the
/// work queued after them.
pub fn clear_failures() {
    for context in CONTEXTS.get().into_iter().flatten() {
        if context.check().is_err() {
            context.wait_for_streams();
            context.failure.store(SUCCESS, Ordering::Release);
        }
    }
}

impl Context {
    fn new(device: usize, capacity: usize) -> Result<Context> {
        Ok(Context {
            device,
            arena: Arena::new(capacity)?,
            active: AtomicBool::new(false),
            id: AtomicU64::new(0),
            failure: AtomicI32::new(SUCCESS),
            life: Mutex::default(),
        })
    }

    pub fn handle(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    pub fn arena(&'static self) -> &'static Arena {
        &self.arena
    }

    /// Returns the asynchronous failure as an error, if there was one.
    pub fn check(&self) -> Result {
        match self.failure.load(Ordering::Acquire) {
            SUCCESS => Ok(()),
            code => Err(CudaError(code)),
        }
    }

    /// Records an asynchronous failure; the first one stays.
    pub fn fail(&self, error: CudaError) {
        let first =
            self.failure
                .compare_exchange(SUCCESS, error.0, Ordering::AcqRel, Ordering::Acquire);
        if first.is_ok() {
            config::log(format_args!(
                "context {} failed with {}",
                self.device, error.0
            ));
        }
    }

    pub fn retain(&'static self) -> Result {
        failure::check(failure::Kind::Retain)?;
        let mut life = self.life.lock().unwrap();
        life.retained += 1;
        if life.retained == 1 {
            static IDS: AtomicU64 = AtomicU64::new(1);
            self.id
                .store(IDS.fetch_add(1, Ordering::Relaxed), Ordering::Release);
            life.legacy = Some(Stream::new(self, Kind::Legacy));
            self.active.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Releases the context once. The last release destroys its memory, streams, events and modules,
    /// and clears its failure.
    pub fn release(&'static self) -> Result {
        self.release_times(1)
    }

    /// Destroys the contents of the context as the last release does, however often it is retained.
    pub fn reset(&'static self) -> Result {
        self.release_times(u32::MAX)
    }

    /// The number of an active context.
    pub fn id(&self) -> Result<u64> {
        if self.is_active() {
            Ok(self.id.load(Ordering::Acquire))
        } else {
            Err(CONTEXT_IS_DESTROYED)
        }
    }

    fn release_times(&'static self, times: u32) -> Result {
        let ended = {
            let mut life = self.life.lock().unwrap();
            if life.retained == 0 {
                return Err(INVALID_CONTEXT);
            }
            life.retained = life.retained.saturating_sub(times);
            if life.retained > 0 {
                return Ok(());
            }
            self.active.store(false, Ordering::Release);
            let mut ended = std::mem::take(&mut life.streams);
            ended.extend(life.legacy.take());
            ended
        };
        for stream in &ended {
            stream.abandon();
        }
        event::remove_all(self);
        module::remove_all(self);
        memory::remove_all(self);
        self.failure.store(SUCCESS, Ordering::Release);
        Ok(())
    }

    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    pub fn ordinal(&self) -> i32 {
        self.device as i32
    }

    pub fn legacy_stream(&self) -> Result<Arc<Stream>> {
        self.life
            .lock()
            .unwrap()
            .legacy
            .clone()
            .ok_or(CONTEXT_IS_DESTROYED)
    }

    pub fn add_stream(&self, stream: &Arc<Stream>) -> Result {
        let mut life = self.life.lock().unwrap();
        if life.retained == 0 {
            return Err(CONTEXT_IS_DESTROYED);
        }
        life.streams.push(stream.clone());
        Ok(())
    }

    pub fn remove_stream(&self, stream: &Stream) {
        let mut life = self.life.lock().unwrap();
        life.streams
            .retain(|other| !std::ptr::eq(Arc::as_ptr(other), stream));
    }

    /// Every stream but the legacy one.
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        self.life.lock().unwrap().streams.clone()
    }

    /// Waits for all work submitted so far.
    pub fn synchronize(&self) -> Result {
        self.wait_for_streams();
        self.check()
    }

    pub fn wait_for_streams(&self) {
        for stream in self.streams().iter().chain(&self.legacy_stream().ok()) {
            if let Some(ticket) = stream.last() {
                ticket.wait();
            }
        }
    }
}
