//! A stream for copies, with reusable events that show its progress.

use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_sys::cuda::{self, CUevent, CUstream, Cuda, CudaMemcpy2D, CudaMemcpyAttributes};

use super::context::new_event;
use super::{Driver, OwnContext};
use crate::error::{Error, Kind, Result};

/// The direction of a copy between host memory and the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From host memory to the GPU.
    ToGpu,
    /// From the GPU to host memory.
    FromGpu,
}

/// A non-blocking stream of the engine's context, and numbered events on it, called marks. One worker
/// at a time uses it, with the context current. It never waits for a stream of the program's: the
/// host does, before it queues work.
pub struct CopyQueue {
    /// The context of the stream.
    pub context: Arc<OwnContext>,
    stream: CUstream,
    events: Vec<CUevent>,
    /// Whether work may be in progress: set by each call that queues some, cleared by
    /// [`finish`](Self::finish).
    busy: bool,
}

// SAFETY: streams and events may be used from any thread; `CopyQueue` is used by one at a time.
unsafe impl Send for CopyQueue {}

/// The driver sends copies to the GPU below some size through a hardware queue, not through a copy
/// engine. Beside eight streams of the program that wait, such a copy waits, too, although it is in
/// another context. On an H200 with driver 580 the size is 16 KiB. Copies of two rows take a copy engine
/// at any size, in the same time.
const INLINE: u64 = 64 << 10;

/// Rows of `width` bytes in host memory and in that of the GPU, whose starts are regular distances
/// apart.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// The first row on the host.
    pub host: *mut u8,
    /// Bytes from one row to the next on the host.
    pub host_pitch: u64,
    /// The first row on the GPU.
    pub gpu: u64,
    /// Bytes from one row to the next on the GPU.
    pub gpu_pitch: i64,
    /// Bytes of a row.
    pub width: u64,
    /// The number of rows.
    pub count: u64,
}

/// How long a worker polls an event before it lets the driver put it to sleep. The copies of all
/// workers' blocks take less time, so a steady flow of blocks makes no system calls besides its
/// I/O, and no wake-up leaves the link idle.
const SPIN: Duration = Duration::from_millis(2);

/// A stream of the current context, of the greatest priority. It does not wait for the legacy default
/// stream.
pub(super) fn new_stream(driver: &Driver) -> Result<CUstream> {
    let (mut least, mut greatest) = (0, 0);
    // SAFETY: both are valid places for the answers.
    let code = unsafe { (driver.cuda.cuCtxGetStreamPriorityRange)(&mut least, &mut greatest) };
    driver.check(code, "cuCtxGetStreamPriorityRange")?;
    let mut stream = ptr::null_mut();
    // The application's kernels may keep the GPU busy, so copies have priority.
    // SAFETY: `stream` is a valid place for the answer.
    let code = unsafe {
        (driver.cuda.cuStreamCreateWithPriority)(
            &mut stream,
            cuda::CU_STREAM_NON_BLOCKING,
            greatest,
        )
    };
    driver.check(code, "cuStreamCreateWithPriority")?;
    Ok(stream)
}

impl CopyQueue {
    /// A queue with a stream of its own, of the greatest priority.
    pub fn new(context: Arc<OwnContext>) -> Result<CopyQueue> {
        let stream = new_stream(context.driver)?;
        Ok(CopyQueue {
            context,
            stream,
            events: Vec::new(),
            busy: false,
        })
    }

    /// Queues a copy of `bytes` between host memory and GPU memory.
    ///
    /// # Errors
    /// The failed call of the driver, or an earlier failure of the context.
    ///
    /// # Safety
    /// Both memories are valid for `bytes`, and those of the host have their contents. They stay so, and no other code touches them in a
    /// conflicting way, until [`wait`](Self::wait) for a later mark, or [`finish`](Self::finish),
    /// returns.
    pub unsafe fn copy(
        &mut self,
        direction: Direction,
        host: *mut u8,
        gpu: u64,
        bytes: u64,
    ) -> Result<()> {
        self.busy = true;
        // SAFETY: passed on.
        unsafe {
            match direction {
                // The byte is in its slot already, and setting memory takes a kernel.
                Direction::ToGpu if bytes == 1 => {
                    let set = self.cuda().cuMemsetD8Async;
                    let code = set(gpu, host.read(), 1, self.stream);
                    self.context.driver.check(code, "cuMemsetD8Async")
                }
                Direction::ToGpu if (2..INLINE).contains(&bytes) => {
                    // Two rows and, for an odd number of bytes, the last two bytes once more.
                    let two = |place: u64, width: u64| Rows {
                        host: host.wrapping_add(place as usize),
                        host_pitch: width,
                        gpu: gpu + place,
                        gpu_pitch: width as i64,
                        width,
                        count: 2,
                    };
                    self.copy_pitched(direction, two(0, bytes / 2))?;
                    if bytes % 2 == 1 {
                        self.copy_pitched(direction, two(bytes - 2, 1))?;
                    }
                    Ok(())
                }
                Direction::ToGpu => {
                    let copy = self.cuda().cuMemcpyHtoDAsync;
                    let code = copy(gpu, host.cast(), bytes as usize, self.stream);
                    self.context.driver.check(code, "cuMemcpyHtoDAsync")
                }
                Direction::FromGpu => {
                    let copy = self.cuda().cuMemcpyDtoHAsync;
                    let code = copy(host.cast(), gpu, bytes as usize, self.stream);
                    self.context.driver.check(code, "cuMemcpyDtoHAsync")
                }
            }
        }
    }

    /// Queues a copy of rows between host memory and the GPU.
    ///
    /// # Errors
    /// As for [`copy`](Self::copy).
    ///
    /// # Safety
    /// As for [`copy`](Self::copy), for all rows.
    pub unsafe fn copy_rows(&mut self, direction: Direction, rows: Rows) -> Result<()> {
        /// Every device allows as much.
        const MAX_PITCH: i64 = i32::MAX as i64;
        let allowed = rows.width as i64..=MAX_PITCH;
        if rows.count > 1
            && allowed.contains(&rows.gpu_pitch)
            && allowed.contains(&(rows.host_pitch as i64))
        {
            self.busy = true;
            // SAFETY: passed on.
            return unsafe { self.copy_pitched(direction, rows) };
        }
        for row in 0..rows.count {
            let host = rows.host.wrapping_add((row * rows.host_pitch) as usize);
            let gpu = rows.gpu.wrapping_add_signed(row as i64 * rows.gpu_pitch);
            // SAFETY: passed on, row by row.
            unsafe { self.copy(direction, host, gpu, rows.width)? };
        }
        Ok(())
    }

    /// Queues several copies, the single rows among them by one call, since the GPU needs some
    /// microseconds for each call (docs/decisions/0028).
    ///
    /// # Errors
    /// As for [`copy`](Self::copy).
    ///
    /// # Safety
    /// As for [`copy`](Self::copy), for all rows. The copies do not overlap.
    pub unsafe fn copy_all(
        &mut self,
        direction: Direction,
        copies: impl Iterator<Item = Rows>,
    ) -> Result<()> {
        let is_single = |rows: &Rows| rows.count == 1 && rows.width >= INLINE;
        let (single, others): (Vec<Rows>, Vec<Rows>) = copies.partition(is_single);
        // SAFETY: passed on, for each copy.
        unsafe {
            self.copy_batch(direction, &single)?;
            others
                .into_iter()
                .try_for_each(|rows| self.copy_rows(direction, rows))
        }
    }

    /// Queues copies of single rows by one call, if the driver has it.
    ///
    /// # Safety
    /// As for [`copy_all`](Self::copy_all).
    unsafe fn copy_batch(&mut self, direction: Direction, rows: &[Rows]) -> Result<()> {
        // SAFETY: passed on.
        let each = |queue: &mut Self| unsafe {
            rows.iter()
                .try_for_each(|rows| queue.copy_rows(direction, *rows))
        };
        let batch = self.cuda().cuMemcpyBatchAsync;
        let Some(batch) = batch.filter(|_| rows.len() > 1) else {
            return each(self);
        };
        self.busy = true;
        let host: Vec<u64> = rows.iter().map(|rows| rows.host as u64).collect();
        let gpu: Vec<u64> = rows.iter().map(|rows| rows.gpu).collect();
        let bytes: Vec<usize> = rows.iter().map(|rows| rows.width as usize).collect();
        let (to, from) = match direction {
            Direction::ToGpu => (&gpu, &host),
            Direction::FromGpu => (&host, &gpu),
        };
        let (to, from) = (to.as_ptr(), from.as_ptr());
        let attributes = CudaMemcpyAttributes {
            srcAccessOrder: cuda::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
            ..CudaMemcpyAttributes::default()
        };
        let (bytes, count, stream) = (bytes.as_ptr(), rows.len(), self.stream);
        // SAFETY: the lists have an element for each row and outlive the call; the rest is passed on.
        let code = unsafe { batch(to, from, bytes, count, &attributes, &0, 1, &mut 0, stream) };
        match code {
            cuda::CUDA_ERROR_NOT_SUPPORTED => each(self),
            code => self.context.driver.check(code, "cuMemcpyBatchAsync"),
        }
    }

    /// # Safety
    /// As for [`copy_rows`](Self::copy_rows).
    unsafe fn copy_pitched(&mut self, direction: Direction, rows: Rows) -> Result<()> {
        let (host, device) = (cuda::CU_MEMORYTYPE_HOST, cuda::CU_MEMORYTYPE_DEVICE);
        let (host_pitch, gpu_pitch) = (rows.host_pitch as usize, rows.gpu_pitch as usize);
        let to_gpu = direction == Direction::ToGpu;
        // The driver reads the members of the memory types given.
        let copy = CudaMemcpy2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: if to_gpu { host } else { device },
            srcHost: rows.host.cast(),
            srcDevice: rows.gpu,
            srcArray: ptr::null_mut(),
            srcPitch: if to_gpu { host_pitch } else { gpu_pitch },
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: if to_gpu { device } else { host },
            dstHost: rows.host.cast(),
            dstDevice: rows.gpu,
            dstArray: ptr::null_mut(),
            dstPitch: if to_gpu { gpu_pitch } else { host_pitch },
            WidthInBytes: rows.width as usize,
            Height: rows.count as usize,
        };
        // SAFETY: the description outlives the call; the caller vouches for both ends.
        let code = unsafe { (self.cuda().cuMemcpy2DAsync)(&copy, self.stream) };
        self.context.driver.check(code, "cuMemcpy2DAsync")
    }

    /// The stream, on which the caller may queue work of its own. [`finish`](Self::finish) waits for
    /// that work as well.
    pub fn raw_stream(&mut self) -> CUstream {
        self.busy = true;
        self.stream
    }

    /// Makes work that is queued from now on wait for the mark `index` of another queue.
    pub fn follow(&mut self, other: &CopyQueue, index: usize) -> Result<()> {
        let driver = self.context.driver;
        let event = other.events[index];
        // SAFETY: stream and event are live.
        let code = unsafe { (driver.cuda.cuStreamWaitEvent)(self.stream, event, 0) };
        driver.check(code, "cuStreamWaitEvent")
    }

    /// Allocates `bytes` of GPU memory in the order of this queue's work, without waiting for other
    /// work of the GPU. Returns the address. If no memory is left, frees all that the context
    /// keeps, and tries the allocation again.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] from drivers without memory pools; [`Kind::Memory`] if no memory is
    /// left.
    pub fn allocate(&mut self, bytes: u64) -> Result<u64> {
        match self.allocate_once(bytes) {
            Err(error) if error.kind() == Kind::Memory => {
                let context = Arc::clone(&self.context);
                if context.free_spare(self)? {
                    self.allocate_once(bytes)
                } else {
                    Err(error)
                }
            }
            allocated => allocated,
        }
    }

    fn allocate_once(&mut self, bytes: u64) -> Result<u64> {
        self.busy = true;
        let (code, address) = self.context.allocate(bytes, self.stream);
        let Some(code) = code else {
            return Err(
                Error::new(Kind::Unavailable, "this CUDA driver has no memory pools")
                    .remedy("use a driver for CUDA 11.2 or later"),
            );
        };
        let driver = self.context.driver;
        driver.check(code, &format!("cuMemAllocAsync of {bytes} bytes"))?;
        Ok(address)
    }

    /// Frees memory of [`allocate`](Self::allocate) when the work queued so far is done.
    ///
    /// # Safety
    /// Nothing else uses the memory.
    pub unsafe fn free(&mut self, address: u64) {
        if let Some(free) = self.context.driver.cuda.cuMemFreeAsync {
            self.busy = true;
            // SAFETY: passed on. A failure leaves the memory to the context, which has failed.
            unsafe { free(address, self.stream) };
        }
    }

    fn cuda(&self) -> &'static Cuda {
        self.context.driver.cuda
    }

    /// Sets the mark `index` behind the work queued so far.
    pub fn mark(&mut self, index: usize) -> Result<()> {
        let driver = self.context.driver;
        while self.events.len() <= index {
            self.events.push(new_event(driver)?);
        }
        // SAFETY: event and stream are live and of the same context.
        let code = unsafe { (driver.cuda.cuEventRecord)(self.events[index], self.stream) };
        driver.check(code, "cuEventRecord")
    }

    /// Whether all work before the mark `index` is done.
    ///
    /// # Errors
    /// The failure of that work.
    pub fn passed(&self, index: usize) -> Result<bool> {
        let driver = self.context.driver;
        // SAFETY: the event is live: it was made by `mark`.
        match unsafe { (driver.cuda.cuEventQuery)(self.events[index]) } {
            cuda::CUDA_ERROR_NOT_READY => Ok(false),
            code => driver.check(code, "cuEventQuery").map(|()| true),
        }
    }

    /// Waits until all work before the mark `index` is done.
    ///
    /// # Errors
    /// The failure of that work.
    pub fn wait(&self, index: usize) -> Result<()> {
        if self.passed(index)? {
            return Ok(());
        }
        let start = Instant::now();
        while start.elapsed() < SPIN {
            std::hint::spin_loop();
            if self.passed(index)? {
                return Ok(());
            }
        }
        let driver = self.context.driver;
        // SAFETY: as in `passed`.
        let code = unsafe { (driver.cuda.cuEventSynchronize)(self.events[index]) };
        driver.check(code, "cuEventSynchronize")
    }

    /// Waits until all work of this queue is done. Even after an error, no work of this queue
    /// touches any memory afterwards.
    ///
    /// # Errors
    /// The failure of the work.
    pub fn finish(&mut self) -> Result<()> {
        if !self.busy {
            return Ok(());
        }
        let driver = self.context.driver;
        // SAFETY: the stream is live, as the context is.
        let code = unsafe { (driver.cuda.cuStreamSynchronize)(self.stream) };
        driver.check(code, "cuStreamSynchronize")?;
        self.busy = false;
        Ok(())
    }
}

impl Drop for CopyQueue {
    fn drop(&mut self) {
        // The driver neither waits nor destroys anything without a current context.
        let context = Arc::clone(&self.context);
        let Ok(_entered) = context.enter() else {
            return;
        };
        // The error cannot be reported from drop.
        let _ = self.finish();
        let cuda = self.context.driver.cuda;
        for event in self.events.drain(..) {
            // SAFETY: made for this queue, and used by no other code.
            unsafe { (cuda.cuEventDestroy)(event) };
        }
        // SAFETY: made by `new`, and used by no other code.
        unsafe { (cuda.cuStreamDestroy)(self.stream) };
    }
}
