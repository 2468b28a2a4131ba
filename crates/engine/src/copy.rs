//! Copies and fills in the order of the application's own: what a driver of HDF5 is asked to do
//! between two reads.
//!
//! All of it comes after the legacy default stream, as `cudaMemcpy` does. While a blocking stream is
//! captured into a CUDA graph the legacy default stream takes no work, and work of ours on it would
//! break the capture. Then copies and fills run on a stream of the engine's, after nothing: what is
//! captured does not run either.

use std::ptr;
use std::sync::Arc;

use penstock_sys::cuda::{self, CUresult, CUstream, Cuda};

use crate::error::{Error, Result};
use crate::gpu::stream::{Stream, is_about_capture};
use crate::gpu::{Context, Lent};
use crate::memory::{Memory, is_on_host};

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
    if is_on_host(destination)? && is_on_host(source)? {
        // SAFETY: both are host memory, valid and apart, as the caller vouches.
        unsafe { ptr::copy_nonoverlapping(source as *const u8, destination as *mut u8, length) };
        return Ok(());
    }
    crate::refuse_fork()?;
    let (to, from) = (Memory::at(destination)?, Memory::at(source)?);
    if !to.same_place(&from) && to.context.is_some() {
        // The copy follows the default stream of the other context only.
        follow_default_stream(&from)?;
    }
    // SAFETY: the driver finds out the kinds by the unified addresses; the caller vouches for both.
    on_default_stream(
        to.context.or(from.context),
        "cuMemcpy",
        |cuda, stream| unsafe {
            let (to, from) = (destination as u64, source as u64);
            if stream == cuda::CU_STREAM_LEGACY {
                (cuda.cuMemcpy)(to, from, length)
            } else {
                (cuda.cuMemcpyAsync)(to, from, length, stream)
            }
        },
    )
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
    crate::refuse_fork()?;
    let memory = Memory::at(destination)?;
    // SAFETY: the caller vouches for the memory.
    on_default_stream(memory.context, "cuMemsetD8Async", |cuda, stream| unsafe {
        (cuda.cuMemsetD8Async)(destination as u64, 0, length, stream)
    })
}

/// Waits until the work is done that the application has queued so far on the legacy default stream
/// of the memory's context and, as always before that stream's, on blocking streams. Nothing to wait
/// for stands before host memory, nor before any memory while a blocking stream is captured.
pub fn follow_default_stream(memory: &Memory) -> Result<()> {
    let Some(context) = &memory.context else {
        return Ok(());
    };
    crate::refuse_fork()?;
    let mut lent = Lent::new(context)?;
    if Stream::LEGACY.is_capturing(context.driver) {
        return Ok(());
    }
    let queue = lent.queue()?;
    // To wait for the stream itself would leave out what blocking streams do before it.
    match queue.mark_default_stream(0) {
        // A capture has begun just now.
        Err(error) if is_about_capture(error.gpu_code()) => Ok(()),
        Err(error) => Err(error),
        Ok(()) => queue.wait(0),
    }
}

/// Queues work on the legacy default stream, or where that takes none on one of the engine's, and
/// waits until it is done.
fn on_default_stream(
    context: Option<Arc<Context>>,
    call: &str,
    work: impl Fn(&Cuda, CUstream) -> CUresult,
) -> Result<()> {
    let context = context.ok_or_else(|| {
        Error::invalid("the GPU memory was freed while it was asked about")
            .remedy("keep GPU memory until what uses it has returned")
    })?;
    let mut lent = Lent::new(&context)?;
    let driver = context.driver;
    if !Stream::LEGACY.is_capturing(driver) {
        let code = work(driver.cuda, cuda::CU_STREAM_LEGACY);
        if !is_about_capture(code) {
            driver.check(code, call)?;
            // cuMemcpy returns before a copy on the GPU, or a small one to it, is done.
            // SAFETY: the legacy default stream of the context, which is current.
            let code = unsafe { (driver.cuda.cuStreamSynchronize)(cuda::CU_STREAM_LEGACY) };
            if !is_about_capture(code) {
                return driver.check(code, "cuStreamSynchronize");
            }
        }
    }
    let queue = lent.queue()?;
    let code = work(driver.cuda, queue.lend_stream());
    driver.check(code, call)?;
    queue.finish()
}

fn refuse_null(address: usize) -> Result<()> {
    if address == 0 {
        return Err(Error::invalid("the buffer is a null pointer"));
    }
    Ok(())
}
