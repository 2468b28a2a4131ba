//! Modules, and launches of their kernels.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::store;
use crate::device::{self, current};
use crate::status::{INVALID_IMAGE, INVALID_VALUE, Result, code};
use crate::stream::resolve_used;
use crate::twin::Extent;
use crate::{config, failure, module};

/// Only PTX is taken for code, as a text that ends with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(handle: *mut *mut c_void, image: *const c_void) -> c_int {
    code(current().and_then(|context| {
        if handle.is_null() || image.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the client gives a text that ends with NUL.
        let text = unsafe { CStr::from_ptr(image.cast()) };
        let loaded = module::load(context, text.to_str().map_err(|_| INVALID_IMAGE)?)?;
        // SAFETY: the client's pointer is valid.
        unsafe { store(handle, loaded) }
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(handle: *mut c_void) -> c_int {
    code(device::current_or_failed().and_then(|context| {
        let unloaded = module::unload(handle);
        context.check().and(unloaded)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: *mut *mut c_void,
    handle: *mut c_void,
    name: *const c_char,
) -> c_int {
    code(current().and_then(|_| {
        if name.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the client gives a text that ends with NUL.
        let name = unsafe { CStr::from_ptr(name) };
        let found = module::function(handle, &name.to_string_lossy())?;
        // SAFETY: the client's pointer is null or valid.
        unsafe { store(function, found) }
    }))
}

/// Parameters are taken from `parameters` only; no kernel here takes any from `extra`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: *mut c_void,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared_bytes: c_uint,
    stream: *mut c_void,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> c_int {
    let grid = Extent {
        x: grid_x,
        y: grid_y,
        z: grid_z,
    };
    let block = Extent {
        x: block_x,
        y: block_y,
        z: block_z,
    };
    if parameters.is_null() || !extra.is_null() || shared_bytes > MOST_SHARED_BYTES {
        return code(Err(INVALID_VALUE));
    }
    // SAFETY: the client's array has a pointer for each parameter, and kernels here have one.
    let parameter = unsafe { parameters.read() };
    // SAFETY: as above; the pointer leads to the parameter.
    code(unsafe { launch(function, grid, block, stream, parameter) })
}

/// Without asking for more, a block has so much.
const MOST_SHARED_BYTES: u32 = 48 << 10;
const MOST_THREADS: u64 = 1024;
/// Along y and z; along x there are 2^31 - 1.
const MOST_BLOCKS: u32 = 65535;

/// # Safety
/// `parameter` is null or leads to the one parameter of the function.
unsafe fn launch(
    function: *mut c_void,
    grid: Extent,
    block: Extent,
    stream: *mut c_void,
    parameter: *const c_void,
) -> Result {
    let stream = resolve_used(stream)?;
    let function = module::resolve(stream.context, function)?;
    let threads = u64::from(block.x) * u64::from(block.y) * u64::from(block.z);
    let blocks = u64::from(grid.x) * u64::from(grid.y) * u64::from(grid.z);
    let fits = (1..=MOST_THREADS).contains(&threads)
        && block.z <= 64
        && blocks > 0
        && grid.x <= i32::MAX as u32
        && grid.y.max(grid.z) <= MOST_BLOCKS;
    if !fits || parameter.is_null() {
        return Err(INVALID_VALUE);
    }
    failure::check(failure::Kind::Kernel)?;
    // The client may reuse the parameter once the call has returned.
    let mut copied = vec![0u8; function.twin.parameter_bytes()];
    // SAFETY: by contract of this function the parameter is as long as that of the twin, which
    // was compared when the module was loaded.
    unsafe {
        std::ptr::copy_nonoverlapping(parameter.cast(), copied.as_mut_ptr(), copied.len());
    }
    stream.submit(config::launch_time(), move |stream| {
        failure::check(failure::Kind::KernelExec)?;
        function.twin.run(stream.context, &copied, grid, block)
    })?;
    Ok(())
}
