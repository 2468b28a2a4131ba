//! Resolution of virtual datasets to the datasets that hold their elements.

mod circle;
mod cover;
mod files;
mod limits;
mod mapping;
mod progression;
mod rows;
mod source_dataset;
mod sources;

use std::rc::Rc;
use std::sync::Arc;

use penstock_engine::error::{Error, Kind};
use penstock_sys::hdf5::hid_t;

use crate::dataset::{DatasetInfo, Layout, MappedSelection, VirtualMapping};
use crate::dataset::{FileType, Fill};
use crate::library::Session;
use crate::open_files::Identity;
use penstock_array::{ArrayChunks, Axis, Selection, in_dataset};
use penstock_array::{ElementMapping, MemoryLayout, MemorySize, Plan, StoredArray};
use penstock_engine::file::position::Operation;

pub(crate) use files::numbered;
use limits::{DEEPEST, MOST_PARTS, MOST_RETURNS, Stop};
use mapping::{Side, Touched, Wanted};
use rows::Rows;
pub(crate) use source_dataset::FEW_OF_MANY_CHUNKS;
pub use source_dataset::{CachedSource, SourceCache, SourceDataset, Store};
use sources::{Source, Sources, VirtualDataset};

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
/// that type cannot be converted. `source_cache` returns the cache entry of a source.
pub fn resolve(
    session: &Session<'_>,
    dataset: hid_t,
    info: &Arc<DatasetInfo>,
    selection: &Selection,
    memory: &MemoryLayout,
    (mapping, source_cache): (Mapping<'_>, SourceCache<'_>),
) -> Result<Resolution, Error> {
    let mut resolver = Resolver {
        sources: Sources::new(session, source_cache),
        mapping,
        parts: Vec::new(),
        chain: Vec::new(),
        returns: 0,
    };
    match resolver.all(dataset, info, selection, memory) {
        Ok(()) => Ok(Resolution::Parts(resolver.parts)),
        Err(Stop::Hdf5(reason)) => Ok(Resolution::Hdf5(reason)),
        Err(Stop::Failed(error)) => Err(error),
        Err(Stop::Outside) => Err(Error::new(Kind::Io, OUTSIDE)),
    }
}

const OUTSIDE: &str = "a mapping selects elements that the dataset does not have";

struct Resolver<'a> {
    sources: Sources<'a>,
    mapping: Mapping<'a>,
    parts: Vec<SourcePart>,
    /// The virtual datasets from the first to the current one, with what is wanted of each.
    chain: Vec<(Identity, String, Selection)>,
    returns: usize,
}

/// A mapping with wanted elements whose source exists.
struct Found<'a> {
    target: &'a Selection,
    made_for: &'a [u64],
    source: Rc<Source>,
    mapping: &'a VirtualMapping,
    touched: Touched,
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
            selection: selection.clone(),
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
            for side in [&mapping.target, &mapping.source] {
                if let MappedSelection::Part { selection, shape } = side {
                    let checked = selection.check(shape).map_err(Stop::Failed);
                    checked.map_err(|stop| of_mapping(stop, place, mapping))?;
                }
            }
            match (&mapping.target, &mapping.source) {
                (MappedSelection::Unlimited, _) | (_, MappedSelection::Unlimited) => {
                    return Err(Stop::Hdf5("one of its mappings is unlimited".to_owned()));
                }
                (MappedSelection::All, _) => targets.push((mapping, &all, &place.info.shape)),
                (MappedSelection::Part { selection, shape }, _) => {
                    targets.push((mapping, selection, shape));
                }
            }
        }
        let is_grid = |selection: &Selection| matches!(selection, Selection::Grid(_));
        if is_grid(&wanted.selection) && targets.iter().all(|(_, target, _)| is_grid(target)) {
            self.grid(place, &targets, wanted)?;
        } else {
            self.rows(place, &targets, wanted)?;
        }
        self.chain.pop();
        Ok(())
    }

    /// Returns an error if the dataset is its own source without end or too often.
    fn enter(&mut self, place: &VirtualDataset, wanted: &Wanted) -> Result<(), Stop> {
        let name = &place.info.name;
        let before = self
            .chain
            .iter()
            .filter(|(file, dataset, _)| *file == place.identity && dataset == name);
        let mut is_same = false;
        let mut returns = 0;
        for (_, _, selection) in before {
            is_same |= *selection == wanted.selection;
            returns += 1;
        }
        self.returns += returns.min(1);
        let link = (place.identity, name.clone(), wanted.selection.clone());
        self.chain.push(link);
        if !is_same && self.returns <= MOST_RETURNS && self.chain.len() <= DEEPEST {
            return Ok(());
        }
        let names = self.chain.iter().map(|link| link.1.as_str());
        Err(Stop::Failed(circle::error(returns > 0, names, place)))
    }

    /// Resolves a read in which the wanted elements and all mappings are boxes.
    fn grid(
        &mut self,
        place: &VirtualDataset,
        targets: &[Target<'_>],
        wanted: &Wanted,
    ) -> Result<(), Stop> {
        let Selection::Grid(axes) = &wanted.selection else {
            return self.rows(place, targets, wanted);
        };
        let mut found = Vec::new();
        for (mapping, target, made_for) in targets {
            let Selection::Grid(boxed) = target else {
                continue;
            };
            let side = Side {
                selection: target,
                made_for,
                shape: &place.info.shape,
            };
            let touched = Touched::grid(&side, boxed, axes);
            let Some(touched) = touched.map_err(|e| of_mapping(e, place, mapping))? else {
                continue;
            };
            self.add(place, (mapping, target, made_for), touched, &mut found)?;
        }
        let mut boxes: Vec<&[Axis]> = Vec::with_capacity(found.len());
        for found in &found {
            if let Selection::Grid(boxed) = found.target {
                boxes.push(boxed);
            }
        }
        if cover::overlap(&boxes, axes.len())? {
            return Err(overlapping());
        }
        let covered = found.iter().fold(0, |all, found| {
            u64::saturating_add(all, found.touched.elements())
        });
        let elements = axes.iter().map(selected).try_fold(1, u64::checked_mul);
        if elements != Some(covered) {
            for left in cover::left_of_grid(axes, &boxes)? {
                let left = Wanted {
                    selection: Selection::Grid(left),
                    memory: wanted.memory.clone(),
                };
                self.fill(&place.info, left)?;
            }
        }
        self.read(place, found, wanted)
    }

    fn rows(
        &mut self,
        place: &VirtualDataset,
        targets: &[Target<'_>],
        wanted: &Wanted,
    ) -> Result<(), Stop> {
        let shape = &place.info.shape;
        let bounds = match &wanted.selection {
            Selection::Grid(axes) => Side::bounds(axes).unwrap_or_default(),
            Selection::Runs(_) => Vec::new(),
        };
        let rows = Rows::new(&wanted.selection, shape, &wanted.memory, &bounds)?;
        let mut found = Vec::new();
        let mut taken = Vec::new();
        for (mapping, target, made_for) in targets {
            let side = Side {
                selection: target,
                made_for,
                shape,
            };
            let touched = Touched::rows(&side, &rows);
            let Some(touched) = touched.map_err(|e| of_mapping(e, place, mapping))? else {
                continue;
            };
            let at = found.len();
            self.add(place, (mapping, target, made_for), touched, &mut found)?;
            if let Some(Touched::Rows(runs)) = found.get(at).map(|found| &found.touched) {
                taken.extend(
                    runs.iter()
                        .map(|run| (run.position, run.position + run.length)),
                );
            }
        }
        let Some(left) = cover::left_of_rows(&rows.runs, taken)? else {
            return Err(overlapping());
        };
        let wanted = Wanted {
            selection: Selection::Runs(rows.runs),
            memory: rows.memory,
        };
        let left = Wanted {
            selection: left,
            memory: wanted.memory.clone(),
        };
        self.fill(&place.info, left)?;
        self.read(place, found, &wanted)
    }

    /// Adds the mapping if its source exists.
    fn add<'a>(
        &mut self,
        place: &VirtualDataset,
        (mapping, target, made_for): Target<'a>,
        touched: Touched,
        found: &mut Vec<Found<'a>>,
    ) -> Result<(), Stop> {
        if let Some(source) = self.sources.find(place, mapping)? {
            found.push(Found {
                target,
                made_for,
                source,
                mapping,
                touched,
            });
        }
        Ok(())
    }

    fn read(
        &mut self,
        place: &VirtualDataset,
        found: Vec<Found<'_>>,
        wanted: &Wanted,
    ) -> Result<(), Stop> {
        for found in found {
            let info = match &*found.source {
                Source::Virtual(place) => &place.info,
                Source::Stored(source) => &source.info,
            };
            let all = Selection::all(&info.shape);
            let (selection, made_for) = match &found.mapping.source {
                MappedSelection::Part { selection, shape } => (selection, shape),
                _ => (&all, &info.shape),
            };
            let target = Side {
                selection: found.target,
                made_for: found.made_for,
                shape: &place.info.shape,
            };
            let source = Side {
                selection,
                made_for,
                shape: &info.shape,
            };
            let asked = found
                .touched
                .of_source(&target, &source, wanted)
                .and_then(|asked| match asked.selection.check(&info.shape) {
                    Ok(()) => Ok(asked),
                    Err(_) => Err(Stop::Outside),
                });
            let asked = match asked {
                Err(Stop::Outside) if may_grow_to(info, selection, made_for) => {
                    let name = &info.name;
                    let reason = format!("its source {name} is still smaller than its mapping");
                    return Err(Stop::Hdf5(reason));
                }
                asked => asked.map_err(|stop| of_mapping(stop, place, found.mapping))?,
            };
            match &*found.source {
                Source::Virtual(place) => self.virtual_dataset(place, &asked)?,
                Source::Stored(source) => {
                    let info = &source.info;
                    let array = match &source.store {
                        Store::Memory(_) => info.array_in_memory(),
                        _ => {
                            match info.array_to_read(source.table(self.sources.session, &asked)?)? {
                                Ok(array) => array,
                                Err(why) => {
                                    let name = &info.name;
                                    return Err(Stop::Hdf5(format!("its source {name}: {why}")));
                                }
                            }
                        }
                    };
                    self.push(&source.info, &array, asked, source.store.clone())?;
                    if let Some(part) = self.parts.last_mut() {
                        part.decoded = source.cached.as_ref().and_then(|cached| cached.decoded());
                    }
                }
            }
        }
        Ok(())
    }

    fn fill(&mut self, info: &Arc<DatasetInfo>, left: Wanted) -> Result<(), Stop> {
        if left.selection.is_empty() {
            return Ok(());
        }
        if info.fill == Fill::OnlyHdf5 {
            let reason = format!("the fill value of {} is stored elsewhere", info.name);
            return Err(Stop::Hdf5(reason));
        }
        self.push(info, &info.array_of_fill(), left, Store::None)
    }

    fn element(&self, info: &DatasetInfo) -> Result<ElementMapping, Stop> {
        (self.mapping)(&info.element)
            .ok_or_else(|| Stop::Hdf5(format!("only HDF5 converts the elements of {}", info.name)))
    }

    fn push(
        &mut self,
        info: &Arc<DatasetInfo>,
        array: &StoredArray,
        wanted: Wanted,
        store: Store,
    ) -> Result<(), Stop> {
        let element = self.element(info)?;
        let selection = match info.is_null {
            true => Selection::none(),
            false => wanted.selection,
        };
        let plan = Plan::new(array, selection, &wanted.memory, element, Operation::Read)?;
        if self.parts.len() == MOST_PARTS {
            return Err(Stop::too_many());
        }
        self.parts.push(SourcePart {
            info: info.clone(),
            plan: Arc::new(plan),
            store,
            decoded: None,
        });
        Ok(())
    }
}

/// A mapping, its selection of the virtual dataset, and the shape in which that selection was made.
type Target<'a> = (&'a VirtualMapping, &'a Selection, &'a Vec<u64>);

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

/// Returns whether the dataset can grow large enough for the selection, which was made in a
/// dataspace of shape `made_for`. Until then HDF5 returns the fill value.
fn may_grow_to(info: &DatasetInfo, selection: &Selection, made_for: &[u64]) -> bool {
    let sizes: Vec<u64> = match selection {
        Selection::Grid(axes) => axes.iter().map(|a| a.last().map_or(0, |n| n + 1)).collect(),
        Selection::Runs(_) => made_for.to_vec(),
    };
    let fits = |(size, most): (&u64, &Option<u64>)| most.is_none_or(|most| *size <= most);
    matches!(info.layout, Layout::Chunked { .. })
        && sizes.len() == info.max_shape.len()
        && sizes.iter().zip(&info.max_shape).all(fits)
        && sizes.iter().zip(&info.shape).any(|(size, now)| size > now)
}

fn of_mapping(stop: Stop, place: &VirtualDataset, mapping: &VirtualMapping) -> Stop {
    let (cause, remedy) = match &stop {
        Stop::Failed(error) => (error.cause(), error.remedy_text()),
        Stop::Outside => (OUTSIDE, ""),
        Stop::Hdf5(_) => return stop,
    };
    let (dataset, file) = (&mapping.dataset, mapping.file.display());
    let error = Error::new(Kind::Io, format!("its source {dataset} in {file}: {cause}"));
    let error = in_dataset(error.remedy(remedy), &place.info.name);
    Stop::Failed(error.at(&place.info.file.name, 0, 0))
}
