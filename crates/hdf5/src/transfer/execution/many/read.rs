//! Plans the reads of datasets that were described, and starts them as one request.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use penstock_array::execute::{
    Beforehand, BoundPlan, PlanFile, PreparedTransfer, SubmitOptions, TransferKind, submit,
};
use penstock_array::{ChunkTable, Holes, Plan, Selection};
use penstock_codec::convert::DecodeRules;
use penstock_engine::error::{Error, Result};
use penstock_engine::file::File;
use penstock_engine::file::position::Operation;
use penstock_engine::memory::Memory;
use penstock_engine::options::Options;
use penstock_sys::hdf5::{H5S_ALL, hid_t};

use super::opener::{named, open};
use super::{DescribedDataset, Many, Origin, Stored};
use crate::conversion::Conversion;
use crate::dataset::{DatasetInfo, MemoryType, pointers};
use crate::library::Session;
use crate::transfer::cache::open_file;
use crate::transfer::conflicts::{AccessSet, FileKey, finish_before, identity_of, number_of_file};
use crate::transfer::execution::handle::TransferHandle;
use crate::transfer::execution::ordered_plan::prepare_in_order;
use crate::transfer::hdf5_state::inside;
use crate::transfer::request::{DatasetTransfer, FileSelection, HostBuffer, MemoryShape, bound};

/// The elements to read of a dataset, and their destination.
#[derive(Clone, Copy, Debug)]
pub struct DatasetPart<'a> {
    /// The elements; `None` for all.
    pub selection: Option<&'a Selection>,
    /// HDF5's type of an element in memory.
    pub memory_type: hid_t,
    /// How packed numbers are decoded to that type; `None` to convert them by HDF5's rules.
    pub decode: Option<DecodeRules>,
    /// The address of the array's first element.
    pub address: usize,
    /// Shape of the array.
    pub shape: &'a [u64],
    /// Bytes from one element to the next along each dimension; `None` for C order.
    pub strides: Option<&'a [i64]>,
}

impl Many {
    /// Reads parts of the datasets that were described, in the order of the descriptions; `None`
    /// reads nothing. All arrays are in host memory, or all in the memory of one GPU.
    ///
    /// # Errors
    /// An array is in other memory than the arrays before it, does not fit its selection, or a dataset
    /// cannot be read. The error names the dataset.
    ///
    /// # Safety
    /// The arrays are valid, and do not overlap, until the request has finished. This thread and those
    /// that run submitter steps may call HDF5.
    pub unsafe fn read<'a>(
        &self,
        parts: impl Iterator<Item = Option<DatasetPart<'a>>>,
        with: SubmitOptions,
    ) -> Result<TransferHandle> {
        let hdf5 = self.hdf5;
        inside(hdf5, || {
            // SAFETY: the caller may call HDF5, and no other thread calls it meanwhile.
            let session = unsafe { Session::begin(hdf5) };
            let mut reading = Reading {
                session: &session,
                types: &self.types,
                options: with.options,
                // After a stream, memory may not be filled yet.
                is_after: with.stream.is_some_and(|order| order.after),
                holes: with.holes,
                files: Vec::new(),
                conversions: HashMap::new(),
                memory: None,
                placed: Vec::new(),
                sets: Vec::new(),
                beforehand: Beforehand::default(),
            };
            for (described, part) in self.datasets.iter().zip(parts) {
                if let Some(part) = part {
                    // SAFETY: upheld by the caller.
                    unsafe { reading.add(described, &part) }
                        .map_err(|error| named(error, &described.info.name))?;
                }
            }
            let sets = reading.all_sets();
            for set in &sets {
                finish_before(hdf5, set);
            }
            let (prepared, start, memory) = reading.prepared();
            // SAFETY: upheld by the caller.
            let request = unsafe { submit(prepared, start, Some(memory), with)? };
            Ok(TransferHandle::new(request, hdf5, None).entered(sets))
        })
    }
}

struct Reading<'s> {
    session: &'s Session<'static>,
    types: &'s [hid_t],
    options: Options,
    is_after: bool,
    holes: Holes,
    /// The files of datasets that were described completely.
    files: Vec<OpenedFile>,
    /// Conversions, or the reasons why only HDF5 can convert, by number of the stored type and type in
    /// memory.
    conversions: HashMap<(usize, hid_t), std::result::Result<Conversion, String>>,
    /// The memory of the last array.
    memory: Option<Memory>,
    placed: Vec<Placed>,
    sets: Vec<AccessSet>,
    beforehand: Beforehand,
}

struct OpenedFile {
    /// Address of the description, which datasets of one file share.
    description: usize,
    file: Arc<File>,
    key: FileKey,
}

/// Plans, and the addresses that they fill.
struct Placed {
    plans: Vec<BoundPlan>,
    memory: Range<usize>,
}

impl Reading<'_> {
    /// # Safety
    /// As for [`Many::read`].
    unsafe fn add(&mut self, described: &DescribedDataset, part: &DatasetPart<'_>) -> Result<()> {
        self.find_memory(part)?;
        let (table, origin) = match &described.stored {
            Stored::Known(table, origin) => (table, origin),
            // SAFETY: upheld by the caller.
            Stored::Dataset { id, .. } => return unsafe { self.add_dataset(*id, part) },
        };
        if let Ok(conversion) = self.conversion(described, part)?
            && let Some(file) = self.file_or_hdf5(&described.info, origin)?
        {
            return self.add_known(&described.info, (table, file), part, conversion);
        }
        match origin {
            // SAFETY: upheld by the caller.
            Origin::Open(id) => unsafe { self.add_dataset(*id, part) },
            Origin::Named(place, name) => {
                let opened = open(self.session, *place, name)?;
                // SAFETY: upheld by the caller. HDF5 reads it before the call returns.
                unsafe { self.add_dataset(opened.get(), part) }
            }
        }
    }

    /// Finds the memory of an array, which must be on the same device as that of the other arrays.
    fn find_memory(&mut self, part: &DatasetPart<'_>) -> Result<()> {
        let last = self.memory.as_ref();
        let is_same = |memory: &Memory| {
            let range = memory.range.as_ref();
            range.is_some_and(|range| range.contains(&part.address))
        };
        if last.is_some_and(is_same) || part.shape.contains(&0) {
            return Ok(());
        }
        let memory = Memory::at(part.address)?;
        if last.is_some_and(|last| !last.same_place(&memory)) {
            return Err(Error::invalid(
                "its array is in other memory than those of the datasets before it",
            )
            .remedy("read into host memory and into each GPU by calls of their own"));
        }
        self.memory = Some(memory);
        Ok(())
    }

    fn conversion(
        &mut self,
        described: &DescribedDataset,
        part: &DatasetPart<'_>,
    ) -> Result<std::result::Result<Conversion, String>> {
        if let Some(rules) = part.decode {
            let wanted = MemoryType::read(self.session, part.memory_type)?;
            return Conversion::decoded(&described.info.element, &wanted, rules).map(Ok);
        }
        let key = (described.element, part.memory_type);
        if let Some(known) = self.conversions.get(&key) {
            return Ok(known.clone());
        }
        self.refuse_pointers(part)?;
        let stored = (self.types[described.element], &described.info.element);
        let found = Conversion::of_read(self.session, stored, part.memory_type)?;
        self.conversions.insert(key, found.clone());
        Ok(found)
    }

    fn is_gpu(&self) -> bool {
        let memory = self.memory.as_ref();
        memory.is_some_and(|memory| memory.context.is_some())
    }

    fn refuse_pointers(&self, part: &DatasetPart<'_>) -> Result<()> {
        if !self.is_gpu() {
            return Ok(());
        }
        // SAFETY: this thread may call HDF5.
        unsafe { pointers::refuse(self.session.hdf5, part.memory_type) }
    }

    /// Plans the read of a dataset without HDF5.
    fn add_known(
        &mut self,
        info: &DatasetInfo,
        (table, file): (&Option<Arc<ChunkTable>>, Arc<File>),
        part: &DatasetPart<'_>,
        conversion: Conversion,
    ) -> Result<()> {
        let transfer = self.transfer(0, part);
        let element = conversion.element;
        let size = element.memory(Operation::Read);
        let (selection, memory) = transfer.selections(self.session, info, size)?;
        if selection.is_empty() || info.is_null {
            return Ok(());
        }
        let array = info.array(table.clone())?;
        let plan = Plan::new(&array, selection, &memory.layout, element, Operation::Read)?;
        let bound = bound(plan, vec![file.into()], conversion.values, &self.options);
        self.place(vec![bound], part, memory.low, memory.layout.length)
    }

    /// Plans the read of an open dataset, in the order of its conflicts.
    ///
    /// # Safety
    /// As for [`Many::read`].
    unsafe fn add_dataset(&mut self, dataset: hid_t, part: &DatasetPart<'_>) -> Result<()> {
        self.refuse_pointers(part)?;
        let address = if self.is_gpu() || self.is_after {
            std::ptr::null_mut()
        } else {
            part.address as *mut u8
        };
        let host = HostBuffer::new(address, self.holes);
        let transfer = self.transfer(dataset, part);
        // SAFETY: upheld by the caller.
        let (prepared, sets) = unsafe { prepare_in_order(self.session, &transfer, host)? };
        self.sets.extend(sets);
        let by_hdf5 = prepared.beforehand;
        if by_hdf5.note.is_some() {
            self.beforehand.moved += by_hdf5.moved;
            self.beforehand.by = by_hdf5.by;
            let note = || by_hdf5.note.map(|note| format!("some datasets {note}"));
            self.beforehand.note = self.beforehand.note.take().or_else(note);
        }
        match prepared.kind {
            TransferKind::Read(plans) => self.place(plans, part, prepared.low, prepared.length),
            // A read is never plain before it is submitted.
            _ => Ok(()),
        }
    }

    fn transfer<'p>(&self, dataset: hid_t, part: &DatasetPart<'p>) -> DatasetTransfer<'p> {
        DatasetTransfer {
            operation: Operation::Read,
            dataset,
            memory_type: part.memory_type,
            decode: part.decode,
            shape: MemoryShape::Array {
                shape: part.shape,
                strides: part.strides,
            },
            file_selection: match part.selection {
                Some(selection) => FileSelection::Elements(selection),
                None => FileSelection::Space(H5S_ALL),
            },
            transfer_list: 0,
            options: self.options,
            file: None,
        }
    }

    /// Returns the file of a dataset; `None` if no descriptor is left, so that HDF5 must read by its own.
    fn file_or_hdf5(&mut self, info: &DatasetInfo, origin: &Origin) -> Result<Option<Arc<File>>> {
        match self.file(info, origin) {
            Err(error) if error.is_out_of_descriptors() => Ok(None),
            file => file.map(Some),
        }
    }

    /// Returns the file of a dataset, which is opened once for all its datasets.
    fn file(&mut self, info: &DatasetInfo, origin: &Origin) -> Result<Arc<File>> {
        let description = Arc::as_ptr(&info.file) as usize;
        let mut known = self.files.iter().rev();
        if let Some(opened) = known.find(|opened| opened.description == description) {
            return Ok(Arc::clone(&opened.file));
        }
        let file = open_file(&info.file, Operation::Read)?;
        // Behind an external link this is the number of another file, and only the identity is right.
        let (Origin::Open(object) | Origin::Named(object, _)) = origin;
        self.files.push(OpenedFile {
            description,
            file: Arc::clone(&file),
            key: FileKey {
                number: Some(number_of_file(self.session, *object)?),
                identity: info.file.descriptor.and_then(identity_of),
            },
        });
        Ok(file)
    }

    /// Records plans whose memory starts at an array's address and `low`.
    fn place(
        &mut self,
        plans: Vec<BoundPlan>,
        part: &DatasetPart<'_>,
        low: i64,
        length: u64,
    ) -> Result<()> {
        if part.address == 0 && length > 0 {
            return Err(Error::invalid("the array is a null pointer"));
        }
        let start = part.address.checked_add_signed(low as isize);
        let memory = start.and_then(|start| Some(start..start.checked_add(length as usize)?));
        let past_end = || Error::invalid("the array extends past the end of the address space");
        let memory = memory.ok_or_else(past_end)?;
        self.placed.push(Placed { plans, memory });
        Ok(())
    }

    /// Returns the access sets of the read. A file whose datasets were described completely is accessed as
    /// a whole: HDF5 does not write to it.
    fn all_sets(&mut self) -> Vec<AccessSet> {
        let mut sets = std::mem::take(&mut self.sets);
        if !self.files.is_empty() {
            let keys = self.files.iter().map(|opened| opened.key);
            sets.push(AccessSet::Sources(keys.collect()));
        }
        sets
    }

    /// Puts the plans of all arrays into one transfer, sorted by their places in the files. Returns
    /// it with the lowest address, and what memory is there.
    fn prepared(self) -> (PreparedTransfer, usize, Memory) {
        let start = self.placed.iter().map(|placed| placed.memory.start).min();
        let end = self.placed.iter().map(|placed| placed.memory.end).max();
        let (start, end) = (start.unwrap_or(0), end.unwrap_or(0));
        let mut plans = Vec::with_capacity(self.placed.len());
        for placed in self.placed {
            let after = (placed.memory.start - start) as u64;
            plans.extend(placed.plans.into_iter().map(|mut bound| {
                Arc::make_mut(&mut bound.plan).shift(after);
                bound
            }));
        }
        plans.sort_by_cached_key(|bound| {
            let file = bound.files.first().map(|file| match file {
                PlanFile::Open(file) => Arc::as_ptr(file) as usize,
                _ => 0,
            });
            (file, bound.plan.end())
        });
        let path = plans.iter().find_map(BoundPlan::path);
        let prepared = PreparedTransfer {
            path: path.unwrap_or("".as_ref()).to_owned(),
            kind: if plans.is_empty() {
                TransferKind::Nothing
            } else {
                TransferKind::Read(plans)
            },
            direction: Operation::Read,
            low: 0,
            length: (end - start) as u64,
            beforehand: self.beforehand,
        };
        (prepared, start, self.memory.unwrap_or(Memory::HOST))
    }
}
