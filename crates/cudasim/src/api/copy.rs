//! Copies and fills.

use std::ffi::{c_int, c_void};

use penstock_sys::cuda::{
    CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CudaMemcpy2D,
    CudaMemcpyAttributes,
};

use crate::copy::{Direction, Rows, copy, fill};
use crate::memory;
use crate::status::{INVALID_VALUE, Result, code};
use crate::stream::{LEGACY, resolve_used};

/// The stream of the calls that have no stream argument.
const DEFAULT: *mut c_void = LEGACY as *mut c_void;

/// Copies on a stream; without one, on the default stream, and waits.
pub(crate) fn queue(
    direction: Direction,
    destination: u64,
    source: u64,
    size: usize,
    stream: Option<*mut c_void>,
) -> Result {
    queue_rows(direction, destination, source, Rows::one(size), stream)
}

fn queue_rows(
    direction: Direction,
    destination: u64,
    source: u64,
    rows: Rows,
    stream: Option<*mut c_void>,
) -> Result {
    let (destination, source) = (destination as usize, source as usize);
    let wait = stream.is_none();
    let stream = resolve_used(stream.unwrap_or(DEFAULT))?;
    copy(&stream, destination, source, rows, direction, wait)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy(destination: u64, source: u64, size: usize) -> c_int {
    code(queue(Direction::Any, destination, source, size, None))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyAsync(
    destination: u64,
    source: u64,
    size: usize,
    stream: *mut c_void,
) -> c_int {
    code(queue(
        Direction::Any,
        destination,
        source,
        size,
        Some(stream),
    ))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoD_v2(
    destination: u64,
    source: *const c_void,
    size: usize,
) -> c_int {
    code(queue(
        Direction::HostToDevice,
        destination,
        source as u64,
        size,
        None,
    ))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoH_v2(
    destination: *mut c_void,
    source: u64,
    size: usize,
) -> c_int {
    code(queue(
        Direction::DeviceToHost,
        destination as u64,
        source,
        size,
        None,
    ))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    destination: u64,
    source: *const c_void,
    size: usize,
    stream: *mut c_void,
) -> c_int {
    read_inline(source as usize, size);
    code(queue(
        Direction::HostToDevice,
        destination,
        source as u64,
        size,
        Some(stream),
    ))
}

/// Reads the source of a small copy on the CPU, as the driver does, which puts such bytes inline into
/// the stream's queue. Raises SIGBUS if the source is a mapped file that was truncated.
fn read_inline(source: usize, size: usize) {
    const INLINE: usize = 16 << 10;
    let is_host = || memory::find(source).is_some_and(|region| region.is_host());
    if (1..=INLINE).contains(&size) && is_host() {
        // SAFETY: the client's memory is valid for `size` bytes.
        unsafe { (source as *const u8).read_volatile() };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    destination: *mut c_void,
    source: u64,
    size: usize,
    stream: *mut c_void,
) -> c_int {
    code(queue(
        Direction::DeviceToHost,
        destination as u64,
        source,
        size,
        Some(stream),
    ))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoDAsync_v2(
    destination: u64,
    source: u64,
    size: usize,
    stream: *mut c_void,
) -> c_int {
    code(queue(
        Direction::DeviceToDevice,
        destination,
        source,
        size,
        Some(stream),
    ))
}

/// Supports only linear memory, on one side at least of a device.
///
/// # Safety
/// `copy` points to a valid descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpy2DAsync_v2(
    copy: *const CudaMemcpy2D,
    stream: *mut c_void,
) -> c_int {
    // SAFETY: by contract of this function.
    let copy = unsafe { &*copy };
    let (direction, to, from) = match (copy.srcMemoryType, copy.dstMemoryType) {
        (CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE) => {
            (Direction::HostToDevice, copy.dstDevice, copy.srcHost as u64)
        }
        (CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST) => {
            (Direction::DeviceToHost, copy.dstHost as u64, copy.srcDevice)
        }
        (CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE) => {
            (Direction::DeviceToDevice, copy.dstDevice, copy.srcDevice)
        }
        _ => return code(Err(INVALID_VALUE)),
    };
    let plain = copy.srcXInBytes == 0 && copy.srcY == 0 && copy.dstXInBytes == 0 && copy.dstY == 0;
    let pitched = copy.srcPitch >= copy.WidthInBytes && copy.dstPitch >= copy.WidthInBytes;
    if !plain || !pitched {
        return code(Err(INVALID_VALUE));
    }
    let rows = Rows {
        width: copy.WidthInBytes,
        count: copy.Height,
        to_pitch: copy.dstPitch,
        from_pitch: copy.srcPitch,
    };
    code(queue_rows(direction, to, from, rows, Some(stream)))
}

/// Supports sources that are read in the order of the stream. The copies before a wrong one are made.
///
/// # Safety
/// The lists have `count` elements each; `failed` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyBatchAsync(
    destinations: *const u64,
    sources: *const u64,
    sizes: *const usize,
    count: usize,
    attributes: *const CudaMemcpyAttributes,
    first_of_attributes: *const usize,
    attributes_count: usize,
    failed: *mut usize,
    stream: *mut c_void,
) -> c_int {
    // SAFETY: by contract of this function.
    let (attributes, first) = unsafe { (&*attributes, *first_of_attributes) };
    let is_ordered = attributes.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    let is_default = stream.is_null() || stream == DEFAULT;
    if count == 0 || attributes_count != 1 || first != 0 || !is_ordered || is_default {
        return code(Err(INVALID_VALUE));
    }
    // SAFETY: by contract of this function, for each list.
    let (destinations, sources, sizes) = unsafe {
        (
            std::slice::from_raw_parts(destinations, count),
            std::slice::from_raw_parts(sources, count),
            std::slice::from_raw_parts(sizes, count),
        )
    };
    let copy = |index| {
        let (to, from, size) = (destinations[index], sources[index], sizes[index]);
        let copied = queue(Direction::Any, to, from, size, Some(stream));
        // SAFETY: by contract of this function.
        copied.inspect_err(|_| unsafe { *failed = index })
    };
    code((0..count).try_for_each(copy))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8_v2(destination: u64, value: u8, size: usize) -> c_int {
    code(resolve_used(DEFAULT).and_then(|stream| fill(&stream, destination as usize, value, size)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8Async(
    destination: u64,
    value: u8,
    size: usize,
    stream: *mut c_void,
) -> c_int {
    code(resolve_used(stream).and_then(|stream| fill(&stream, destination as usize, value, size)))
}
