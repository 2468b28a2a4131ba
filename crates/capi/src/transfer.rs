//! Synchronous transfers.

use std::ffi::{c_char, c_int, c_void};

use penstock_engine::error::Result;
use penstock_engine::file::position::Operation;
use penstock_engine::request::{Order, run, save};
use penstock_engine::{Extent, refuse_fork};

use crate::error::{OK, guard};
use crate::file::{CFile, file_of, path_of};
use crate::lists::list;
use crate::options::{self, COptions};
use crate::report::{self, CReport, check_size};

#[repr(C)]
pub(crate) struct CRange {
    offset: u64,
    length: u64,
    buffer: *mut c_void,
}

/// # Safety
/// `ranges` points to `count` ranges, or is null and `count` is 0.
pub(crate) unsafe fn extents_of(ranges: *const CRange, count: usize) -> Result<Vec<Extent>> {
    // SAFETY: by contract, there are `count` ranges.
    let ranges = unsafe { list(ranges, count as u64, "ranges")? };
    Ok(ranges
        .iter()
        .map(|r| Extent {
            offset: r.offset,
            length: r.length,
            memory: r.buffer as usize,
        })
        .collect())
}

/// # Safety
/// As for the functions below; the memory of the extents is valid until the call returns.
unsafe fn transfer(
    file: *mut CFile,
    operation: Operation,
    extents: &[Extent],
    options: *const COptions,
    report: *mut CReport,
) -> Result<c_int> {
    // SAFETY: by contract of this function.
    unsafe {
        check_size(report)?;
        let order = Order::new(operation, extents, options::read(options)?);
        let file = file_of(file)?;
        let done = run(&file, order)?;
        report::write(report, &done);
        Ok(OK)
    }
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_read(
    file: *mut CFile,
    buffer: *mut c_void,
    length: u64,
    offset: u64,
    options: *const COptions,
    report: *mut CReport,
) -> c_int {
    let extent = Extent {
        offset,
        length,
        memory: buffer as usize,
    };
    // SAFETY: by contract of this function.
    guard(|| unsafe { transfer(file, Operation::Read, &[extent], options, report) })
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_write(
    file: *mut CFile,
    buffer: *const c_void,
    length: u64,
    offset: u64,
    options: *const COptions,
    report: *mut CReport,
) -> c_int {
    let extent = Extent {
        offset,
        length,
        memory: buffer as usize,
    };
    // SAFETY: by contract of this function.
    guard(|| unsafe { transfer(file, Operation::Write, &[extent], options, report) })
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_readv(
    file: *mut CFile,
    ranges: *const CRange,
    count: usize,
    options: *const COptions,
    report: *mut CReport,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        let extents = extents_of(ranges, count)?;
        transfer(file, Operation::Read, &extents, options, report)
    })
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_writev(
    file: *mut CFile,
    ranges: *const CRange,
    count: usize,
    options: *const COptions,
    report: *mut CReport,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        let extents = extents_of(ranges, count)?;
        transfer(file, Operation::Write, &extents, options, report)
    })
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_save(
    path: *const c_char,
    buffer: *const c_void,
    length: u64,
    options: *const COptions,
    report: *mut CReport,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        refuse_fork()?;
        check_size(report)?;
        let options = options::read(options)?;
        let done = save(path_of(path)?, buffer as usize, length, options)?;
        report::write(report, &done);
        Ok(OK)
    })
}
