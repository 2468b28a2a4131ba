//! Small reads and writes that HDF5 carries out in less time than a transfer takes to plan.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use penstock_array::execute::SubmitOptions;
use penstock_array::{Axis, Holes, Selection, in_dataset};
use penstock_codec::Filter;
use penstock_codec::filters::id;
use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::options::RouteName;
use penstock_engine::report::{Counters, Path, Report};
use penstock_engine::request::{
    AtOnce, LEAST_TRANSFER, LEAST_TRANSFER_OF_ROWS, MOST_AT_ONCE, MOST_OF_WAITER,
};
use penstock_sys::hdf5::{H5P_DEFAULT, Hdf5, hid_t};

use super::cached_reader::preceding_stream;
use super::wait_for_dataset;
use crate::conversion::byte_order;
use crate::dataset::{DatasetInfo, FileInfo, Fill, Layout, MemoryType, name_of};
use crate::library::{Id, Session};
use crate::transfer::cache::is_read_alike;
use crate::transfer::conflicts::Access;
use crate::transfer::hdf5_state::chunk_cache_of;
use crate::transfer::request::{Buffer, Hdf5Selection, OWN_TYPE};

/// The most runs of consecutive indices in a list. HDF5 takes 1 us for each, and reads 256 rows in 0.7 of the time
/// of a transfer.
const MOST_RUNS: usize = 256;

/// The most runs of rows that HDF5 copies: 290 rows of 1 KiB take it 0.2 ms, and a transfer 0.6.
const MOST_RUNS_OF_ROWS: u64 = 1024;

/// The same in chunks, where HDF5 takes 13 to 19 us for each run.
const MOST_RUNS_OF_CHUNKS: u64 = 64;

/// Moves small parts of a dataset, which may change, by HDF5.
pub(super) struct SmallByHdf5 {
    hdf5: &'static Hdf5,
    dataset: hid_t,
    /// The size of an element in the file.
    stored: u64,
    /// The size of an element in memory.
    memory: u64,
    chunks: Option<Chunks>,
    /// Whether rows are copied as they are.
    copies_rows: bool,
    /// Whether the elements are numbers.
    are_numbers: bool,
    /// Whether they are, and each is stored or has a fill value.
    fills_numbers: bool,
    is_virtual: bool,
    writes: bool,
    file: Arc<FileInfo>,
    /// The elements that transfers have read, and written, although HDF5's cache holds the dataset.
    left: [AtomicU64; 2],
}

/// An operation, and the HDF5 type and the memory of the elements.
#[derive(Clone, Copy)]
pub struct ElementMemory<'a> {
    /// Direction.
    pub operation: Operation,
    /// The type of an element, or [`OWN_TYPE`].
    pub element: hid_t,
    /// The memory.
    pub buffer: &'a Buffer,
}

/// The chunks of a dataset.
struct Chunks {
    shape: Vec<u64>,
    /// Bytes of a decoded chunk.
    bytes: u64,
    /// Bytes of HDF5's cache of decoded chunks.
    cache: u64,
    is_filtered: bool,
}

impl SmallByHdf5 {
    /// For elements of a type in memory. `None` if HDF5 cannot decode the dataset, or converts the elements
    /// wrongly.
    pub(super) fn of(
        session: &Session<'static>,
        dataset: hid_t,
        memory_type: hid_t,
        info: &DatasetInfo,
    ) -> Option<SmallByHdf5> {
        let stored_type = session.type_of(dataset).ok()?;
        let memory_type = if memory_type == OWN_TYPE {
            info.element.form().machine_number()?;
            stored_type.get()
        } else {
            memory_type
        };
        let memory = MemoryType::read(session, memory_type).ok()?;
        let is_sound = !byte_order::is_unsound(&memory, &info.element)
            && info.filters.iter().all(|f| session.has_filter(f.id));
        if info.is_null || info.shape.is_empty() || !is_sound {
            return None;
        }
        let chunks = match &info.layout {
            Layout::Chunked { chunk, .. } => Some(Chunks {
                shape: chunk.clone(),
                bytes: info.chunk_bytes(),
                cache: chunk_cache_of(session, dataset).ok()?,
                is_filtered: !info.filters.is_empty(),
            }),
            _ => None,
        };
        let is_virtual = matches!(info.layout, Layout::Virtual(_));
        let is_filled = matches!(info.fill, Fill::Value(_));
        let is_stored = matches!(info.layout, Layout::Contiguous { offset: Some(_) });
        let are_numbers = info.element.form().machine_number().is_some();
        let is_same = session.are_equal(stored_type.get(), memory_type).ok()?;
        Some(SmallByHdf5 {
            hdf5: session.hdf5,
            dataset,
            stored: info.element.size().0,
            memory: memory.size().0,
            chunks,
            copies_rows: is_same && info.filters.is_empty() && !is_virtual,
            are_numbers,
            fills_numbers: are_numbers && (is_stored || is_filled),
            is_virtual,
            writes: info.file.is_writable && !is_virtual && !may_mix_masks(info),
            file: Arc::clone(&info.file),
            left: Default::default(),
        })
    }

    /// Moves elements between the dataset and dense memory, that of a GPU only for reads of numbers. `None` if they are
    /// not few, or if work of a stream precedes the read and is not done.
    ///
    /// # Errors
    /// The failure of HDF5, which may be that of a chunk which it had to write first: nothing reports that
    /// again. An unknown part of the destination has then changed.
    ///
    /// # Safety
    /// This thread may call HDF5. The dataset is open. The buffer is valid for the elements.
    pub(super) unsafe fn transfer(
        &self,
        session: &Session<'static>,
        (selection, shape): (&Selection, &[u64]),
        memory: ElementMemory<'_>,
        with: &SubmitOptions,
    ) -> Result<Option<Report>> {
        let began = Instant::now();
        let Some(bytes) = self.small_bytes(selection, shape, memory.operation) else {
            return Ok(None);
        };
        let access = match memory.operation {
            Operation::Read => Access::Read,
            Operation::Write if !self.writes => return Ok(None),
            Operation::Write => Access::Write,
        };
        let is_on_gpu = memory.buffer.memory.context.is_some();
        let into_gpu = self.gpu_read(memory, bytes, with);
        if into_gpu.is_some() != is_on_gpu || (!is_on_gpu && with.stream.is_some()) {
            return Ok(None);
        }
        // SAFETY: upheld by the caller.
        unsafe {
            wait_for_dataset(self.hdf5, self.dataset, access)?;
            if self.is_virtual && !is_read_alike(self.hdf5, self.dataset, Some(selection.clone()))?
            {
                return Ok(None);
            }
        }
        let moved = Hdf5Selection::of_elements(session, shape, selection)?;
        if moved.taken.is_some() {
            return Ok(None);
        }
        let own = match memory.element {
            OWN_TYPE => Some(session.type_of(self.dataset)?),
            _ => None,
        };
        let element = own.as_ref().map_or(memory.element, Id::get);
        // SAFETY: takes an identifier, which HDF5 checks.
        if unsafe { (self.hdf5.H5Tget_size)(element) } as u64 != self.memory {
            let cause = "the type of the array is not that of the reader";
            return Err(Error::invalid(cause));
        }
        // HDF5 matches elements one by one where the memory has other dimensions than the selection.
        let in_memory = session.simple_space(&moved.shape)?;
        let (hdf5, dataset) = (self.hdf5, self.dataset);
        let (to, from) = (in_memory.get(), moved.space.id());
        // HDF5 may call code of the program, so nothing of the GPU's is held meanwhile.
        let mut temporary = into_gpu.as_ref().map(|_| vec![0u8; bytes as usize]);
        let address = match &mut temporary {
            Some(temporary) => temporary.as_mut_ptr(),
            None => memory.buffer.address as *mut u8,
        };
        // SAFETY: the caller vouches for the memory, and holds what HDF5 needs.
        let (status, action, note) = unsafe {
            match memory.operation {
                Operation::Read => {
                    if with.holes == Holes::Zero && !is_on_gpu {
                        address.write_bytes(0, bytes as usize);
                    }
                    let read = hdf5.H5Dread;
                    let status = read(dataset, element, to, from, H5P_DEFAULT, address.cast());
                    (
                        status,
                        "read the dataset",
                        "small read: HDF5 is faster at this size",
                    )
                }
                Operation::Write => {
                    let write = hdf5.H5Dwrite;
                    let status = write(dataset, element, to, from, H5P_DEFAULT, address.cast());
                    (
                        status,
                        "write the dataset",
                        "small write: HDF5 is faster at this size",
                    )
                }
            }
        };
        session.check(status, action).map_err(|error| {
            let name = name_of(session, dataset).unwrap_or_default();
            in_dataset(error, &name).in_file(&self.file.name)
        })?;
        let counters = Counters::default();
        counters.note(note);
        counters.moved(Path::Hdf5, bytes);
        let device = memory.buffer.memory.device;
        if let (Some(prepared), Some(temporary)) = (into_gpu, temporary) {
            // SAFETY: the caller vouches for the memory.
            unsafe { prepared.copy(&temporary, &counters)? };
        }
        let elapsed = began.elapsed().as_nanos() as u64;
        Ok(Some(counters.report(RouteName::Hdf5, device, 0, elapsed)))
    }

    /// Prepares the copy of a read to GPU memory. `None` if it would replace elements that HDF5 leaves as they are.
    fn gpu_read(
        &self,
        memory: ElementMemory<'_>,
        bytes: u64,
        with: &SubmitOptions,
    ) -> Option<AtOnce> {
        let fills = self.fills_numbers || self.are_numbers && with.holes == Holes::Zero;
        let after = preceding_stream(with)?;
        let place = (memory.buffer.address, bytes);
        // Of a virtual dataset that is open, HDF5 does not see that a source has another extent.
        (fills && !self.is_virtual)
            .then(|| AtOnce::into_gpu(&memory.buffer.memory, place, after))
            .flatten()
    }

    /// Returns the bytes of the elements in memory, if they are few: few bytes, rows that HDF5 copies, up to
    /// half of one chunk, which HDF5 then caches, or any of a dataset that its cache holds, after all of it:
    /// workers decode and encode chunks sooner, and HDF5 keeps them decoded.
    fn small_bytes(
        &self,
        selection: &Selection,
        shape: &[u64],
        operation: Operation,
    ) -> Option<u64> {
        let Selection::Grid(axes) = selection else {
            return None;
        };
        let are_few = |axis: &Axis| match axis {
            Axis::Slab { .. } => true,
            Axis::Runs(runs) => runs.len() <= MOST_RUNS,
        };
        let count = selection.elements().filter(|count| *count > 0)?;
        if !axes.iter().all(are_few) || selection.check(shape).is_err() {
            return None;
        }
        let stored = count.checked_mul(self.stored)?;
        let bytes = count.checked_mul(self.memory)?;
        let is_few = match &self.chunks {
            Some(chunks) => {
                let touched = selection.touched_chunks(&chunks.shape);
                let is_part = touched == 1 && chunks.are_kept() && 2 * stored <= chunks.bytes;
                is_part
                    || self.is_short(stored, axes, shape) && chunks.are_few(touched)
                    || chunks.are_all_kept(shape)
                        && axes[0].run_count() <= MOST_RUNS_OF_CHUNKS
                        && self.is_again(operation, count, shape)
            }
            None => self.is_short(stored, axes, shape),
        };
        (is_few && bytes <= MOST_OF_WAITER).then_some(bytes)
    }

    /// Whether transfers have read, or written, as many elements as the dataset has.
    fn is_again(&self, operation: Operation, count: u64, shape: &[u64]) -> bool {
        let all = shape.iter().product();
        let left = &self.left[(operation == Operation::Write) as usize];
        let is_again = left.load(Ordering::Relaxed) >= all;
        if !is_again {
            left.fetch_add(count, Ordering::Relaxed);
        }
        is_again
    }

    fn is_short(&self, bytes: u64, axes: &[Axis], shape: &[u64]) -> bool {
        let is_whole = |(axis, size): (&Axis, &u64)| *axis == Axis::all(*size);
        let most = match self.chunks {
            Some(_) => MOST_RUNS_OF_CHUNKS,
            None => MOST_RUNS_OF_ROWS,
        };
        let are_rows = || {
            self.copies_rows
                && axes[0].run_count() <= most
                && axes.iter().zip(shape).skip(1).all(is_whole)
        };
        bytes <= LEAST_TRANSFER || (bytes <= LEAST_TRANSFER_OF_ROWS && are_rows())
    }
}

impl Chunks {
    /// Whether HDF5 keeps a chunk that it has decoded.
    fn are_kept(&self) -> bool {
        self.bytes <= self.cache
    }

    /// Whether HDF5 keeps all chunks of a dataset of this shape, decoded.
    fn are_all_kept(&self, shape: &[u64]) -> bool {
        let counts = shape.iter().zip(&self.shape).map(|(n, c)| n.div_ceil(*c));
        let all = counts.fold(self.bytes, u64::saturating_mul);
        self.is_filtered && all <= self.cache
    }

    /// Whether HDF5 reads few elements of this number of chunks sooner than workers. It reads and decodes
    /// chunk after chunk, and all of each, however few elements of it are selected; it keeps what fits its
    /// cache. Of a chunk that it can neither keep nor must decode, it reads the selected elements alone.
    fn are_few(&self, touched: u64) -> bool {
        let bytes = touched.saturating_mul(self.bytes);
        if touched < 2 || bytes <= MOST_AT_ONCE {
            true
        } else if self.are_kept() {
            bytes <= self.cache
        } else {
            !self.is_filtered
        }
    }
}

/// Returns whether HDF5 may give chunks of one length different filter masks. It skips an optional filter that
/// fails on a chunk, but records that only where the length of the chunk changes. Penstock writes the chunks
/// of such a dataset itself, and makes sure of their masks.
fn may_mix_masks(info: &DatasetInfo) -> bool {
    /// Output that is exactly as long as a larger chunk is too rare to decode and encode that chunk for each
    /// small write.
    const SMALL_CHUNK: u64 = 64 << 10;
    let varying = info.filters.iter().filter(|f| !has_fixed_length(f.id));
    let fails = info.filters.iter().any(|f| f.optional && may_fail(f));
    fails && (varying.count() > 1 || info.chunk_bytes() <= SMALL_CHUNK)
}

/// Whether a filter gives all chunks of a dataset one length.
fn has_fixed_length(filter: u32) -> bool {
    matches!(filter, id::SHUFFLE | id::FLETCHER32 | id::NBIT)
}

/// Whether a filter may fail on a chunk, and its output varies in length.
fn may_fail(filter: &Filter) -> bool {
    /// The level of deflate at which the output of zlib-ng may be longer than HDF5 has room for. At the
    /// others, as by zlib at all levels, incompressible data are stored with a few bytes more.
    const FASTEST: u32 = 1;
    match filter.id {
        id::DEFLATE => filter.values.first() == Some(&FASTEST),
        id::SCALEOFFSET | id::LZ4 | id::BITSHUFFLE | id::ZSTD => false,
        other => !has_fixed_length(other),
    }
}
