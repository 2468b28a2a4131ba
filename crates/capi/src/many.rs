//! Reads of many datasets as one request.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;
use std::time::Instant;

use penstock_array::Selection;
use penstock_engine::error::{Error, Result};
use penstock_engine::refuse_fork;
use penstock_hdf5::transfer::many::{DatasetPart, Many, Wanted, describe};
use penstock_hdf5::transfer::{MemoryShape, TransferHandle};
use penstock_sys::hdf5::hid_t;

use crate::copied::end_for_connector;
use crate::dataset::{CArray, array_of, hdf5_of_process};
use crate::error::{OK, guard, null};
use crate::handle::Table;
use crate::lists::list;
use crate::options::{self, COptions};
use crate::report::CReport;
use crate::request::{self as requests, CRequest};
use crate::selection::{CSelection, check_outputs, hand_over, selection_of};

#[repr(C)]
pub(crate) struct CPiece {
    selection: *const CSelection,
    array: CArray,
}

#[repr(C)]
pub(crate) struct CShape {
    rank: i32,
    element: i32,
    lengths: *const u64,
}

/// An opaque handle.
pub(crate) struct CDatasets;

/// Descriptions of a caller's datasets.
struct Datasets {
    many: Many,
    /// Lengths of all dimensions, one dataset after the other.
    lengths: Vec<u64>,
}

static DATASETS: Table<Datasets> = Table::new("set of datasets");

/// Options of a read.
struct Call {
    pieces: *const CPiece,
    count: usize,
    options: *const COptions,
    stream: *mut c_void,
    flags: c_int,
}

/// # Safety
/// As the header requires. This thread may call HDF5.
unsafe fn start(many: &Many, call: &Call, began: Instant) -> Result<TransferHandle> {
    // SAFETY: by contract of this function.
    unsafe {
        let pieces = list(call.pieces, call.count as u64, "pieces")?;
        let datasets = many.datasets();
        if pieces.len() != datasets.len() {
            return Err(Error::invalid(format!(
                "{} pieces are given for {} datasets",
                pieces.len(),
                datasets.len()
            )));
        }
        let options = options::read(call.options)?;
        let with = requests::submit_options(options, call.stream, call.flags)?;
        let mut selections: Vec<Option<Selection>> = Vec::with_capacity(pieces.len());
        for (piece, dataset) in pieces.iter().zip(datasets) {
            let info = &dataset.info;
            let selection = selection_of(piece.selection, |rank, points| {
                if rank == info.shape.len() {
                    Selection::points(&info.shape, points)
                } else {
                    Err(Error::invalid(format!(
                        "the selection has {rank} dimensions, but the dataset has {}",
                        info.shape.len()
                    )))
                }
            });
            selections.push(selection.map_err(|error| info.name_in(error))?);
        }
        let mut parts: Vec<Option<DatasetPart<'_>>> = Vec::with_capacity(pieces.len());
        for (piece, selection) in pieces.iter().zip(&selections) {
            if piece.array.element == 0 {
                parts.push(None);
                continue;
            }
            let (array, shape) = array_of(&raw const piece.array)?;
            let MemoryShape::Array { shape, strides } = shape else {
                return Err(Error::invalid("an array has no shape"));
            };
            parts.push(Some(DatasetPart {
                selection: selection.as_ref(),
                memory_type: array.element,
                address: array.data as usize,
                shape,
                strides,
            }));
        }
        let held = many.read(parts.into_iter(), with)?;
        held.count_from(began);
        end_for_connector(hdf5_of_process()?, &held);
        Ok(held)
    }
}

/// # Safety
/// As the header requires.
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
    let call = Call {
        pieces,
        count,
        options,
        stream,
        flags,
    };
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        refuse_fork()?;
        let began = Instant::now();
        check_outputs(report, request)?;
        let ids = list(datasets, count as u64, "datasets")?;
        let many = describe(hdf5_of_process()?, ids.iter().map(|id| Wanted::Open(*id)))?;
        hand_over(start(&many, &call, began)?, report, request)
    })
}

/// # Safety
/// As the header requires.
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
        let place = opened.as_mut().ok_or_else(|| null("opened"))?;
        if shapes.is_null() && count > 0 {
            return Err(null("shapes"));
        }
        let hdf5 = hdf5_of_process()?;
        let many = if names.is_null() {
            let ids = list(datasets, count as u64, "datasets")?;
            describe(hdf5, ids.iter().map(|id| Wanted::Open(*id)))?
        } else {
            let names = list(names, count as u64, "names")?;
            if names.iter().any(|name| name.is_null()) {
                return Err(null("names"));
            }
            let names = names.iter().map(|name| CStr::from_ptr(*name));
            describe(hdf5, names.map(|name| Wanted::Named(location, name)))?
        };
        let dimensions = many.datasets().iter().map(|one| one.info.shape.len()).sum();
        let mut set = Datasets {
            lengths: Vec::with_capacity(dimensions),
            many,
        };
        for one in set.many.datasets() {
            set.lengths.extend(&one.info.shape);
        }
        let mut lengths = set.lengths.as_ptr();
        for (at, one) in set.many.datasets().iter().enumerate() {
            let rank = one.info.shape.len();
            shapes.add(at).write(CShape {
                rank: if one.info.is_null { -1 } else { rank as i32 },
                element: one.element as i32,
                lengths,
            });
            lengths = lengths.add(rank);
        }
        *place = DATASETS.insert(Arc::new(set));
        Ok(OK)
    })
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_datasets_can_change(
    opened: *mut CDatasets,
    can_change: *mut c_int,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        let place = can_change.as_mut().ok_or_else(|| null("can_change"))?;
        let set = DATASETS.get(opened)?;
        let mut datasets = set.many.datasets().iter();
        *place = c_int::from(datasets.any(|one| one.info.file.is_writable));
        Ok(OK)
    })
}

/// # Safety
/// As the header requires.
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
    let call = Call {
        pieces,
        count,
        options,
        stream,
        flags,
    };
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        let began = Instant::now();
        check_outputs(report, request)?;
        let set = DATASETS.get(opened)?;
        hand_over(start(&set.many, &call, began)?, report, request)
    })
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_datasets_close(opened: *mut CDatasets) -> c_int {
    guard(|| {
        if !opened.is_null() {
            drop(DATASETS.take(opened)?);
        }
        Ok(OK)
    })
}
