//! Copies and fills in the order of the application's own: what a driver of HDF5 is asked to do
//! between two reads.
//!
//! All of it comes after the legacy default stream, as `cudaMemcpy` does. While a blocking stream is
//! captured into a CUDA graph the legacy default stream takes no work, and to ask it for some would
//! break the capture. Then copies and fills come after nothing: what is captured does not run.

use std::ptr;

use penstock_sys::cuda::{CUresult, CUstream, Cuda};

use crate::error::{Error, Result};
use crate::gpu::stream::{Stream, is_about_capture};
use crate::gpu::{CopyQueue, Lent};
use crate::memory::{Memory, are_on_host, is_on_host};

/// Copies between any two kinds of memory, of any contexts; done when it returns. Where both are
/// host memory, the CPU copies at once.
///
/// # Safety
/// Both are valid for `length` bytes and do not overlap.
pub unsafe fn copy(destination: usize, source: usize, length: usize) -> Result<()> {
    if length == 0 {
        return Ok(());
    }
    refuse_null(destination)?;
    refuse_null(source)?;
    if are_on_host([destination, source])? {
        // SAFETY: both are host memory, valid and apart, as the caller vouches.
        unsafe { ptr::copy_nonoverlapping(source as *const u8, destination as *mut u8, length) };
        return Ok(());
    }
    crate::fork::refuse_fork()?;
    let (to, from) = (Memory::at(destination)?, Memory::at(source)?);
    if !to.same_place(&from) && to.context.is_some() {
        // The copy follows the default stream of the other context only.
        follow_default_stream(&from)?;
    }
    let on_gpu = if to.context.is_some() { &to } else { &from };
    let mut copies = Copies::with(on_gpu)?;
    // SAFETY: passed on.
    unsafe { copies.copy(destination, source, length)? };
    copies.finish()
}

/// Fills memory of any kind with zeros; done when it returns.
///
/// # Safety
/// The memory is valid for `length` bytes.
pub unsafe fn zero(destination: usize, length: usize) -> Result<()> {
    if length == 0 {
        return Ok(());
    }
    refuse_null(destination)?;
    if is_on_host(destination)? {
        // SAFETY: host memory, valid as the caller vouches.
        unsafe { ptr::write_bytes(destination as *mut u8, 0, length) };
        return Ok(());
    }
    crate::fork::refuse_fork()?;
    let memory = Memory::at(destination)?;
    let mut copies = Copies::with(&memory)?;
    copies.work("cuMemsetD8Async", |cuda, stream| {
        // SAFETY: the caller vouches for the memory.
        unsafe { (cuda.cuMemsetD8Async)(destination as u64, 0, length, stream) }
    })?;
    copies.finish()
}

/// Waits until the work is done that the application has queued so far on the legacy default stream
/// of the memory's context and, as always before that stream's, on blocking streams. Nothing to wait
/// for stands before host memory, nor before any memory while a blocking stream is captured.
pub fn follow_default_stream(memory: &Memory) -> Result<()> {
    let Some(context) = &memory.context else {
        return Ok(());
    };
    crate::fork::refuse_fork()?;
    let mut lent = Lent::new(context)?;
    let queue = lent.queue()?;
    match mark_default_stream(queue)? {
        true => queue.wait(0),
        false => Ok(()),
    }
}

/// Sets the mark 0 of a queue at the end of the default stream. False if that takes no work. To wait
/// for the stream itself would leave out what blocking streams do before it.
pub(crate) fn mark_default_stream(queue: &mut CopyQueue) -> Result<bool> {
    if Stream::LEGACY.is_capturing(queue.context.driver) {
        return Ok(false);
    }
    match queue.mark_default_stream(0) {
        // A capture has begun just now.
        Err(error) if is_about_capture(error.gpu_code()) => Ok(false),
        done => done.map(|()| true),
    }
}

/// Copies of one thread with the memory of one context, one after another as a row of `cudaMemcpy`
/// makes them.
pub struct Copies<'a> {
    lent: Lent<'a>,
}

impl<'a> Copies<'a> {
    /// For copies between this memory, which is device or managed memory, and the host's. They come
    /// after what the default stream has been given so far.
    pub fn with(memory: &'a Memory) -> Result<Copies<'a>> {
        crate::fork::refuse_fork()?;
        let context = memory.context.as_ref().ok_or_else(|| {
            Error::invalid("the memory is not, or no longer, GPU memory")
                .remedy("keep GPU memory until what uses it has returned")
        })?;
        let mut lent = Lent::new(context)?;
        let queue = lent.queue()?;
        if mark_default_stream(queue)? {
            queue.pass(0)?;
        }
        Ok(Copies { lent })
    }

    /// Copies to or from the GPU. When it returns, pageable memory of the host may be used again;
    /// all is where it belongs after [`finish`](Self::finish).
    ///
    /// # Safety
    /// Both are valid for `length` bytes and do not overlap, until `finish` or the end of this.
    pub unsafe fn copy(&mut self, destination: usize, source: usize, length: usize) -> Result<()> {
        let (to, from) = (destination as u64, source as u64);
        // SAFETY: the driver finds out the kinds by the unified addresses; the caller vouches for
        // both.
        self.work("cuMemcpyAsync", |cuda, stream| unsafe {
            (cuda.cuMemcpyAsync)(to, from, length, stream)
        })
    }

    fn work(&mut self, call: &str, work: impl FnOnce(&Cuda, CUstream) -> CUresult) -> Result<()> {
        let driver = self.lent.context().driver;
        let code = work(driver.cuda, self.lent.queue()?.lend_stream());
        driver.check(code, call)
    }

    /// Waits until all copies are done.
    pub fn finish(&mut self) -> Result<()> {
        self.lent.queue()?.finish()
    }
}

fn refuse_null(address: usize) -> Result<()> {
    if address == 0 {
        return Err(Error::invalid("the buffer is a null pointer"));
    }
    Ok(())
}
