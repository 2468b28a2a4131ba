//! `penstock_report`, and the filling of structs that may have another size than ours.

use std::ffi::{c_char, c_int};

use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::options::{Options, RouteName};
use penstock_engine::report::{Path, Report};

use crate::error::OK;
use crate::options::ROUTES;

const NOTE: usize = 256;
const TUNED: usize = 128;
/// In reports only: it cannot be asked for.
const ROUTE_HDF5: i32 = 6;

#[repr(C)]
pub struct CReport {
    struct_size: usize,
    route: i32,
    device: i32,
    bytes: u64,
    host_buffered: u64,
    host_direct: u64,
    staged_buffered: u64,
    staged_direct: u64,
    mapped: u64,
    gds_p2p: u64,
    gds_nvfs: u64,
    gds_posix: u64,
    gds_unproven: u64,
    elapsed_ns: u64,
    io_calls: u64,
    copies: u64,
    block: u64,
    threads: u32,
    queue_depth: u32,
    note: [c_char; NOTE],
    hdf5: u64,
    chunks: u64,
    stored: u64,
    decoded_cpu: u64,
    decoded_gpu: u64,
    tuned: [c_char; TUNED],
}

impl From<&Report> for CReport {
    fn from(report: &Report) -> CReport {
        let tuned = match report.tuned == Options::default() {
            true => [0; TUNED],
            false => string(&report.tuned.to_string()),
        };
        CReport {
            struct_size: size_of::<CReport>(),
            route: match report.route {
                RouteName::Hdf5 => ROUTE_HDF5,
                route => ROUTES
                    .iter()
                    .position(|r| *r == route)
                    .map_or(0, |at| at as i32 + 1),
            },
            device: report.device,
            bytes: report.bytes(),
            host_buffered: report.bytes_by(Path::HostBuffered),
            host_direct: report.bytes_by(Path::HostDirect),
            staged_buffered: report.bytes_by(Path::StagedBuffered),
            staged_direct: report.bytes_by(Path::StagedDirect),
            mapped: report.bytes_by(Path::Mapped),
            gds_p2p: report.bytes_by(Path::GdsP2p),
            gds_nvfs: report.bytes_by(Path::GdsNvfs),
            gds_posix: report.bytes_by(Path::GdsPosix),
            gds_unproven: report.bytes_by(Path::GdsUnproven),
            elapsed_ns: report.elapsed_ns,
            io_calls: report.io_calls,
            copies: report.copies,
            block: report.block,
            threads: report.threads,
            queue_depth: report.queue_depth,
            note: string(&report.note),
            hdf5: report.bytes_by(Path::Hdf5),
            chunks: report.chunks,
            stored: report.stored,
            decoded_cpu: report.decoded_cpu,
            decoded_gpu: report.decoded_gpu,
            tuned,
        }
    }
}

/// Text as a C string, cut at a character where it is too long.
fn string<const SIZE: usize>(text: &str) -> [c_char; SIZE] {
    let mut string = [0; SIZE];
    let mut end = text.len().min(SIZE - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for (to, from) in string.iter_mut().zip(&text.as_bytes()[..end]) {
        *to = *from as c_char;
    }
    string
}

/// Fills a struct of the caller's, which starts with its size, with as much of `value` as fits;
/// the size itself stays the caller's.
///
/// # Safety
/// `target` points to a struct of the same kind of at least `struct_size` bytes.
pub unsafe fn fill<T>(target: *mut T, value: T) -> c_int {
    let head = size_of::<usize>();
    // SAFETY: every such struct starts with its size.
    let size = unsafe { target.cast::<usize>().read() };
    if size < head {
        return Kind::Invalid as c_int;
    }
    let bytes = size.min(size_of::<T>()) - head;
    // SAFETY: the caller vouches for `size` bytes; `value` has at least as many.
    unsafe {
        std::ptr::copy_nonoverlapping(
            (&raw const value).cast::<u8>().add(head),
            target.cast::<u8>().add(head),
            bytes,
        );
    }
    OK
}

/// Refuses a report of the caller's whose size was not set, before the work is done.
///
/// # Safety
/// `target` is null or points to a `penstock_report`.
pub unsafe fn check_size(target: *const CReport) -> Result<()> {
    // SAFETY: the caller vouches for it; every version of the struct starts with its size.
    let size = unsafe { target.cast::<usize>().as_ref() };
    match size {
        Some(&size) if size < size_of::<usize>() => Err(Error::invalid(format!(
            "struct_size of penstock_report is {size}"
        ))
        .remedy("initialise reports by PENSTOCK_REPORT_INIT")),
        _ => Ok(()),
    }
}

/// Gives a report to a caller who may not want it.
///
/// # Safety
/// `target` is null or as for [`fill`].
pub unsafe fn give(target: *mut CReport, report: &Report) -> c_int {
    if target.is_null() {
        return OK;
    }
    // SAFETY: passed on.
    unsafe { fill(target, CReport::from(report)) }
}
