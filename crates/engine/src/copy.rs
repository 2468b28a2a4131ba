//! Copies and fills in the order of the application's own work, as HDF5 requests them from a driver
//! between two reads.
//!
//! They come after the legacy default stream, as `cudaMemcpy` does. While a blocking stream is
//! captured into a CUDA graph, the legacy default stream takes no work, and a query would break the
//! capture. Copies and fills then wait for nothing, since captured work does not run.

use std::ptr;
use std::sync::Arc;

use penstock_sys::cuda::{CUresult, CUstream, Cuda};

use crate::error::{Error, Result};
use crate::gpu::stream::Stream;
use crate::gpu::{Context, CopyQueue, QueueLease};
use crate::memory::{Memory, are_on_host, is_on_host};

/// Copies between any two kinds of memory, of any contexts, and returns when the copy is done. The
/// CPU copies between host memories, at once.
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
        // The copy follows only the default stream of the other context.
        follow_default_stream(&from)?;
    }
    let on_gpu = if to.context.is_some() { &to } else { &from };
    let mut copies = Copies::with(on_gpu)?;
    // SAFETY: passed on.
    unsafe { copies.copy(destination, source, length)? };
    copies.finish()
}

/// Fills memory of any kind with zeros, and returns when that is done.
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
    let driver = copies.context.driver;
    let stream = copies.queue()?.raw_stream();
    // SAFETY: the caller vouches for the memory.
    let code = unsafe { (driver.cuda.cuMemsetD8Async)(destination as u64, 0, length, stream) };
    driver.check(code, "cuMemsetD8Async")?;
    copies.finish()
}

/// Waits for the work that the application has queued so far on the legacy default stream of a
/// context, and so on its blocking streams. A wait for the stream itself would not cover the work of
/// blocking streams before it. Returns at once while a blocking stream is captured.
pub(crate) fn follow_default_stream_of(context: &Arc<Context>) -> Result<()> {
    match Stream::LEGACY.mark_unless_captured(context)? {
        Some(mark) => mark.wait(),
        None => Ok(()),
    }
}

/// As [`follow_default_stream_of`], for the context of GPU memory. Returns at once for host memory.
pub fn follow_default_stream(memory: &Memory) -> Result<()> {
    let Some(context) = &memory.context else {
        return Ok(());
    };
    crate::fork::refuse_fork()?;
    follow_default_stream_of(context)
}

/// Copies by one thread with the memory of one context, in order, like several calls of
/// `cudaMemcpy`. They come after the work queued on the default stream before the first one.
pub struct Copies<'a> {
    context: &'a Arc<Context>,
    /// For copies between the GPU and the host, once there is one.
    lease: Option<QueueLease<'a>>,
}

impl<'a> Copies<'a> {
    /// Copies of this memory, which is device or managed memory.
    pub fn with(memory: &'a Memory) -> Result<Copies<'a>> {
        crate::fork::refuse_fork()?;
        let context = memory.context.as_ref().ok_or_else(|| {
            Error::invalid("the memory is not GPU memory, or was freed")
                .remedy("keep GPU memory allocated until the calls that use it have returned")
        })?;
        Copies::of(context)
    }

    /// As [`with`](Self::with), for memory of this context.
    pub(crate) fn of(context: &'a Arc<Context>) -> Result<Copies<'a>> {
        context.must_be_alive()?;
        Ok(Copies {
            context,
            lease: None,
        })
    }

    fn queue(&mut self) -> Result<&mut CopyQueue> {
        let lease = match &mut self.lease {
            Some(lease) => lease,
            none => {
                follow_default_stream_of(self.context)?;
                none.insert(QueueLease::new(self.context.own()?)?)
            }
        };
        lease.queue()
    }

    /// Copies to or from the GPU. When this returns, pageable host memory may be used again. All
    /// bytes have arrived when [`finish`](Self::finish) returns.
    ///
    /// # Safety
    /// Both memories are valid for `length` bytes and do not overlap, until `finish` returns or
    /// this is dropped.
    pub unsafe fn copy(&mut self, destination: usize, source: usize, length: usize) -> Result<()> {
        let copy = |cuda: &Cuda, stream: CUstream| {
            // SAFETY: passed on; the driver finds out the kinds by the unified addresses.
            unsafe { (cuda.cuMemcpyAsync)(destination as u64, source as u64, length, stream) }
        };
        if !is_on_host(destination)? && !is_on_host(source)? && self.copy_within(copy)? {
            return Ok(());
        }
        let driver = self.context.driver;
        let code = copy(driver.cuda, self.queue()?.raw_stream());
        driver.check(code, "cuMemcpyAsync")
    }

    /// Copies within GPU memory, as work of the legacy default stream, and waits. From a context other than
    /// that of the memory, the driver does not make such a copy beside eight streams that wait, and calls
    /// of the engine's own context would then wait for it. Returns false while that stream takes no work.
    fn copy_within(&mut self, copy: impl Fn(&Cuda, CUstream) -> CUresult) -> Result<bool> {
        self.finish()?;
        if !Stream::LEGACY.queue_unless_captured(self.context, "cuMemcpyAsync", copy)? {
            return Ok(false);
        }
        match Stream::LEGACY.mark_unless_captured(self.context)? {
            Some(end) => end.wait()?,
            // A capture has begun since.
            None => self.context.synchronize()?,
        }
        Ok(true)
    }

    /// Waits until all copies are done.
    pub fn finish(&mut self) -> Result<()> {
        match &mut self.lease {
            Some(lease) => lease.queue()?.finish(),
            None => Ok(()),
        }
    }
}

fn refuse_null(address: usize) -> Result<()> {
    if address == 0 {
        return Err(Error::invalid("the buffer is a null pointer"));
    }
    Ok(())
}
