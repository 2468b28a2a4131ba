//! The engine's own CUDA context of a device, in which all of its work takes place.
//!
//! In a context, several calls wait until all streams of the context are idle, and block its other
//! calls meanwhile: loading kernels, unpinning, freeing. In the program's context, such a call would
//! wait for the program's work, which may itself wait for the engine, for another process, or for a
//! later call of the program. In a context of the engine's own it waits for the engine alone, and
//! kernels do not share hardware queues with the program's streams. The memory of all contexts of a
//! device has one address space. See docs/decisions/0028.

use std::ffi::{c_int, c_uint};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use penstock_sys::cuda::{self, CUcontext, CUmemoryPool, CUresult, CUstream, CudaMemPoolProps};

use super::context::{Context, Entered, Relaxed as RelaxedCapture, pop};
use super::holders::Holders;
use super::stream::FlagWord;
use super::{CopyQueue, Driver, driver, idle};
use crate::error::Result;
use crate::sync::Recover;

/// The engine's context of a device, with the queues and the memory kept for it. It exists until the
/// process ends.
///
/// Where the driver refuses a second context, for lack of memory or in the compute mode for one context,
/// this is the primary one, in which calls may wait for the program.
pub struct OwnContext {
    handle: CUcontext,
    /// The primary context, if this is no other one.
    shared: Option<Arc<Context>>,
    /// The CUDA ordinal of the device.
    pub device: i32,
    /// The host NUMA node nearest to the device.
    pub(crate) node: Option<u32>,
    /// Whether pages mapped read-only can be registered, which the mapped route does.
    pub(crate) registers_read_only: bool,
    /// The driver that the context belongs to.
    pub driver: &'static Driver,
    /// Memory of the engine's alone. In a pool that the program uses, an allocation could be memory that a
    /// stream of the program frees later, and would make the engine's stream wait for it.
    pool: Option<Pool>,
    queues: Mutex<Vec<CopyQueue>>,
    spare: Mutex<Spare>,
    pub(super) holders: Holders,
    /// Words that no stream waits for.
    flags: Mutex<Vec<FlagWord>>,
}

struct Pool(CUmemoryPool);

// SAFETY: CUcontext and CUmemoryPool may be used from any thread; the driver locks them itself.
unsafe impl Send for OwnContext {}
// SAFETY: as above.
unsafe impl Sync for OwnContext {}

/// Bytes of stack of a GPU thread. The driver reserves them for all threads that the device can hold:
/// with its default of 1 KiB, the context takes 523 MiB of an H200, with this 325 MiB. The driver
/// reserves more when it launches a kernel that needs it.
const STACK: usize = 256;

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

static OWN: Mutex<Vec<Arc<OwnContext>>> = Mutex::new(Vec::new());
static FAILED: AtomicUsize = AtomicUsize::new(0);

impl OwnContext {
    /// The context of a device, which the first call creates. That takes 0.13 s on an H200.
    ///
    /// # Errors
    /// The failure of the driver.
    pub fn of(device: i32) -> Result<Arc<OwnContext>> {
        let mut known = OWN.lock().recover();
        // A kernel or copy that fails ends all contexts of the device. After cudaDeviceReset, the
        // program gets a new one.
        known.retain(|own| {
            let stays = own.device != device || own.works();
            FAILED.fetch_add(usize::from(!stays), Relaxed);
            stays
        });
        if let Some(own) = known.iter().find(|own| own.device == device) {
            return Ok(Arc::clone(own));
        }
        let own = Arc::new(OwnContext::create(device)?);
        known.push(Arc::clone(&own));
        Ok(own)
    }

    /// Any context of the engine's, or that of device 0.
    pub(crate) fn any() -> Result<Arc<OwnContext>> {
        let known = OWN.lock().recover().first().cloned();
        known.map_or_else(|| OwnContext::of(0), Ok)
    }

    /// The number of contexts that have failed so far. What was pinned before is not pinned for the next
    /// one.
    pub(crate) fn failed() -> usize {
        FAILED.load(Relaxed)
    }

    fn create(device: i32) -> Result<OwnContext> {
        let driver = driver()?;
        let _relaxed = RelaxedCapture::begin(driver);
        let mut handle = ptr::null_mut();
        // SAFETY: `handle` is a valid place for the answer.
        let code = unsafe { (driver.cuda.cuCtxCreate)(&mut handle, waits(driver, device), device) };
        let shared = if code == cuda::CUDA_SUCCESS {
            // A context that cannot be made smaller works as well.
            // SAFETY: the new context is current.
            unsafe { (driver.cuda.cuCtxSetLimit)(cuda::CU_LIMIT_STACK_SIZE, STACK) };
            pop(driver);
            None
        } else {
            let primary = Context::primary(device)?;
            handle = primary.handle;
            Some(primary)
        };
        let read_only = cuda::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED;
        Ok(OwnContext {
            handle,
            shared,
            device,
            node: driver.numa_node(device),
            registers_read_only: driver.attribute(device, read_only) != 0,
            driver,
            pool: Pool::new(driver, device),
            queues: Mutex::default(),
            spare: Mutex::default(),
            holders: Holders::default(),
            flags: Mutex::default(),
        })
    }

    /// What reports say of work in it, if this is the program's context.
    pub fn note(&self) -> Option<&'static str> {
        let note = "the driver allows no context for Penstock alone: calls may wait for the program's streams";
        self.shared.as_ref().map(|_| note)
    }

    /// Allocates memory in the order of a stream of this context. Returns the driver's result; `None` from
    /// drivers without memory pools.
    pub(super) fn allocate(&self, bytes: u64, stream: CUstream) -> (Option<CUresult>, u64) {
        let (cuda, mut address) = (self.driver.cuda, 0);
        // SAFETY: `address` is a place for the answer; pool and stream are live.
        let code = unsafe {
            match (&self.pool, cuda.cuMemAllocFromPoolAsync) {
                (Some(pool), Some(allocate)) => {
                    Some(allocate(&mut address, bytes as usize, pool.0, stream))
                }
                _ => cuda
                    .cuMemAllocAsync
                    .map(|allocate| allocate(&mut address, bytes as usize, stream)),
            }
        };
        (code, address)
    }

    /// Whether no work in it has failed.
    fn works(&self) -> bool {
        self.enter().is_ok_and(|_entered| {
            // SAFETY: a context is current.
            let code = unsafe { (self.driver.cuda.cuStreamQuery)(cuda::CU_STREAM_LEGACY) };
            code == cuda::CUDA_SUCCESS || code == cuda::CUDA_ERROR_NOT_READY
        })
    }

    /// Makes the context current on this thread until the result is dropped.
    pub fn enter(&self) -> Result<Entered> {
        if let Some(primary) = &self.shared {
            primary.must_be_alive()?;
        }
        // SAFETY: the context is never destroyed, or was alive just now.
        unsafe { Entered::push(self.driver, self.handle) }
    }

    pub(super) fn flags(&self) -> MutexGuard<'_, Vec<FlagWord>> {
        self.flags.lock().recover()
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

    /// Returns a queue to the context. Its work is done.
    pub fn keep(&self, queue: CopyQueue) {
        self.queues.lock().recover().push(queue);
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

    /// Frees the memory that is kept, if none was used since the last call. Returns whether no
    /// memory is kept any more; the context is then listed again with the next memory.
    pub(super) fn free_idle(self: &Arc<Self>) -> bool {
        if !self.is_idle() {
            return false;
        }
        self.free_kept();
        self.is_unlisted()
    }

    fn is_idle(&self) -> bool {
        let mut spare = self.lock_spare();
        let is_idle = spare.uses == spare.uses_visited;
        spare.uses_visited = spare.uses;
        is_idle
    }

    fn free_kept(self: &Arc<Self>) {
        if !self.works() {
            // The memory has gone with the context.
            self.lock_spare().pieces.clear();
        } else if let Ok(_entered) = self.enter()
            && let Ok(mut queue) = self.queue()
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
}

/// How the CPU waits for the GPU in the program's context, which is how it is to wait in this one.
fn waits(driver: &Driver, device: i32) -> c_uint {
    let (mut flags, mut active) = (0, 0);
    if let Some(state) = driver.cuda.cuDevicePrimaryCtxGetState {
        // SAFETY: both are places for the answers.
        unsafe { state(device, &mut flags, &mut active) };
    }
    flags & cuda::CU_CTX_SCHED_MASK
}

impl Pool {
    fn new(driver: &Driver, device: i32) -> Option<Pool> {
        let cuda = driver.cuda;
        let (create, set) = (cuda.cuMemPoolCreate?, cuda.cuMemPoolSetAttribute?);
        let properties = CudaMemPoolProps {
            allocType: cuda::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: 0,
            location_type: cuda::CU_MEM_LOCATION_TYPE_DEVICE,
            location_id: device,
            win32SecurityAttributes: ptr::null_mut(),
            maxSize: 0,
            usage: 0,
            reserved: [0; 54],
        };
        let mut pool = ptr::null_mut();
        // SAFETY: `pool` is a place for the answer; the properties outlive the call.
        let code = unsafe { create(&mut pool, &properties) };
        if code != cuda::CUDA_SUCCESS {
            return None;
        }
        // A worker would wait for another one's stream otherwise.
        let mut no: c_int = 0;
        let attribute = cuda::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
        // SAFETY: the attribute is an int.
        unsafe { set(pool, attribute, (&raw mut no).cast()) };
        Some(Pool(pool))
    }
}
