//! Reads of many datasets as one request.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::time::Instant;

use penstock_array::Selection;
use penstock_engine::error::{Error, Result};
use penstock_engine::refuse_fork;
use penstock_hdf5::transfer::many::{DatasetPart, Many, Wanted, describe};
use penstock_hdf5::transfer::{TransferHandle, points_of};
use penstock_sys::hdf5::hid_t;

use crate::arguments::{list, null, place_of, string_of};
use crate::array::{CArray, array_of};
use crate::copied::end_for_connector;
use crate::dataset::hdf5_of_process;
use crate::error::guard;
use crate::handle::Table;
use crate::options::COptions;
use crate::report::CReport;
use crate::request::{CRequest, SubmitArguments, submit_options};
use crate::selection::{CSelection, check_outputs, hand_over, selection_of};

#[repr(C)]
pub(crate) struct CPiece {
    selection: *const CSelection,
    array: *const CArray,
}

#[repr(C)]
pub(crate) struct CShape {
    rank: i32,
    element: i32,
    lengths: *const u64,
}

/// The type to which a `penstock_datasets *` points; see [`crate::handle`].
pub(crate) enum CDatasets {}

/// Descriptions of a caller's datasets.
struct Datasets {
    many: Many,
    /// Lengths of all dimensions, one dataset after the other. The caller's structs point to them.
    _lengths: Vec<u64>,
}

static DATASETS: Table<Datasets> = Table::new("set of datasets");

/// # Safety
/// As the header requires. This thread may call HDF5.
unsafe fn start(
    many: &Many,
    (pieces, count): (*const CPiece, usize),
    submit: SubmitArguments,
    began: Instant,
) -> Result<TransferHandle> {
    // SAFETY: by contract of this function.
    unsafe {
        let pieces = list(pieces, count as u64, "pieces")?;
        let datasets = many.datasets();
        if pieces.len() != datasets.len() {
            return Err(Error::invalid(format!(
                "{} pieces are given for {} datasets",
                pieces.len(),
                datasets.len()
            )));
        }
        let with = submit_options(submit)?;
        let mut selections: Vec<Option<Selection>> = Vec::with_capacity(pieces.len());
        for (piece, dataset) in pieces.iter().zip(datasets) {
            let info = &dataset.info;
            let of_points = |rank, points: &[u64]| points_of(&info.shape, rank, points);
            let selection = selection_of(piece.selection, of_points);
            selections.push(selection.map_err(|error| info.name_in(error))?);
        }
        let mut parts: Vec<Option<DatasetPart<'_>>> = Vec::with_capacity(pieces.len());
        for (piece, selection) in pieces.iter().zip(&selections) {
            if piece.array.is_null() {
                parts.push(None);
                continue;
            }
            let array = array_of(piece.array)?;
            parts.push(Some(DatasetPart {
                selection: selection.as_ref(),
                memory_type: array.element,
                decode: array.decode,
                address: array.address,
                shape: array.shape,
                strides: array.strides,
            }));
        }
        let started = many.read(parts.into_iter(), with)?;
        started.count_from(began);
        end_for_connector(hdf5_of_process()?, &started);
        Ok(started)
    }
}

/// Describes datasets that the caller has open.
///
/// # Safety
/// As the header requires.
unsafe fn describe_open(datasets: *const hid_t, count: usize) -> Result<Many> {
    // SAFETY: by contract of this function.
    unsafe {
        let ids = list(datasets, count as u64, "datasets")?;
        describe(hdf5_of_process()?, ids.iter().map(|id| Wanted::Open(*id)))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_dataset_read_many(
    datasets: *const hid_t,
    pieces: *const CPiece,
    count: usize,
    options: *const COptions,
    stream: *mut c_void,
    flags: c_int,
    report: *mut CReport,
    request: *mut *mut CRequest,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        refuse_fork()?;
        let began = Instant::now();
        check_outputs(report, request)?;
        let many = describe_open(datasets, count)?;
        let started = start(&many, (pieces, count), (options, stream, flags), began)?;
        hand_over(started, report, request)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_datasets_open(
    location: hid_t,
    names: *const *const c_char,
    datasets: *const hid_t,
    count: usize,
    shapes: *mut CShape,
    opened: *mut *mut CDatasets,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        refuse_fork()?;
        let place = place_of(opened, "opened")?;
        if shapes.is_null() && count > 0 {
            return Err(null("shapes"));
        }
        let many = if names.is_null() {
            describe_open(datasets, count)?
        } else {
            let names = list(names, count as u64, "names")?.iter();
            let names: Vec<&CStr> = names
                .map(|name| string_of(*name, "names"))
                .collect::<Result<_>>()?;
            let wanted = names.iter().map(|name| Wanted::Named(location, name));
            describe(hdf5_of_process()?, wanted)?
        };
        let shapes_of = many.datasets().iter().map(|one| &one.info.shape[..]);
        let lengths = shapes_of.collect::<Vec<_>>().concat();
        let mut start = lengths.as_ptr();
        for (at, one) in many.datasets().iter().enumerate() {
            let rank = one.info.shape.len();
            shapes.add(at).write(CShape {
                rank: if one.info.is_null { -1 } else { rank as i32 },
                element: one.element as i32,
                lengths: start,
            });
            start = start.add(rank);
        }
        *place = DATASETS.insert(Datasets {
            many,
            _lengths: lengths,
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_datasets_can_change(
    opened: *mut CDatasets,
    can_change: *mut c_int,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        let place = place_of(can_change, "can_change")?;
        let set = DATASETS.get(opened)?;
        let mut datasets = set.many.datasets().iter();
        *place = c_int::from(datasets.any(|one| one.info.file.is_writable));
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_datasets_read(
    opened: *mut CDatasets,
    pieces: *const CPiece,
    count: usize,
    options: *const COptions,
    stream: *mut c_void,
    flags: c_int,
    report: *mut CReport,
    request: *mut *mut CRequest,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        let began = Instant::now();
        check_outputs(report, request)?;
        let set = DATASETS.get(opened)?;
        let started = start(&set.many, (pieces, count), (options, stream, flags), began)?;
        hand_over(started, report, request)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_datasets_close(opened: *mut CDatasets) -> c_int {
    guard(|| DATASETS.close(opened))
}
