//! Synchronous transfers.

use std::ffi::{c_char, c_int, c_void};

use penstock_engine::error::Result;
use penstock_engine::file::position::Operation;
use penstock_engine::request::{Order, load, run, save};
use penstock_engine::{Extent, refuse_fork};

use crate::arguments::{list, path_of};
use crate::error::guard;
use crate::file::{CFile, file_of};
use crate::options::{self, COptions};
use crate::report::{self, CReport, check_size};

/// A `penstock_range`, which has the layout of an extent.
pub(crate) type CRange = Extent;

/// # Safety
/// `ranges` points to `count` ranges that do not change while they are used, or is null and `count` is 0.
pub(crate) unsafe fn extents_of<'a>(ranges: *const CRange, count: usize) -> Result<&'a [Extent]> {
    // SAFETY: by contract, there are `count` ranges.
    unsafe { list(ranges, count as u64, "ranges") }
}

/// # Safety
/// By the contract of the functions below; the memory of the extents is valid until the call returns.
unsafe fn transfer(
    file: *mut CFile,
    operation: Operation,
    extents: &[Extent],
    options: *const COptions,
    report: *mut CReport,
) -> Result<()> {
    // SAFETY: by contract of this function.
    unsafe {
        check_size(report)?;
        let order = Order::new(operation, extents, options::read(options)?);
        let done = run(&*file_of(file)?, order)?;
        report::write(report, &done);
        Ok(())
    }
}

read_and_write! {
    fn penstock_read, penstock_write(
        operation,
        file: *mut CFile,
        buffer: *mut c_void,
        length: u64,
        offset: u64,
        options: *const COptions,
        report: *mut CReport,
    ) {
        let extent = Extent {
            offset,
            length,
            memory: buffer as usize,
        };
        // SAFETY: by contract of this function.
        guard(|| unsafe { transfer(file, operation, &[extent], options, report) })
    }
}

read_and_write! {
    fn penstock_readv, penstock_writev(
        operation,
        file: *mut CFile,
        ranges: *const CRange,
        count: usize,
        options: *const COptions,
        report: *mut CReport,
    ) {
        // SAFETY: by contract of this function.
        guard(|| unsafe {
            let extents = extents_of(ranges, count)?;
            transfer(file, operation, extents, options, report)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_load(
    path: *const c_char,
    buffer: *mut c_void,
    length: u64,
    offset: u64,
    options: *const COptions,
    report: *mut CReport,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        refuse_fork()?;
        check_size(report)?;
        let extent = Extent {
            offset,
            length,
            memory: buffer as usize,
        };
        let done = load(path_of(path, "path")?, extent, options::read(options)?)?;
        report::write(report, &done);
        Ok(())
    })
}

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
        let done = save(path_of(path, "path")?, buffer as usize, length, options)?;
        report::write(report, &done);
        Ok(())
    })
}
