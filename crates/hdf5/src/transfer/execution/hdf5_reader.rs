//! Small reads that HDF5 carries out in less time than a transfer takes to plan.

use penstock_array::execute::SubmitOptions;
use penstock_array::{Axis, Holes, Selection};
use penstock_engine::error::Result;
use penstock_engine::options::RouteName;
use penstock_engine::report::{Counters, Path, Report};
use penstock_engine::request::{
    LEAST_TRANSFER, LEAST_TRANSFER_OF_ROWS, MOST_AT_ONCE, MOST_OF_WAITER,
};
use penstock_sys::hdf5::{H5P_DEFAULT, Hdf5, hid_t};
use std::time::Instant;

use super::wait_for_dataset;
use crate::conversion::byte_order;
use crate::dataset::{DatasetInfo, Layout, MemoryType, dataspace};
use crate::library::Session;
use crate::transfer::cache::is_read_alike;
use crate::transfer::conflicts::Access;
use crate::transfer::hdf5_state::chunk_cache_of;
use crate::transfer::request::{Buffer, Hdf5Selection, OWN_TYPE};

/// What the report of such a read says.
const NOTE: &str = "small read: HDF5 is faster at this size";

/// Reads small parts of a dataset, which may change, by HDF5.
pub(super) struct Hdf5Reader {
    hdf5: &'static Hdf5,
    dataset: hid_t,
    /// The size of an element in the file.
    stored: u64,
    /// The size of an element in memory.
    memory: u64,
    chunks: Option<Chunks>,
    /// Whether rows are copied from the file as they are.
    copies_rows: bool,
    is_virtual: bool,
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

impl Hdf5Reader {
    /// Returns a reader of elements of a type in memory. There is none if HDF5 cannot read the dataset, or
    /// converts the elements wrongly.
    pub(super) fn of(
        session: &Session<'static>,
        dataset: hid_t,
        memory_type: hid_t,
        info: &DatasetInfo,
    ) -> Option<Hdf5Reader> {
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
        let is_same = session.are_equal(stored_type.get(), memory_type).ok()?;
        Some(Hdf5Reader {
            hdf5: session.hdf5,
            dataset,
            stored: info.element.size().0,
            memory: memory.size().0,
            chunks,
            copies_rows: is_same && info.filters.is_empty() && !is_virtual,
            is_virtual,
        })
    }

    /// Returns the shape that the dataset has now.
    pub(super) fn shape(&self, session: &Session<'_>) -> Result<Vec<u64>> {
        let space = session.space_of(self.dataset)?;
        Ok(dataspace::extent(session, space.get())?.0)
    }

    /// Reads elements of type `memory_type` into dense host memory. `None` if they are not few, or if HDF5
    /// fails: the transfer that the caller then starts has the error. An unknown part of the memory has then
    /// changed.
    ///
    /// # Safety
    /// This thread may call HDF5. The dataset is open. The buffer is valid for the elements.
    pub(super) unsafe fn read(
        &self,
        session: &Session<'static>,
        (selection, shape): (&Selection, &[u64]),
        (memory_type, buffer): (hid_t, &Buffer),
        with: &SubmitOptions,
    ) -> Result<Option<Report>> {
        let began = Instant::now();
        let Some(bytes) = self.small_bytes(selection, shape) else {
            return Ok(None);
        };
        // SAFETY: upheld by the caller.
        unsafe {
            wait_for_dataset(self.hdf5, self.dataset, Access::Read)?;
            if self.is_virtual && !is_read_alike(self.hdf5, self.dataset, Some(selection.clone()))?
            {
                return Ok(None);
            }
        }
        let moved = Hdf5Selection::of_elements(session, shape, selection)?;
        if moved.taken.is_some() {
            return Ok(None);
        }
        let own = session.type_of(self.dataset)?;
        let memory_type = if memory_type == OWN_TYPE {
            own.get()
        } else {
            memory_type
        };
        let space = session.simple_space(&[bytes / self.memory])?;
        let address = buffer.address as *mut u8;
        // SAFETY: the caller vouches for the memory, and holds what HDF5 needs.
        let status = unsafe {
            if with.holes == Holes::Zero {
                address.write_bytes(0, bytes as usize);
            }
            let (hdf5, from) = (self.hdf5, moved.space.id());
            let to = space.get();
            (hdf5.H5Dread)(
                self.dataset,
                memory_type,
                to,
                from,
                H5P_DEFAULT,
                address.cast(),
            )
        };
        if status < 0 {
            return Ok(None);
        }
        let counters = Counters::default();
        counters.moved(Path::Hdf5, bytes);
        counters.note(NOTE);
        let elapsed = began.elapsed().as_nanos() as u64;
        Ok(Some(counters.report(RouteName::Hdf5, -1, 0, elapsed)))
    }

    /// Returns the bytes of the elements in memory, if they are few: few bytes, rows that HDF5 copies, or up
    /// to half of one chunk, which HDF5 then caches.
    fn small_bytes(&self, selection: &Selection, shape: &[u64]) -> Option<u64> {
        let Selection::Grid(axes) = selection else {
            return None;
        };
        let is_regular = axes.iter().all(|axis| matches!(axis, Axis::Slab { .. }));
        let count = selection.elements().filter(|count| *count > 0)?;
        if !is_regular || selection.check(shape).is_err() {
            return None;
        }
        let stored = count.checked_mul(self.stored)?;
        let bytes = count.checked_mul(self.memory)?;
        let is_few = match &self.chunks {
            Some(chunks) => {
                let touched = selection.touched_chunks(&chunks.shape);
                let is_part = touched == 1 && chunks.are_kept() && 2 * stored <= chunks.bytes;
                is_part || self.is_short(stored, axes, shape) && chunks.are_few(touched)
            }
            None => self.is_short(stored, axes, shape),
        };
        (is_few && bytes <= MOST_OF_WAITER).then_some(bytes)
    }

    fn is_short(&self, bytes: u64, axes: &[Axis], shape: &[u64]) -> bool {
        let is_whole = |(axis, size): (&Axis, &u64)| *axis == Axis::all(*size);
        let are_rows = || {
            self.copies_rows
                && axes[0].as_range().is_some()
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
