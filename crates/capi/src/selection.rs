//! Selections of datasets without a dataspace.

use std::ffi::{c_int, c_void};
use std::slice;

use penstock_array::execute::SmallRead;
use penstock_array::{Axis, Selection};
use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::refuse_fork;
use penstock_hdf5::transfer::{self, FileSelection};
use penstock_sys::hdf5::{H5S_ALL, H5S_MAX_RANK, hid_t};

use crate::dataset::{ArrayCall, CArray, hdf5_of_process, start_array};
use crate::error::{OK, guard, null};
use crate::options::COptions;
use crate::report::{self, CReport, check_size};
use crate::request::{self as requests, AnyRequest, CRequest};

#[repr(C)]
struct CAxis {
    start: u64,
    step: u64,
    count: u64,
    indices: *const u64,
}

#[repr(C)]
pub(crate) struct CSelection {
    struct_size: usize,
    rank: i32,
    reserved: i32,
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
    let Some(selection) = (unsafe { selection.as_ref() }) else {
        return Ok(None);
    };
    if selection.struct_size < size_of::<CSelection>() {
        return Err(Error::invalid(format!(
            "struct_size of penstock_selection is {}",
            selection.struct_size
        ))
        .remedy("initialise selections with PENSTOCK_SELECTION_INIT"));
    }
    let rank = usize::try_from(selection.rank)
        .ok()
        .filter(|rank| *rank <= H5S_MAX_RANK)
        .ok_or_else(|| {
            Error::invalid(format!(
                "the rank of a selection is {}, but must be between 0 and {H5S_MAX_RANK}",
                selection.rank
            ))
        })?;
    if !selection.axes.is_null() || rank == 0 {
        let axes: &[CAxis] = match rank {
            0 => &[],
            // SAFETY: by contract, one axis for each dimension.
            _ => unsafe { slice::from_raw_parts(selection.axes, rank) },
        };
        // SAFETY: by contract, the lists have as many indices as they say.
        let axes = axes.iter().map(|axis| unsafe { axis_of(axis) });
        return Ok(Some(Selection::Grid(axes.collect::<Result<_>>()?)));
    }
    let numbers = usize::try_from(selection.point_count)
        .ok()
        .and_then(|count| count.checked_mul(rank))
        .ok_or_else(|| Error::invalid("the points are more than memory can hold"))?;
    let coordinates: &[u64] = match numbers {
        0 => &[],
        _ if selection.points.is_null() => return Err(null("points")),
        // SAFETY: by contract, `rank` numbers for each point.
        _ => unsafe { slice::from_raw_parts(selection.points, numbers) },
    };
    of_points(rank, coordinates).map(Some)
}

/// # Safety
/// A list that is not null has the number of indices that it declares.
unsafe fn axis_of(axis: &CAxis) -> Result<Axis> {
    if axis.indices.is_null() {
        return Ok(Axis::strided(axis.start, axis.step.max(1), axis.count).normal());
    }
    let count = usize::try_from(axis.count)
        .map_err(|_| Error::invalid("the indices are more than memory can hold"))?;
    // SAFETY: by contract of this function.
    Axis::list(unsafe { slice::from_raw_parts(axis.indices, count) })
}

/// Plans a read that this thread carries out faster than workers; `None` for all other reads.
///
/// # Safety
/// As the header requires.
unsafe fn small_read(call: &ArrayCall, selected: FileSelection<'_>) -> Result<Option<SmallRead>> {
    // SAFETY: by contract of this function.
    unsafe {
        let (transfer, buffer, with) = call.read(Operation::Read, selected)?;
        let hdf5 = hdf5_of_process()?;
        Ok(transfer::small_read(hdf5, &transfer, &buffer, &with))
    }
}

/// # Safety
/// As the header requires.
unsafe fn transfer_selected(
    operation: Operation,
    call: &ArrayCall,
    selection: *const CSelection,
    report: *mut CReport,
    request: *mut *mut CRequest,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        refuse_fork()?;
        check_outputs(report, request)?;
        let selection = selection_of(selection, |rank, points| {
            transfer::points(hdf5_of_process()?, call.dataset, rank, points)
        })?;
        let selected = match &selection {
            Some(selection) => FileSelection::Elements(selection),
            None => FileSelection::Space(H5S_ALL),
        };
        if request.is_null()
            && operation == Operation::Read
            && let Some(small) = small_read(call, selected)?
        {
            report::write(report, &small.run()?);
            return Ok(OK);
        }
        let started = start_array(operation, call, selected)?;
        hand_over(started, report, request)
    })
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
) -> Result<c_int> {
    // SAFETY: by contract of this function.
    unsafe {
        if request.is_null() {
            started.finish()?;
            report::write_of(report, &started);
        } else {
            requests::store(requests::place_of(request)?, AnyRequest::Dataset(started));
        }
    }
    Ok(OK)
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_dataset_read_selected(
    dataset: hid_t,
    selection: *const CSelection,
    array: *const CArray,
    options: *const COptions,
    stream: *mut c_void,
    flags: c_int,
    report: *mut CReport,
    request: *mut *mut CRequest,
) -> c_int {
    let call = ArrayCall::new(dataset, array, options, stream, flags);
    // SAFETY: passed on.
    unsafe { transfer_selected(Operation::Read, &call, selection, report, request) }
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_dataset_write_selected(
    dataset: hid_t,
    selection: *const CSelection,
    array: *const CArray,
    options: *const COptions,
    stream: *mut c_void,
    flags: c_int,
    report: *mut CReport,
    request: *mut *mut CRequest,
) -> c_int {
    let call = ArrayCall::new(dataset, array, options, stream, flags);
    // SAFETY: passed on.
    unsafe { transfer_selected(Operation::Write, &call, selection, report, request) }
}
