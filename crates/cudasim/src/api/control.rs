//! Functions with which tests control the stand-in. They need no context and no initialised driver.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::copy::move_bytes;
use crate::region::{Kind, Region};
use crate::status::{ILLEGAL_ADDRESS, INVALID_VALUE, Result, code};
use crate::{cufile, device, event, failure, memory, module, stream};

/// Sets which calls fail from now on, see [`crate::failure`], and resets the counts of calls. With
/// NULL no call fails, and the failure of every device is cleared. `CUDASIM_FAIL` is ignored
/// afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudasim_fail(specification: *const c_char) {
    if specification.is_null() {
        failure::set(String::new());
        device::clear_failures();
        return;
    }
    // SAFETY: the caller passes a NUL-terminated string.
    let text = unsafe { CStr::from_ptr(specification) };
    failure::set(text.to_string_lossy().into_owned());
}

/// The number of calls of a kind, by its name in [`crate::failure`], since the process began or
/// [`cudasim_fail`] was called; 0 for an unknown name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudasim_calls(kind: *const c_char) -> u64 {
    // SAFETY: the caller passes a NUL-terminated string.
    let name = unsafe { CStr::from_ptr(kind) };
    failure::calls(&name.to_string_lossy()).unwrap_or(0)
}

/// The number of device, managed and pinned allocations that are not freed.
#[unsafe(no_mangle)]
pub extern "C" fn cudasim_live_allocations() -> usize {
    memory::count(|kind| kind != Kind::HostRegistered)
}

#[unsafe(no_mangle)]
pub extern "C" fn cudasim_live_registrations() -> usize {
    memory::count(|kind| kind == Kind::HostRegistered)
}

/// The number of contexts that `cuCtxCreate` made and that are not destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn cudasim_live_contexts() -> usize {
    device::count_created()
}

#[unsafe(no_mangle)]
pub extern "C" fn cudasim_live_streams() -> usize {
    stream::count()
}

#[unsafe(no_mangle)]
pub extern "C" fn cudasim_live_events() -> usize {
    event::count()
}

#[unsafe(no_mangle)]
pub extern "C" fn cudasim_live_modules() -> usize {
    module::count()
}

/// The number of files registered with cuFile.
#[unsafe(no_mangle)]
pub extern "C" fn cudasim_live_cufile_handles() -> usize {
    cufile::count_handles()
}

/// The number of buffers registered with cuFile.
#[unsafe(no_mangle)]
pub extern "C" fn cudasim_live_cufile_buffers() -> usize {
    cufile::count_buffers()
}

/// Copies memory that the driver knows to `buffer` immediately, without waiting for streams.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudasim_peek(source: u64, buffer: *mut c_void, size: usize) -> c_int {
    code(with_bytes(source as usize, size, |bytes, region| {
        let poisoned = region.kind == Kind::Device;
        // SAFETY: `buffer` has `size` bytes, and so has the region, which is held.
        unsafe { move_bytes(buffer.cast(), bytes, size, poisoned) }
    }))
}

/// Copies `buffer` to memory that the driver knows immediately, without waiting for streams.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudasim_poke(
    destination: u64,
    buffer: *const c_void,
    size: usize,
) -> c_int {
    code(with_bytes(destination as usize, size, |bytes, region| {
        let poisoned = region.kind == Kind::Device;
        // SAFETY: `buffer` has `size` bytes, and so has the region, which is held.
        unsafe { move_bytes(bytes, buffer.cast(), size, poisoned) }
    }))
}

fn with_bytes(address: usize, size: usize, access: impl FnOnce(*mut u8, &Region)) -> Result {
    let region = memory::find_range(address, size)?.ok_or(INVALID_VALUE)?;
    let _held = region.enter().ok_or(ILLEGAL_ADDRESS)?;
    access(region.access(address), &region);
    Ok(())
}
