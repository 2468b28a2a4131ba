//! Plans a write: turns HDF5's identifiers into a plan with its file and its sink.

use std::sync::Arc;

use penstock_array::execute::{BlockSink, Sink, TransferKind, extents};
use penstock_array::{ChunkGrid, ChunkTable, MemorySide, Plan, Selection, TableBuilder};
use penstock_codec::Filter;
use penstock_engine::file::File;
use penstock_engine::file::position::Operation;
use penstock_engine::merged_options;
use penstock_sys::hdf5::H5F_SCOPE_LOCAL;

use super::elements::elements;
use super::outcome::{OrStop, or_hdf5, refused};
use crate::dataset::{
    BUFFERED_WHOLE, DatasetInfo, Layout, PAGE_BUFFER, TouchedChunks, flush, sieve,
};
use crate::library::Session;
use crate::transfer::cache::open_file;
use crate::transfer::conflicts::unfinished_storage;
use crate::transfer::hdf5_state::{cannot_flush, may_flush};
use crate::transfer::request::{DatasetTransfer, bound};
use crate::transfer::sinks::{ChunkWriter, ContiguousStorage, WrittenDataset};
use crate::virtual_dataset::FEW_OF_MANY_CHUNKS;

/// Why a write is refused if an element would get several values.
pub(super) const REPEATS: &str = "elements are selected more than once";

/// Returns why a write is left to HDF5, if HDF5 lacks an optional filter and skips it. The program could
/// not read chunks that Penstock encodes with the filter.
pub(in crate::transfer) fn filter_left_out(
    session: &Session<'_>,
    info: &DatasetInfo,
) -> Option<String> {
    let is_left_out = |filter: &&Filter| filter.optional && !session.has_filter(filter.id);
    let missing = info.filters.iter().find(is_left_out)?;
    Some(format!(
        "HDF5 lacks the optional filter {}, so it skips it",
        missing.id
    ))
}

pub(in crate::transfer) fn plan(
    session: &Session<'static>,
    transfer: &DatasetTransfer<'_>,
    info: &mut DatasetInfo,
) -> OrStop<(TransferKind, MemorySide)> {
    if let Some(why) = info.layout.elsewhere() {
        return refused(why);
    }
    let file = &info.file;
    if !file.is_plain || file.descriptor.is_none() {
        return refused("the file is not one plain file");
    }
    if !file.is_writable || file.is_swmr {
        return refused("the file is read-only or open for concurrent readers (SWMR)");
    }
    if file.page_buffer > 0 {
        return refused(PAGE_BUFFER);
    }
    let (selection, memory, conversion) = elements(session, transfer, info, None)?;
    if selection.has_repeats() {
        return refused(REPEATS);
    }
    if let Some(filter) = info.pipeline().unwritable() {
        return refused(format!("only HDF5 has {filter}"));
    }
    if selection.is_empty() || info.is_null {
        return Ok((TransferKind::Nothing, memory));
    }
    if merged_options(transfer.options)?.durable == Some(true) && !may_flush() {
        return refused(cannot_flush().cause());
    }
    let (opened, written) = open(session, transfer, info)?;
    let is_chunked = matches!(info.layout, Layout::Chunked { .. });
    let table = if is_chunked {
        chunk_table(session, transfer, info, &selection, &opened)?
    } else {
        contiguous(session, transfer, info, &written, &selection, &opened)?;
        None
    };
    let array = info.array(table)?;
    let (layout, element) = (&memory.layout, conversion.element);
    let plan = Plan::new(&array, selection, layout, element, Operation::Write)?;
    let files = vec![Arc::clone(&opened).into()];
    let bound = bound(plan, files, conversion.values, &transfer.options);
    if is_chunked {
        let sink = Sink::Chunks(Box::new(ChunkWriter(written)));
        return Ok((TransferKind::Write(bound, sink), memory));
    }
    let storage = ContiguousStorage(written);
    let kind = match extents(&bound, false)? {
        Some(ranges) => TransferKind::Plain {
            file: opened,
            ranges,
            at_end: Some(Box::new(move || storage.end())),
        },
        None => TransferKind::Write(bound, Sink::Blocks(Box::new(storage))),
    };
    Ok((kind, memory))
}

/// Opens the file and collects what the write needs of the dataset while it is in flight.
fn open(
    session: &Session<'static>,
    transfer: &DatasetTransfer<'_>,
    info: &DatasetInfo,
) -> OrStop<(Arc<File>, WrittenDataset)> {
    let file = match transfer.file {
        Some(known) => Arc::clone(known),
        None => or_hdf5(open_file(&info.file, Operation::Write))?,
    };
    let written = WrittenDataset {
        is_durable: merged_options(transfer.options)?.durable == Some(true),
        ..WrittenDataset::new(session, transfer.dataset, Arc::new(info.clone()))
    };
    Ok((file, written))
}

/// Returns the table of stored chunks. It stays empty if only whole chunks are written.
fn chunk_table(
    session: &Session<'_>,
    transfer: &DatasetTransfer<'_>,
    info: &mut DatasetInfo,
    selection: &Selection,
    file: &File,
) -> OrStop<Option<Arc<ChunkTable>>> {
    if selection.covers_chunks(&info.shape, info.chunk()) {
        let grid =
            ChunkGrid::new(&info.shape, info.chunk()).map_err(|error| info.name_in(error))?;
        let none = TableBuilder::new(grid, info.file.size).finish();
        return Ok(Some(Arc::new(none)));
    }
    let elements = selection.elements().unwrap_or(u64::MAX);
    let bytes = elements.saturating_mul(info.element.size().0);
    let touched = TouchedChunks::of(selection, info.chunk(), bytes);
    // HDF5 may give filtered chunks wrong filter masks.
    if info.filters.is_empty() && info.is_sooner_by_hdf5(touched) {
        return refused(FEW_OF_MANY_CHUNKS);
    }
    flush(session, transfer.dataset, info)?.or_else(refused)?;
    // Chunks that were only in memory now have addresses, and the file is longer.
    info.refresh(session, transfer.dataset)?;
    let table = info.table(session, transfer.dataset)?;
    // A damaged table may list addresses far past the end of any file.
    let end = table.as_ref().map_or(0, |table| table.end());
    file.lengthen(end.min(info.file.size))?;
    Ok(table)
}

/// Ensures that the dataset has storage of which HDF5 buffers nothing, and that HDF5 can be made to
/// see the new bytes.
fn contiguous(
    session: &Session<'_>,
    transfer: &DatasetTransfer<'_>,
    info: &mut DatasetInfo,
    written: &WrittenDataset,
    selection: &Selection,
    file: &File,
) -> OrStop<()> {
    if sieve::may_hold_all(info)? {
        return refused(BUFFERED_WHOLE);
    }
    match info.layout {
        Layout::Contiguous { offset: None } => {
            let past_sieve = sieve::past_sieve(session)?;
            let more_than = if past_sieve.is_some() {
                0
            } else {
                info.file.sieve_buffer as u64
            };
            let Some((start, count)) = selection.end(&info.shape, info.element.size().0, more_than)
            else {
                return refused("the last selected element is unknown");
            };
            let (end, fill) = ((&*start, &*count), info.fill.value());
            let allocate = || written.allocate(session, end, fill, past_sieve);
            unfinished_storage::watched(session, transfer.dataset, allocate)?;
            info.refresh(session, transfer.dataset)?;
        }
        _ => {
            unfinished_storage::refuse(session, transfer.dataset)?;
            flush(session, transfer.dataset, info)?.or_else(refused)?;
        }
    }
    let Layout::Contiguous {
        offset: Some(offset),
    } = info.layout
    else {
        return refused("no storage is allocated");
    };
    // HDF5 sets the length only when it flushes or closes the file. Unwritten bytes are then zeros.
    file.lengthen(offset.saturating_add(info.bytes()?))?;
    if written.is_durable {
        // SAFETY: takes an identifier, which HDF5 checks.
        let status = unsafe { (session.hdf5.H5Fflush)(transfer.dataset, H5F_SCOPE_LOCAL) };
        session.check(status, "flush the file")?;
    }
    Ok(())
}
