//! Readers: reads of one dataset, without HDF5.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Instant;

use penstock_array::Selection;
use penstock_array::execute::SubmitOptions;
use penstock_engine::error::Result;
use penstock_engine::{chunk_cache_bytes, refuse_fork};
use penstock_hdf5::transfer::{self, Buffer, MemoryShape, Opened, Reader};
use penstock_sys::hdf5::hid_t;
use penstock_sys::is_copy;

use crate::dataset::{CArray, array_of, hdf5_of_process};
use crate::error::{OK, PENDING, guard, null};
use crate::handle::{Table, release};
use crate::options::{self, COptions};
use crate::report::{self, CReport, check_size};
use crate::request::{AnyRequest, CRequest, place_of, store, submit_options};
use crate::selection::{CSelection, selection_of};

/// The type to which a `penstock_reader *` points; see [`crate::handle`].
pub(crate) enum CReader {}

/// A flag of `penstock_reader_read`.
const ONLY_CACHED: c_int = 8;

static READERS: Table<Reader> = Table::new("reader");

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_reader_open(
    dataset: hid_t,
    memory_type: hid_t,
    reader: *mut *mut CReader,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        refuse_fork()?;
        let place = reader.as_mut().ok_or_else(|| null("reader"))?;
        *place = std::ptr::null_mut();
        // Reports a malformed PENSTOCK_CHUNK_CACHE here too.
        chunk_cache_bytes()?;
        match Reader::open(hdf5_of_process()?, dataset, memory_type) {
            Opened::Reader(made) => *place = READERS.insert(Arc::new(made)),
            Opened::Later => return Ok(PENDING),
            Opened::Never => {}
        }
        Ok(OK)
    })
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_reader_read(
    reader: *mut CReader,
    selection: *const CSelection,
    array: *const CArray,
    options: *const COptions,
    stream: *mut c_void,
    flags: c_int,
    report: *mut CReport,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        check_size(report)?;
        let reader = READERS.get(reader)?;
        let only_cached = flags & ONLY_CACHED != 0;
        if only_cached && !reader.has_open_file() {
            return Ok(PENDING);
        }
        let planned = with_read(
            &reader,
            selection,
            (array, options),
            (stream, flags & !ONLY_CACHED),
            |read| {
                let (selection, with) = (read.selection, &read.with);
                Ok(reader.plan(selection, read.shape, &read.buffer, with))
            },
        )?;
        let done = match planned {
            Some(planned) if only_cached => planned.run_cached(),
            Some(planned) => Some(planned.run()?),
            None => None,
        };
        Ok(match done {
            None => PENDING,
            Some(done) => {
                report::write(report, &done);
                OK
            }
        })
    })
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_reader_is_forgotten(reader: *mut CReader) -> c_int {
    let mut is_forgotten = false;
    guard(|| {
        is_forgotten = !is_copy() && READERS.get(reader)?.is_forgotten();
        Ok(OK)
    });
    c_int::from(is_forgotten)
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_reader_start(
    reader: *mut CReader,
    selection: *const CSelection,
    array: *const CArray,
    options: *const COptions,
    stream: *mut c_void,
    flags: c_int,
    request: *mut *mut CRequest,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        let began = Instant::now();
        let place = place_of(request)?;
        if is_copy() {
            // The connector of the parent's library would not find the read among the pending ones.
            return Ok(PENDING);
        }
        let reader = READERS.get(reader)?;
        let held = with_read(
            &reader,
            selection,
            (array, options),
            (stream, flags),
            |read| reader.start(read.selection, read.shape, &read.buffer, read.with),
        )?;
        match held {
            None => Ok(PENDING),
            Some(held) => {
                held.count_from(began);
                store(place, AnyRequest::Dataset(held));
                Ok(OK)
            }
        }
    })
}

/// Checked arguments of a read.
struct Read<'a> {
    selection: Option<&'a Selection>,
    shape: (&'a [u64], Option<&'a [i64]>),
    buffer: Buffer,
    with: SubmitOptions,
}

/// Checks the arguments of a read and calls `act`. Returns `None` if only other functions support
/// them.
///
/// # Safety
/// As the header requires.
unsafe fn with_read<T>(
    reader: &Reader,
    selection: *const CSelection,
    (array, options): (*const CArray, *const COptions),
    (stream, flags): (*mut c_void, c_int),
    act: impl FnOnce(Read<'_>) -> Result<Option<T>>,
) -> Result<Option<T>> {
    // SAFETY: by contract of this function.
    unsafe {
        reader.check_open()?;
        let (array, shape) = array_of(array)?;
        let MemoryShape::Array { shape, strides } = shape else {
            return Ok(None);
        };
        let selection = selection_of(selection, |rank, points| {
            transfer::points_of(reader.shape(), rank, points)
        })?;
        act(Read {
            selection: selection.as_ref(),
            shape: (shape, strides),
            with: submit_options(options::read(options)?, stream, flags)?,
            buffer: Buffer::at(array.data as usize)?,
        })
    }
}

/// # Safety
/// `reader` is null or a handle.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_reader_close(reader: *mut CReader) {
    guard(|| {
        if !reader.is_null() && refuse_fork().is_ok() {
            drop(READERS.take(reader)?);
        }
        Ok(OK)
    });
}

/// # Safety
/// `place` is null, or points to a handle or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_reader_release(place: *mut *mut CReader) {
    // SAFETY: by contract of this function.
    unsafe { release(place, |reader| penstock_reader_close(reader)) };
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_hdf5_forget(object: hid_t) -> c_int {
    guard(|| {
        refuse_fork()?;
        // SAFETY: the header requires that the caller holds HDF5's lock.
        unsafe { transfer::forget(hdf5_of_process()?, object)? };
        Ok(OK)
    })
}
