//! Selections of datasets without a dataspace.

use std::ffi::{c_int, c_void};
use std::time::Instant;

use penstock_array::{Axis, Run, Selection, make_room};
use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::refuse_fork;
use penstock_hdf5::transfer::{self, FileSelection};
use penstock_sys::hdf5::{H5S_ALL, H5S_MAX_RANK, hid_t};

use crate::arguments::{list, place_of};
use crate::array::CArray;
use crate::dataset::{array_transfer, hdf5_of_process, start};
use crate::error::guard;
use crate::options::COptions;
use crate::report::{self, CReport, check_size};
use crate::request::{AnyRequest, CRequest, store};
use crate::structs::arguments;

#[repr(C)]
struct CAxis {
    start: u64,
    step: u64,
    count: u64,
    indices: *const u64,
}

/// The forms of a selection without axes: see the header.
const POINTS: i32 = 0;
const RUNS: i32 = 1;

#[repr(C)]
pub(crate) struct CSelection {
    struct_size: usize,
    rank: i32,
    form: i32,
    axes: *const CAxis,
    points: *const u64,
    point_count: u64,
}

/// Returns the caller's selection in a dataset; `None` for all elements. `of_points` selects single
/// elements, from the rank of the selection and their coordinates.
///
/// # Safety
/// `selection` is null or as the header requires.
pub(crate) unsafe fn selection_of(
    selection: *const CSelection,
    of_points: impl FnOnce(usize, &[u64]) -> Result<Selection>,
) -> Result<Option<Selection>> {
    // SAFETY: by contract of this function.
    let Some(selection) = (unsafe { arguments(selection, "selection")? }) else {
        return Ok(None);
    };
    let rank = usize::try_from(selection.rank)
        .ok()
        .filter(|rank| *rank <= H5S_MAX_RANK)
        .ok_or_else(|| {
            Error::invalid(format!(
                "the rank of a selection is {}, but must be between 0 and {H5S_MAX_RANK}",
                selection.rank
            ))
        })?;
    let form = selection.form;
    if !matches!(form, POINTS | RUNS) {
        return Err(Error::invalid(format!("{form} is not a selection form")));
    }
    if !selection.axes.is_null() || rank == 0 {
        // SAFETY: by contract, one axis for each dimension.
        let axes = unsafe { list(selection.axes, rank as u64, "axes")? };
        // SAFETY: by contract, the lists have as many indices as they say.
        let axes = axes.iter().map(|axis| unsafe { axis_of(axis) });
        return Ok(Some(Selection::Grid(axes.collect::<Result<_>>()?)));
    }
    if form == RUNS {
        // SAFETY: by contract, three numbers for each run.
        return unsafe { runs_of(selection) }.map(Some);
    }
    let numbers = selection.point_count.saturating_mul(rank as u64);
    // SAFETY: by contract, `rank` numbers for each point.
    of_points(rank, unsafe { list(selection.points, numbers, "points")? }).map(Some)
}

/// # Safety
/// `points` has three numbers for each of `point_count` runs.
unsafe fn runs_of(selection: &CSelection) -> Result<Selection> {
    let numbers = selection.point_count.saturating_mul(3);
    // SAFETY: by contract of this function.
    let numbers = unsafe { list(selection.points, numbers, "points")? };
    let (runs, _) = numbers.as_chunks();
    let mut found = Vec::new();
    make_room(&mut found, runs.len())?;
    found.extend(runs.iter().map(|&[start, position, length]| Run {
        start,
        position,
        length,
    }));
    Ok(Selection::Runs(found))
}

/// # Safety
/// A list that is not null has the number of indices that it declares.
unsafe fn axis_of(axis: &CAxis) -> Result<Axis> {
    if axis.indices.is_null() {
        return Ok(Axis::strided(axis.start, axis.step.max(1), axis.count).normal());
    }
    // SAFETY: by contract of this function.
    Axis::list(unsafe { list(axis.indices, axis.count, "indices")? })
}

/// Returns an error if the caller requests the report of an unfinished transfer.
///
/// # Safety
/// `report` is null or as the header requires.
pub(crate) unsafe fn check_outputs(
    report: *mut CReport,
    request: *mut *mut CRequest,
) -> Result<()> {
    // SAFETY: by contract of this function.
    unsafe { check_size(report)? };
    if request.is_null() || report.is_null() {
        Ok(())
    } else {
        Err(Error::invalid("a request has its own report")
            .remedy("pass NULL for the report or for the request"))
    }
}

/// Stores a request for the caller, or waits for it and writes the report.
///
/// # Safety
/// Both are null or as the header requires; [`check_outputs`] has accepted them.
pub(crate) unsafe fn hand_over(
    started: transfer::TransferHandle,
    report: *mut CReport,
    request: *mut *mut CRequest,
) -> Result<()> {
    // SAFETY: by contract of this function.
    unsafe {
        if request.is_null() {
            started.finish()?;
            report::write_of(report, &started);
        } else {
            store(place_of(request, "request")?, AnyRequest::Dataset(started));
        }
    }
    Ok(())
}

read_and_write! {
    fn penstock_dataset_read_selected, penstock_dataset_write_selected(
        operation,
        dataset: hid_t,
        selection: *const CSelection,
        array: *const CArray,
        options: *const COptions,
        stream: *mut c_void,
        flags: c_int,
        report: *mut CReport,
        request: *mut *mut CRequest,
    ) {
        // SAFETY: by contract of this function.
        guard(|| unsafe {
            let began = Instant::now();
            refuse_fork()?;
            check_outputs(report, request)?;
            let selection = selection_of(selection, |rank, points| {
                transfer::points(hdf5_of_process()?, dataset, rank, points)
            })?;
            let selected = match &selection {
                Some(selection) => FileSelection::Elements(selection),
                None => FileSelection::Space(H5S_ALL),
            };
            let submit = (options, stream, flags);
            let (transfer, buffer, with) =
                array_transfer(operation, dataset, selected, array, submit)?;
            // This thread carries out a small read faster than workers.
            if request.is_null()
                && operation == Operation::Read
                && let Some(small) =
                    transfer::small_read(hdf5_of_process()?, &transfer, &buffer, &with)
            {
                report::write(report, &small.run()?);
                return Ok(());
            }
            hand_over(start(&transfer, buffer, with, began)?, report, request)
        })
    }
}
