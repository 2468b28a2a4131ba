//! Reads of one dataset that need no description of it each time.

use penstock_array::Selection;
use penstock_array::execute::SubmitOptions;
use penstock_codec::convert::DecodeRules;
use penstock_engine::error::Result;
use penstock_engine::file::position::Operation;
use penstock_engine::report::Report;
use penstock_sys::hdf5::{H5T_FLOAT, H5T_INTEGER, Hdf5, hid_t};

use super::cached_reader::{CachedReader, PlannedRead};
use super::handle::TransferHandle;
use super::small_by_hdf5::{ElementMemory, SmallByHdf5};
use crate::dataset::{Common, DatasetInfo, MachineNumber, TouchedChunks, dataspace};
use crate::library::Session;
use crate::transfer::cache::CachedDataset;
use crate::transfer::hdf5_state::inside;
use crate::transfer::request::{Buffer, OWN_TYPE, ReadShape};

/// Reads elements of one type of a dataset, and writes few, as often as wanted.
pub struct Reader {
    hdf5: &'static Hdf5,
    dataset: hid_t,
    /// For a dataset that cannot change.
    cached: Option<CachedReader>,
    /// For small reads of a dataset that may change, that only HDF5 can read, or whose chunks are not listed yet.
    by_hdf5: Option<SmallByHdf5>,
    rank: usize,
    number: Option<MachineNumber>,
}

impl Reader {
    /// Returns a reader of elements of a type in memory, or of [`OWN_TYPE`](crate::transfer::OWN_TYPE), decoded if
    /// rules are given. `None` if each read takes [`start`](super::start), which also reports what is wrong with
    /// the arguments.
    ///
    /// # Safety
    /// This thread may call HDF5.
    pub unsafe fn open(
        hdf5: &'static Hdf5,
        dataset: hid_t,
        (memory_type, decode): (hid_t, Option<DecodeRules>),
    ) -> Option<Reader> {
        inside(hdf5, || {
            // SAFETY: the caller may call HDF5, and no other thread calls it meanwhile.
            let session = unsafe { Session::begin(hdf5) };
            if memory_type == OWN_TYPE && !has_numbers(&session, dataset) {
                return None; // before anything is described
            }
            let described = CachedDataset::of(&session, dataset);
            let wanted = (memory_type, decode);
            let of_cached = |known| CachedReader::of(&session, dataset, wanted, known);
            let cached = described.as_ref().and_then(of_cached);
            let read;
            let info = match &described {
                Some(known) => &known.info,
                None => {
                    // HDF5 looks for the name of a dataset without one in the whole file.
                    let name = Some(String::new());
                    read = DatasetInfo::read_among(&session, dataset, name, &mut Common::default())
                        .ok()?
                        .0;
                    &read
                }
            };
            let is_planned = cached.as_ref().is_some_and(CachedReader::knows_chunks);
            let by_hdf5 = if is_planned || decode.is_some() {
                None
            } else {
                SmallByHdf5::of(&session, dataset, memory_type, info)
            };
            let is_any = cached.is_some() || by_hdf5.is_some();
            is_any.then(|| Reader {
                hdf5,
                dataset,
                rank: info.shape.len(),
                number: info.element.form().machine_number(),
                cached,
                by_hdf5,
            })
        })
    }

    /// Returns the number of dimensions.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number that an element in the file is, if it is one of the machine's.
    pub fn number(&self) -> Option<MachineNumber> {
        self.number
    }

    /// Returns the shape of the dataset, if it cannot change.
    pub fn fixed_shape(&self) -> Option<&[u64]> {
        self.cached.as_ref().map(CachedReader::shape)
    }

    /// Returns whether [`transfer_by_hdf5`](Self::transfer_by_hdf5) may move anything.
    pub fn may_call_hdf5(&self) -> bool {
        self.by_hdf5.is_some()
    }

    /// Returns the shape that the dataset has now.
    ///
    /// # Safety
    /// This thread may call HDF5.
    pub unsafe fn shape(&self) -> Result<Vec<u64>> {
        // SAFETY: upheld by the caller.
        self.shape_in(&unsafe { Session::begin(self.hdf5) })
    }

    fn shape_in(&self, session: &Session<'_>) -> Result<Vec<u64>> {
        if let Some(fixed) = self.fixed_shape() {
            return Ok(fixed.to_vec());
        }
        let space = session.space_of(self.dataset)?;
        Ok(dataspace::extent(session, space.get())?.0)
    }

    /// Returns in how many pieces of the file this number of bytes lies, if they are elements as they
    /// are stored and without filters: as many as they would fill chunks, or one if the dataset is
    /// contiguous. 0 if there are no such pieces, or if the dataset may change.
    pub fn pieces(&self, bytes: u64) -> u64 {
        let cached = self.cached.as_ref();
        cached.map_or(0, |cached| cached.pieces(bytes))
    }

    /// Returns whether reads by the cache are all refused because its entry was dropped.
    pub fn is_forgotten(&self) -> bool {
        self.cached.as_ref().is_some_and(CachedReader::is_forgotten)
    }

    /// Returns whether the file is open, in a file system that has reads which do not wait.
    pub fn has_open_file(&self) -> bool {
        let cached = self.cached.as_ref();
        cached.is_some_and(CachedReader::has_open_file)
    }

    /// Returns an error if HDF5 has closed the file.
    pub fn check_open(&self) -> Result<()> {
        self.cached
            .as_ref()
            .map_or(Ok(()), CachedReader::check_open)
    }

    /// Plans a read of at most [`MOST_OF_WAITER`](penstock_engine::request::MOST_OF_WAITER) bytes, without HDF5.
    /// `None` for longer reads, for reads of which this thread may have to run steps, and of a dataset that may
    /// change. HDF5 may close the dataset before the read.
    pub fn plan(
        &self,
        read: ReadShape<'_>,
        buffer: &Buffer,
        with: &SubmitOptions,
    ) -> Option<PlannedRead> {
        self.cached.as_ref()?.plan(read, buffer, with)
    }

    /// Has HDF5 move few elements: those of a read that is not planned, or of a write. `None` if they are not few,
    /// and if the memory is not dense.
    ///
    /// # Safety
    /// This thread may call HDF5. The dataset and the type in memory are open. The buffer is valid for the elements.
    pub unsafe fn transfer_by_hdf5(
        &self,
        part: ReadShape<'_>,
        memory: ElementMemory<'_>,
        with: &SubmitOptions,
    ) -> Result<Option<Report>> {
        let (selection, shape, strides) = part;
        let is_known = memory.buffer.address != 0;
        let Some(by_hdf5) = self.by_hdf5.as_ref().filter(|_| is_known) else {
            return Ok(None);
        };
        let is_write = memory.operation == Operation::Write;
        let is_on_gpu = memory.buffer.memory.context.is_some();
        if strides.is_some() || is_write && (is_on_gpu || self.cached.is_some()) {
            return Ok(None);
        }
        // SAFETY: upheld by the caller.
        let session = unsafe { Session::begin(self.hdf5) };
        let extent = self.shape_in(&session)?;
        let all = Selection::all(&extent);
        let selection = selection.unwrap_or(&all);
        if selection.elements() != shape.iter().copied().try_fold(1, u64::checked_mul) {
            return Ok(None); // the transfer says what is wrong
        }
        if let Some(cached) = &self.cached {
            if !self.lists_chunks(&session, cached, selection) {
                return Ok(None);
            }
            if let Some(planned) = self.plan(part, memory.buffer, with) {
                // SAFETY: upheld by the caller.
                return unsafe { planned.run().map(Some) };
            }
        }
        // SAFETY: upheld by the caller.
        unsafe { by_hdf5.transfer(&session, (selection, &extent), memory, with) }
    }

    /// Lists the chunks of a dataset that cannot change if HDF5 has read as much of it as takes as long. Returns
    /// false if the dataset is not for readers.
    fn lists_chunks(
        &self,
        session: &Session<'_>,
        reader: &CachedReader,
        selection: &Selection,
    ) -> bool {
        let cached = &reader.cached;
        let touched = TouchedChunks::of(selection, cached.info.chunk(), 0);
        if cached.is_forgotten() {
            return false;
        }
        reader.knows_chunks()
            || cached.is_for_hdf5(touched)
            || inside(self.hdf5, || cached.list_chunks(session, self.dataset)).is_some()
    }

    /// Starts a read of at most [`MOST_OF_WAITER`](penstock_engine::request::MOST_OF_WAITER) bytes, without HDF5.
    /// `None` for longer reads, for reads that a pending operation precedes, while a stream waits for a request, and
    /// of a dataset that may change. Later operations of HDF5 wait for it.
    ///
    /// # Errors
    /// The request cannot be started.
    ///
    /// # Safety
    /// The destination is valid, and nothing else accesses it, until the request has finished. The stream
    /// is valid until the call returns.
    pub unsafe fn start(
        &self,
        read: ReadShape<'_>,
        buffer: &Buffer,
        with: SubmitOptions,
    ) -> Result<Option<TransferHandle>> {
        match &self.cached {
            // SAFETY: upheld by the caller.
            Some(cached) => unsafe { cached.start(read, buffer, with) },
            None => Ok(None),
        }
    }
}

fn has_numbers(session: &Session<'_>, dataset: hid_t) -> bool {
    session.type_of(dataset).is_ok_and(|own| {
        // SAFETY: takes an owned identifier.
        let class = unsafe { (session.hdf5.H5Tget_class)(own.get()) };
        matches!(class, H5T_INTEGER | H5T_FLOAT)
    })
}
