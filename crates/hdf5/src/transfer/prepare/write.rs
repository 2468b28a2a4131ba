//! Plans a write: turns HDF5's identifiers into a plan with its file and its sink.

use std::ffi::c_int;
use std::sync::Arc;

use penstock_array::execute::{BlockSink, BoundPlan, Sink, TransferKind, extents};
use penstock_array::{ChunkGrid, ChunkTable, MemorySide, Plan, Selection, TableBuilder};
use penstock_codec::Pipeline;
use penstock_engine::file::File;
use penstock_engine::file::position::Operation;
use penstock_engine::merged_options;
use penstock_sys::hdf5::H5F_SCOPE_LOCAL;

use super::conversion::conversion_of;
use super::outcome::{Stop, or_hdf5, refused};
use crate::conversion::Conversion;
use crate::dataset::{
    BUFFERED_WHOLE, DatasetInfo, Layout, PAGE_BUFFER, TouchedChunks, flush, read_chunk_table, sieve,
};
use crate::library::Session;
use crate::transfer::cache::open_file;
use crate::transfer::conflicts::unfinished_storage;
use crate::transfer::hdf5_state::{cannot_flush, may_flush};
use crate::transfer::request::{DatasetTransfer, direct};
use crate::transfer::sinks::{ChunkWriter, ContiguousStorage, WrittenDataset};
use crate::virtual_dataset::FEW_OF_MANY_CHUNKS;

/// Returns why a write is left to HDF5, if HDF5 lacks an optional filter and skips it. The program could
/// not read chunks that Penstock encodes with the filter.
pub(in crate::transfer) fn filter_left_out(
    session: &Session<'_>,
    info: &DatasetInfo,
) -> Option<String> {
    let missing = info.filters.iter().find(|filter| {
        // SAFETY: takes only a number.
        filter.optional && unsafe { (session.hdf5.H5Zfilter_avail)(filter.id as c_int) } <= 0
    })?;
    Some(format!(
        "HDF5 lacks the optional filter {}, so it skips it",
        missing.id
    ))
}

pub(in crate::transfer) fn plan(
    session: &Session<'static>,
    transfer: &DatasetTransfer<'_>,
    info: &mut DatasetInfo,
) -> std::result::Result<(TransferKind, MemorySide), Stop> {
    match info.layout {
        Layout::Compact => return refused("the dataset is compact"),
        Layout::Virtual(_) => return refused("the dataset is virtual"),
        Layout::External(_) => return refused("the dataset is in external files"),
        Layout::Contiguous { .. } | Layout::Chunked { .. } => {}
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
    let Conversion { element, values } = match conversion_of(transfer, session, info, None)? {
        Ok(found) => found,
        Err(why) => return refused(why),
    };
    if transfer.is_of_another_shape(session, info)? {
        return refused("the shape of the dataspace differs from that of the dataset");
    }
    let (selection, memory) =
        transfer.selections(session, info, element.memory(Operation::Write))?;
    if selection.has_repeats() {
        return refused("elements are selected more than once");
    }
    let is_contiguous = matches!(info.layout, Layout::Contiguous { .. });
    if !is_contiguous {
        let pipeline = Pipeline {
            filters: info.filters.clone(),
        };
        if let Some(filter) = pipeline.unwritable() {
            return refused(format!("only HDF5 knows {filter}"));
        }
    }
    if selection.is_empty() || info.is_null {
        return Ok((TransferKind::Nothing, memory));
    }
    if merged_options(transfer.options)?.durable == Some(true) && !may_flush() {
        return refused(cannot_flush().cause());
    }
    let (opened, written) = open(session, transfer, info)?;
    let table = match &info.layout {
        Layout::Chunked { chunk, .. } => {
            let chunk = chunk.clone();
            let table = chunk_table(session, transfer, info, &chunk, &selection, &opened)?;
            Some(table)
        }
        _ => {
            contiguous(session, transfer, info, &written, &selection, &opened)?;
            None
        }
    };
    let array = info.array(table)?;
    let plan = Plan::new(&array, selection, &memory.layout, element, Operation::Write)?;
    let files = vec![Arc::clone(&opened).into()];
    let bound = BoundPlan::new(plan, files, values, direct(&transfer.options));
    let kind = if is_contiguous {
        match extents(&bound, false)? {
            Some(ranges) => TransferKind::Plain {
                file: opened,
                ranges,
                at_end: Some({
                    let end = ContiguousStorage(written);
                    Box::new(move || end.end())
                }),
            },
            None => TransferKind::Write(bound, Sink::Blocks(Box::new(ContiguousStorage(written)))),
        }
    } else {
        TransferKind::Write(bound, Sink::Chunks(Box::new(ChunkWriter(written))))
    };
    Ok((kind, memory))
}

/// Opens the file and collects what the write needs of the dataset while it is in flight.
fn open(
    session: &Session<'static>,
    transfer: &DatasetTransfer<'_>,
    info: &DatasetInfo,
) -> std::result::Result<(Arc<File>, WrittenDataset), Stop> {
    let file = match transfer.file {
        Some(known) => Arc::clone(known),
        None => or_hdf5(open_file(&info.file, Operation::Write))?,
    };
    let written = WrittenDataset {
        is_durable: merged_options(transfer.options)?.durable == Some(true),
        ..WrittenDataset::new(session, transfer.dataset, info)
    };
    Ok((file, written))
}

/// Returns the table of stored chunks; it stays empty if only whole chunks are written.
fn chunk_table(
    session: &Session<'_>,
    transfer: &DatasetTransfer<'_>,
    info: &mut DatasetInfo,
    chunk: &[u64],
    selection: &Selection,
    file: &File,
) -> std::result::Result<Arc<ChunkTable>, Stop> {
    if selection.covers_chunks(&info.shape, chunk) {
        let grid = ChunkGrid::new(&info.shape, chunk).map_err(|error| info.name_in(error))?;
        let none = TableBuilder::new(grid, info.file.size).finish();
        return Ok(Arc::new(none));
    }
    let touched = TouchedChunks {
        chunks: selection.touched_chunks(chunk),
        bytes: selection
            .elements()
            .unwrap_or(u64::MAX)
            .saturating_mul(info.element.size().0),
    };
    // HDF5 may give filtered chunks wrong filter masks.
    if info.filters.is_empty() && info.is_sooner_by_hdf5(touched) {
        return refused(FEW_OF_MANY_CHUNKS);
    }
    flush(session, transfer.dataset, info)?.or_else(refused)?;
    // Chunks that were only in memory now have addresses, and the file is longer.
    info.refresh(session, transfer.dataset)?;
    let table =
        read_chunk_table(session, transfer.dataset, info).map_err(|error| info.name_in(error))?;
    // A damaged table may list addresses far past the end of any file.
    file.lengthen(table.end().min(info.file.size))?;
    Ok(Arc::new(table))
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
) -> std::result::Result<(), Stop> {
    if sieve::may_hold_all(info)? {
        return refused(BUFFERED_WHOLE);
    }
    match info.layout {
        Layout::Contiguous { offset: None } => {
            let past_sieve = sieve::past_sieve(session)?;
            let more_than = match past_sieve {
                Some(_) => 0,
                None => info.file.sieve_buffer as u64,
            };
            let Some((start, count)) = selection.end(&info.shape, written.element.0, more_than)
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
