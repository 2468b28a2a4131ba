//! Devices, their contexts, and the stack of current contexts of each thread.

use std::cell::RefCell;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};

use crate::arena::Arena;
use crate::status::{
    CONTEXT_IS_DESTROYED, CudaError, INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, NO_DEVICE,
    NOT_INITIALIZED, NOT_PERMITTED, Result, SUCCESS, UNSUPPORTED_LIMIT,
};
use crate::stream::{self, Kind, Stream};
use crate::{config, event, failure, memory, module};

/// `CU_CTX_FLAGS_MASK`.
const KNOWN_FLAGS: u32 = 0xFF;

pub const NAME: &std::ffi::CStr = c"Penstock stand-in GPU";

/// The primary context of each device.
static PRIMARY: OnceLock<Vec<Context>> = OnceLock::new();

/// The contexts that [`create`] made and that are not destroyed.
static CREATED: RwLock<Vec<&'static Context>> = RwLock::new(Vec::new());

/// Whether this process is the forked child of one that had called `cuInit`.
static FORKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Never dropped, because exit handlers call the driver after thread-local values are dropped.
    static CURRENT: RefCell<ManuallyDrop<Vec<&'static Context>>> =
        const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

/// A created context is never dropped, so that its handle is never reused and a thread that still
/// has it current gets an error.
pub struct Context {
    pub device: usize,
    shared: &'static Shared,
    active: AtomicBool,
    /// A new number each time that the context is created.
    id: AtomicU64,
    /// The values of the first [`LIMITS`] of `CUlimit`.
    limits: [AtomicUsize; LIMITS],
    life: Mutex<Life>,
    /// Held by a call that [blocks](Context::block) the context.
    gate: Mutex<()>,
}

/// What the contexts of one device share.
struct Shared {
    arena: Arena,
    /// The error of an operation that failed asynchronously, which every later call returns.
    failure: AtomicI32,
}

/// The limits that have a value: stack size, `printf` buffer, heap of `malloc`.
const LIMITS: usize = 3;
const DEFAULT_LIMITS: [usize; LIMITS] = [1 << 10, 1 << 20, 8 << 20];
/// The number of limits that `CUlimit` names.
const KNOWN_LIMITS: usize = 10;

#[derive(Default)]
struct Life {
    /// 1 for a created context until it is destroyed.
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
    if PRIMARY.get().is_none() {
        if config::devices() == 0 {
            return Err(NO_DEVICE);
        }
        let capacity = config::device_memory();
        let primary = |device| {
            let shared = Shared {
                arena: Arena::new(capacity)?,
                failure: AtomicI32::new(SUCCESS),
            };
            Ok(Context::new(device, Box::leak(Box::new(shared))))
        };
        let contexts = (0..config::devices()).map(primary);
        let contexts = contexts.collect::<Result<Vec<_>>>()?;
        // SAFETY: the handler only stores to an atomic, which is allowed in a forked child.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        let _ = PRIMARY.set(contexts);
    }
    Ok(())
}

unsafe extern "C" fn forked() {
    FORKED.store(true, Ordering::Relaxed);
}

/// The primary contexts, after the checks with which every call begins before it reads any argument.
fn primary() -> Result<&'static [Context]> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(NOT_INITIALIZED);
    }
    if stream::in_host_function() {
        return Err(NOT_PERMITTED);
    }
    PRIMARY.get().map(Vec::as_slice).ok_or(NOT_INITIALIZED)
}

pub fn count() -> Result<usize> {
    primary().map(<[_]>::len)
}

/// The primary context of a device, retained or not.
pub fn device(ordinal: i32) -> Result<&'static Context> {
    let contexts = primary()?;
    usize::try_from(ordinal)
        .ok()
        .and_then(|at| contexts.get(at))
        .ok_or(INVALID_DEVICE)
}

pub fn by_handle(handle: *mut c_void) -> Result<&'static Context> {
    let primary = primary()?;
    let created = CREATED.read().unwrap();
    primary
        .iter()
        .chain(created.iter().copied())
        .find(|context| context.handle() == handle)
        .ok_or(INVALID_CONTEXT)
}

/// Creates a context beside the primary one and makes it current.
pub fn create(ordinal: i32, flags: u32) -> Result<&'static Context> {
    let device = device(ordinal)?;
    if flags & !KNOWN_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    device.check()?;
    failure::check(failure::Kind::Context)?;
    let context = Box::leak(Box::new(Context::new(device.device, device.shared)));
    context.start(&mut context.life.lock().unwrap());
    CREATED.write().unwrap().push(context);
    push(context);
    Ok(context)
}

/// Destroys a created context and its contents. Pops it if it is current on the calling thread.
pub fn destroy(handle: *mut c_void) -> Result {
    let context = by_handle(handle)?;
    {
        let mut created = CREATED.write().unwrap();
        let at = created
            .iter()
            .position(|other| std::ptr::eq(*other, context));
        created.remove(at.ok_or(INVALID_CONTEXT)?);
    }
    CURRENT.with_borrow_mut(|stack| stack.pop_if(|top| std::ptr::eq(*top, context)));
    context.reset()
}

/// The number of created contexts that are not destroyed.
pub fn count_created() -> usize {
    CREATED.read().unwrap().len()
}

/// The contexts of one device that are alive or primary.
fn contexts_of(primary: &'static Context) -> impl Iterator<Item = &'static Context> {
    let mut found = CREATED.read().unwrap().clone();
    found.retain(|context| context.device == primary.device);
    found.into_iter().chain([primary])
}

/// The top of the calling thread's stack of contexts, in any state.
pub fn top() -> Result<Option<&'static Context>> {
    primary()?;
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

/// The current context, once no other call blocks it. Fails if no context is current, or if it has
/// failed.
pub fn current() -> Result<&'static Context> {
    current_or_failed()?.pass();
    current_for_query()
}

/// As [`current`], for a query, which begins even if another call blocks the context.
pub fn current_for_query() -> Result<&'static Context> {
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
    primary()?;
    CURRENT
        .with_borrow_mut(|stack| stack.pop())
        .ok_or(INVALID_CONTEXT)
}

/// Whether an address belongs to the memory of a device, allocated or not.
pub fn is_device_address(address: usize) -> bool {
    PRIMARY
        .get()
        .into_iter()
        .flatten()
        .any(|context| context.shared.arena.contains(address))
}

/// Clears asynchronous failures, which the real driver never does, once the streams have dropped the
/// work queued after them.
pub fn clear_failures() {
    for primary in PRIMARY.get().into_iter().flatten() {
        if primary.check().is_err() {
            contexts_of(primary).for_each(Context::wait_for_streams);
            primary.shared.failure.store(SUCCESS, Ordering::Release);
        }
    }
}

impl Context {
    fn new(device: usize, shared: &'static Shared) -> Context {
        Context {
            device,
            shared,
            active: AtomicBool::new(false),
            id: AtomicU64::new(0),
            limits: DEFAULT_LIMITS.map(AtomicUsize::new),
            life: Mutex::default(),
            gate: Mutex::default(),
        }
    }

    pub fn handle(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    pub fn arena(&self) -> &'static Arena {
        &self.shared.arena
    }

    /// The value of a limit, which has no effect.
    pub fn limit(&self, limit: i32) -> Result<&AtomicUsize> {
        let index = usize::try_from(limit).map_err(|_| INVALID_VALUE)?;
        let missing = if index < KNOWN_LIMITS {
            UNSUPPORTED_LIMIT
        } else {
            INVALID_VALUE
        };
        self.limits.get(index).ok_or(missing)
    }

    /// Returns the asynchronous failure of the device as an error, if there was one.
    pub fn check(&self) -> Result {
        match self.shared.failure.load(Ordering::Acquire) {
            SUCCESS => Ok(()),
            code => Err(CudaError(code)),
        }
    }

    /// Records an asynchronous failure, which concerns all contexts of the device; the first one
    /// stays.
    pub fn fail(&self, error: CudaError) {
        let first = self.shared.failure.compare_exchange(
            SUCCESS,
            error.0,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if first.is_ok() {
            config::log(format_args!(
                "device {} failed with {}",
                self.device, error.0
            ));
        }
    }

    pub fn retain(&'static self) -> Result {
        failure::check(failure::Kind::Retain)?;
        let mut life = self.life.lock().unwrap();
        life.retained += 1;
        if life.retained == 1 {
            self.start(&mut life);
        }
        Ok(())
    }

    fn start(&'static self, life: &mut Life) {
        static IDS: AtomicU64 = AtomicU64::new(1);
        self.id
            .store(IDS.fetch_add(1, Ordering::Relaxed), Ordering::Release);
        life.retained = 1;
        life.legacy = Some(Stream::new(self, Kind::Legacy));
        self.active.store(true, Ordering::Release);
    }

    /// Releases the context once. The last release destroys its memory, streams, events and modules.
    /// The end of the device's last active context clears the device's failure.
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
        if !contexts_of(&primary()?[self.device]).any(Context::is_active) {
            self.shared.failure.store(SUCCESS, Ordering::Release);
        }
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

    /// In the blocking mode of [`config`], waits until all streams are idle. Until the guard is
    /// dropped, no other call [passes](Context::pass).
    pub fn block(&self) -> Option<MutexGuard<'_, ()>> {
        config::is_blocking().then(|| {
            let gate = self.gate.lock().unwrap();
            self.wait_for_streams();
            gate
        })
    }

    /// In the blocking mode, waits until no call blocks the context. Threads of streams must not call
    /// it, because the blocking call waits for them.
    pub fn pass(&self) {
        if config::is_blocking() {
            drop(self.gate.lock().unwrap());
        }
    }

    pub fn wait_for_streams(&self) {
        for stream in self.streams().iter().chain(&self.legacy_stream().ok()) {
            if let Some(ticket) = stream.last() {
                ticket.wait();
            }
        }
    }
}
