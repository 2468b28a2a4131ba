//! Readers: reads of one dataset, and small writes, that need no description of it each time.

use std::ffi::{c_int, c_void};
use std::time::Instant;

use penstock_array::Selection;
use penstock_array::execute::SubmitOptions;
use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::report::Report;
use penstock_engine::{chunk_cache_bytes, options_without_engine, refuse_fork};
use penstock_hdf5::dataset::ByteOrder;
use penstock_hdf5::transfer::{self, Buffer, ElementMemory, ReadShape, Reader};
use penstock_sys::hdf5::{H5S_MAX_RANK, Hdf5, hid_t};
use penstock_sys::is_copy;

use crate::arguments::place_of;
use crate::array::{CArray, array_of};
use crate::dataset::hdf5_of_process;
use crate::decoding::{CDecoding, decoding_of};
use crate::error::{OK, PENDING, guard, guard_status};
use crate::handle::{Table, release};
use crate::options::COptions;
use crate::report::{self, CReport, check_size};
use crate::request::{AnyRequest, CRequest, SubmitArguments, store, submit_options};
use crate::selection::{CSelection, selection_of};
use crate::structs;

/// The type to which a `penstock_reader *` points; see [`crate::handle`].
pub(crate) enum CReader {}

/// Flags of `penstock_reader_read`.
const ONLY_CACHED: c_int = 8;
const MAY_CALL_HDF5: c_int = 32;
const FILE_IS_OPEN: c_int = 64;

static READERS: Table<Reader> = Table::new("reader");

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_reader_open(
    dataset: hid_t,
    memory_type: hid_t,
    reader: *mut *mut CReader,
) -> c_int {
    // SAFETY: by contract of this function.
    unsafe { penstock_reader_open_decoded(dataset, memory_type, std::ptr::null(), reader) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_reader_open_decoded(
    dataset: hid_t,
    memory_type: hid_t,
    decoding: *const CDecoding,
    reader: *mut *mut CReader,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        refuse_fork()?;
        let place = place_of(reader, "reader")?;
        *place = std::ptr::null_mut();
        // Reports a malformed PENSTOCK_CHUNK_CACHE here too.
        chunk_cache_bytes()?;
        let wanted = (memory_type, decoding_of(decoding)?);
        if let Some(made) = Reader::open(hdf5_of_process()?, dataset, wanted) {
            *place = READERS.insert(made);
        }
        Ok(())
    })
}

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
    guard_status(|| unsafe {
        check_size(report)?;
        let reader = READERS.get(reader)?;
        let only_cached = flags & ONLY_CACHED != 0;
        if only_cached && !reader.has_open_file() {
            return Ok(PENDING);
        }
        if flags & FILE_IS_OPEN == 0 {
            reader.check_open()?;
        }
        let own = ONLY_CACHED | MAY_CALL_HDF5 | FILE_IS_OPEN;
        let submit = (options, stream, flags & !own);
        let Some(read) = PartArguments::check(&reader, selection, array, submit)? else {
            return Ok(PENDING);
        };
        let done = match reader.plan(read.shape(), &read.buffer, &read.with) {
            Some(planned) if only_cached => planned.run_cached(),
            Some(planned) => Some(planned.run()?),
            None if flags & MAY_CALL_HDF5 != 0 => {
                let memory = read.memory(Operation::Read);
                reader.transfer_by_hdf5(read.shape(), memory, &read.with)?
            }
            None => None,
        };
        Ok(outcome(done, report))
    })
}

/// Writes the report of a transfer, and returns the status: `PENDING` if there was none.
///
/// # Safety
/// As for [`report::write`].
unsafe fn outcome(done: Option<Report>, report: *mut CReport) -> c_int {
    let Some(done) = done else {
        return PENDING;
    };
    // SAFETY: by contract of this function.
    unsafe { report::write(report, &done) };
    OK
}

/// `penstock_reader_facts`
#[repr(C)]
pub(crate) struct CFacts {
    struct_size: usize,
    ways: i32,
    rank: i32,
    number: i32,
    order: i32,
    size: u64,
    shape: [u64; H5S_MAX_RANK],
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_reader_describe(reader: *mut CReader, facts: *mut CFacts) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        refuse_fork()?;
        place_of(facts.cast::<usize>(), "facts")?;
        structs::check_size(facts.cast(), "reader_facts")?;
        let reader = READERS.get(reader)?;
        let number = reader.number();
        let fixed = reader.fixed_shape();
        let mut shape = [0; H5S_MAX_RANK];
        shape[..fixed.map_or(0, <[u64]>::len)].copy_from_slice(fixed.unwrap_or_default());
        let described = CFacts {
            struct_size: size_of::<CFacts>(),
            ways: i32::from(fixed.is_some()) + 2 * i32::from(reader.may_call_hdf5()),
            rank: reader.rank() as i32,
            number: number.map_or(0, |number| number.letter.into()),
            order: number.map_or(0, |number| i32::from(number.order == ByteOrder::Big)),
            size: number.map_or(0, |number| number.size as u64),
            shape,
        };
        structs::fill(facts, described);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_reader_shape(
    reader: *mut CReader,
    rank: c_int,
    lengths: *mut u64,
) -> c_int {
    // SAFETY: by contract of this function; the caller holds HDF5's lock.
    guard(|| unsafe {
        refuse_fork()?;
        let shape = READERS.get(reader)?.shape()?;
        if usize::try_from(rank) != Ok(shape.len()) {
            let rank = shape.len();
            return Err(Error::invalid(format!("the dataset has {rank} dimensions")));
        }
        place_of(lengths, "lengths")?;
        for (at, length) in shape.iter().enumerate() {
            lengths.add(at).write(*length);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_reader_write(
    reader: *mut CReader,
    selection: *const CSelection,
    array: *const CArray,
    report: *mut CReport,
) -> c_int {
    // SAFETY: by contract of this function; the caller holds HDF5's lock.
    guard_status(|| unsafe {
        refuse_fork()?;
        check_size(report)?;
        let reader = READERS.get(reader)?;
        reader.check_open()?;
        let submit = (std::ptr::null(), std::ptr::null_mut(), 0);
        let Some(write) = PartArguments::check(&reader, selection, array, submit)? else {
            return Ok(PENDING);
        };
        if options_without_engine(write.with.options)?.durable == Some(true) {
            return Ok(PENDING);
        }
        let memory = write.memory(Operation::Write);
        let done = reader.transfer_by_hdf5(write.shape(), memory, &write.with)?;
        Ok(outcome(done, report))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_reader_is_forgotten(reader: *mut CReader) -> c_int {
    let mut is_forgotten = false;
    guard(|| {
        is_forgotten = !is_copy() && READERS.get(reader)?.is_forgotten();
        Ok(())
    });
    c_int::from(is_forgotten)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_reader_pieces(reader: *mut CReader, bytes: u64) -> u64 {
    let mut pieces = 0;
    guard(|| {
        if !is_copy() {
            pieces = READERS.get(reader)?.pieces(bytes);
        }
        Ok(())
    });
    pieces
}

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
    guard_status(|| unsafe {
        let began = Instant::now();
        let place = place_of(request, "request")?;
        if is_copy() {
            // The connector of the parent's library would not find the read among the pending ones.
            return Ok(PENDING);
        }
        let reader = READERS.get(reader)?;
        reader.check_open()?;
        let submit = (options, stream, flags);
        let Some(read) = PartArguments::check(&reader, selection, array, submit)? else {
            return Ok(PENDING);
        };
        let shape = (read.selection.as_ref(), read.layout.0, read.layout.1);
        let started = reader.start(shape, &read.buffer, read.with)?;
        Ok(started.map_or(PENDING, |started| {
            started.count_from(began);
            store(place, AnyRequest::Dataset(started));
            OK
        }))
    })
}

/// Checked arguments of a read or write.
struct PartArguments<'a> {
    selection: Option<Selection>,
    layout: (&'a [u64], Option<&'a [i64]>),
    element: hid_t,
    buffer: Buffer,
    with: SubmitOptions,
}

impl PartArguments<'_> {
    fn shape(&self) -> ReadShape<'_> {
        (self.selection.as_ref(), self.layout.0, self.layout.1)
    }

    fn memory(&self, operation: Operation) -> ElementMemory<'_> {
        ElementMemory {
            operation,
            element: self.element,
            buffer: &self.buffer,
        }
    }

    /// Returns `None` if single elements are selected of a dataset that may change.
    ///
    /// # Safety
    /// As the header requires.
    unsafe fn check<'a>(
        reader: &Reader,
        selection: *const CSelection,
        array: *const CArray,
        submit: SubmitArguments,
    ) -> Result<Option<PartArguments<'a>>> {
        // SAFETY: by contract of this function.
        unsafe {
            let array = array_of(array)?;
            let mut is_unknown = false;
            let of_points = |rank, points: &[u64]| match reader.fixed_shape() {
                Some(fixed) => transfer::points_of(fixed, rank, points),
                None => {
                    is_unknown = true;
                    Ok(Selection::none())
                }
            };
            let selection = selection_of(selection, of_points)?;
            if is_unknown {
                return Ok(None);
            }
            Ok(Some(PartArguments {
                selection,
                layout: (array.shape, array.strides),
                element: array.element,
                with: submit_options(submit)?,
                buffer: Buffer::at(array.address)?,
            }))
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_reader_close(reader: *mut CReader) {
    guard(|| match refuse_fork() {
        Ok(()) => READERS.close(reader),
        Err(_) => Ok(()),
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_reader_release(place: *mut *mut CReader) {
    // SAFETY: by contract of this function.
    unsafe { release(place, |reader| penstock_reader_close(reader)) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_hdf5_forget(object: hid_t) -> c_int {
    guard(|| {
        refuse_fork()?;
        // SAFETY: by contract, the caller holds HDF5's lock.
        unsafe { transfer::forget(hdf5_of_process()?, object) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_virtual_is_read_alike(
    dataset: hid_t,
    selection: *const CSelection,
    alike: *mut c_int,
) -> c_int {
    guard(|| {
        refuse_fork()?;
        // SAFETY: by contract of this function; the caller holds HDF5's lock.
        unsafe {
            let alike = place_of(alike, "alike")?;
            let (hdf5, selection) = elements_of(dataset, selection)?;
            *alike = transfer::is_read_alike(hdf5, dataset, selection)?.into();
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_virtual_check(dataset: hid_t, selection: *const CSelection) -> c_int {
    guard(|| {
        refuse_fork()?;
        // SAFETY: as above.
        unsafe {
            let (hdf5, selection) = elements_of(dataset, selection)?;
            transfer::refuse_misread(hdf5, dataset, selection)
        }
    })
}

/// # Safety
/// The selection is null or as the header requires, and the caller holds HDF5's lock.
unsafe fn elements_of(
    dataset: hid_t,
    selection: *const CSelection,
) -> Result<(&'static Hdf5, Option<Selection>)> {
    let hdf5 = hdf5_of_process()?;
    // SAFETY: by contract of this function.
    let of_points = |rank, points: &[u64]| unsafe { transfer::points(hdf5, dataset, rank, points) };
    // SAFETY: as above.
    Ok((hdf5, unsafe { selection_of(selection, of_points)? }))
}
