//! Plans a read: turns HDF5's identifiers into plans with their files, on the caller's thread. The
//! result no longer needs HDF5.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;

use penstock_array::execute::{BoundPlan, InMemory, PlanFile, TransferKind};
use penstock_array::{ChunkTable, MemoryLayout, MemorySide, Plan, Selection, StoredArray};
use penstock_codec::Pipeline;
use penstock_codec::convert::TypeConversion;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::position::Operation;
use penstock_sys::hdf5::hid_t;

use super::direct::direct;
use super::kept::{Described, open_file};
use super::kept_sources;
use super::prepare::{Stop, is_in_file, or_hdf5, refused};
use super::request::DatasetTransfer;
use super::unfinished;
use crate::conversion::{Conversion, byte_order};
use crate::dataset::{DatasetInfo, FileType, Layout, MemoryType, TouchedChunks, read_chunk_table};
use crate::library::Session;
use crate::open_files::SourceFile;
use crate::virtual_dataset::{
    FEW_OF_MANY_CHUNKS, Keeper, Mapping, Resolution, SourceDataset, Store, resolve,
};

pub(super) fn plan(
    session: &Session<'_>,
    transfer: &DatasetTransfer<'_>,
    described: &mut Described,
) -> std::result::Result<(TransferKind, MemorySide), Stop> {
    let Described { info, kept } = described;
    if info.is_final() && kept.is_none() {
        unfinished::refuse(session, transfer.dataset)?;
    }
    let conversion = match transfer.conversion(session, info, kept.as_deref())? {
        Ok(found) => found,
        Err(why) => return refused(why),
    };
    if transfer.is_of_another_shape(session, info)? {
        return refused("the shape of the dataspace differs from that of the dataset");
    }
    let (selection, memory) =
        transfer.selections(session, info, conversion.element.memory(Operation::Read))?;
    if selection.is_empty() || info.is_null {
        return Ok((TransferKind::Nothing, memory));
    }
    if let Layout::Chunked { chunk, .. } = &info.layout {
        let touched = TouchedChunks {
            chunks: selection.touched_chunks(chunk),
            bytes: memory.layout.length,
        };
        let is_for_hdf5 = match &kept {
            Some(kept) => kept.is_for_hdf5(touched),
            None => info.is_sooner_by_hdf5(touched),
        };
        if is_for_hdf5 {
            return refused(FEW_OF_MANY_CHUNKS);
        }
    }
    // Also HDF5's flush of changed chunks walks through the index.
    if info.file.is_writable && info.file.is_plain {
        is_in_file(session, transfer.dataset, info)?;
        if !info.is_final() {
            // Chunks that were only in memory now have addresses, and the file is longer.
            info.refresh(session, transfer.dataset)?;
        }
    }
    match &info.layout {
        Layout::Compact => return refused("the dataset is compact"),
        Layout::Virtual(_) => {
            let info = Arc::new(info.clone());
            let layout = &memory.layout;
            let parts = virtual_parts(session, transfer, &info, &selection, layout, &conversion)?;
            let kind = match parts.is_empty() {
                true => TransferKind::Nothing,
                false => TransferKind::Read(parts),
            };
            return Ok((kind, memory));
        }
        _ => {}
    }
    known_filters(info)?;
    if !info.file.is_plain || info.file.descriptor.is_none() {
        return refused("the file is not one plain file");
    }
    let element = conversion.element;
    let plan =
        |array: &StoredArray| Plan::new(array, selection, &memory.layout, element, Operation::Read);
    let plan = match kept {
        Some(kept) => match kept.array(session, transfer.dataset)? {
            Ok(array) => plan(array)?,
            Err(why) => return refused(why),
        },
        None => match info.array_to_read(chunk_table(session, transfer.dataset, info)?)? {
            Ok(array) => plan(&array)?,
            Err(why) => return refused(why),
        },
    };
    let mut bound = BoundPlan {
        plan: Arc::new(plan),
        files: match (&kept, transfer.file) {
            (Some(kept), None) => vec![or_hdf5(kept.file())?.into()],
            _ => or_hdf5(transfer.files(info))?,
        },
        conversion: conversion.values,
        direct: direct(&transfer.options),
        given: None,
        cache: None,
    };
    if let Some(kept) = kept {
        bound.keep_in((Arc::clone(&kept.chunks), kept.number));
    }
    refuse_cut_off(&bound, info)?;
    Ok((TransferKind::Read(vec![bound]), memory))
}

fn chunk_table(
    session: &Session<'_>,
    dataset: hid_t,
    info: &DatasetInfo,
) -> Result<Option<Arc<ChunkTable>>> {
    match info.layout {
        Layout::Chunked { .. } => read_chunk_table(session, dataset, info)
            .map(|table| Some(Arc::new(table)))
            .map_err(|error| info.name_in(error)),
        _ => Ok(None),
    }
}

/// Leaves a read to HDF5 if it extends past the end of the file: HDF5 has allocated that part but
/// written nothing to it, and reads zeros there.
pub(super) fn refuse_cut_off(
    bound: &BoundPlan,
    info: &DatasetInfo,
) -> std::result::Result<(), Stop> {
    if !info.file.may_end_early() || bound.plan.end() == 0 {
        return Ok(());
    }
    let size = bound.file(0)?.size()?;
    // A chunk that another process has listed but not written is an error of the chunk table.
    let is_whole = bound.plan.end() <= size;
    if is_whole || !(info.file.is_swmr || bound.reaches_beyond(size)?) {
        return Ok(());
    }
    refused("the file ends before the selected data, which HDF5 has not written yet")
}

pub(super) fn known_filters(info: &DatasetInfo) -> std::result::Result<(), Stop> {
    let pipeline = Pipeline {
        filters: info.filters.clone(),
    };
    match pipeline.unknown() {
        Some(filter) => refused(format!("only HDF5 knows {filter}")),
        None => Ok(()),
    }
}

/// Plans reads of the datasets that a virtual dataset consists of.
fn virtual_parts(
    session: &Session<'_>,
    transfer: &DatasetTransfer<'_>,
    info: &Arc<DatasetInfo>,
    selection: &Selection,
    memory: &MemoryLayout,
    conversion: &Conversion,
) -> std::result::Result<Vec<BoundPlan>, Stop> {
    let memory_type = MemoryType::read(session, transfer.memory_type)?;
    // Conversions from other types than that of the virtual dataset were not tried with this HDF5,
    // so only those that keep the numbers unchanged are used.
    let is_unsound = Cell::new(false);
    let conversion_of = |element: &FileType| {
        if *element == info.element {
            return Some(*conversion);
        }
        is_unsound.set(is_unsound.get() || byte_order::is_unsound(&memory_type, element));
        let found = Conversion::between(element, &memory_type).ok()?;
        (!matches!(found.values, TypeConversion::Convert { .. })).then_some(found)
    };
    let mapping = |element: &FileType| conversion_of(element).map(|found| found.element);
    let keeper = |source: &SourceDataset<'_>| kept_sources::of(session, source);
    let with: (Mapping<'_>, Keeper<'_>) = (&mapping, &keeper);
    let parts = match resolve(session, transfer.dataset, info, selection, memory, with)? {
        Resolution::Parts(parts) => parts,
        Resolution::Hdf5(_) if is_unsound.get() => return Err(Stop::Failed(unsound(info))),
        Resolution::Hdf5(why) => return refused(why),
    };
    let mut plans = Vec::with_capacity(parts.len());
    for part in parts {
        known_filters(&part.info)?;
        let (files, given) = match &part.store {
            Store::None => (Vec::new(), None),
            Store::Memory(elements) => {
                let bytes = Arc::clone(elements);
                let path = penstock_engine::report::Path::Hdf5;
                (Vec::new(), Some(InMemory { bytes, path }))
            }
            Store::File(_) if matches!(part.info.layout, Layout::External(_)) => {
                (files(&part.info)?, None)
            }
            Store::File(source) => (vec![source.of_plan()], None),
        };
        let conversion =
            conversion_of(&part.info.element).map_or(TypeConversion::Copy, |found| found.values);
        let mut bound = BoundPlan {
            plan: part.plan,
            files,
            conversion,
            direct: direct(&transfer.options),
            given,
            cache: None,
        };
        if let Some(cache) = part.decoded {
            bound.keep_in(cache);
        }
        refuse_cut_off(&bound, &part.info)?;
        plans.push(bound);
    }
    Ok(plans)
}

fn unsound(info: &DatasetInfo) -> Error {
    let cause = "HDF5 converts integers with fewer bits than their bytes wrongly to the other byte \
                 order, and a source of this virtual dataset has such elements";
    let error = Error::invalid(cause);
    info.name_in(error.remedy("read the sources, or give the virtual dataset their type"))
}

fn files(info: &DatasetInfo) -> Result<Vec<PlanFile>> {
    let Layout::External(slots) = &info.layout else {
        return Ok(vec![open_file(&info.file, Operation::Read)?.into()]);
    };
    // A file that cannot be opened is an error only when something is read from it.
    let open = |path: &PathBuf| match SourceFile::of_path(path) {
        Ok(file) => Arc::new(file).of_plan(),
        Err(error) => PlanFile::Missing(unable_to_open(error)),
    };
    Ok(slots.iter().map(|slot| open(&slot.path)).collect())
}

fn unable_to_open(error: Error) -> Error {
    let is_missing = error.kind() == Kind::NotFound;
    let error = error.about("unable to open an external raw data file");
    match is_missing {
        true => error.remedy(
            "put the file there, or name its folder by HDF5_EXTFILE_PREFIX or H5Pset_efile_prefix",
        ),
        false => error,
    }
}

impl DatasetTransfer<'_> {
    fn files(&self, info: &DatasetInfo) -> Result<Vec<PlanFile>> {
        match (&info.layout, self.file) {
            (Layout::External(_), _) | (_, None) => files(info),
            (_, Some(file)) => Ok(vec![Arc::clone(file).into()]),
        }
    }
}
