//! The entry points of cuFile. Each has the contract of the function of the same name in `cufile.h`.
#![allow(clippy::missing_safety_doc)]

use std::ffi::{c_int, c_uint, c_void};

use penstock_sys::cufile::stats::CUfileStatsLevel3;
use penstock_sys::cufile::*;

use super::transfer::{Operation, Request, transfer};
use super::{Failure, Result, buffer, handle, session, statistics, status};

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
    }))
}

/// Not implemented: clients look only for its presence, which shows the layout of the statistics.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileReadv(
    _registered: CUfileHandle,
    _vectors: *const c_void,
    _count: usize,
    _file_offset: i64,
    _flags: c_uint,
) -> isize {
    count(Err(Failure::Operation(CU_FILE_IO_NOT_SUPPORTED)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileSetParameterBool(parameter: c_int, value: bool) -> CUfileError {
    status(session::set_parameter(parameter, value))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileSetStatsLevel(level: c_int) -> CUfileError {
    status(statistics::set_level(level))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFileStatsStart() -> CUfileError {
    status(statistics::start())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileGetStatsL3(stats: *mut CUfileStatsLevel3) -> CUfileError {
    // SAFETY: the client's pointer is null or valid.
    status(statistics::get().and_then(|found| unsafe { store(stats, found) }))
}
