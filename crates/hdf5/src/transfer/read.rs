//! Reading a dataset: from identifiers of HDF5 to a plan with its files, or to what HDF5 itself
//! must do. All of it on the caller's thread; what it makes needs HDF5 no more.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_void;
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;

use penstock_codec::Pipeline;
use penstock_codec::convert::Change;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::side::Direct;
use penstock_engine::file::{Access, File};
use penstock_engine::options::{Choice, Options};
use penstock_sys::hdf5::{H5P_DEFAULT, hid_t};

use crate::chunks::ChunkTable;
use crate::conversion::Conversion;
use crate::dataset::ElementType;
use crate::dataset::{DatasetInfo, Layout};
use crate::execute::Reading;
use crate::library::{Id, Session};
use crate::pair::pair;
use crate::plan::{Destination, Item, ReadPlan};
use crate::selection::Selection;
use crate::transfer::request::{Order, Shape};
use crate::transfer::unfinished;
use crate::virtual_dataset::{Composition, Store, compose};

/// A read that needs HDF5 no more.
#[derive(Debug)]
pub struct Prepared {
    pub readings: Vec<Reading>,
    /// Lowest and highest byte of the memory, from the address that the caller gave.
    pub low: i64,
    pub length: u64,
    /// Why HDF5 itself has read the elements.
    pub reason: Option<String>,
    /// Bytes that HDF5 has put into the caller's memory.
    pub done: u64,
    /// The file that errors name.
    pub path: PathBuf,
}

impl Prepared {
    /// The files that it reads.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Arc<File>> {
        let files = self.readings.iter().flat_map(|reading| &reading.files);
        files.filter_map(|file| file.as_ref().ok())
    }

    /// Whether the file of a dataset that is not virtual ends before what is read.
    pub fn is_cut_off(&self) -> Result<bool> {
        match self.readings.as_slice() {
            [reading] if reading.plan.end() != 0 && !reading.plan.is_external() => {
                let size = reading.file(0)?.size()?;
                Ok(reading.plan.end() > size && reading.reaches_beyond(size)?)
            }
            _ => Ok(false),
        }
    }

    /// Whether elements lie in external files.
    pub(crate) fn is_external(&self) -> bool {
        self.readings.iter().any(|r| r.plan.is_external())
    }
}

/// What only HDF5 can do, and why.
pub struct Refused(pub String);

/// A plan, unless only HDF5 can do it.
pub type Planned<T> = std::result::Result<T, Refused>;

pub(crate) enum Stop {
    Refused(Refused),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Failed(error)
    }
}

pub(crate) fn refused<T>(why: impl Into<String>) -> std::result::Result<T, Stop> {
    Err(Stop::Refused(Refused(why.into())))
}

/// Plans a read. `host` is the buffer if it is in host memory: HDF5 then reads straight into it
/// where it must; otherwise into memory of its own, from which a plan goes on. `before_hdf5` is called
/// before HDF5 reads.
///
/// # Safety
/// `host` is null or valid for what the order describes.
pub unsafe fn prepare(
    session: &Session<'_>,
    order: &Order<'_>,
    host: *mut u8,
    before_hdf5: &dyn Fn(),
) -> Result<Prepared> {
    let (info, planned) = try_plan(session, order)?;
    match planned {
        Ok(prepared) => Ok(prepared),
        Err(Refused(why)) => {
            before_hdf5();
            // SAFETY: passed on.
            unsafe { by_hdf5(session, order, &info, host, why) }
        }
    }
}

/// Plans a read, or says why only HDF5 can do it.
pub fn prepare_or_refuse(session: &Session<'_>, order: &Order<'_>) -> Result<Planned<Prepared>> {
    Ok(try_plan(session, order)?.1)
}

fn try_plan(
    session: &Session<'_>,
    order: &Order<'_>,
) -> Result<(Arc<DatasetInfo>, Planned<Prepared>)> {
    let mut info = order.info(session)?;
    if info.is_settled() {
        unfinished::refuse(session, order.dataset)?;
    }
    if info.file.is_writable && info.file.is_plain {
        if info.file.page_buffer > 0 {
            let why = PAGE_BUFFER.to_owned();
            return Ok((Arc::new(info), Err(Refused(why))));
        }
        flush(session, order.dataset, &info)?;
        if !info.is_settled() {
            // Chunks that were only in memory have their places now, and the file is longer.
            info = DatasetInfo::read(session, order.dataset)?;
        }
    }
    let info = Arc::new(info);
    match plan(session, order, &info) {
        Ok(prepared) => Ok((info, Ok(prepared))),
        Err(Stop::Failed(error)) => Err(error),
        Err(Stop::Refused(why)) => Ok((info, Err(why))),
    }
}

fn plan(
    session: &Session<'_>,
    order: &Order<'_>,
    info: &Arc<DatasetInfo>,
) -> std::result::Result<Prepared, Stop> {
    // SAFETY: takes an identifier, which HDF5 checks; the answer is ours to close.
    let file_type = unsafe { (session.hdf5.H5Dget_type)(order.dataset) };
    let file_type = session.own(file_type, session.hdf5.H5Tclose, "get the element type")?;
    let found = Conversion::find(session, file_type.get(), order.memory_type)?;
    let conversion = match found {
        Ok(found) => found,
        Err(why) => return refused(why),
    };
    let Conversion { item, change } = conversion;
    if order.is_of_another_shape(session, info)? {
        return refused("the dataspace has another shape than the dataset");
    }
    let (selection, memory) = order.selections(session, info, item.memory)?;
    let prepared = |readings| Prepared {
        readings,
        low: memory.low,
        length: memory.destination.length,
        reason: None,
        done: 0,
        path: info.file.name.clone(),
    };
    if selection.is_empty() || info.is_null {
        return Ok(prepared(Vec::new()));
    }
    match &info.layout {
        Layout::Compact => return refused("the dataset is compact"),
        Layout::Virtual(_) => {
            let target = &memory.destination;
            return virtual_parts(session, order, info, &selection, target, &conversion)
                .map(prepared);
        }
        _ => {}
    }
    let pipeline = known_filters(info)?;
    if !info.file.is_plain || info.file.descriptor.is_none() {
        return refused("the file is not one plain file");
    }
    let table = match info.layout {
        Layout::Chunked { .. } => Some(Arc::new(
            ChunkTable::read(session, order.dataset, info).map_err(|e| info.name_in(e))?,
        )),
        _ => None,
    };
    let plan = ReadPlan::new(info, table, selection, &memory.destination, item)?;
    let reading = Reading {
        plan: Arc::new(plan),
        files: order.files(info)?,
        pipeline,
        change,
        direct: direct(&order.options),
        given: None,
    };
    refuse_cut_off(&reading, info)?;
    Ok(prepared(vec![reading]))
}

/// Leaves to HDF5 what the file does not reach yet, though HDF5 has allocated it: nothing was written there,
/// and HDF5 reads zeros.
fn refuse_cut_off(reading: &Reading, info: &DatasetInfo) -> std::result::Result<(), Stop> {
    if !info.file.may_end_early() || reading.plan.end() == 0 {
        return Ok(());
    }
    let size = reading.file(0)?.size()?;
    // A chunk that another process has listed and not written makes the table of chunks an error.
    let is_whole = reading.plan.end() <= size;
    if is_whole || !(info.file.is_swmr || reading.reaches_beyond(size)?) {
        return Ok(());
    }
    refused("the file ends before what is read, where HDF5 has written nothing yet")
}

fn known_filters(info: &DatasetInfo) -> std::result::Result<Pipeline, Stop> {
    let pipeline = Pipeline {
        filters: info.filters.clone(),
    };
    match pipeline.unknown() {
        Some(filter) => refused(format!("filter {} is known to HDF5 only", filter.id)),
        None => Ok(pipeline),
    }
}

/// The readings of the datasets that a virtual dataset is made of.
fn virtual_parts(
    session: &Session<'_>,
    order: &Order<'_>,
    info: &Arc<DatasetInfo>,
    selection: &Selection,
    target: &Destination,
    conversion: &Conversion,
) -> std::result::Result<Vec<Reading>, Stop> {
    let memory_type = ElementType::read(session, order.memory_type)?;
    // What holds for other types than that of the virtual dataset was not tried out with this HDF5,
    // unless the numbers stay what they are.
    let conversion_of = |element: &ElementType| {
        if *element == info.element {
            return Some(*conversion);
        }
        let found = Conversion::between(element, &memory_type).ok()?;
        (!matches!(found.change, Change::Convert { .. })).then_some(found)
    };
    let item = |element: &ElementType| conversion_of(element).map(|found| found.item);
    let parts = match compose(session, order.dataset, info, selection, target, &item)? {
        Composition::Parts(parts) => parts,
        Composition::Hdf5(why) => return refused(why),
    };
    let mut opened: HashMap<PathBuf, Arc<File>> = HashMap::new();
    let mut readings = Vec::with_capacity(parts.len());
    for part in parts {
        let (files, given) = match &part.store {
            Store::None => (Vec::new(), None),
            Store::Memory(elements) => (Vec::new(), Some(Arc::clone(elements))),
            Store::File(_) if matches!(part.info.layout, Layout::External(_)) => {
                (files(&part.info, order.options)?, None)
            }
            Store::File(source) => {
                let file = match opened.entry(source.path()) {
                    Entry::Occupied(known) => Arc::clone(known.get()),
                    Entry::Vacant(place) => {
                        let file = File::open_as(&source.path(), source.name(), order.options)?;
                        source.verify(&file.metadata()?)?;
                        Arc::clone(place.insert(Arc::new(file)))
                    }
                };
                (vec![Ok(file)], None)
            }
        };
        let change = conversion_of(&part.info.element).map_or(Change::Copy, |found| found.change);
        let reading = Reading {
            plan: part.plan,
            files,
            pipeline: known_filters(&part.info)?,
            change,
            direct: direct(&order.options),
            given,
        };
        refuse_cut_off(&reading, &part.info)?;
        readings.push(reading);
    }
    Ok(readings)
}

/// Why only HDF5 reads and writes where it may hold changed pages. H5Fflush alone writes these, and HDF5
/// (1.14.4, 2.2.0) damages files with a page buffer that are flushed often.
pub(crate) const PAGE_BUFFER: &str = "the file has a page buffer";

/// What HDF5 holds changed of the elements in memory goes into the file first.
///
/// Chunks by a look at one of them, for which HDF5 writes all that it has in its cache. H5Dflush would
/// write the metadata, too, and leaves the cache of that in disorder at times (1.14.4, 2.2.0: "slist not
/// empty"), so that the file can neither be flushed nor closed any more.
pub(crate) fn flush(session: &Session<'_>, dataset: hid_t, info: &DatasetInfo) -> Result<()> {
    let hdf5 = session.hdf5;
    // SAFETY: HDF5 checks the identifier; there is an offset for each dimension, and places of their
    // types for the answers.
    let status = unsafe {
        match &info.layout {
            Layout::Chunked { chunk, .. } => {
                let first = vec![0u64; chunk.len()];
                let (mut mask, mut address, mut size) = (0, 0, 0);
                (hdf5.H5Dget_chunk_info_by_coord)(
                    dataset,
                    first.as_ptr(),
                    &mut mask,
                    &mut address,
                    &mut size,
                )
            }
            _ => (hdf5.H5Dflush)(dataset),
        }
    };
    session.check(status, "flush the dataset").map(drop)
}

fn files(info: &DatasetInfo, options: Options) -> Result<Vec<Result<Arc<File>>>> {
    let Layout::External(slots) = &info.layout else {
        let descriptor = info.file.descriptor.unwrap_or(-1);
        let file = File::of_descriptor(descriptor, &info.file.name, false, options)?;
        return Ok(vec![Ok(Arc::new(file))]);
    };
    let access = Access {
        read: true,
        ..Access::default()
    };
    let open = |path: &PathBuf| match File::open(path, access, options) {
        Ok(file) => Ok(Arc::new(file)),
        Err(error) => Err(unable_to_open(error)),
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

pub(crate) fn direct(options: &Options) -> Direct {
    match options.direct.unwrap_or(Choice::Auto) {
        Choice::No => Direct::Never,
        Choice::Yes => Direct::Always,
        Choice::Auto => Direct::WhereCold,
    }
}

impl Order<'_> {
    fn files(&self, info: &DatasetInfo) -> Result<Vec<Result<Arc<File>>>> {
        match (&info.layout, self.known.file) {
            (Layout::External(_), _) | (_, None) => files(info, self.options),
            (_, Some(file)) => Ok(vec![Ok(Arc::clone(file))]),
        }
    }
}

/// Lets HDF5 read. Into the caller's buffer if that is all it takes, else into memory from which a
/// plan places the elements.
///
/// # Safety
/// As for [`prepare`].
unsafe fn by_hdf5(
    session: &Session<'_>,
    order: &Order<'_>,
    info: &DatasetInfo,
    host: *mut u8,
    why: String,
) -> Result<Prepared> {
    let element = order.memory_size(session)?;
    let (selection, memory) = order.selections(session, info, element)?;
    let done = |readings, done| Prepared {
        readings,
        low: memory.low,
        length: memory.destination.length,
        reason: Some(why.clone()),
        done,
        path: info.file.name.clone(),
    };
    if selection.is_empty() || info.is_null {
        return Ok(done(Vec::new(), 0));
    }
    let elements = selection.elements().unwrap_or(0);
    if let (Shape::Space(space), false) = (order.shape, host.is_null()) {
        // SAFETY: the caller vouches for the buffer.
        unsafe { h5dread(session, order, space, host.cast(), info)? };
        return Ok(done(Vec::new(), elements * element));
    }
    let (shape, target) = match order.shape {
        Shape::Array { .. } => (
            selection.shape().unwrap_or_default(),
            (None, memory.destination.clone()),
        ),
        Shape::Space(space) => {
            let all = Selection::all(&[elements]);
            let (of_memory, extent) = order.memory_selection(session, space, info)?;
            let (from, to) = pair(&all, &[elements], &of_memory, &extent, element)?;
            (vec![elements], (Some(from), to))
        }
    };
    let dense = Destination::dense(&shape, element)?;
    if let (false, true) = (
        host.is_null(),
        memory.destination == dense && memory.low == 0,
    ) {
        let space = dense_space(session, elements)?;
        // SAFETY: the caller vouches for the buffer, which is dense.
        unsafe { h5dread(session, order, space.get(), host.cast(), info)? };
        return Ok(done(Vec::new(), elements * element));
    }
    // It would leave the others as they are, but what it fills here takes the place of whole elements.
    if ElementType::read(session, order.memory_type)?.has_more_fields(&info.element) {
        return Err(Error::invalid(
            "the elements in memory have fields that the dataset lacks, and would lose them",
        )
        .remedy(
            "read only the fields that the dataset has, or into C-contiguous host memory after no stream",
        ));
    }
    let bytes = dense.length as usize;
    let mut given = Vec::new();
    given.try_reserve_exact(bytes).map_err(|_| {
        Error::new(
            Kind::Memory,
            format!("no memory for {bytes} bytes that HDF5 is to read"),
        )
    })?;
    given.resize(bytes, 0);
    let space = dense_space(session, elements)?;
    // SAFETY: the memory has the size of the selected elements.
    unsafe { h5dread(session, order, space.get(), given.as_mut_ptr().cast(), info)? };
    let (selection, destination) = match target {
        (Some(selection), destination) => (selection, destination),
        (None, destination) => (Selection::all(&shape), destination),
    };
    let of_memory = DatasetInfo {
        shape,
        element: ElementType::OnlyHdf5 {
            size: element as usize,
            what: "as HDF5 has read it",
        },
        filters: Vec::new(),
        fill: None,
        layout: Layout::Compact,
        ..info.clone()
    };
    let plan = ReadPlan::of_memory(&of_memory, selection, &destination, Item::whole(element))?;
    let reading = Reading {
        plan: Arc::new(plan),
        files: Vec::new(),
        pipeline: Pipeline::default(),
        change: Change::Copy,
        direct: Direct::Never,
        given: Some(given.into()),
    };
    Ok(done(vec![reading], 0))
}

pub(crate) fn dense_space(session: &Session<'_>, elements: u64) -> Result<Id> {
    // SAFETY: one dimension, whose length is given; the answer is ours to close.
    let space = unsafe { (session.hdf5.H5Screate_simple)(1, &elements, ptr::null()) };
    session.own(space, session.hdf5.H5Sclose, "make a dataspace")
}

/// # Safety
/// `buffer` is valid for what the dataspace selects.
unsafe fn h5dread(
    session: &Session<'_>,
    order: &Order<'_>,
    space: hid_t,
    buffer: *mut c_void,
    info: &DatasetInfo,
) -> Result<()> {
    let transfer = match order.transfer {
        0 => H5P_DEFAULT,
        own => own,
    };
    // SAFETY: HDF5 checks the identifiers; the caller vouches for the buffer.
    let status = unsafe {
        (session.hdf5.H5Dread)(
            order.dataset,
            order.memory_type,
            space,
            order.file_space,
            transfer,
            buffer,
        )
    };
    session
        .check(status, "read the dataset")
        .map(drop)
        .map_err(|e| info.name_in(e).in_file(&info.file.name))
}
