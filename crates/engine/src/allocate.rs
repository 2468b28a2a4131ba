//! Device memory, pinned memory and copies, for callers without a GPU library of their own.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use penstock_sys::cuda;

use crate::error::{Error, Kind, Result};
use crate::gpu::{self, Context, OwnContext};
use crate::memory::{Memory, MemoryKind};

/// The kind and the CUDA ordinal (-1 for pageable memory) of the memory at an address.
pub fn memory_kind(address: usize) -> Result<(MemoryKind, i32)> {
    crate::fork::refuse_fork()?;
    let memory = Memory::at(address)?;
    Ok((memory.kind, memory.device))
}

/// The number of CUDA devices; 0 without a driver.
pub fn device_count() -> Result<i32> {
    crate::fork::refuse_fork()?;
    match gpu::driver() {
        Ok(driver) => driver.device_count(),
        Err(_) => Ok(0),
    }
}

/// The driver serves allocations up to this size from a page that other allocations share.
const SMALL: u64 = 1 << 20;

/// Checks that this process sees a device of this ordinal.
///
/// # Errors
/// [`Kind::Unavailable`] if it does not, or has no driver.
pub fn must_see(device: i32) -> Result<()> {
    crate::fork::refuse_fork()?;
    let count = gpu::driver()?.device_count()?;
    if !(0..count).contains(&device) {
        return Err(Error::new(
            Kind::Unavailable,
            format!("there is no CUDA device {device}: this process sees {count}"),
        )
        .remedy("check the ordinal against nvidia-smi and CUDA_VISIBLE_DEVICES"));
    }
    Ok(())
}

fn context(device: i32) -> Result<Arc<Context>> {
    must_see(device)?;
    Context::primary(device)
}

/// Allocates device memory in the device's primary context. Returns the address 0 for 0 bytes.
///
/// # Errors
/// [`Kind::Memory`] if the device has too little memory; [`Kind::Unavailable`] without a driver.
pub fn device_alloc(device: i32, bytes: u64) -> Result<u64> {
    let context = context(device)?;
    if bytes == 0 {
        return Ok(0);
    }
    let _entered = context.enter()?;
    if bytes <= SMALL {
        context.keep_page();
    }
    let mut address = 0;
    // SAFETY: `address` is a valid place for the answer.
    let code = unsafe { (context.driver.cuda.cuMemAlloc)(&mut address, bytes as usize) };
    context
        .driver
        .check(code, &format!("cuMemAlloc of {bytes} bytes"))?;
    Ok(address)
}

/// Frees memory of [`device_alloc`].
///
/// # Safety
/// Nothing uses the memory any more.
pub unsafe fn device_free(address: u64) -> Result<()> {
    if address == 0 {
        return Ok(());
    }
    crate::fork::refuse_fork()?;
    let Some(context) = Memory::at(address as usize)?.context else {
        return Err(Error::invalid("the address is not that of device memory"));
    };
    let _entered = context.enter()?;
    // SAFETY: the caller vouches that nothing uses the memory.
    let code = unsafe { (context.driver.cuda.cuMemFree)(address) };
    context.driver.check(code, "cuMemFree")
}

/// Allocates page-locked host memory for the devices of every context. Returns a null pointer for 0
/// bytes.
pub fn host_alloc(bytes: u64) -> Result<*mut c_void> {
    must_see(0)?;
    if bytes == 0 {
        return Ok(ptr::null_mut());
    }
    let context = OwnContext::any()?;
    let _entered = context.enter()?;
    let mut address = ptr::null_mut();
    // SAFETY: `address` is a valid place for the answer.
    let code = unsafe {
        (context.driver.cuda.cuMemHostAlloc)(
            &mut address,
            bytes as usize,
            cuda::CU_MEMHOSTALLOC_PORTABLE,
        )
    };
    context
        .driver
        .check(code, &format!("cuMemHostAlloc of {bytes} bytes"))?;
    Ok(address)
}

/// Frees memory of [`host_alloc`].
///
/// # Safety
/// Nothing uses the memory any more.
pub unsafe fn host_free(address: *mut c_void) -> Result<()> {
    if address.is_null() {
        return Ok(());
    }
    must_see(0)?;
    let context = OwnContext::any()?;
    let _entered = context.enter()?;
    // SAFETY: the caller vouches that nothing uses the memory.
    let code = unsafe { (context.driver.cuda.cuMemFreeHost)(address) };
    context.driver.check(code, "cuMemFreeHost")
}

/// As [`copy`](crate::copy::copy), for the public interface.
///
/// # Safety
/// As there.
pub unsafe fn copy(to: usize, from: usize, bytes: u64) -> Result<()> {
    crate::fork::refuse_fork()?;
    // SAFETY: passed on.
    unsafe { crate::copy::copy(to, from, bytes as usize) }
}
