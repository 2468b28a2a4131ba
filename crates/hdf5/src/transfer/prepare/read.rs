//! Plans a read: turns HDF5's identifiers into plans with their files, which need HDF5 no more.

use std::sync::Arc;

use penstock_array::execute::{BoundPlan, TransferKind};
use penstock_array::{ChunkTable, MemorySide, Plan, StoredArray};
use penstock_engine::error::Result;
use penstock_engine::file::position::Operation;
use penstock_sys::hdf5::hid_t;

use super::conversion::conversion_of;
use super::files::files_of_transfer;
use super::hdf5_only::{known_filters, refuse_cut_off};
use super::outcome::{Stop, or_hdf5, refused};
use super::virtual_read::virtual_parts;
use crate::dataset::{DatasetInfo, Layout, TouchedChunks, flush, read_chunk_table};
use crate::library::Session;
use crate::transfer::cache::TransferDescription;
use crate::transfer::conflicts::unfinished_storage;
use crate::transfer::request::{DatasetTransfer, direct};
use crate::virtual_dataset::FEW_OF_MANY_CHUNKS;

pub(in crate::transfer) fn plan(
    session: &Session<'_>,
    transfer: &DatasetTransfer<'_>,
    described: &mut TransferDescription,
) -> std::result::Result<(TransferKind, MemorySide), Stop> {
    let TransferDescription { info, cached } = described;
    if info.is_final() && cached.is_none() {
        unfinished_storage::refuse(session, transfer.dataset)?;
    }
    let conversion = match conversion_of(transfer, session, info, cached.as_deref())? {
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
        let is_for_hdf5 = match &cached {
            Some(cached) => cached.is_for_hdf5(touched),
            None => info.is_sooner_by_hdf5(touched),
        };
        if is_for_hdf5 {
            return refused(FEW_OF_MANY_CHUNKS);
        }
    }
    // HDF5 walks through the index to flush changed chunks, too.
    if info.file.is_writable && info.file.is_plain {
        flush(session, transfer.dataset, info)?.or_else(refused)?;
        if !info.is_final() {
            // Chunks that were only in memory have addresses now, and the file is longer.
            info.refresh(session, transfer.dataset)?;
        }
    }
    match &info.layout {
        Layout::Compact => return refused("the dataset is compact"),
        Layout::Virtual(_) => {
            let info = Arc::new(info.clone());
            let layout = &memory.layout;
            let parts = virtual_parts(session, transfer, &info, &selection, layout, &conversion)?;
            let kind = if parts.is_empty() {
                TransferKind::Nothing
            } else {
                TransferKind::Read(parts)
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
    let plan = match cached {
        Some(cached) => match cached.array(session, transfer.dataset)? {
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
        files: match (&cached, transfer.file) {
            (Some(cached), None) => vec![or_hdf5(cached.file())?.into()],
            _ => or_hdf5(files_of_transfer(transfer, info))?,
        },
        conversion: conversion.values,
        direct: direct(&transfer.options),
        given: None,
        cache: None,
    };
    if let Some(cached) = cached {
        bound.keep_in(Arc::clone(&cached.chunks));
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
