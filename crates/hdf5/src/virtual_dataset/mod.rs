//! Resolution of virtual datasets to the datasets that hold their elements.
//!
//! For each mapping of the virtual dataset:
//!
//! 1. Intersect its selection of the virtual dataset with what is wanted (`Touched`). The elements of a mapping are
//!    numbered in the order of its two selections, which have the same number of elements.
//! 2. If elements are left, open the source as HDF5 does (`Sources`). Without one, the mapping covers nothing.
//! 3. Turn the numbers into elements of the source (`Touched::of_source`), with the same places in memory.
//! 4. If the source is virtual, start again with it. Otherwise plan a read of it (`SourcePart`).
//!
//! A source may have another shape than the mapping says: see `fit`.
//!
//! Wanted elements that no mapping covers get the fill value (`cover`). If two mappings cover the same element, HDF5
//! must read the dataset: its order of the mappings decides. Boxes stay boxes (`grid`) as long as the wanted elements and
//! all mappings are boxes; otherwise all become runs of elements (`rows`).

mod circle;
mod cover;
mod files;
mod fit;
mod limits;
mod mapping;
mod progression;
mod rows;
mod source_dataset;
mod sources;

use std::rc::Rc;
use std::sync::Arc;

use penstock_array::{
    ArrayChunks, Axis, ElementMapping, MemoryLayout, MemorySize, Plan, Selection,
    Source as ArraySource, StoredArray, in_dataset,
};
use penstock_engine::error::{Error, Kind};
use penstock_engine::file::position::Operation;
use penstock_sys::hdf5::hid_t;

use crate::dataset::{DatasetInfo, FileType, Fill, Layout, MappedSelection, VirtualMapping};
use crate::library::Session;
use crate::open_files::Identity;

pub(crate) use fit::Fits;
use fit::{misfit, needed};
use limits::{DEEPEST, MOST_PARTS, MOST_RETURNS, Stop};
use mapping::{Side, Touched, Wanted};
use rows::Rows;
pub(crate) use source_dataset::FEW_OF_MANY_CHUNKS;
pub use source_dataset::{CachedSource, KeptSource, SourceCache, SourceDataset, Store};
use sources::{Source, Sources, StoredSource, VirtualDataset};

/// The result of resolving a virtual dataset.
#[derive(Debug)]
pub enum Resolution {
    /// The parts that together provide every selected element for which memory changes.
    Parts(Vec<SourcePart>),
    /// The reason why only HDF5 can read the dataset.
    Hdf5(String),
}

/// A plan that reads from one dataset.
#[derive(Debug)]
pub struct SourcePart {
    /// The dataset that the plan reads, or whose fill value it uses. Its element type may differ
    /// from that of the virtual dataset. HDF5's buffered changes of it have been flushed.
    pub info: Arc<DatasetInfo>,
    /// What is read.
    pub plan: Arc<Plan>,
    /// Where the bytes are.
    pub store: Store,
    /// The cache of the source's decoded chunks.
    pub decoded: Option<Arc<ArrayChunks>>,
}

/// Returns the wanted part of an element of a type; see [`resolve`].
pub type Mapping<'a> = &'a dyn Fn(&FileType) -> Option<ElementMapping>;

/// Resolves a selection of a virtual dataset on this thread.
///
/// Finds, opens and closes source files as HDF5 itself does. Where a file or dataset is missing, so
/// that HDF5 would return its fill value, the part only fills. `mapping` returns the wanted part of
/// an element of a given type and its size in memory (always the same), or `None` if elements of
/// that type cannot be converted. `source_cache` is the cache of sources.
pub fn resolve(
    session: &Session<'_>,
    dataset: hid_t,
    info: &Arc<DatasetInfo>,
    selection: &Selection,
    memory: &MemoryLayout,
    (mapping, source_cache): (Mapping<'_>, &dyn SourceCache),
) -> Result<Resolution, Error> {
    let mut resolver = Resolver::new(Sources::new(session, Some(source_cache)), mapping);
    match resolver.all(dataset, info, selection, memory) {
        Ok(()) => Ok(Resolution::Parts(resolver.parts)),
        Err(Stop::Hdf5(reason)) => Ok(Resolution::Hdf5(reason)),
        Err(Stop::Failed(error)) => Err(error),
        Err(Stop::Outside) => Err(Error::new(Kind::Io, OUTSIDE)),
    }
}

/// Returns an error if HDF5 would read some of these elements from other places than their mappings say. Called before
/// HDF5 carries out a read.
pub(crate) fn refuse_misfits(
    session: &Session<'_>,
    dataset: hid_t,
    info: &Arc<DatasetInfo>,
    selection: &Selection,
) -> Result<(), Error> {
    let mut resolver = Resolver::new(Sources::new(session, None), &|_| None);
    // Where HDF5 itself finds the sources is not known of such files.
    let Ok(place) = resolver.sources.place(dataset, info.clone()) else {
        return Ok(());
    };
    let shape = selection.shape().unwrap_or_default();
    let wanted = Wanted {
        selection: selection.clone(),
        memory: MemoryLayout::dense(&shape, MemorySize(1))?,
    };
    let mut done = resolver.virtual_dataset(&place, &wanted);
    if matches!(done, Err(Stop::Hdf5(_) | Stop::Outside)) {
        // Too many pieces to look at one by one.
        done = fit::mappings(&place.info).iter().try_for_each(|mapping| {
            fit::refuse_misfits_of(&mut resolver.sources, &place, mapping, selection)
        });
    }
    match done {
        Err(Stop::Failed(error)) => Err(error),
        Ok(()) | Err(Stop::Hdf5(_) | Stop::Outside) => Ok(()),
    }
}

const OUTSIDE: &str = "a mapping provides elements that the virtual dataset does not have";

struct Resolver<'a> {
    sources: Sources<'a>,
    mapping: Mapping<'a>,
    parts: Vec<SourcePart>,
    /// The virtual datasets from the first to the current one, with what is wanted of each.
    chain: Vec<(Identity, String, Selection)>,
    returns: usize,
    /// Whether HDF5 carries out the read. Then nothing is planned, and only the shapes of sources are compared.
    is_for_hdf5: bool,
}

/// A mapping, and its side of the virtual dataset.
type Target<'a> = (&'a VirtualMapping, Side<'a>);

/// A mapping with wanted elements whose source exists.
struct Found<'a> {
    target: Target<'a>,
    source: Rc<Source>,
    touched: Touched,
}

impl<'a> Resolver<'a> {
    fn new(sources: Sources<'a>, mapping: Mapping<'a>) -> Self {
        Resolver {
            is_for_hdf5: sources.only_shapes(),
            sources,
            mapping,
            parts: Vec::new(),
            chain: Vec::new(),
            returns: 0,
        }
    }
}

impl Resolver<'_> {
    fn all(
        &mut self,
        dataset: hid_t,
        info: &Arc<DatasetInfo>,
        selection: &Selection,
        memory: &MemoryLayout,
    ) -> Result<(), Stop> {
        selection.check(&info.shape).map_err(|e| info.name_in(e))?;
        if info.is_null || selection.is_empty() {
            return Ok(());
        }
        let shape = selection
            .shape()
            .ok_or_else(|| Error::invalid("the selection has too many elements to count"))?;
        let size = |element: ElementMapping| element.memory(Operation::Read);
        let element = (self.mapping)(&info.element).map_or(MemorySize(1), size);
        memory.check(&shape, element).map_err(|e| info.name_in(e))?;
        let place = self.sources.place(dataset, info.clone())?;
        let wanted = Wanted {
            selection: selection.clone().last_at_each_position()?,
            memory: memory.clone(),
        };
        let done = self.virtual_dataset(&place, &wanted);
        if let Err(Stop::Hdf5(_)) = done {
            circle::refuse(&mut self.sources, &place)?;
        }
        done
    }

    fn virtual_dataset(&mut self, place: &VirtualDataset, wanted: &Wanted) -> Result<(), Stop> {
        self.enter(place, wanted)?;
        let Layout::Virtual(mappings) = &place.info.layout else {
            return Err(Stop::Hdf5(format!("{} is not virtual", place.info.name)));
        };
        // Pieces are counted from the start of the dataset, whose size must not overflow.
        place.info.bytes()?;
        let all = Selection::all(&place.info.shape);
        let mut targets = Vec::with_capacity(mappings.len());
        for mapping in mappings {
            for mapped in [&mapping.target, &mapping.source] {
                if let MappedSelection::Part { selection, shape } = mapped {
                    let checked = selection.check(shape).map_err(Stop::Failed);
                    checked.map_err(|stop| of_mapping(stop, place, mapping))?;
                }
            }
            let sides = [&mapping.target, &mapping.source];
            if sides
                .iter()
                .any(|side| matches!(side, MappedSelection::Unlimited(_)))
            {
                if !self.is_for_hdf5 {
                    return Err(Stop::Hdf5("one of its mappings is unlimited".to_owned()));
                }
                fit::refuse_misfits_of(&mut self.sources, place, mapping, &wanted.selection)?;
                continue;
            }
            targets.push((mapping, side(&mapping.target, &all, &place.info)));
        }
        let is_grid = |target: &Target<'_>| matches!(target.1.selection, Selection::Grid(_));
        match &wanted.selection {
            Selection::Grid(axes) if targets.iter().all(is_grid) => {
                self.grid(place, targets, axes, wanted)?;
            }
            _ => self.rows(place, targets, wanted)?,
        }
        self.chain.pop();
        Ok(())
    }

    /// Returns an error if the dataset is its own source without end or too often.
    fn enter(&mut self, place: &VirtualDataset, wanted: &Wanted) -> Result<(), Stop> {
        let link = (
            place.identity,
            place.info.name.clone(),
            wanted.selection.clone(),
        );
        let is_same = self.chain.contains(&link);
        let mut before = self.chain.iter();
        let returns = before.any(|before| (before.0, &before.1) == (link.0, &link.1));
        self.returns += usize::from(returns);
        self.chain.push(link);
        if !is_same && self.returns <= MOST_RETURNS && self.chain.len() <= DEEPEST {
            return Ok(());
        }
        let names = self.chain.iter().map(|link| link.1.as_str());
        Err(Stop::Failed(circle::error(returns, names, place)))
    }

    /// Resolves a read in which the wanted elements and all mappings are boxes.
    fn grid(
        &mut self,
        place: &VirtualDataset,
        targets: Vec<Target<'_>>,
        axes: &[Axis],
        wanted: &Wanted,
    ) -> Result<(), Stop> {
        let (mut found, mut boxes) = (Vec::new(), Vec::new());
        for target in targets {
            let Selection::Grid(boxed) = target.1.selection else {
                continue;
            };
            let touched = Touched::grid(&target.1, boxed, axes);
            if let Some(one) = self.found(place, target, touched)? {
                found.push(one);
                boxes.push(boxed.as_slice());
            }
        }
        if self.is_for_hdf5 {
            return self.read(place, found, wanted);
        }
        if cover::overlap(&boxes, axes.len())? {
            return Err(overlapping());
        }
        let touched = found.iter().map(|found| found.touched.elements());
        let covered = touched.fold(0, u64::saturating_add);
        let elements = axes.iter().map(selected).try_fold(1, u64::checked_mul);
        if elements != Some(covered) {
            for left in cover::left_of_grid(axes, &boxes)? {
                self.fill(&place.info, wanted.only(Selection::Grid(left)))?;
            }
        }
        self.read(place, found, wanted)
    }

    fn rows(
        &mut self,
        place: &VirtualDataset,
        targets: Vec<Target<'_>>,
        wanted: &Wanted,
    ) -> Result<(), Stop> {
        let shape = &place.info.shape;
        let bounds = match &wanted.selection {
            Selection::Grid(axes) => Side::bounds(axes).unwrap_or_default(),
            Selection::Runs(_) => Vec::new(),
        };
        let Rows { runs, memory } = Rows::new(&wanted.selection, shape, &wanted.memory, &bounds)?;
        let (mut found, mut taken) = (Vec::new(), Vec::new());
        for target in targets {
            let touched = Touched::rows(&target.1, &runs);
            let Some(one) = self.found(place, target, touched)? else {
                continue;
            };
            if let Touched::Rows(runs) = &one.touched {
                taken.extend(
                    runs.iter()
                        .map(|run| (run.position, run.position + run.length)),
                );
            }
            found.push(one);
        }
        if !self.is_for_hdf5 {
            let left = cover::left_of_rows(&runs, taken)?.ok_or_else(overlapping)?;
            let memory = memory.clone();
            let left = Wanted {
                selection: left,
                memory,
            };
            self.fill(&place.info, left)?;
        }
        let selection = Selection::Runs(runs);
        let wanted = Wanted { selection, memory };
        self.read(place, found, &wanted)
    }

    /// Returns a mapping, if it has wanted elements and its source exists.
    fn found<'a>(
        &mut self,
        place: &VirtualDataset,
        target: Target<'a>,
        touched: Result<Option<Touched>, Stop>,
    ) -> Result<Option<Found<'a>>, Stop> {
        let Some(touched) = touched.map_err(|stop| of_mapping(stop, place, target.0))? else {
            return Ok(None);
        };
        let source = match self.sources.find(place, target.0) {
            // HDF5 returns the fill value, or an error.
            Err(Stop::Hdf5(_)) if self.is_for_hdf5 => None,
            source => source?,
        };
        Ok(source.map(|source| Found {
            target,
            source,
            touched,
        }))
    }

    fn read(
        &mut self,
        place: &VirtualDataset,
        found: Vec<Found<'_>>,
        wanted: &Wanted,
    ) -> Result<(), Stop> {
        for found in found {
            let (mapping, target) = found.target;
            let info = found.source.info();
            let differs = || Stop::Failed(misfit(place, mapping, info));
            let needed = needed(mapping, &place.info.shape, info);
            let is_all = mapping.source == MappedSelection::All;
            let is_in_order = is_all && needed == info.shape;
            if info.is_null
                || needed.len() != info.shape.len()
                || (self.is_for_hdf5 && is_all && !is_in_order)
            {
                return Err(differs());
            }
            let all = Selection::all(&needed);
            let from = side(&mapping.source, &all, info);
            let asked = found.touched.of_source(&target, &from, wanted);
            let asked = asked.map_err(|stop| of_mapping(stop, place, mapping));
            let asked = match asked {
                Ok(asked) if asked.selection.check(&info.shape).is_ok() => asked,
                Ok(_) | Err(Stop::Outside) => return Err(differs()),
                Err(stop) => return Err(stop),
            };
            match &*found.source {
                Source::Virtual(place) => self.virtual_dataset(place, &asked)?,
                Source::Stored(source) => {
                    self.read_stored(source, asked, is_all && !is_in_order)?
                }
                Source::Described(_) => {}
            }
        }
        Ok(())
    }

    /// Plans the read of a source. `never_hdf5`: HDF5 would read other elements.
    fn read_stored(
        &mut self,
        source: &StoredSource,
        asked: Wanted,
        never_hdf5: bool,
    ) -> Result<(), Stop> {
        let info = &source.info;
        let array = if let Store::Memory(_) = source.store {
            info.array_from(ArraySource::Memory)
        } else {
            let table = source.table(self.sources.session, &asked, never_hdf5)?;
            let why = |why| Stop::Hdf5(format!("its source {}: {why}", info.name));
            info.array_to_read(table)?.map_err(why)?
        };
        let decoded = source.cached.as_ref().and_then(|cached| cached.decoded());
        self.push(info, &array, asked, (source.store.clone(), decoded))
    }

    fn fill(&mut self, info: &Arc<DatasetInfo>, left: Wanted) -> Result<(), Stop> {
        if left.selection.is_empty() {
            return Ok(());
        }
        if info.fill == Fill::OnlyHdf5 {
            let reason = format!("the fill value of {} is stored elsewhere", info.name);
            return Err(Stop::Hdf5(reason));
        }
        let array = info.array_from(ArraySource::Missing);
        self.push(info, &array, left, (Store::None, None))
    }

    fn push(
        &mut self,
        info: &Arc<DatasetInfo>,
        array: &StoredArray,
        wanted: Wanted,
        (store, decoded): (Store, Option<Arc<ArrayChunks>>),
    ) -> Result<(), Stop> {
        let element = (self.mapping)(&info.element).ok_or_else(|| {
            Stop::Hdf5(format!("only HDF5 converts the elements of {}", info.name))
        })?;
        let selection = if info.is_null {
            Selection::none()
        } else {
            wanted.selection
        };
        let plan = Plan::new(array, selection, &wanted.memory, element, Operation::Read)?;
        if self.parts.len() == MOST_PARTS {
            return Err(Stop::too_many());
        }
        self.parts.push(SourcePart {
            info: info.clone(),
            plan: Arc::new(plan),
            store,
            decoded,
        });
        Ok(())
    }
}

/// Returns one side of a mapping, in the dataset that is described. `all` selects all its elements.
fn side<'a>(mapped: &'a MappedSelection, all: &'a Selection, info: &'a DatasetInfo) -> Side<'a> {
    let (selection, made_for) = match mapped {
        MappedSelection::Part { selection, shape } => (selection, shape),
        MappedSelection::All | MappedSelection::Unlimited(_) => (all, &info.shape),
    };
    Side {
        selection,
        made_for,
        shape: &info.shape,
    }
}

/// Returns the number of selected elements of an axis, some of whose positions may be missing.
fn selected(axis: &Axis) -> u64 {
    match axis {
        Axis::Slab { .. } => axis.len(),
        Axis::Runs(runs) => runs.iter().map(|run| run.length).sum(),
    }
}

/// Leaves overlapping mappings to HDF5, which reads them in order, so that the last one wins.
fn overlapping() -> Stop {
    Stop::Hdf5("its mappings overlap".to_owned())
}

/// Adds what the mapping is to an error.
fn of_mapping(stop: Stop, place: &VirtualDataset, mapping: &VirtualMapping) -> Stop {
    let (cause, remedy) = match &stop {
        Stop::Failed(error) => (error.cause(), error.remedy_text()),
        Stop::Outside | Stop::Hdf5(_) => return stop,
    };
    let (dataset, file) = (&mapping.dataset, mapping.file.display());
    let error = Error::new(Kind::Io, format!("its source {dataset} in {file}: {cause}"));
    let error = in_dataset(error.remedy(remedy), &place.info.name);
    Stop::Failed(error.at(&place.info.file.name, 0, 0))
}
