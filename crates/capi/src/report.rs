//! `penstock_report`: the report of a request as a C struct.

use std::ffi::c_char;

use penstock_engine::error::Result;
use penstock_engine::options::{Options, RouteName};
use penstock_engine::report::{PATHS, Path, Report};
use penstock_engine::request::Request;

use crate::options::{ROUTES, number_of};
use crate::structs;

const NOTE: usize = 256;
const TUNED: usize = 128;
/// Only for reports; a program cannot request this route.
const ROUTE_HDF5: i32 = 6;

#[repr(C)]
pub(crate) struct CReport {
    struct_size: usize,
    route: i32,
    device: i32,
    bytes: u64,
    /// Bytes in the order of [`PATHS`], without the last path, which was added to the struct later.
    by_path: [u64; PATHS.len() - 1],
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
        let tuned = if report.tuned == Options::default() {
            [0; TUNED]
        } else {
            string(&report.tuned.to_string())
        };
        CReport {
            struct_size: size_of::<CReport>(),
            route: match report.route {
                RouteName::Hdf5 => ROUTE_HDF5,
                route => number_of(Some(route), &ROUTES),
            },
            device: report.device,
            bytes: report.bytes(),
            by_path: std::array::from_fn(|at| report.bytes_by(PATHS[at])),
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

/// Returns the text as a C string. Longer text is truncated between characters.
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

/// Returns an error if the caller has not set the size of the report. Called before the transfer.
///
/// # Safety
/// `target` is null or points to a `penstock_report`.
pub(crate) unsafe fn check_size(target: *const CReport) -> Result<()> {
    // SAFETY: by contract of this function.
    unsafe { structs::check_size(target.cast(), "report") }
}

/// Copies a report to the caller's struct, unless `target` is null.
///
/// # Safety
/// `target` is null or as for [`structs::fill`].
pub(crate) unsafe fn write(target: *mut CReport, report: &Report) {
    if !target.is_null() {
        // SAFETY: by contract of this function.
        unsafe { structs::fill(target, CReport::from(report)) };
    }
}

/// Copies the report of a finished request to the caller's struct, unless `target` is null.
///
/// # Safety
/// As for [`write`].
pub(crate) unsafe fn write_of(target: *mut CReport, request: &Request) {
    if let Some(report) = request.report() {
        // SAFETY: by contract of this function.
        unsafe { write(target, &report) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_declares_the_paths_in_order() {
        let header = include_str!("../include/penstock.h");
        let report = &header[header.find("typedef struct penstock_report").unwrap()..];
        let places = PATHS.map(|path| report.find(&format!("uint64_t {};", path.name())));
        assert!(places.iter().all(Option::is_some), "{places:?}");
        assert!(places.is_sorted(), "{places:?}");
    }
}
