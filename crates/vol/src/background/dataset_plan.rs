//! The plan of a read or write of one dataset. Carrying it out needs no further queries to HDF5.

use std::ops::Range;

use penstock_engine::error::Result;
use penstock_engine::memory::Memory;
use penstock_engine::options::Options;

use super::dataset_call::DatasetCall;
use crate::dataspace::{shifted_to_first, touched_bytes};
use crate::host_buffers::refuse_pointers;
use crate::temporary_id::TemporaryId;
use penstock_array::execute::PreparedTransfer;
use penstock_hdf5::dataset::DatasetInfo;
use penstock_hdf5::library::Session;
use penstock_hdf5::library::plain_files::options_of;
use penstock_hdf5::transfer::{
    DatasetTransfer, FileSelection, MemoryShape, Planned, Refused, StoredDataset, is_cut_off,
    prepare_or_refuse,
};

/// The plan of a transfer of one dataset.
pub(crate) struct DatasetPlan {
    /// Identifier of the dataset for the submitter steps. `None` without such steps.
    pub(crate) id: Option<TemporaryId>,
    pub(crate) prepared: PreparedTransfer,
    pub(crate) options: Options,
    pub(crate) buffer: usize,
    pub(crate) memory: Memory,
    /// Bytes that the transfer touches, as offsets in the buffer.
    pub(crate) touched: Range<u64>,
}

/// Locations of a dataset's elements in the file.
enum Storage<'a> {
    /// Fixed addresses in a file that processes share.
    Known(&'a StoredDataset),
    /// The locations that HDF5 has just returned.
    Queried(Box<DatasetInfo>),
}

/// Plans the transfer of dataset `at`, whose elements lie in `memory`. Returns the reason if only HDF5 can
/// carry it out.
///
/// # Safety
/// As for [`read_or_write`](super::read_or_write).
pub(crate) unsafe fn plan(
    call: &DatasetCall<'_>,
    at: usize,
    id: TemporaryId,
    memory: &Memory,
) -> Result<Planned<DatasetPlan>> {
    let under = &call.unders[at];
    let is_on_host = memory.context.is_none();
    let library = under.library();
    // SAFETY: the thread is inside a call of this HDF5.
    let session = unsafe { Session::begin(library.hdf5) };
    let described = match call.stored.get(at).map(|stored| &**stored) {
        Some(Ok(stored)) => Storage::Known(stored),
        _ => Storage::Queried(Box::new(call.datasets[at].info(&session, &id)?)),
    };
    let (options, file) = match &described {
        Storage::Known(_) => {
            let shared = under.container.shared.get();
            let file = shared.and_then(|shared| shared.file.clone());
            (call.policy().settings.options, file)
        }
        Storage::Queried(info) => {
            // The driver's options apply where the connector's settings have none.
            let of_driver = info.file.descriptor.map(options_of).unwrap_or_default();
            let access = call.datasets[at].known_dataset_access();
            let file = access.map(|access| under.container.open_file(access.key.file, &info.file));
            let file = match file.transpose() {
                Ok(file) => file.flatten(),
                // The transfer has not begun, and HDF5 has its own descriptor.
                Err(error) => return Ok(Err(Refused(error.to_string()))),
            };
            (call.policy().settings.options.or(of_driver), file)
        }
    };
    let mut transfer = DatasetTransfer {
        operation: call.operation,
        dataset: id.get(),
        memory_type: call.memory_types[at],
        decode: None,
        shape: MemoryShape::Space(call.memory_spaces[at]),
        file_selection: FileSelection::Space(call.file_spaces[at]),
        transfer_list: call.list,
        options,
        file: file.as_ref(),
    };
    let element = transfer.memory_size(&session)?;
    let mut buffer = call.buffers[at];
    let space = call.memory_space(at);
    // SAFETY: the caller guarantees this.
    let mut touched = unsafe { touched_bytes(library, space, element.0) };
    let mut moved = None;
    if !is_on_host {
        // SAFETY: the caller guarantees this.
        unsafe { refuse_pointers(library, transfer.memory_type)? };
    }
    // Memory before the first element may not exist, or be of another kind. A copy does not include
    // it.
    if !is_on_host || (call.continues() && call.is_copied()) {
        // SAFETY: the caller guarantees this.
        moved = unsafe { shifted_to_first(library, space) };
        match (&moved, &touched) {
            (Some(space), Some(range)) => {
                transfer.shape = MemoryShape::Space(space.id);
                buffer = buffer.wrapping_add(range.start as usize);
                touched = Some(0..range.end - range.start);
            }
            _ => touched = touched.map(|range| 0..range.end),
        }
    }
    let (planned, id) = match described {
        Storage::Known(stored) => (stored.prepare(&session, &transfer)?, None),
        Storage::Queried(info) => (prepare_or_refuse(&session, &transfer, *info)?, Some(id)),
    };
    drop(moved);
    let prepared = match planned {
        Ok(prepared) => prepared,
        Err(refused) => return Ok(Err(refused)),
    };
    // HDF5 reads zeros past the end of a file, even of a file truncated while open.
    if is_cut_off(&prepared)? {
        let why = "the read passes the end of the file, where HDF5 returns zeros";
        return Ok(Err(Refused(why.to_owned())));
    }
    let touched = touched.unwrap_or(0..prepared.length);
    Ok(Ok(DatasetPlan {
        id,
        prepared,
        options,
        buffer,
        memory: memory.clone(),
        touched,
    }))
}
