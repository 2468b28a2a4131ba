//! A stream for copies, with reusable events that say how far it has come.

use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_sys::cuda::{self, CUevent, CUstream, Cuda, CudaMemcpy2D};

use super::Context;
use super::stream::Stream;
use crate::error::{Error, Kind, Result};

/// Which way a copy goes between host memory and the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ToGpu,
    FromGpu,
}

/// A non-blocking stream of one context and a growing set of events on it. Used by one worker at
/// a time, with the context current.
pub struct CopyQueue {
    pub context: Arc<Context>,
    stream: CUstream,
    events: Vec<CUevent>,
    /// Copies may be under way: set by each copy, cleared by [`finish`](Self::finish).
    busy: bool,
}

// SAFETY: streams and events may be used from any thread; `CopyQueue` is used by one at a time.
unsafe impl Send for CopyQueue {}

/// Below this many bytes the driver sends a copy to the GPU through the hardware queue of its stream
/// instead of the copy engine. That queue may be shared with a stream that waits for this very
/// request, and then the copy would never be made. (Seen on an H200, driver 580: up to 16 KiB;
/// copies of two rows take the copy engine at any size, and no longer.)
const INLINE: u64 = 64 << 10;

/// How long a worker looks at an event again and again before it lets the driver put it to sleep:
/// longer than the copies of all workers' blocks take, so that a steady flow of blocks makes no
/// system calls besides its I/O, and a wake-up does not leave the link idle.
const SPIN: Duration = Duration::from_millis(2);

impl CopyQueue {
    pub fn new(context: Arc<Context>) -> Result<CopyQueue> {
        let driver = context.driver;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both are valid places for the answers.
        let code = unsafe { (driver.cuda.cuCtxGetStreamPriorityRange)(&mut least, &mut greatest) };
        driver.check(code, "cuCtxGetStreamPriorityRange")?;
        let mut stream = ptr::null_mut();
        // The greatest priority, as there may be kernels enough to keep the GPU busy.
        // SAFETY: `stream` is a valid place for the answer.
        let code = unsafe {
            (driver.cuda.cuStreamCreateWithPriority)(
                &mut stream,
                cuda::CU_STREAM_NON_BLOCKING,
                greatest,
            )
        };
        driver.check(code, "cuStreamCreateWithPriority")?;
        Ok(CopyQueue {
            context,
            stream,
            events: Vec::new(),
            busy: false,
        })
    }

    /// Queues a copy between host memory and GPU memory.
    ///
    /// # Safety
    /// Both are valid for `bytes`, and stay so and are not touched in a conflicting way until an
    /// event recorded later, or [`finish`](Self::finish), says that the copy is done.
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
                Direction::ToGpu if (2..INLINE).contains(&bytes) => {
                    // Two rows, and of an odd number of bytes the last two once more.
                    let half = bytes / 2;
                    self.copy_pitched(host, gpu, half, 2, half)?;
                    if bytes % 2 == 1 {
                        let rest = bytes - 2;
                        self.copy_pitched(host.add(rest as usize), gpu + rest, 1, 2, 1)?;
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

    /// Queues a copy between any two places that the GPU reaches.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy).
    pub unsafe fn copy_within(&mut self, to: usize, from: usize, bytes: usize) -> Result<()> {
        self.busy = true;
        // SAFETY: passed on; the driver finds out the kinds by the unified addresses.
        let code =
            unsafe { (self.cuda().cuMemcpyAsync)(to as u64, from as u64, bytes, self.stream) };
        self.context.driver.check(code, "cuMemcpyAsync")
    }

    /// Queues a copy to the GPU of rows of `width` bytes, which follow each other on the host and
    /// are `pitch` bytes apart on the GPU.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy), for all rows.
    pub unsafe fn copy_rows(
        &mut self,
        host: *mut u8,
        gpu: u64,
        width: u64,
        rows: u64,
        pitch: i64,
    ) -> Result<()> {
        /// No device allows less.
        const MAX_PITCH: i64 = i32::MAX as i64;
        if rows < 2 || pitch < width as i64 || pitch > MAX_PITCH {
            for row in 0..rows {
                // SAFETY: passed on, row by row.
                unsafe {
                    let from = host.add((row * width) as usize);
                    let to = gpu.wrapping_add_signed(row as i64 * pitch);
                    self.copy(Direction::ToGpu, from, to, width)?;
                }
            }
            return Ok(());
        }
        self.busy = true;
        // SAFETY: passed on.
        unsafe { self.copy_pitched(host, gpu, width, rows, pitch as u64) }
    }

    /// # Safety
    /// As for [`copy_rows`](Self::copy_rows).
    unsafe fn copy_pitched(
        &mut self,
        host: *mut u8,
        gpu: u64,
        width: u64,
        rows: u64,
        pitch: u64,
    ) -> Result<()> {
        let rows = CudaMemcpy2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: cuda::CU_MEMORYTYPE_HOST,
            srcHost: host.cast(),
            srcDevice: 0,
            srcArray: ptr::null_mut(),
            srcPitch: width as usize,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: cuda::CU_MEMORYTYPE_DEVICE,
            dstHost: ptr::null_mut(),
            dstDevice: gpu,
            dstArray: ptr::null_mut(),
            dstPitch: pitch as usize,
            WidthInBytes: width as usize,
            Height: rows as usize,
        };
        // SAFETY: the description outlives the call; the caller vouches for both ends.
        let code = unsafe { (self.cuda().cuMemcpy2DAsync)(&rows, self.stream) };
        self.context.driver.check(code, "cuMemcpy2DAsync")
    }

    /// The stream, for work that is queued by others. What follows waits for such work, too.
    pub fn lend_stream(&mut self) -> CUstream {
        self.busy = true;
        self.stream
    }

    /// Work queued here from now on comes after the mark `index` of another queue.
    pub fn follow(&mut self, other: &CopyQueue, index: usize) -> Result<()> {
        self.wait_event(other.events[index])
    }

    /// Work queued here from now on comes after the mark `index`, which is on another stream.
    pub fn pass(&mut self, index: usize) -> Result<()> {
        self.wait_event(self.events[index])
    }

    fn wait_event(&mut self, event: CUevent) -> Result<()> {
        let driver = self.context.driver;
        // SAFETY: stream and event are live.
        let code = unsafe { (driver.cuda.cuStreamWaitEvent)(self.stream, event, 0) };
        driver.check(code, "cuStreamWaitEvent")
    }

    /// GPU memory that is allocated and freed in the order of this queue's work, without waiting
    /// for the rest of the GPU.
    pub fn allocate(&mut self, bytes: u64) -> Result<u64> {
        let driver = self.context.driver;
        let Some(allocate) = driver.cuda.cuMemAllocAsync else {
            return Err(
                Error::new(Kind::Unavailable, "the driver has no memory pools")
                    .remedy("use a CUDA driver of 11.2 or later"),
            );
        };
        let mut address = 0;
        self.busy = true;
        // SAFETY: `address` is a place for the answer; the stream is live.
        let code = unsafe { allocate(&mut address, bytes as usize, self.stream) };
        driver.check(code, &format!("cuMemAllocAsync of {bytes} bytes"))?;
        Ok(address)
    }

    /// Frees what [`allocate`](Self::allocate) gave, when the work queued so far is done.
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

    /// Marks the present end of the stream by the event numbered `index`.
    pub fn mark(&mut self, index: usize) -> Result<()> {
        self.record(index, self.stream)
    }

    /// Marks the present end of the context's legacy default stream, which comes after what blocking
    /// streams have queued, as all work on that stream does.
    pub fn mark_default_stream(&mut self, index: usize) -> Result<()> {
        self.record(index, cuda::CU_STREAM_LEGACY)
    }

    /// Marks the present end of a stream of the caller's, which is one of this queue's context.
    pub fn mark_stream(&mut self, index: usize, stream: Stream) -> Result<()> {
        self.record(index, stream.handle())
    }

    fn record(&mut self, index: usize, stream: CUstream) -> Result<()> {
        let driver = self.context.driver;
        while self.events.len() <= index {
            let event = self.context.event()?;
            self.events.push(event);
        }
        // SAFETY: event and stream are live and of the same context.
        let code = unsafe { (driver.cuda.cuEventRecord)(self.events[index], stream) };
        driver.check(code, "cuEventRecord")
    }

    /// Whether all work before the mark `index` is done.
    pub fn passed(&self, index: usize) -> Result<bool> {
        let driver = self.context.driver;
        // SAFETY: the event is live: it was made by `mark`.
        match unsafe { (driver.cuda.cuEventQuery)(self.events[index]) } {
            cuda::CUDA_ERROR_NOT_READY => Ok(false),
            code => driver.check(code, "cuEventQuery").map(|()| true),
        }
    }

    /// Waits until all work before the mark `index` is done.
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

    /// Waits until no copy of this queue is under way. Also after an error: when it returns,
    /// nothing that this queue started touches any memory.
    pub fn finish(&mut self) -> Result<()> {
        if !self.busy {
            return Ok(());
        }
        let driver = self.context.driver;
        if !self.context.is_alive() {
            // Its work has ended with it.
            self.busy = false;
            return Err(Error::new(
                Kind::Gpu,
                "the CUDA context was destroyed or reset",
            ));
        }
        // SAFETY: the stream is live, as the context is.
        let code = unsafe { (driver.cuda.cuStreamSynchronize)(self.stream) };
        driver.check(code, "cuStreamSynchronize")?;
        self.busy = false;
        Ok(())
    }
}

impl Drop for CopyQueue {
    fn drop(&mut self) {
        // After a failure the context may be gone, so results are of no use here.
        let _ = self.finish();
        if !self.context.is_alive() {
            return;
        }
        let cuda = self.context.driver.cuda;
        for event in self.events.drain(..) {
            // SAFETY: made for this queue, and used by nobody else.
            unsafe { (cuda.cuEventDestroy)(event) };
        }
        // SAFETY: made by `new`, and used by nobody else.
        unsafe { (cuda.cuStreamDestroy)(self.stream) };
    }
}
