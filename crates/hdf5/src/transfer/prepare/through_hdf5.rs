//! Transfers that HDF5 itself carries out, in either direction.
//!
//! HDF5 accesses the caller's buffer directly if that is in host memory and has a layout that HDF5
//! can describe. Otherwise the elements pass through a temporary dense buffer: HDF5 has filled it
//! before the request starts, or writes it after workers have gathered the elements.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use penstock_array::execute::{BoundPlan, DenseSink, InMemory, Sink, TransferKind, zeroed};
use penstock_array::{
    ElementMapping, Holes, MemorySide, MemorySize, Plan, Selection, Source, StoredArray,
    match_selections,
};
use penstock_codec::convert::TypeConversion;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::merged_options;
use penstock_engine::report::Path;
use penstock_sys::hdf5::{H5P_DEFAULT, H5S_ALL, hid_t};

use crate::conversion::{Conversion, byte_order};
use crate::dataset::{DatasetInfo, MemoryType};
use crate::library::{Id, Session};
use crate::transfer::hdf5_state::{cannot_flush, may_flush, refuse_elsewhere};
use crate::transfer::request::{
    DatasetTransfer, Dataspace, FileSelection, Hdf5Selection, HostBuffer, MemoryShape,
    memory_selection,
};
use crate::transfer::sinks::WrittenDataset;

/// Has HDF5 carry out what is possible immediately. Returns the rest, and the bytes that HDF5 has moved.
///
/// # Safety
/// `host` is null or valid for what the transfer describes; for a write it has its final contents.
pub(in crate::transfer) unsafe fn prepare(
    session: &Session<'static>,
    transfer: &DatasetTransfer<'_>,
    info: &Arc<DatasetInfo>,
    host: HostBuffer,
) -> Result<(TransferKind, MemorySide, u64)> {
    let element = transfer.memory_size(session)?;
    let (selection, memory) = transfer.selections(session, info, element)?;
    if selection.is_empty() || info.is_null {
        return Ok((TransferKind::Nothing, memory, 0));
    }
    let moved = match transfer.file_selection {
        FileSelection::Space(space) => Hdf5Selection::of_space(space, &selection),
        FileSelection::Elements(_) => Hdf5Selection::of_elements(session, &info.shape, &selection)?,
    };
    let (shape, taken) = (moved.shape, moved.taken);
    let elements = shape.iter().product();
    // Packed numbers are decoded from temporary memory, where HDF5 puts them as they are stored.
    let stored_type = match transfer.decode {
        Some(_) => Some(session.type_of(transfer.dataset)?),
        None => None,
    };
    let by_hdf5 = DatasetTransfer {
        memory_type: stored_type.as_ref().map_or(transfer.memory_type, Id::get),
        ..*transfer
    };
    let given = by_hdf5.memory_size(session)?;
    let call = LibraryCall::new(session, &by_hdf5, info, (moved.space, elements), given)?;
    if let Some(buffer) = host.address()
        && transfer.decode.is_none()
        && call.intermediate(session)?.is_none()
    {
        let space = match transfer.shape {
            MemoryShape::Space(space) if host.holes == Holes::Leave => {
                Some(Dataspace::Callers(space))
            }
            MemoryShape::Array { .. }
                if taken.is_none() && memory.is_dense(&selection, element)? =>
            {
                Some(Dataspace::Own(session.simple_space(&[elements])?))
            }
            MemoryShape::Space(_) | MemoryShape::Array { .. } => None,
        };
        if let Some(space) = space {
            // SAFETY: the caller guarantees that the buffer is as the dataspace describes it; with holes to
            // fill, that is an array of all elements.
            unsafe {
                if host.holes == Holes::Zero && call.operation == Operation::Read {
                    ptr::write_bytes(buffer, 0, call.bytes as usize);
                }
                call.run(session, (call.memory_type, space.id()), buffer.cast())?;
            }
            return Ok((TransferKind::Nothing, memory, call.bytes));
        }
    }
    let (shape, selection, layout) = match transfer.shape {
        MemoryShape::Array { .. } => {
            let taken = taken.unwrap_or_else(|| Selection::all(&shape));
            (shape, taken, memory.layout.clone())
        }
        MemoryShape::Space(space) => {
            let shape = vec![elements];
            let all = Selection::all(&shape);
            let of_file = transfer.file_selection(session, info)?;
            let of_file = (&of_file, info.shape.as_slice());
            let (of_memory, extent) = memory_selection(session, space, of_file)?;
            let (from, layout) = match_selections(&all, &shape, &of_memory, &extent, element)?;
            (shape, from, layout)
        }
    };
    if transfer.operation == Operation::Read {
        refuse_more_fields(session, transfer, info)?;
    }
    let array = StoredArray::new(&info.name, &shape, given.as_stored(), Source::Memory);
    let (mapping, values) = match transfer.decode {
        Some(rules) => {
            let wanted = MemoryType::read(session, transfer.memory_type)?;
            let found = Conversion::decoded(&info.element, &wanted, rules)
                .map_err(|error| info.name_in(error))?;
            (found.element, found.values)
        }
        None => (ElementMapping::whole(element), TypeConversion::Copy),
    };
    let plan = Plan::new(&array, selection, &layout, mapping, transfer.operation)?;
    let kind = match transfer.operation {
        Operation::Read => {
            let (bytes, path) = (Arc::new(call.read_dense(session)?), Path::Hdf5);
            let given = Some(InMemory { bytes, path });
            TransferKind::Read(vec![BoundPlan {
                conversion: values,
                ..BoundPlan::in_memory(plan, given)
            }])
        }
        Operation::Write => {
            let (bytes, sink) = (call.bytes, Box::new(call.defer(session)?));
            TransferKind::Write(BoundPlan::in_memory(plan, None), Sink::Dense(sink, bytes))
        }
    };
    Ok((kind, memory, 0))
}

/// Refuses elements with more fields than the dataset. HDF5 leaves these fields unchanged in
/// memory, but elements from temporary memory replace whole elements.
fn refuse_more_fields(
    session: &Session<'_>,
    transfer: &DatasetTransfer<'_>,
    info: &DatasetInfo,
) -> Result<()> {
    let in_memory = MemoryType::read(session, transfer.memory_type)?;
    if !in_memory.form().has_more_fields(info.element.form()) {
        return Ok(());
    }
    let cause = "the elements in memory have fields that the dataset lacks, and would lose them";
    let remedy =
        "read only the fields of the dataset, or into C-contiguous host memory without a stream";
    Err(Error::invalid(cause).remedy(remedy))
}

/// A call of `H5Dread` or `H5Dwrite`, apart from the memory.
struct LibraryCall {
    operation: Operation,
    dataset: WrittenDataset,
    /// Type of the elements in the caller's memory.
    memory_type: hid_t,
    file_space: Dataspace,
    transfer_list: hid_t,
    elements: u64,
    /// Bytes of all elements in memory.
    bytes: u64,
}

impl LibraryCall {
    fn new(
        session: &Session<'static>,
        transfer: &DatasetTransfer<'_>,
        info: &Arc<DatasetInfo>,
        (file_space, elements): (Dataspace, u64),
        element: MemorySize,
    ) -> Result<LibraryCall> {
        let is_durable = transfer.operation == Operation::Write
            && merged_options(transfer.options)?.durable == Some(true);
        if is_durable {
            refuse_elsewhere(info)?;
            may_flush().then_some(()).ok_or_else(cannot_flush)?;
        }
        Ok(LibraryCall {
            operation: transfer.operation,
            dataset: WrittenDataset {
                is_durable,
                ..WrittenDataset::new(session, transfer.dataset, Arc::clone(info))
            },
            memory_type: transfer.memory_type,
            file_space,
            transfer_list: match transfer.transfer_list {
                0 => H5P_DEFAULT,
                own => own,
            },
            elements,
            bytes: elements.saturating_mul(element.0),
        })
    }

    /// Returns the type in which HDF5 must transfer the elements instead of that in memory, if any.
    fn intermediate(&self, session: &Session<'_>) -> Result<Option<Id>> {
        byte_order::intermediate(session, self.memory_type, &self.dataset.info.element)
    }

    /// Transfers elements that are of type `types` in memory.
    ///
    /// # Safety
    /// `buffer` is valid for what the dataspace selects.
    unsafe fn run(
        &self,
        session: &Session<'_>,
        (types, space): (hid_t, hid_t),
        buffer: *mut c_void,
    ) -> Result<()> {
        let (dataset, hdf5) = (self.dataset.dataset, session.hdf5);
        let (selected, list) = (self.file_space.id(), self.transfer_list);
        // SAFETY: HDF5 checks the identifiers; the caller guarantees that the buffer is valid.
        let (status, action) = unsafe {
            match self.operation {
                Operation::Read => (
                    (hdf5.H5Dread)(dataset, types, space, selected, list, buffer),
                    "read the dataset",
                ),
                Operation::Write => (
                    (hdf5.H5Dwrite)(dataset, types, space, selected, list, buffer),
                    "write the dataset",
                ),
            }
        };
        session
            .check(status, action)
            .map_err(|error| self.dataset.named(self.with_remedy(session, error)))?;
        self.dataset.make_durable(session)
    }

    /// Adds what to do if HDF5 lacks a filter. Its own error names only a folder of plugins.
    fn with_remedy(&self, session: &Session<'_>, error: Error) -> Error {
        let filters = &self.dataset.info.filters;
        let missing = filters.iter().find(|filter| !session.has_filter(filter.id));
        match missing {
            Some(filter) => error.remedy(format!(
                "HDF5 lacks filter {}: put its plugin into a folder that HDF5_PLUGIN_PATH names, or, \
                 in Python, install hdf5plugin and import it",
                filter.id
            )),
            None => error,
        }
    }

    /// Reads the elements into temporary memory as a dense array.
    fn read_dense(&self, session: &Session<'_>) -> Result<Vec<u8>> {
        let bytes = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        let mut given = zeroed(bytes).ok_or_else(|| {
            let text = format!("no memory for the {bytes} bytes that HDF5 reads");
            Error::new(Kind::Memory, text)
        })?;
        let space = session.simple_space(&[self.elements])?;
        let intermediate = self.intermediate(session)?;
        let types = intermediate.as_ref().map_or(self.memory_type, Id::get);
        // SAFETY: the memory has the size of the selected elements, which both types have.
        unsafe { self.run(session, (types, space.get()), given.as_mut_ptr().cast())? };
        if intermediate.is_some() {
            byte_order::reverse(session, (types, self.memory_type), &mut given)?;
        }
        Ok(given)
    }

    /// Copies type and dataspace, which the caller may close before they are needed.
    fn defer(mut self, session: &Session<'_>) -> Result<DeferredCall> {
        let hdf5 = session.hdf5;
        // SAFETY: takes an identifier, which HDF5 checks, and returns an owned one.
        let memory_type = unsafe { (hdf5.H5Tcopy)(self.memory_type) };
        let memory_type = session.own(memory_type, hdf5.H5Tclose, "copy the memory type")?;
        let file_space = match self.file_space {
            Dataspace::Callers(H5S_ALL) => H5S_ALL,
            Dataspace::Callers(space) => {
                // SAFETY: as above.
                let space = unsafe { (hdf5.H5Scopy)(space) };
                let space = session.own(space, hdf5.H5Sclose, "copy the dataspace")?;
                space.keep()
            }
            Dataspace::Own(space) => space.keep(),
        };
        self.file_space = Dataspace::Callers(file_space);
        self.memory_type = memory_type.keep();
        Ok(DeferredCall(self))
    }
}

/// A call that waits for its elements. Its type and dataspace are copies, which are open until
/// [`end`](DenseSink::end).
struct DeferredCall(LibraryCall);

impl DenseSink for DeferredCall {
    fn may_finish(&self) -> bool {
        self.0.dataset.may_finish()
    }

    fn write(&self, bytes: &[u8]) -> Result<()> {
        let call = &self.0;
        // SAFETY: the submitter guarantees that HDF5 may be called on the thread of the step.
        let session = unsafe { call.dataset.session() };
        let space = session.simple_space(&[call.elements])?;
        let intermediate = call.intermediate(&session)?;
        let types = intermediate.as_ref().map_or(call.memory_type, Id::get);
        let mut reversed: Vec<u8> = Vec::new();
        if intermediate.is_some() {
            reversed.try_reserve_exact(bytes.len()).map_err(|_| {
                let text = format!("no memory for the {} bytes that HDF5 writes", bytes.len());
                call.dataset.named(Error::new(Kind::Memory, text))
            })?;
            reversed.extend_from_slice(bytes);
            byte_order::reverse(&session, (call.memory_type, types), &mut reversed)?;
        }
        let bytes = if intermediate.is_some() {
            &reversed
        } else {
            bytes
        };
        let buffer = bytes.as_ptr().cast_mut().cast();
        // SAFETY: the bytes are those of the elements, and a write only reads them.
        unsafe { call.run(&session, (types, space.get()), buffer) }
    }

    fn end(&self) {
        let call = &self.0;
        // SAFETY: as above; both are copies of this call, and nothing uses them any more.
        unsafe {
            let session = call.dataset.session();
            (session.hdf5.H5Tclose)(call.memory_type);
            if call.file_space.id() != H5S_ALL {
                (session.hdf5.H5Sclose)(call.file_space.id());
            }
        }
    }

    fn path(&self) -> Path {
        Path::Hdf5
    }
}
