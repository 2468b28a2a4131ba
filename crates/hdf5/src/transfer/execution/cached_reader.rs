//! Reads of datasets that cannot change, planned without HDF5. The calling thread carries out small
//! ones alone, and others with workers.

use std::sync::Arc;

use penstock_array::execute::{
    self, Beforehand, PreparedTransfer, SmallRead, SmallReadOrder, SubmitOptions, TransferKind,
};
use penstock_array::{MemorySide, Plan, Selection, StoredArray};
use penstock_codec::convert::DecodeRules;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::memory::Memory;
use penstock_engine::options::Options;
use penstock_engine::report::Report;
use penstock_engine::request::{MOST_OF_WAITER, MOST_WORK_OF_WAITER, Request, Waited};
use penstock_engine::{Stream, any_stream_waits, merged_options};
use penstock_sys::hdf5::{H5S_ALL, Hdf5, hid_t};

use super::handle::TransferHandle;
use crate::conversion::Conversion;
use crate::dataset::{Layout, MemoryType, TouchedChunks};
use crate::library::Session;
use crate::transfer::cache::CachedDataset;
use crate::transfer::conflicts::{Access, AccessSet, Region, has_before};
use crate::transfer::hdf5_state::{has_nothing_pending, inside};
use crate::transfer::request::{
    Buffer, DatasetTransfer, FileSelection, MemoryShape, OWN_TYPE, ReadShape, bound,
};

/// Plans reads of one dataset that cannot change, without calling HDF5.
pub(super) struct CachedReader {
    hdf5: &'static Hdf5,
    pub(super) cached: Arc<CachedDataset>,
    conversion: Conversion,
}

impl CachedReader {
    /// Returns a reader of elements of type `memory_type`, decoded by `decode` if given. There is none if only HDF5
    /// can read the dataset, or if it has an error, which [`start`](super::start) reports.
    pub(super) fn of(
        session: &Session<'static>,
        dataset: hid_t,
        (memory_type, decode): (hid_t, Option<DecodeRules>),
        cached: &Arc<CachedDataset>,
    ) -> Option<CachedReader> {
        if cached.info.only_hdf5_filters().is_some() {
            return None;
        }
        let conversion = match decode {
            None if memory_type == OWN_TYPE => {
                cached.info.element.form().machine_number()?;
                Conversion::none(&cached.info.element)
            }
            Some(rules) => {
                let wanted = MemoryType::read(session, memory_type).ok()?;
                Conversion::decoded(&cached.info.element, &wanted, rules).ok()?
            }
            None => cached
                .conversion(session, dataset, memory_type)
                .ok()?
                .ok()?,
        };
        if !cached.is_for_hdf5(TouchedChunks::ONE) {
            cached.list_chunks(session, dataset)?;
        }
        Some(CachedReader {
            hdf5: session.hdf5,
            cached: Arc::clone(cached),
            conversion,
        })
    }

    /// Returns whether the chunks are listed. Until then HDF5 reads the first small parts of a dataset with a
    /// large index sooner.
    pub(super) fn knows_chunks(&self) -> bool {
        self.cached.known_array().is_some()
    }

    /// Returns the shape of the dataset.
    pub(super) fn shape(&self) -> &[u64] {
        &self.cached.info.shape
    }

    /// Returns in how many pieces of the file this number of bytes lies, if they are elements as they
    /// are stored and without filters: as many as they would fill chunks, or one if the dataset is
    /// contiguous. 0 if there are no such pieces.
    pub(super) fn pieces(&self, bytes: u64) -> u64 {
        let info = &self.cached.info;
        match &info.layout {
            _ if !info.filters.is_empty() => 0,
            Layout::Contiguous { .. } => 1,
            Layout::Chunked { chunk, .. } => {
                let chunk = chunk.iter().product::<u64>() * info.element.size().0;
                bytes.div_ceil(chunk.max(1))
            }
            Layout::Compact | Layout::Virtual(_) | Layout::External(_) => 0,
        }
    }

    /// Returns whether the cache entry was dropped, so that the reader refuses all reads.
    pub(super) fn is_forgotten(&self) -> bool {
        self.cached.is_forgotten()
    }

    /// Returns whether the file is open, in a file system that has reads which do not wait.
    pub(super) fn has_open_file(&self) -> bool {
        self.cached
            .lingering_file()
            .is_some_and(|file| file.may_read_cached())
    }

    /// Returns an error if HDF5 has closed the file.
    pub(super) fn check_open(&self) -> Result<()> {
        self.cached.check_open()
    }

    /// Plans a read of at most [`MOST_OF_WAITER`] bytes. `None` for longer reads, and for reads of which this
    /// thread may have to run steps. `selection` is `None` for all elements. HDF5 may close the dataset before
    /// the read.
    pub(super) fn plan(
        &self,
        read: ReadShape<'_>,
        buffer: &Buffer,
        with: &SubmitOptions,
    ) -> Option<PlannedRead> {
        let after = preceding_stream(with)?;
        let order = self.order(read, buffer, with, after)?;
        match SmallRead::prepare(order) {
            Ok(small) => Some(PlannedRead::AtOnce(small)),
            Err(order) => self.for_workers(*order).map(PlannedRead::ByWorkers),
        }
    }

    /// Starts a read of at most [`MOST_OF_WAITER`] bytes. `None` for longer reads, for reads that a pending
    /// operation precedes, and while a stream waits for a request. Later operations of HDF5 wait for it.
    ///
    /// # Errors
    /// The request cannot be started.
    ///
    /// # Safety
    /// The destination is valid, and nothing else accesses it, until the request has finished. The stream
    /// is valid until the call returns.
    pub(super) unsafe fn start(
        &self,
        read: ReadShape<'_>,
        buffer: &Buffer,
        with: SubmitOptions,
    ) -> Result<Option<TransferHandle>> {
        if may_wait_for_stream(&buffer.memory, with.stream.is_some()) {
            return Ok(None);
        }
        let Some(order) = self.order(read, buffer, &with, None) else {
            return Ok(None);
        };
        let set = self.access_set(read.0);
        let read = self.worker_read(order);
        // SAFETY: upheld by the caller.
        let request =
            unsafe { execute::submit(read.prepared, read.address, Some(read.memory), with)? };
        let held = TransferHandle::without_hdf5(request, self.hdf5);
        Ok(Some(held.entered(vec![set])))
    }

    fn order(
        &self,
        (selection, shape, strides): ReadShape<'_>,
        buffer: &Buffer,
        with: &SubmitOptions,
        after: Option<Stream>,
    ) -> Option<SmallReadOrder> {
        if self.cached.is_forgotten() {
            return None;
        }
        let options = merged_options(with.options).ok()?;
        let info = &self.cached.info;
        let selection = selection.map_or_else(|| Selection::all(&info.shape), Selection::clone);
        selection.check(&info.shape).ok()?;
        if !has_nothing_pending() && has_before(self.hdf5, &self.access_set(Some(&selection))) {
            return None;
        }
        let element = self.conversion.element;
        let size = element.memory(Operation::Read);
        let memory = MemorySide::of_array(&selection, shape, strides, size).ok()?;
        // The memory kind was queried only for the lowest byte.
        let is_known = buffer.address != 0 && memory.low == 0;
        if !is_known || memory.layout.length > MOST_OF_WAITER {
            return None;
        }
        let is_dense = memory.has_no_gaps(&selection, size);
        let array: &StoredArray = self.cached.known_array()?;
        let plan = Plan::new(array, selection, &memory.layout, element, Operation::Read);
        let mut plan = plan.ok()?;
        plan.set_holes(with.holes);
        let files = vec![self.cached.file_for_small_read().ok()?.into()];
        let mut bound = bound(plan, files, self.conversion.values, &options);
        bound.keep_in(Arc::clone(&self.cached.chunks));
        Some(SmallReadOrder {
            bound,
            address: buffer.address,
            length: memory.layout.length,
            is_dense,
            memory: buffer.memory.clone(),
            options,
            after,
        })
    }

    /// Returns a read for workers. `None` if it cannot start now.
    fn for_workers(&self, order: SmallReadOrder) -> Option<WorkerRead> {
        let context = order.memory.context.as_ref();
        let is_done = |stream: Stream| {
            context.is_some_and(|context| stream.is_idle_in(context).unwrap_or(false))
        };
        // A long read must end when its caller is interrupted.
        let is_long = order.bound.plan.work_bytes() > MOST_WORK_OF_WAITER;
        let is_held = may_wait_for_stream(&order.memory, order.after.is_some());
        if is_long || is_held || !order.after.is_none_or(is_done) {
            return None;
        }
        Some(self.worker_read(order))
    }

    fn worker_read(&self, order: SmallReadOrder) -> WorkerRead {
        WorkerRead {
            prepared: PreparedTransfer {
                kind: TransferKind::Read(vec![order.bound]),
                direction: Operation::Read,
                low: 0,
                length: order.length,
                path: self.cached.info.file.name.clone(),
                beforehand: Beforehand::default(),
            },
            address: order.address,
            memory: order.memory,
            options: order.options,
        }
    }

    /// Returns the access set of a read of these elements, or of all. A write by another handle of the file
    /// may be pending.
    fn access_set(&self, selection: Option<&Selection>) -> AccessSet {
        let info = &self.cached.info;
        let bounds = selection.and_then(|some| some.bounds(&info.shape));
        AccessSet::Elements {
            dataset: self.cached.key,
            region: Region::between(bounds).of_chunks(info.chunk()),
            access: Access::Read,
        }
    }
}

/// Returns whether a read may have to wait for a stream that waits for a request. Only one thread may be able to
/// run the steps of that request.
fn may_wait_for_stream(memory: &Memory, has_stream: bool) -> bool {
    (has_stream || memory.context.is_some()) && any_stream_waits()
}

/// Returns the stream that precedes a read, if there is one; `None` if the stream also waits for the
/// read.
pub(super) fn preceding_stream(with: &SubmitOptions) -> Option<Option<Stream>> {
    match with.stream {
        Some(order) if order.before => None,
        Some(order) => Some(Some(order.stream)),
        None => Some(None),
    }
}

/// A planned read.
pub enum PlannedRead {
    /// The calling thread carries it out.
    AtOnce(SmallRead),
    /// The calling thread and workers carry it out.
    ByWorkers(WorkerRead),
}

/// A read that the calling thread and workers carry out.
pub struct WorkerRead {
    prepared: PreparedTransfer,
    address: usize,
    memory: Memory,
    options: Options,
}

impl PlannedRead {
    /// Reads as [`SmallRead::run_cached`] does.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    pub unsafe fn run_cached(self) -> Option<Report> {
        match self {
            // SAFETY: upheld by the caller.
            PlannedRead::AtOnce(small) => unsafe { small.run_cached() },
            PlannedRead::ByWorkers(_) => None,
        }
    }

    /// Reads.
    ///
    /// # Errors
    /// The first failure. An unknown part of the destination has then changed.
    ///
    /// # Safety
    /// The destination is valid for its length, and nothing else accesses it until the call returns.
    pub unsafe fn run(self) -> Result<Report> {
        // SAFETY: upheld by the caller.
        unsafe {
            match self {
                PlannedRead::AtOnce(small) => small.run(),
                PlannedRead::ByWorkers(read) => read.run(),
            }
        }
    }
}

impl WorkerRead {
    /// # Safety
    /// As for [`PlannedRead::run`].
    unsafe fn run(self) -> Result<Report> {
        let with = SubmitOptions {
            options: self.options,
            waiter_shares: true,
            ..SubmitOptions::default()
        };
        // SAFETY: upheld by the caller; the request ends before this returns.
        let request: Request =
            unsafe { execute::submit(self.prepared, self.address, Some(self.memory), with)? };
        let Waited::Finished(outcome) = request.wait(None) else {
            return Err(Error::new(Kind::Internal, "unexpected submitter step"));
        };
        outcome?;
        request
            .report()
            .ok_or_else(|| Error::new(Kind::Internal, "a read has ended without a report"))
    }
}

/// Plans a read that is faster on the calling thread than with workers. `None` for all other transfers, which
/// [`start`](super::start) carries out or refuses with an error.
///
/// # Safety
/// This thread may call HDF5. The dataset is open.
pub unsafe fn small_read(
    hdf5: &'static Hdf5,
    transfer: &DatasetTransfer<'_>,
    buffer: &Buffer,
    with: &SubmitOptions,
) -> Option<SmallRead> {
    let MemoryShape::Array { shape, strides } = transfer.shape else {
        return None;
    };
    let selection = match transfer.file_selection {
        FileSelection::Space(H5S_ALL) => None,
        FileSelection::Space(_) => return None,
        FileSelection::Elements(selection) => Some(selection),
    };
    let is_read = transfer.operation == Operation::Read && with.owner.is_none();
    if !is_read || transfer.transfer_list != 0 {
        return None;
    }
    let reader = inside(hdf5, || {
        // SAFETY: upheld by the caller.
        let session = unsafe { Session::begin(hdf5) };
        let cached = CachedDataset::of(&session, transfer.dataset)?;
        let wanted = (transfer.memory_type, transfer.decode);
        CachedReader::of(&session, transfer.dataset, wanted, &cached)
    })?;
    let after = preceding_stream(with)?;
    SmallRead::prepare(reader.order((selection, shape, strides), buffer, with, after)?).ok()
}
