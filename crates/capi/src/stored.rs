//! Arrays whose storage is described by plain data.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Arc;

use penstock_array::execute::{ArrayTransfer, SubmitOptions, submit};
use penstock_array::{
    ChunkGrid, ChunkTable, MemorySize, Selection, Source, StoredArray, StoredChunk, StoredSize,
    TableBuilder, bytes,
};
use penstock_codec::convert::{Format, Number, TypeConversion};
use penstock_codec::{Filter, Pipeline};
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::refuse_fork;
use penstock_hdf5::transfer::{self, Refused};
use penstock_sys::hdf5::{H5S_MAX_RANK, hid_t};

use crate::arguments::{c_string, list, null, optional_list, place_of};
use crate::array::{CArray, array_of};
use crate::dataset::hdf5_of_process;
use crate::error::guard;
use crate::file::{CFile, file_of};
use crate::handle::Table;
use crate::options::COptions;
use crate::request::{AnyRequest, CRequest, SubmitArguments, store, submit_options};
use crate::selection::{CSelection, selection_of};
use crate::structs::{arguments, check_reserved, check_size, fill};

/// The type to which a `penstock_stored *` points; see [`crate::handle`].
pub(crate) enum CStored {}

static STORED: Table<StoredDescription> = Table::new("stored array");

/// A description, with the C structs that point into it.
pub(crate) struct StoredDescription {
    array: StoredArray,
    number: c_int,
    name: CString,
    filters: Vec<CFilter>,
    /// See [`lists_of`].
    sizes: Vec<u64>,
    masks: Vec<u32>,
}

#[repr(C)]
struct CFilter {
    id: u32,
    is_optional: u32,
    value_count: u32,
    reserved: u32,
    values: *const u32,
}

// SAFETY: the pointer is into the filters of the description beside it, which never change.
unsafe impl Send for CFilter {}
// SAFETY: as above.
unsafe impl Sync for CFilter {}

#[repr(C)]
struct CStoredArray {
    struct_size: usize,
    name: *const c_char,
    rank: i32,
    number: i32,
    shape: *const u64,
    element: u64,
    fill: *const c_void,
    file_size: u64,
    offset: u64,
    chunk: *const u64,
    chunk_count: u64,
    chunk_numbers: *const u64,
    chunk_addresses: *const u64,
    chunk_sizes: *const u64,
    chunk_masks: *const u32,
    filters: *const CFilter,
    filter_count: u32,
    unfiltered_edges: u32,
}

/// Offset of an array without storage.
const NOWHERE: u64 = u64::MAX;
/// Largest file size, which prevents overflow of chunk addresses.
const LARGEST_FILE: u64 = i64::MAX as u64;
const BIG: c_int = 256;
/// Limit for the number of filters, which keeps a forged number from reading far past a list. HDF5
/// allows 32.
const MOST_FILTERS: u32 = 64;

impl StoredDescription {
    fn new(array: StoredArray, number: c_int) -> StoredDescription {
        let filters = array.pipeline.filters.iter().map(|filter| CFilter {
            id: filter.id,
            is_optional: u32::from(filter.optional),
            value_count: filter.values.len() as u32,
            reserved: 0,
            values: filter.values.as_ptr(),
        });
        let (sizes, masks) = match &array.source {
            Source::Chunks(table) => lists_of(table, array.element.0),
            _ => Default::default(),
        };
        StoredDescription {
            filters: filters.collect(),
            sizes,
            masks,
            name: c_string(&array.name),
            number,
            array,
        }
    }
}

/// Returns the sizes and masks of all chunks if the table has one value for all, unless that value
/// is the default of an absent list.
fn lists_of(table: &ChunkTable, element: u64) -> (Vec<u64>, Vec<u32>) {
    let Some(entries) = table.entries() else {
        return Default::default();
    };
    let plain = table.grid().elements().checked_mul(element);
    let sizes = match entries.sizes {
        [size] if Some(*size) != plain => vec![*size; table.len()],
        _ => Vec::new(),
    };
    let masks = match entries.masks {
        [mask] if *mask != 0 => vec![*mask; table.len()],
        _ => Vec::new(),
    };
    (sizes, masks)
}

/// Returns the start of a list; null for an empty one.
fn start_of<T>(list: &[T]) -> *const T {
    if list.is_empty() {
        std::ptr::null()
    } else {
        list.as_ptr()
    }
}

/// Returns the format of a `penstock_number`; `None` for bytes that are only copied.
fn format_of(code: c_int) -> Result<Option<Format>> {
    let kind = code & !BIG;
    if kind == 0 {
        return Ok(None);
    }
    let at = usize::try_from(kind - 1).unwrap_or(usize::MAX);
    match Number::ALL.get(at) {
        Some(&number) => Ok(Some(Format {
            number,
            big: code & BIG != 0,
        })),
        None => Err(Error::invalid(format!("{code} is not a penstock_number"))),
    }
}

/// # Safety
/// As the header requires.
unsafe fn array_described(from: &CStoredArray) -> Result<StoredArray> {
    let rank = u64::try_from(from.rank)
        .ok()
        .filter(|rank| *rank <= H5S_MAX_RANK as u64)
        .ok_or_else(|| Error::invalid(format!("an array has no {} dimensions", from.rank)))?;
    if from.element == 0 || i64::try_from(from.element).is_err() {
        return Err(Error::invalid(format!(
            "an element has no {} bytes",
            from.element
        )));
    }
    if let Some(format) = format_of(from.number)?
        && !from.element.is_multiple_of(format.size() as u64)
    {
        return Err(Error::invalid(
            "the size of an element is not a multiple of the size of its numbers",
        ));
    }
    // SAFETY: by contract of this function, all pointers are null or to as many values as the struct
    // says.
    unsafe {
        let name = if from.name.is_null() {
            String::new()
        } else {
            CStr::from_ptr(from.name).to_string_lossy().into_owned()
        };
        let shape = list(from.shape, rank, "shape")?.to_vec();
        let length = bytes(&name, &shape, StoredSize(from.element))?;
        if from.filter_count > MOST_FILTERS {
            return Err(Error::invalid(format!("{} filters", from.filter_count)));
        }
        let filters = list(from.filters, u64::from(from.filter_count), "filters")?;
        let filters: Result<Vec<Filter>> = filters
            .iter()
            .map(|filter| {
                check_reserved(filter.reserved, "filter")?;
                let values = list(filter.values, u64::from(filter.value_count), "values")?;
                Ok(Filter {
                    id: filter.id,
                    optional: filter.is_optional != 0,
                    values: values.to_vec(),
                })
            })
            .collect();
        let pipeline = Pipeline { filters: filters? };
        let source = match from.chunk.is_null() {
            true if from.offset == NOWHERE => Source::Missing,
            true => {
                let end = from.offset.checked_add(length);
                if end.is_none_or(|end| end > LARGEST_FILE) {
                    let what = format!(
                        "{length} bytes at offset {} end past the largest offset",
                        from.offset
                    );
                    return Err(Error::invalid(what));
                }
                Source::Contiguous {
                    offset: from.offset,
                }
            }
            false => Source::Chunks(Arc::new(table_of(from, &shape, rank, &pipeline)?)),
        };
        let fill = optional_list(from.fill.cast::<u8>(), from.element, "fill")?;
        Ok(StoredArray {
            name,
            shape,
            element: StoredSize(from.element),
            source,
            pipeline,
            unfiltered_edges: from.unfiltered_edges != 0,
            fill: fill.map(<[u8]>::to_vec),
        })
    }
}

/// # Safety
/// As for [`array_described`].
unsafe fn table_of(
    from: &CStoredArray,
    shape: &[u64],
    rank: u64,
    pipeline: &Pipeline,
) -> Result<ChunkTable> {
    // SAFETY: by contract of this function.
    let (chunk, addresses) = unsafe {
        (
            list(from.chunk, rank, "chunk")?,
            optional_list(from.chunk_addresses, from.chunk_count, "chunk_addresses")?,
        )
    };
    let grid = ChunkGrid::new(shape, chunk)?;
    let plain = grid
        .elements()
        .checked_mul(from.element)
        .ok_or_else(|| Error::invalid("the chunks are too large"))?;
    let file_size = from.file_size.min(LARGEST_FILE);
    let Some(addresses) = addresses else {
        if from.offset == NOWHERE || from.chunk_count == 0 {
            return Ok(TableBuilder::new(grid, file_size).finish());
        }
        if !pipeline.filters.is_empty() {
            return Err(Error::invalid("chunks with filters need addresses"));
        }
        if from.chunk_count != grid.total() {
            return Err(Error::invalid(
                "chunks without addresses are not all chunks of the array",
            ));
        }
        return ChunkTable::in_order(grid, from.offset, plain, file_size);
    };
    // SAFETY: by contract of this function.
    let (numbers, sizes, masks) = unsafe {
        (
            optional_list(from.chunk_numbers, from.chunk_count, "chunk_numbers")?,
            optional_list(from.chunk_sizes, from.chunk_count, "chunk_sizes")?,
            optional_list(from.chunk_masks, from.chunk_count, "chunk_masks")?,
        )
    };
    let mut builder = TableBuilder::new(grid, file_size);
    for (at, address) in addresses.iter().enumerate() {
        let stored = StoredChunk {
            address: *address,
            size: sizes.map_or(plain, |sizes| sizes[at]),
            mask: masks.map_or(0, |masks| masks[at]),
        };
        builder.add_numbered(numbers.map_or(at as u64, |numbers| numbers[at]), stored)?;
    }
    Ok(builder.finish())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_stored_open(
    array: *const CStoredArray,
    stored: *mut *mut CStored,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        refuse_fork()?;
        let place = place_of(stored, "stored")?;
        let from = arguments(array, "stored_array")?.ok_or_else(|| null("array"))?;
        *place = STORED.insert(StoredDescription::new(array_described(from)?, from.number));
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_dataset_describe(dataset: hid_t, stored: *mut *mut CStored) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        refuse_fork()?;
        let place = place_of(stored, "stored")?;
        let array = transfer::describe(hdf5_of_process()?, dataset)?.map_err(|Refused(why)| {
            Error::new(Kind::Unavailable, why)
                .remedy("read it through HDF5, for instance by penstock_dataset_read")
        })?;
        *place = STORED.insert(StoredDescription::new(array, 0));
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_stored_describe(
    stored: *mut CStored,
    array: *mut CStoredArray,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        if array.is_null() {
            return Err(null("array"));
        }
        check_size(array.cast(), "stored_array")?;
        fill(array, STORED.get(stored)?.as_struct());
        Ok(())
    })
}

impl StoredDescription {
    /// Returns the C struct, whose pointers refer to this description.
    fn as_struct(&self) -> CStoredArray {
        let array = &self.array;
        let mut shown = CStoredArray {
            struct_size: size_of::<CStoredArray>(),
            name: self.name.as_ptr(),
            rank: array.shape.len() as i32,
            number: self.number,
            shape: array.shape.as_ptr(),
            element: array.element.0,
            fill: array
                .fill
                .as_ref()
                .map_or(std::ptr::null(), |fill| fill.as_ptr().cast()),
            file_size: u64::MAX,
            offset: NOWHERE,
            chunk: std::ptr::null(),
            chunk_count: 0,
            chunk_numbers: std::ptr::null(),
            chunk_addresses: std::ptr::null(),
            chunk_sizes: std::ptr::null(),
            chunk_masks: std::ptr::null(),
            filters: start_of(&self.filters),
            filter_count: self.filters.len() as u32,
            unfiltered_edges: u32::from(array.unfiltered_edges),
        };
        match &array.source {
            Source::Contiguous { offset } => shown.offset = *offset,
            Source::Chunks(table) => {
                shown.chunk = table.grid().chunk().as_ptr();
                shown.chunk_count = table.len() as u64;
                shown.file_size = table.file_size();
                shown.offset = table.first().unwrap_or(NOWHERE);
                if let Some(entries) = table.entries() {
                    shown.chunk_numbers = start_of(entries.numbers);
                    shown.chunk_addresses = start_of(entries.addresses);
                    // A value for all chunks is expanded, unless it is the default of an absent
                    // list.
                    shown.chunk_sizes = start_of(match entries.sizes {
                        [_] => &self.sizes,
                        all => all,
                    });
                    shown.chunk_masks = start_of(match entries.masks {
                        [_] => &self.masks,
                        all => all,
                    });
                }
            }
            _ => {}
        }
        shown
    }

    /// Returns the conversion of numbers, and the size of an element in memory.
    fn conversion(
        &self,
        memory: c_int,
        operation: Operation,
    ) -> Result<(TypeConversion, MemorySize)> {
        let (stored, element) = (format_of(self.number)?, self.array.element);
        let Some((stored, memory)) = stored.zip(format_of(memory)?) else {
            return Ok((TypeConversion::Copy, MemorySize(element.0)));
        };
        let conversion = match operation {
            Operation::Read => TypeConversion::between(stored, memory),
            Operation::Write => TypeConversion::between(memory, stored),
        };
        let count = element.0 / stored.size() as u64;
        let bytes = count.checked_mul(memory.size() as u64).ok_or_else(|| {
            Error::invalid(format!(
                "an element of {count} numbers is too large in memory"
            ))
        })?;
        Ok((conversion, MemorySize(bytes)))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_stored_close(stored: *mut CStored) -> c_int {
    guard(|| STORED.close(stored))
}

/// The stored array, the selection and the memory of a transfer, and its submit options.
pub(crate) type TransferArguments = (
    *mut CStored,
    *const CSelection,
    *const CArray,
    SubmitArguments,
);

/// Prepares a transfer by `prepare`. Also returns the address of the memory and the submit
/// options.
///
/// # Safety
/// As the header requires.
pub(crate) unsafe fn prepare<T>(
    operation: Operation,
    (stored, selection, array, submit): TransferArguments,
    prepare: impl FnOnce(ArrayTransfer<'_>) -> Result<T>,
) -> Result<(T, usize, SubmitOptions)> {
    refuse_fork()?;
    let description = STORED.get(stored)?;
    let stored = &description.array;
    let of_points = |rank, points: &[u64]| transfer::points_of(&stored.shape, rank, points);
    // SAFETY: by contract of this function.
    let (array, selection, with) = unsafe {
        (
            array_of(array)?,
            selection_of(selection, of_points)?,
            submit_options(submit)?,
        )
    };
    if array.decode.is_some() {
        return Err(Error::invalid(
            "only a read of an open dataset decodes packed numbers",
        ));
    }
    let number = c_int::try_from(array.element)
        .map_err(|_| Error::invalid("the type of the array is not a penstock_number"))?;
    let (conversion, element) = description.conversion(number, operation)?;
    let prepared = prepare(ArrayTransfer {
        array: stored,
        selection: selection.unwrap_or_else(|| Selection::all(&stored.shape)),
        shape: array.shape,
        strides: array.strides,
        conversion,
        element,
        options: with.options,
    })?;
    Ok((prepared, array.address, with))
}

read_and_write! {
    fn penstock_stored_read_submit, penstock_stored_write_submit(
        operation,
        file: *mut CFile,
        stored: *mut CStored,
        selection: *const CSelection,
        array: *const CArray,
        options: *const COptions,
        stream: *mut c_void,
        flags: c_int,
        request: *mut *mut CRequest,
    ) {
        // SAFETY: by contract of this function.
        guard(|| unsafe {
            let place = place_of(request, "request")?;
            let file = file_of(file)?;
            let arguments = (stored, selection, array, (options, stream, flags));
            let prepared = prepare(operation, arguments, |transfer| match operation {
                Operation::Read => transfer.read(Arc::clone(&file)),
                Operation::Write => transfer.write_in_place(Arc::clone(&file)),
            });
            let (prepared, address, with) = prepared?;
            store(place, AnyRequest::Plain(submit(prepared, address, None, with)?));
            Ok(())
        })
    }
}
