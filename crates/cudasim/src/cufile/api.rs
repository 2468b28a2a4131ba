//! The entry points of cuFile. Each has the contract of the function of the same name in `cufile.h`.
#![allow(clippy::missing_safety_doc)]

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::time::Duration;

use penstock_sys::cufile::stats::{CUfileStatsLevel1, CUfileStatsLevel2, CUfileStatsLevel3};
use penstock_sys::cufile::*;

use super::stream::Pointers;
use super::transfer::{Operation, Request, transfer};
use super::{
    Failure, Result, batch, buffer, handle, parameter, session, statistics, status, stream,
};

/// 1.20, as 1000 times the major and 10 times the minor version.
const VERSION: c_int = 1200;

/// # Safety
/// `place` is null or valid for a `T`.
unsafe fn store<T>(place: *mut T, value: T) -> Result {
    if place.is_null() {
        return Err(Failure::Operation(CU_FILE_INVALID_VALUE));
    }
    // SAFETY: by contract of this function.
    unsafe { place.write(value) };
    Ok(())
}

fn count(result: Result<usize>) -> isize {
    result.map_or_else(Failure::into_count, |bytes| bytes as isize)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileDriverOpen() -> CUfileError {
    status(session::open())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileDriverClose_v2() -> CUfileError {
    status(session::close())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileDriverClose() -> CUfileError {
    cuFileDriverClose_v2()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileUseCount() -> c_long {
    session::uses() as c_long
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileGetVersion(version: *mut c_int) -> CUfileError {
    // SAFETY: the client's pointer is null or valid.
    status(unsafe { store(version, VERSION) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileDriverGetProperties(properties: *mut CUfileDrvProps) -> CUfileError {
    // SAFETY: the client's pointer is null or valid.
    status(session::properties().and_then(|found| unsafe { store(properties, found) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileHandleRegister(
    registered: *mut CUfileHandle,
    description: *mut CUfileDescr,
) -> CUfileError {
    let invalid = Err(Failure::Operation(CU_FILE_INVALID_VALUE));
    if registered.is_null() || description.is_null() {
        return status(invalid);
    }
    // SAFETY: the client's `CUfileDescr` is valid; every bit pattern of `fd` is an integer.
    let (kind, descriptor) = unsafe { ((*description).type_, (*description).handle.fd) };
    if kind != CU_FILE_HANDLE_TYPE_OPAQUE_FD {
        return status(invalid);
    }
    // SAFETY: the client's pointer is valid.
    status(handle::register(descriptor).and_then(|found| unsafe { store(registered, found) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileHandleDeregister(registered: CUfileHandle) {
    handle::deregister(registered);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileBufRegister(
    base: *const c_void,
    size: usize,
    _flags: c_int,
) -> CUfileError {
    status(buffer::register(base as usize, size))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileBufDeregister(base: *const c_void) -> CUfileError {
    status(buffer::deregister(base as usize))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileRead(
    registered: CUfileHandle,
    base: *mut c_void,
    size: usize,
    file_offset: i64,
    buffer_offset: i64,
) -> isize {
    count(transfer(Request {
        operation: Operation::Read,
        handle: registered,
        base: base as usize,
        size,
        file_offset,
        buffer_offset,
        vectored: false,
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileWrite(
    registered: CUfileHandle,
    base: *const c_void,
    size: usize,
    file_offset: i64,
    buffer_offset: i64,
) -> isize {
    count(transfer(Request {
        operation: Operation::Write,
        handle: registered,
        base: base as usize,
        size,
        file_offset,
        buffer_offset,
        vectored: false,
    }))
}

/// Transfers the vectors one after the other, up to the first short transfer.
///
/// # Safety
/// `vectors` holds `length` entries.
unsafe fn vectored(
    operation: Operation,
    handle: CUfileHandle,
    vectors: *const CUfileIOVec,
    length: usize,
    file_offset: i64,
) -> Result<usize> {
    if vectors.is_null() {
        return Err(Failure::Operation(CU_FILE_INVALID_VALUE));
    }
    let mut total = 0;
    for index in 0..length {
        // SAFETY: by contract of this function.
        let vector = unsafe { *vectors.add(index) };
        let moved = transfer(Request {
            operation,
            handle,
            base: vector.base as usize,
            size: vector.len,
            file_offset: file_offset + total as i64,
            buffer_offset: 0,
            vectored: true,
        })?;
        total += moved;
        if moved < vector.len {
            break;
        }
    }
    Ok(total)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileReadv(
    handle: CUfileHandle,
    vectors: *const CUfileIOVec,
    length: usize,
    file_offset: i64,
    _flags: c_uint,
) -> isize {
    // SAFETY: the client's array holds `length` entries.
    count(unsafe { vectored(Operation::Read, handle, vectors, length, file_offset) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileWritev(
    handle: CUfileHandle,
    vectors: *const CUfileIOVec,
    length: usize,
    file_offset: i64,
    _flags: c_uint,
) -> isize {
    // SAFETY: the client's array holds `length` entries.
    count(unsafe { vectored(Operation::Write, handle, vectors, length, file_offset) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileStreamRegister(stream: *mut c_void, flags: c_uint) -> CUfileError {
    status(stream::register(stream, flags))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileStreamDeregister(stream: *mut c_void) -> CUfileError {
    status(stream::deregister(stream))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileReadAsync(
    handle: CUfileHandle,
    base: *mut c_void,
    size: *mut usize,
    file_offset: *mut i64,
    buffer_offset: *mut i64,
    moved: *mut isize,
    stream: *mut c_void,
) -> CUfileError {
    let pointers = Pointers {
        size,
        file_offset,
        buffer_offset,
        moved,
    };
    // SAFETY: the client keeps the pointers valid until the stream completes the operation.
    status(unsafe { stream::submit(Operation::Read, handle, base as usize, pointers, stream) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileWriteAsync(
    handle: CUfileHandle,
    base: *mut c_void,
    size: *mut usize,
    file_offset: *mut i64,
    buffer_offset: *mut i64,
    moved: *mut isize,
    stream: *mut c_void,
) -> CUfileError {
    let pointers = Pointers {
        size,
        file_offset,
        buffer_offset,
        moved,
    };
    // SAFETY: the client keeps the pointers valid until the stream completes the operation.
    status(unsafe { stream::submit(Operation::Write, handle, base as usize, pointers, stream) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileBatchIOSetUp(
    batch: *mut CUfileBatchHandle,
    capacity: c_uint,
) -> CUfileError {
    if batch.is_null() {
        return status(Err(Failure::Operation(CU_FILE_INVALID_VALUE)));
    }
    // SAFETY: the client's pointer is valid.
    status(batch::set_up(capacity as usize).and_then(|made| unsafe { store(batch, made) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileBatchIOSubmit(
    batch: CUfileBatchHandle,
    length: c_uint,
    operations: *mut CUfileIOParams,
    flags: c_uint,
) -> CUfileError {
    if operations.is_null() || length == 0 || flags != 0 {
        return status(Err(Failure::Operation(CU_FILE_INVALID_VALUE)));
    }
    // SAFETY: the client's array holds `length` entries during the call.
    let operations = unsafe { std::slice::from_raw_parts(operations, length as usize) };
    status(batch::find(batch).and_then(|batch| batch.submit(operations)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileBatchIOGetStatus(
    batch: CUfileBatchHandle,
    least: c_uint,
    length: *mut c_uint,
    events: *mut CUfileIOEvents,
    timeout: *mut libc::timespec,
) -> CUfileError {
    if length.is_null() || events.is_null() {
        return status(Err(Failure::Operation(CU_FILE_INVALID_VALUE)));
    }
    // SAFETY: the client's pointers are valid, the timeout may be null.
    let (room, timeout) = unsafe { (*length as usize, timeout.as_ref()) };
    let timeout =
        timeout.map(|time| Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.max(0) as u32));
    let collected =
        batch::find(batch).and_then(|batch| batch.collect(least as usize, room, timeout));
    status(collected.map(|found| {
        // SAFETY: the client's array has room for `room` events, and no more were collected.
        unsafe {
            length.write(found.len() as c_uint);
            std::ptr::copy_nonoverlapping(found.as_ptr(), events, found.len());
        }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileBatchIOCancel(batch: CUfileBatchHandle) -> CUfileError {
    status(batch::find(batch).map(|batch| batch.cancel()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileBatchIODestroy(batch: CUfileBatchHandle) {
    batch::destroy(batch);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileGetParameterSizeT(
    parameter: c_int,
    value: *mut usize,
) -> CUfileError {
    // SAFETY: the client's pointer is null or valid.
    status(parameter::get_size(parameter).and_then(|found| unsafe { store(value, found) }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileSetParameterSizeT(parameter: c_int, value: usize) -> CUfileError {
    status(parameter::set_size(parameter, value))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileGetParameterBool(parameter: c_int, value: *mut bool) -> CUfileError {
    // SAFETY: the client's pointer is null or valid.
    status(parameter::get_bool(parameter).and_then(|found| unsafe { store(value, found) }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileSetParameterBool(parameter: c_int, value: bool) -> CUfileError {
    status(parameter::set_bool(parameter, value))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileGetParameterString(
    parameter: c_int,
    value: *mut c_char,
    length: c_int,
) -> CUfileError {
    status(parameter::get_text(parameter).and_then(|text| {
        let room = usize::try_from(length).unwrap_or(0);
        if value.is_null() || room <= text.len() {
            return Err(Failure::Operation(CU_FILE_INVALID_VALUE));
        }
        // SAFETY: the client's buffer has room for the text and its NUL.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), value, text.len());
            value.add(text.len()).write(0);
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileSetParameterString(
    parameter: c_int,
    value: *const c_char,
) -> CUfileError {
    if value.is_null() {
        return status(Err(Failure::Operation(CU_FILE_INVALID_VALUE)));
    }
    // SAFETY: the client passes a NUL-terminated string.
    let text = unsafe { CStr::from_ptr(value) };
    status(parameter::set_text(
        parameter,
        text.to_string_lossy().into_owned(),
    ))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileSetStatsLevel(level: c_int) -> CUfileError {
    status(statistics::set_level(level))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileGetStatsLevel(level: *mut c_int) -> CUfileError {
    // SAFETY: the client's pointer is null or valid.
    status(unsafe { store(level, statistics::level()) })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileStatsStart() -> CUfileError {
    status(statistics::start())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileStatsStop() -> CUfileError {
    status(statistics::stop())
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileStatsReset() -> CUfileError {
    status(statistics::reset())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileGetStatsL1(stats: *mut CUfileStatsLevel1) -> CUfileError {
    // SAFETY: the client's pointer is null or valid.
    status(statistics::get(1).and_then(|found| unsafe { store(stats, found.detailed.basic) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileGetStatsL2(stats: *mut CUfileStatsLevel2) -> CUfileError {
    // SAFETY: the client's pointer is null or valid.
    status(statistics::get(2).and_then(|found| unsafe { store(stats, found.detailed) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileGetStatsL3(stats: *mut CUfileStatsLevel3) -> CUfileError {
    // SAFETY: the client's pointer is null or valid.
    status(statistics::get(3).and_then(|found| unsafe { store(stats, found) }))
}
