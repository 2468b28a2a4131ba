//! Writing a dataset: from identifiers of HDF5 to a plan, or to what HDF5 itself must do. All of it
//! on the caller's thread.

use std::ffi::c_int;
use std::path::PathBuf;
use std::sync::Arc;

use penstock_codec::convert::Change;
use penstock_codec::{Filter, Pipeline};
use penstock_engine::Extent;
use penstock_engine::error::{Error, Result};
use penstock_engine::file::File;
use penstock_engine::file::side::Direct;
use penstock_engine::merged_options;
use penstock_sys::hdf5::{H5F_SCOPE_LOCAL, H5P_DEFAULT};

use crate::chunks::{ChunkGrid, ChunkTable, TableBuilder};
use crate::conversion::Conversion;
use crate::dataset::ElementType;
use crate::dataset::{DatasetInfo, Layout};
use crate::execute::write::{Dense, Native, Writing};
use crate::execute::{Reading, extents};
use crate::library::Session;
use crate::pair::pair;
use crate::plan::{Destination, Item, ReadPlan};
use crate::selection::{Axis, Selection};
use crate::transfer::read::{PAGE_BUFFER, Planned, Refused, Stop, direct, flush, refused};
use crate::transfer::request::{Order, Shape};
use crate::transfer::unfinished;

/// A write that is ready to be submitted.
pub struct Prepared {
    pub(crate) way: Way,
    /// Lowest byte and number of bytes of the memory, from the address that the caller gave.
    pub low: i64,
    pub length: u64,
    /// Why HDF5 itself writes the elements.
    pub reason: Option<String>,
    /// Bytes that HDF5 has written already.
    pub done: u64,
    /// The file that errors name.
    pub path: PathBuf,
}

impl Prepared {
    /// Whether nothing is left to be written.
    pub fn is_done(&self) -> bool {
        matches!(self.way, Way::Done)
    }

    /// Whether HDF5 itself writes, in a turn.
    pub(crate) fn is_through_hdf5(&self) -> bool {
        matches!(self.way, Way::ThroughHdf5(..))
    }

    /// The sides of the blocks of which elements are read and written back as they were, if there are
    /// any. While it is under way, nothing else may write to a block that it touches.
    pub fn rewritten(&self) -> Option<&[u64]> {
        match &self.way {
            Way::Contiguous(writing, _, None) => writing.reading.plan.rewritten(),
            _ => None,
        }
    }
}

pub(crate) enum Way {
    Done,
    Chunks(Writing, Native),
    /// With its ranges, if it is moved as it is, in long runs, and nothing beside it. Their memory counts
    /// from the lowest byte.
    Contiguous(Writing, Native, Option<Vec<Extent>>),
    ThroughHdf5(Writing, Dense),
}

/// Plans a write. `host` is the buffer if it is in host memory and holds its final contents: HDF5
/// then writes straight from it what it must write; otherwise in a turn of the request. `before_hdf5`
/// is called before HDF5 writes.
///
/// # Safety
/// `host` is null or valid for what the order describes.
pub unsafe fn prepare(
    session: &Session<'static>,
    order: &Order<'_>,
    host: *const u8,
    before_hdf5: &dyn Fn(),
) -> Result<Prepared> {
    let info = order.info(session)?;
    match plan(session, order, &info) {
        Ok(prepared) => Ok(prepared),
        Err(Stop::Failed(error)) => Err(error),
        Err(Stop::Refused(Refused(why))) => {
            before_hdf5();
            // SAFETY: passed on.
            unsafe { by_hdf5(session, order, &info, host, why) }
        }
    }
}

/// Plans a write, or says why only HDF5 can do it.
pub fn prepare_or_refuse(
    session: &Session<'static>,
    order: &Order<'_>,
) -> Result<Planned<Prepared>> {
    let info = order.info(session)?;
    if let Some(filter) = left_out(session, &info.filters) {
        let why = format!(
            "HDF5 lacks filter {}, which is optional: it leaves it out",
            filter.id
        );
        return Ok(Err(Refused(why)));
    }
    match plan(session, order, &info) {
        Ok(prepared) => Ok(Ok(prepared)),
        Err(Stop::Failed(error)) => Err(error),
        Err(Stop::Refused(why)) => Ok(Err(why)),
    }
}

/// A filter that HDF5 leaves out of what it writes: the program could not read what it had written
/// itself if its chunks went through it.
fn left_out<'a>(session: &Session<'_>, filters: &'a [Filter]) -> Option<&'a Filter> {
    filters.iter().find(|filter| {
        // SAFETY: takes a number only.
        filter.optional && unsafe { (session.hdf5.H5Zfilter_avail)(filter.id as c_int) } <= 0
    })
}

fn plan(
    session: &Session<'static>,
    order: &Order<'_>,
    info: &DatasetInfo,
) -> std::result::Result<Prepared, Stop> {
    match info.layout {
        Layout::Compact => return refused("the dataset is compact"),
        Layout::Virtual(_) => return refused("the dataset is virtual"),
        Layout::External(_) => return refused("the dataset is in external files"),
        Layout::Contiguous { .. } | Layout::Chunked { .. } => {}
    }
    let file = &info.file;
    let Some(descriptor) = file.descriptor.filter(|_| file.is_plain) else {
        return refused("the file is not one plain file");
    };
    if !file.is_writable || file.is_swmr {
        return refused("the file is not open for writing, or for readers at the same time");
    }
    if file.page_buffer > 0 {
        return refused(PAGE_BUFFER);
    }
    // SAFETY: takes an identifier, which HDF5 checks; the answer is ours to close.
    let file_type = unsafe { (session.hdf5.H5Dget_type)(order.dataset) };
    let file_type = session.own(file_type, session.hdf5.H5Tclose, "get the element type")?;
    let found = Conversion::find(session, order.memory_type, file_type.get())?;
    let Conversion { item, change } = match found {
        Ok(found) => found,
        Err(why) => return refused(why),
    };
    if order.is_of_another_shape(session, info)? {
        return refused("the dataspace has another shape than the dataset");
    }
    let (selection, memory) = order.selections(session, info, item.stored)?;
    if selection.has_repeats() {
        return refused("elements are selected more than once");
    }
    let pipeline = Pipeline {
        filters: match info.layout {
            Layout::Chunked { .. } => info.filters.clone(),
            _ => Vec::new(),
        },
    };
    if let Some(filter) = pipeline.unknown() {
        return refused(format!("filter {} is known to HDF5 only", filter.id));
    }
    let prepared = |way| Prepared {
        way,
        low: memory.low,
        length: memory.destination.length,
        reason: None,
        done: 0,
        path: file.name.clone(),
    };
    if selection.is_empty() || info.is_null {
        return Ok(prepared(Way::Done));
    }
    let is_contiguous = matches!(info.layout, Layout::Contiguous { .. });
    let (opened, native) = native(session, order, info, descriptor, is_contiguous)?;
    let (info, table) = match &info.layout {
        Layout::Chunked { chunk, .. } => {
            let (info, table) = chunk_table(session, order, info, chunk, &selection, &opened)?;
            (info, Some(table))
        }
        _ => (
            contiguous(session, order, info, &native, &selection, &opened)?,
            None,
        ),
    };
    let in_file = Item {
        memory: item.stored,
        ..Item::whole(item.memory)
    };
    let plan = ReadPlan::of_change(&info, table, selection, &memory.destination, in_file)?;
    let reading = Reading {
        plan: Arc::new(plan),
        files: vec![Ok(opened)],
        pipeline,
        change,
        direct: direct(&order.options),
        given: None,
    };
    let ranges = match is_contiguous {
        true => extents(&reading, 0, false)?,
        false => None,
    };
    let writing = Writing {
        reading,
        memory: item,
    };
    Ok(prepared(match is_contiguous {
        true => Way::Contiguous(writing, native, ranges),
        false => Way::Chunks(writing, native),
    }))
}

/// The dataset and its file, as needed while the write is under way.
fn native(
    session: &Session<'static>,
    order: &Order<'_>,
    info: &DatasetInfo,
    descriptor: i32,
    writes: bool,
) -> Result<(Arc<File>, Native)> {
    let opened = match order.known.file {
        Some(known) => Arc::clone(known),
        None => {
            let name = &info.file.name;
            Arc::new(File::of_descriptor(
                descriptor,
                name,
                writes,
                order.options,
            )?)
        }
    };
    let is_durable = merged_options(order.options)?.durable == Some(true);
    let native = Native {
        durable: is_durable.then(|| Arc::clone(&opened)),
        ..Native::new(session, order.dataset, info)
    };
    Ok((opened, native))
}

/// The stored chunks, as far as they count: not if only whole ones are written.
fn chunk_table(
    session: &Session<'_>,
    order: &Order<'_>,
    info: &DatasetInfo,
    chunk: &[u64],
    selection: &Selection,
    file: &File,
) -> Result<(DatasetInfo, Arc<ChunkTable>)> {
    let named = |e| info.name_in(e);
    if selection.covers_chunks(&info.shape, chunk) {
        let grid = ChunkGrid::new(&info.shape, chunk).map_err(named)?;
        let none = TableBuilder::new(grid, info.file.size).finish();
        return Ok((info.clone(), Arc::new(none)));
    }
    flush(session, order.dataset, info)?;
    // Chunks that were only in memory have their places now, and the file is longer.
    let info = DatasetInfo::read(session, order.dataset)?;
    let table = ChunkTable::read(session, order.dataset, &info).map_err(named)?;
    // A table that is damaged may name places where no file ends.
    file.lengthen(table.end().min(info.file.size))?;
    Ok((info, Arc::new(table)))
}

/// Makes sure that the dataset has storage of which HDF5 holds nothing back, and that HDF5 can be
/// told of the new bytes.
fn contiguous(
    session: &Session<'_>,
    order: &Order<'_>,
    info: &DatasetInfo,
    native: &Native,
    selection: &Selection,
    file: &File,
) -> std::result::Result<DatasetInfo, Stop> {
    let reach = info.bytes()?.saturating_sub(native.element);
    if reach < info.file.sieve_buffer as u64 {
        return refused("the dataset is so small that HDF5 may keep all of it");
    }
    let info = match info.layout {
        Layout::Contiguous { offset: None } => {
            let past_sieve = native.past_sieve(session)?;
            let more_than = match past_sieve {
                Some(_) => 0,
                None => info.file.sieve_buffer as u64,
            };
            let Some((start, count)) = selection.end(&info.shape, native.element, more_than) else {
                return refused("the last element cannot be told");
            };
            let (end, fill) = ((&*start, &*count), info.fill.as_deref());
            let allocate = || native.allocate(session, end, fill, past_sieve);
            unfinished::watched(session, order.dataset, allocate)?;
            DatasetInfo::read(session, order.dataset)?
        }
        _ => {
            unfinished::refuse(session, order.dataset)?;
            flush(session, order.dataset, info)?;
            info.clone()
        }
    };
    let Layout::Contiguous {
        offset: Some(offset),
    } = info.layout
    else {
        return refused("no storage is allocated");
    };
    // HDF5 does so only when it flushes or closes the file. What was never written is zeros then.
    file.lengthen(offset.saturating_add(info.bytes()?))?;
    if native.durable.is_some() {
        // SAFETY: takes an identifier, which HDF5 checks.
        let status = unsafe { (session.hdf5.H5Fflush)(order.dataset, H5F_SCOPE_LOCAL) };
        session.check(status, "flush the file")?;
    }
    Ok(info)
}

/// Lets HDF5 write: at once if it can write straight from the caller's buffer, else in a turn.
///
/// # Safety
/// As for [`prepare`].
unsafe fn by_hdf5(
    session: &Session<'static>,
    order: &Order<'_>,
    info: &DatasetInfo,
    host: *const u8,
    why: String,
) -> Result<Prepared> {
    let element = order.memory_size(session)?;
    let (selection, memory) = order.selections(session, info, element)?;
    let prepared = |way, done| Prepared {
        way,
        low: memory.low,
        length: memory.destination.length,
        reason: Some(why.clone()),
        done,
        path: info.file.name.clone(),
    };
    if selection.is_empty() || info.is_null {
        return Ok(prepared(Way::Done, 0));
    }
    let elements = selection.elements().unwrap_or(0);
    let is_durable = merged_options(order.options)?.durable == Some(true);
    let durable = match info.file.descriptor.filter(|_| is_durable) {
        Some(descriptor) => {
            let name = &info.file.name;
            Some(Arc::new(File::of_descriptor(
                descriptor,
                name,
                false,
                order.options,
            )?))
        }
        None => None,
    };
    let dense = Dense {
        native: Native {
            durable,
            ..Native::new(session, order.dataset, info)
        },
        memory_type: order.memory_type,
        file_space: order.file_space,
        transfer: order.transfer,
        elements,
        bytes: elements.saturating_mul(element),
    };
    let failed = |error: Error| error.in_file(&info.file.name);
    let (shape, selection, from) = match order.shape {
        Shape::Array { .. } => {
            let shape = selection.shape().unwrap_or_default();
            let dense_shape = Destination::dense(&shape, element)?;
            if !host.is_null() && memory.destination == dense_shape && memory.low == 0 {
                // SAFETY: the caller vouches for the buffer, which is dense.
                unsafe { dense.write(session, host).map_err(failed)? };
                return Ok(prepared(Way::Done, dense.bytes));
            }
            let all = Selection::all(&shape);
            (shape, all, memory.destination.clone())
        }
        Shape::Space(space) => {
            if !host.is_null() {
                let transfer = match order.transfer {
                    0 => H5P_DEFAULT,
                    own => own,
                };
                // SAFETY: HDF5 checks the identifiers; the caller vouches for the buffer.
                let status = unsafe {
                    (session.hdf5.H5Dwrite)(
                        order.dataset,
                        order.memory_type,
                        space,
                        order.file_space,
                        transfer,
                        host.cast(),
                    )
                };
                session
                    .check(status, "write the dataset")
                    .map_err(|e| failed(info.name_in(e)))?;
                dense.native.make_durable(session)?;
                return Ok(prepared(Way::Done, dense.bytes));
            }
            let all = Selection::all(&[elements]);
            let (of_memory, extent) = order.memory_selection(session, space, info)?;
            let (from, to) = pair(&all, &[elements], &of_memory, &extent, element)?;
            (vec![elements], from, to)
        }
    };
    let gathered = DatasetInfo {
        shape,
        element: ElementType::OnlyHdf5 {
            size: element as usize,
            what: "as HDF5 is to write it",
        },
        filters: Vec::new(),
        fill: None,
        layout: Layout::Compact,
        ..info.clone()
    };
    let item = Item::whole(element);
    let plan = ReadPlan::of_change(&gathered, None, selection, &from, item)?;
    let writing = Writing {
        reading: Reading {
            plan: Arc::new(plan),
            files: Vec::new(),
            pipeline: Pipeline::default(),
            change: Change::Copy,
            direct: Direct::Never,
            given: None,
        },
        memory: item,
    };
    Ok(prepared(Way::ThroughHdf5(writing, dense.keep(session)?), 0))
}

impl Selection {
    /// Whether an element is selected more than once.
    fn has_repeats(&self) -> bool {
        match self {
            Selection::Grid(axes) => axes.iter().any(|axis| match axis {
                Axis::Slab { .. } => false,
                Axis::Runs(runs) => runs
                    .windows(2)
                    .any(|pair| pair[0].start + pair[0].length > pair[1].start),
            }),
            Selection::Runs(runs) => {
                let is_sorted = |runs: &[(u64, u64)]| runs.windows(2).all(|p| p[0].1 <= p[1].0);
                let mut ends: Vec<(u64, u64)> = runs
                    .iter()
                    .filter(|run| run.length > 0)
                    .map(|run| (run.source, run.source.saturating_add(run.length)))
                    .collect();
                if is_sorted(&ends) {
                    return false;
                }
                ends.sort_unstable();
                !is_sorted(&ends)
            }
        }
    }

    /// Whether every chunk that is touched is covered, but for what lies outside the dataset.
    fn covers_chunks(&self, shape: &[u64], chunk: &[u64]) -> bool {
        let Selection::Grid(axes) = self else {
            return false;
        };
        let is_covered = |(axis, (size, side)): (&Axis, (&u64, &u64))| {
            let range = axis.clone().normal().as_range();
            range.is_some_and(|(start, count)| {
                let end = start + count;
                start % side == 0 && (end % side == 0 || end == *size)
            })
        };
        axes.iter().zip(shape.iter().zip(chunk)).all(is_covered)
    }

    /// First index and lengths of the last elements that are selected and follow each other in the
    /// dataset: of more than so many bytes if there are as many, and then few more; else of one element.
    fn end(&self, shape: &[u64], element: u64, more_than: u64) -> Option<(Vec<u64>, Vec<u64>)> {
        let last = self.last(shape)?;
        let one = vec![1; last.len()];
        let Selection::Grid(axes) = self else {
            return Some((last, one));
        };
        let (mut start, mut count, mut bytes) = (last.clone(), one.clone(), element.max(1));
        for (at, axis) in axes.iter().enumerate().rev() {
            count[at] = axis.last_run().min(more_than / bytes + 1);
            start[at] -= count[at] - 1;
            bytes = bytes.saturating_mul(count[at]);
            if bytes > more_than {
                return Some((start, count));
            }
            if count[at] != shape[at] {
                break;
            }
        }
        Some((last, one))
    }

    /// Index of the last element of the dataset that is selected.
    fn last(&self, shape: &[u64]) -> Option<Vec<u64>> {
        match self {
            Selection::Grid(axes) => axes.iter().map(Axis::last).collect(),
            Selection::Runs(runs) => {
                let runs = runs.iter().filter(|run| run.length > 0);
                let mut left = runs.map(|run| run.source + run.length - 1).max()?;
                let mut at = vec![0; shape.len()];
                for (at, size) in at.iter_mut().zip(shape).rev() {
                    *at = left % (*size).max(1);
                    left /= (*size).max(1);
                }
                Some(at)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_selection_is_one_run_of_as_many_bytes_as_asked_for() {
        let end = |selection: &Selection, bytes| selection.end(&[6, 10], 4, bytes).unwrap();
        let all = Selection::all(&[6, 10]);
        assert_eq!(end(&all, 39), (vec![5, 0], vec![1, 10]));
        assert_eq!(end(&all, 40), (vec![4, 0], vec![2, 10]));
        assert_eq!(end(&all, 12), (vec![5, 6], vec![1, 4]));
        let rows = Selection::Grid(vec![Axis::range(1, 3), Axis::all(10)]);
        assert_eq!(end(&rows, 60), (vec![2, 0], vec![2, 10]));
        let one = (vec![3, 9], vec![1, 1]);
        assert_eq!(end(&rows, 120), one, "not so much is selected");
        let strided = Selection::Grid(vec![Axis::range(0, 4), Axis::strided(1, 2, 5)]);
        assert_eq!(end(&strided, 8), one);
        let columns = Selection::Grid(vec![Axis::range(0, 4), Axis::range(2, 8)]);
        assert_eq!(end(&columns, 28), (vec![3, 2], vec![1, 8]));
        assert_eq!(end(&columns, 40), one, "the rows do not follow each other");
    }

    #[test]
    fn an_element_that_is_selected_twice_is_found_in_any_order() {
        let points = |list: &[u64]| Selection::points(&[10], list).unwrap();
        assert!(points(&[5, 1, 5]).has_repeats());
        assert!(!points(&[5, 1, 4, 2]).has_repeats());
        assert!(Selection::Grid(vec![Axis::list(&[3, 1, 3])]).has_repeats());
        assert!(!Selection::Grid(vec![Axis::list(&[3, 1, 2])]).has_repeats());
    }

    #[test]
    fn only_ranges_that_end_with_chunks_or_the_dataset_cover_chunks() {
        let covers = |axis| Selection::Grid(vec![axis]).covers_chunks(&[10], &[4]);
        assert!(covers(Axis::all(10)));
        assert!(covers(Axis::range(4, 6)));
        assert!(covers(Axis::range(4, 4)));
        assert!(!covers(Axis::range(4, 5)));
        assert!(!covers(Axis::range(3, 7)));
        assert!(!covers(Axis::strided(0, 2, 5)));
    }
}
