//! What a test asks of the stand-in itself. These need no context and no initialised driver.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::copy::move_bytes;
use crate::region::{Kind, Region};
use crate::status::{ILLEGAL_ADDRESS, INVALID_VALUE, Result, code};
use crate::{cufile, device, event, failure, memory, module, stream};

/// Sets which calls fail from now on, see [`crate::failure`], and counts calls from 1 again. NULL:
/// none fails, and the failure of every context is forgotten. `CUDASIM_FAIL` no longer counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudasim_fail(specification: *const c_char) {
    if specification.is_null() {
        failure::set(String::new());
        device::forgive();
        return;
    }
    // SAFETY: the caller passes a string that ends with NUL.
    let text = unsafe { CStr::from_ptr(specification) };
    failure::set(text.to_string_lossy().into_owned());
}

/// Calls of a kind, by its name in [`crate::failure`], since the process began or [`cudasim_fail`] was
/// called. No kind of another name has any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudasim_calls(kind: *const c_char) -> u64 {
    // SAFETY: the caller passes a string that ends with NUL.
    let name = unsafe { CStr::from_ptr(kind) };
    failure::calls(&name.to_string_lossy()).unwrap_or(0)
}

/// Device, managed and pinned allocations that are not freed.
#[unsafe(no_mangle)]
pub extern "C" fn cudasim_live_allocations() -> usize {
    memory::count(|kind| kind != Kind::HostRegistered)
}

#[unsafe(no_mangle)]
pub extern "C" fn cudasim_live_registrations() -> usize {
    memory::count(|kind| kind == Kind::HostRegistered)
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

/// Files registered with cuFile.
#[unsafe(no_mangle)]
pub extern "C" fn cudasim_live_cufile_handles() -> usize {
    cufile::count_handles()
}

/// Buffers registered with cuFile.
#[unsafe(no_mangle)]
pub extern "C" fn cudasim_live_cufile_buffers() -> usize {
    cufile::count_buffers()
}

/// Copies device memory to `buffer` at once, whatever streams are doing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudasim_peek(source: u64, buffer: *mut c_void, size: usize) -> c_int {
    code(with_bytes(source as usize, size, |bytes, region| {
        let poisoned = region.kind == Kind::Device;
        // SAFETY: `buffer` is the caller's for `size` bytes; the region holds the others.
        unsafe { move_bytes(buffer.cast(), bytes, size, poisoned) }
    }))
}

/// Copies `buffer` to device memory at once, whatever streams are doing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudasim_poke(
    destination: u64,
    buffer: *const c_void,
    size: usize,
) -> c_int {
    code(with_bytes(destination as usize, size, |bytes, region| {
        let poisoned = region.kind == Kind::Device;
        // SAFETY: `buffer` is the caller's for `size` bytes; the region holds the others.
        unsafe { move_bytes(bytes, buffer.cast(), size, poisoned) }
    }))
}

fn with_bytes(address: usize, size: usize, touch: impl FnOnce(*mut u8, &Region)) -> Result {
    let region = memory::find_range(address, size)?.ok_or(INVALID_VALUE)?;
    let _held = region.enter().ok_or(ILLEGAL_ADDRESS)?;
    touch(region.access(address), &region);
    Ok(())
}
