//! Plans a read: turns HDF5's identifiers into plans with their files, which need HDF5 no more.

use std::sync::Arc;

use penstock_array::execute::TransferKind;
use penstock_array::{MemorySide, Plan, StoredArray};
use penstock_engine::file::position::Operation;

use super::elements::elements;
use super::files::files_of_transfer;
use super::hdf5_only::{known_filters, refuse_cut_off};
use super::outcome::{OrStop, or_hdf5, refused};
use super::virtual_read::virtual_parts;
use crate::dataset::{Layout, TouchedChunks, flush};
use crate::library::Session;
use crate::transfer::cache::TransferDescription;
use crate::transfer::conflicts::unfinished_storage;
use crate::transfer::request::{DatasetTransfer, bound};
use crate::virtual_dataset::FEW_OF_MANY_CHUNKS;

pub(in crate::transfer) fn plan(
    session: &Session<'_>,
    transfer: &DatasetTransfer<'_>,
    described: &mut TransferDescription,
) -> OrStop<(TransferKind, MemorySide)> {
    let TransferDescription { info, cached } = described;
    if info.is_final() && cached.is_none() {
        unfinished_storage::refuse(session, transfer.dataset)?;
    }
    let (selection, memory, conversion) = elements(session, transfer, info, cached.as_deref())?;
    if selection.is_empty() || info.is_null {
        return Ok((TransferKind::Nothing, memory));
    }
    if let Layout::Chunked { chunk, .. } = &info.layout {
        let touched = TouchedChunks::of(&selection, chunk, memory.layout.length);
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
    if let Layout::Virtual(_) = &info.layout {
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
    if matches!(info.layout, Layout::Compact) {
        return refused("the dataset is compact");
    }
    known_filters(info)?;
    if !info.file.is_plain || info.file.descriptor.is_none() {
        return refused("the file is not one plain file");
    }
    let element = conversion.element;
    let plan =
        |array: &StoredArray| Plan::new(array, selection, &memory.layout, element, Operation::Read);
    let dataset = transfer.dataset;
    let plan = match cached {
        Some(cached) => plan(cached.array(session, dataset)?.or_else(refused)?)?,
        None => plan(
            &info
                .array_to_read(info.table(session, dataset)?)?
                .or_else(refused)?,
        )?,
    };
    let files = match (&cached, transfer.file) {
        (Some(cached), None) => vec![or_hdf5(cached.file())?.into()],
        _ => or_hdf5(files_of_transfer(transfer, info))?,
    };
    let mut bound = bound(plan, files, conversion.values, &transfer.options);
    if let Some(cached) = cached {
        bound.keep_in(Arc::clone(&cached.chunks));
    }
    refuse_cut_off(&bound, info)?;
    Ok((TransferKind::Read(vec![bound]), memory))
}
