//! Modules and launches of their kernels.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::store;
use crate::device::{self, current};
use crate::kernel::Dim3;
use crate::status::{INVALID_IMAGE, INVALID_VALUE, Result, code};
use crate::stream::resolve_used;
use crate::{config, failure, module};

/// Accepts only PTX, as a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(handle: *mut *mut c_void, image: *const c_void) -> c_int {
    code(current().and_then(|context| {
        if handle.is_null() || image.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the client passes a NUL-terminated string.
        let text = unsafe { CStr::from_ptr(image.cast()) };
        let loaded = module::load(context, text.to_str().map_err(|_| INVALID_IMAGE)?)?;
        // SAFETY: the client's pointer is valid.
        unsafe { store(handle, loaded) }
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(handle: *mut c_void) -> c_int {
    code(device::release_in_any_state(|| module::unload(handle)))
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
        // SAFETY: the client passes a NUL-terminated string.
        let name = unsafe { CStr::from_ptr(name) };
        let found = module::function(handle, &name.to_string_lossy())?;
        // SAFETY: the client's pointer is null or valid.
        unsafe { store(function, found) }
    }))
}

/// Accepts parameters only in `parameters`, not in `extra`.
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
    let grid = Dim3 {
        x: grid_x,
        y: grid_y,
        z: grid_z,
    };
    let block = Dim3 {
        x: block_x,
        y: block_y,
        z: block_z,
    };
    if parameters.is_null() || !extra.is_null() || shared_bytes > MOST_SHARED_BYTES {
        return code(Err(INVALID_VALUE));
    }
    // SAFETY: the client's array has a pointer for each parameter, and every kernel has one.
    let parameter = unsafe { parameters.read() };
    // SAFETY: as above; the pointer is to the parameter.
    code(unsafe { launch(function, grid, block, stream, parameter) })
}

/// The shared memory of a block that does not request more.
const MOST_SHARED_BYTES: u32 = 48 << 10;
const MOST_THREADS: u64 = 1024;
/// The largest grid size along y and z; along x it is 2^31 - 1.
const MOST_BLOCKS: u32 = 65535;

/// # Safety
/// `parameter` is null or points to the one parameter of the function.
unsafe fn launch(
    function: *mut c_void,
    grid: Dim3,
    block: Dim3,
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
    let mut copied = vec![0u8; function.kernel.parameter_bytes()];
    // SAFETY: by contract of this function `parameter` points to the function's parameter, whose
    // size was compared with that of the kernel when the module was loaded.
    unsafe {
        std::ptr::copy_nonoverlapping(parameter.cast(), copied.as_mut_ptr(), copied.len());
    }
    stream.submit(config::launch_time(), move |stream| {
        failure::check(failure::Kind::KernelExec)?;
        function.kernel.run(stream.context, &copied, grid, block)
    })?;
    Ok(())
}
