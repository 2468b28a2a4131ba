//! Transfers of a dataset by the addresses of its elements, which are read once. No later step calls HDF5.
//!
//! This is correct if nothing moves the elements and HDF5 caches none of them: in files that the processes of
//! an MPI program share. HDF5 allocates the storage there when it creates a dataset, and writes through.

use std::sync::Arc;

use penstock_array::execute::{
    Beforehand, BoundPlan, PreparedTransfer, Sink, TransferKind, extents,
};
use penstock_array::{ChunkTable, MemorySide, Plan};
use penstock_engine::error::Result;
use penstock_engine::file::position::Operation;
use penstock_sys::hdf5::hid_t;

use super::conversion::conversion_of;
use super::hdf5_only::{known_filters, refuse_cut_off};
use super::outcome::{Planned, Refused, Stop, prepared, refused};
use crate::conversion::Conversion;
use crate::dataset::{DatasetInfo, Layout, read_chunk_table};
use crate::library::Session;
use crate::transfer::request::{DatasetTransfer, direct};

/// A dataset and the addresses of its elements.
#[derive(Debug)]
pub struct StoredDataset {
    info: DatasetInfo,
    /// `None` if the dataset is contiguous.
    table: Option<Arc<ChunkTable>>,
}

impl StoredDataset {
    /// Describes a dataset of a file that processes share; or returns why only HDF5 transfers its elements, which
    /// is the same in all processes. `reads_together` says that no process reads metadata without the others.
    pub fn read(
        session: &Session<'_>,
        dataset: hid_t,
        reads_together: bool,
    ) -> Result<Planned<StoredDataset>> {
        let info = DatasetInfo::read(session, dataset)?;
        let why = match &info.layout {
            Layout::Compact => "the dataset is compact",
            Layout::Virtual(_) => "the dataset is virtual",
            Layout::External(_) => "the dataset is in external files",
            Layout::Chunked { .. } if info.file.is_writable && !info.filters.is_empty() => {
                "the processes write chunks with filters together"
            }
            Layout::Contiguous { .. } => return Ok(Ok(StoredDataset { info, table: None })),
            // If the engine cannot carry out the transfer of one process, HDF5 does, and looks the chunks up.
            Layout::Chunked { .. } if reads_together => {
                "the processes read the chunk index together"
            }
            Layout::Chunked { .. } => {
                let table = read_chunk_table(session, dataset, &info);
                let table = Some(Arc::new(table.map_err(|error| info.name_in(error))?));
                return Ok(Ok(StoredDataset { info, table }));
            }
        };
        Ok(Err(Refused(why.to_owned())))
    }

    /// Returns whether each process may transfer its elements without the others, which is the same in all
    /// processes. Elements without storage are written by HDF5, which allocates it, and are then elsewhere than was
    /// described.
    pub fn is_independent(&self, operation: Operation) -> bool {
        let is_stored = match (&self.info.layout, &self.table) {
            (_, Some(table)) => table.len() as u64 == table.grid().total(),
            (Layout::Contiguous { offset }, None) => {
                offset.is_some() || self.info.bytes().is_ok_and(|bytes| bytes == 0)
            }
            (_, None) => false,
        };
        is_stored || (operation == Operation::Read && !self.info.file.is_writable)
    }

    /// Returns the number of bytes of the longest row of elements that lie side by side in the file: of a chunk,
    /// or along the last dimension.
    pub fn row(&self) -> u64 {
        let elements = match &self.info.layout {
            Layout::Chunked { chunk, .. } => chunk.iter().product(),
            _ => self.info.shape.last().copied().unwrap_or(1),
        };
        self.info.element.size().0.saturating_mul(elements)
    }

    /// Plans a transfer, or returns why only HDF5 can carry it out. `transfer.file` is the opened file, if that was
    /// possible.
    pub fn prepare(
        &self,
        session: &Session<'static>,
        transfer: &DatasetTransfer<'_>,
    ) -> Result<Planned<PreparedTransfer>> {
        match self.plan(session, transfer) {
            Ok((kind, memory)) => {
                let beforehand = Beforehand::default();
                Ok(Ok(prepared(
                    transfer, &self.info, kind, &memory, beforehand,
                )))
            }
            Err(Stop::Failed(error)) => Err(error),
            Err(Stop::Refused(why)) => Ok(Err(why)),
        }
    }

    fn plan(
        &self,
        session: &Session<'static>,
        transfer: &DatasetTransfer<'_>,
    ) -> std::result::Result<(TransferKind, MemorySide), Stop> {
        let (info, operation) = (&self.info, transfer.operation);
        let Some(file) = transfer.file else {
            return refused("the file cannot be opened a second time");
        };
        let Conversion { element, values } = match conversion_of(transfer, session, info, None)? {
            Ok(found) => found,
            Err(why) => return refused(why),
        };
        if transfer.is_of_another_shape(session, info)? {
            return refused("the shape of the dataspace differs from that of the dataset");
        }
        let (selection, memory) = transfer.selections(session, info, element.memory(operation))?;
        if selection.is_empty() || info.is_null {
            return Ok((TransferKind::Nothing, memory));
        }
        let array = match operation {
            Operation::Read => {
                known_filters(info)?;
                info.array_to_read(self.table.clone())?.or_else(refused)?
            }
            Operation::Write if selection.has_repeats() => {
                return refused("elements are selected more than once");
            }
            Operation::Write => info.array(self.table.clone())?,
        };
        let plan = Plan::new(&array, selection, &memory.layout, element, operation)?;
        let files = vec![Arc::clone(file).into()];
        let bound = BoundPlan::new(plan, files, values, direct(&transfer.options));
        let kind = match operation {
            Operation::Read => {
                refuse_cut_off(&bound, info)?;
                TransferKind::Read(vec![bound])
            }
            Operation::Write => match extents(&bound, false)? {
                Some(ranges) => TransferKind::Plain {
                    file: Arc::clone(file),
                    ranges,
                    at_end: None,
                },
                None => TransferKind::Write(bound, Sink::InPlace),
            },
        };
        Ok((kind, memory))
    }
}
