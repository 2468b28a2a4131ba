//! Sources of another shape than their mapping says.
//!
//! A mapping says which elements it takes of its source:
//!
//! - a selection says so by its coordinates;
//! - all of the source (`H5S_ALL`) stands for the shape of what the mapping provides, from the first element of the
//!   source on, without dimensions of length 1 if the source has fewer. A source with as many elements as the mapping
//!   provides is read in order, whatever its shape, as by HDF5.
//!
//! A wanted element is the source's element at these coordinates. If the source has none there, the read fails, and the
//! error names both shapes: HDF5 alone would return elements of other rows or of freed memory, or crash. Other elements
//! of the same mapping can be read. The rule applies to each element, so no size and no interface has another result.
//!
//! HDF5 carries out some reads itself, so these are checked first: one that it would get wrong is refused
//! ([`refuse_misfits`](super::refuse_misfits)), or planned where [`Fits`] says that HDF5 is not to be trusted. Unlimited mappings grow with
//! their source, so only their other dimensions are compared.

use std::fs;
use std::rc::Rc;
use std::sync::Arc;

use penstock_array::{Selection, in_dataset};
use penstock_engine::error::{Error, Kind};
use penstock_engine::file::unchanged::Status;
use penstock_sys::hdf5::hid_t;

use super::files::numbered;
use super::limits::{DEEPEST, Stop};
use super::mapping::{Side, Touched};
use super::sources::{Sighting, Source, Sources, VirtualDataset};
use crate::dataset::{DatasetInfo, Layout, MappedSelection, Slab, VirtualMapping};
use crate::library::Session;

/// Returns the smallest shape of the source that has all elements of a mapping. It has another rank than the source if
/// the mapping selects elements in another number of dimensions.
pub(super) fn needed(mapping: &VirtualMapping, shape: &[u64], source: &DatasetInfo) -> Vec<u64> {
    match &mapping.source {
        MappedSelection::Part { selection, shape } => match selection.bounds(shape) {
            Some((_, last)) => last.iter().map(|last| last.saturating_add(1)).collect(),
            None => vec![0; shape.len()],
        },
        MappedSelection::Unlimited(slabs) => {
            let now = source.shape.iter().copied().chain(std::iter::repeat(0));
            let end = |(slab, now): (&Slab, u64)| slab.end().unwrap_or(now);
            slabs.iter().zip(now).map(end).collect()
        }
        MappedSelection::All => {
            let mut provided = provided(&mapping.target, shape);
            if elements(&provided) == elements(&source.shape) {
                return source.shape.clone();
            }
            while provided.len() > source.shape.len()
                && let Some(at) = provided.iter().position(|size| *size == 1)
            {
                provided.remove(at);
            }
            provided
        }
    }
}

/// Returns the shape of what a mapping provides of a virtual dataset of this shape.
fn provided(target: &MappedSelection, shape: &[u64]) -> Vec<u64> {
    match target {
        MappedSelection::All => shape.to_vec(),
        MappedSelection::Part { selection, .. } => match selection {
            Selection::Grid(axes) => axes.iter().map(|axis| axis.len()).collect(),
            Selection::Runs(_) => vec![selection.elements().unwrap_or(u64::MAX)],
        },
        // Each source of a series provides one block.
        MappedSelection::Unlimited(slabs) => slabs
            .iter()
            .map(|slab| match slab.is_unlimited() {
                true => slab.block,
                false => slab.count.saturating_mul(slab.block),
            })
            .collect(),
    }
}

fn elements(shape: &[u64]) -> Option<u64> {
    shape.iter().copied().try_fold(1, u64::checked_mul)
}

/// Returns whether HDF5 reads every element of a mapping from its place in the source.
fn is_whole(mapping: &VirtualMapping, shape: &[u64], source: &DatasetInfo) -> bool {
    let needed = needed(mapping, shape, source);
    if source.is_null || needed.len() != source.shape.len() {
        return false;
    }
    let mut sizes = needed.iter().zip(&source.shape);
    match mapping.source {
        MappedSelection::All => needed == source.shape,
        _ => sizes.all(|(needed, size)| needed <= size),
    }
}

/// Returns the error of a mapping whose source lacks wanted elements.
pub(super) fn misfit(
    place: &VirtualDataset,
    mapping: &VirtualMapping,
    source: &DatasetInfo,
) -> Error {
    let needed = needed(mapping, &place.info.shape, source);
    let (name, file) = (&source.name, source.file.name.display());
    let has = if source.is_null {
        "no dataspace of elements".to_owned()
    } else {
        format!("shape {:?}", source.shape)
    };
    let cause =
        format!("its source {name} in {file} has {has}, and its mapping is for shape {needed:?}");
    let remedy = "create the virtual dataset anew for the shape of its source, or select only elements \
                  that the source has";
    let error = Error::new(Kind::Io, cause).remedy(remedy);
    in_dataset(error, &place.info.name).at(&place.info.file.name, 0, 0)
}

pub(super) fn mappings(info: &DatasetInfo) -> &[VirtualMapping] {
    match &info.layout {
        Layout::Virtual(mappings) => mappings,
        _ => &[],
    }
}

/// Returns an error if a mapping that has wanted elements does not fit as a whole.
pub(super) fn refuse_misfits_of(
    sources: &mut Sources<'_>,
    place: &VirtualDataset,
    mapping: &VirtualMapping,
    wanted: &Selection,
) -> Result<(), Stop> {
    refuse_nested(sources, place, mapping, wanted, 0)
}

fn refuse_nested(
    sources: &mut Sources<'_>,
    place: &VirtualDataset,
    mapping: &VirtualMapping,
    wanted: &Selection,
    depth: usize,
) -> Result<(), Stop> {
    let shape = &place.info.shape;
    let Some(numbers) = touched(mapping, wanted, shape) else {
        return Ok(());
    };
    if depth == DEEPEST {
        return Err(Stop::too_many());
    }
    for number in numbers {
        let source: Rc<Source> = match sources.find_in_series(place, mapping, number) {
            Ok(Some(source)) => source,
            // HDF5 returns the fill value, or an error.
            Ok(None) => continue,
            Err(Stop::Hdf5(_)) => {
                sources.is_unsettled = true;
                continue;
            }
            Err(stop) => return Err(stop),
        };
        if !is_whole(mapping, shape, source.info()) {
            return Err(Stop::Failed(misfit(place, mapping, source.info())));
        }
        if let Source::Virtual(nested) = &*source {
            let all = Selection::all(&nested.info.shape);
            for mapping in mappings(&nested.info) {
                refuse_nested(sources, nested, mapping, &all, depth + 1)?;
            }
        }
    }
    Ok(())
}

/// Returns the running numbers of the sources that provide wanted elements, of which there is one without a series.
/// `None` if the mapping has no wanted element. Compares only bounds, unless all are boxes.
fn touched(
    mapping: &VirtualMapping,
    wanted: &Selection,
    shape: &[u64],
) -> Option<std::ops::Range<u64>> {
    let (low, high) = wanted.bounds(shape)?;
    let mut numbers = 0..1;
    match &mapping.target {
        MappedSelection::All => {}
        MappedSelection::Part {
            selection,
            shape: made_for,
        } => {
            let (first, last) = selection.bounds(made_for)?;
            if (0..low.len()).any(|d| last[d] < low[d] || high[d] < first[d]) {
                return None;
            }
            if let (Selection::Grid(axes), Selection::Grid(wanted)) = (selection, wanted) {
                let side = Side {
                    selection,
                    made_for,
                    shape,
                };
                if let Ok(None) = Touched::grid(&side, axes, wanted) {
                    return None;
                }
            }
        }
        MappedSelection::Unlimited(slabs) => {
            for (slab, (low, high)) in slabs.iter().zip(low.iter().zip(&high)) {
                let end = slab.end().unwrap_or(u64::MAX);
                if *high < slab.start || end <= *low {
                    return None;
                }
                if slab.is_unlimited() && is_series(mapping) {
                    let before = low.saturating_sub(slab.start.saturating_add(slab.block - 1));
                    let stride = slab.stride.max(1);
                    numbers = before.div_ceil(stride)..(high - slab.start) / stride + 1;
                }
            }
        }
    }
    Some(numbers)
}

/// Returns whether the source has a running number.
fn is_series(mapping: &VirtualMapping) -> bool {
    numbered(mapping.file.as_os_str(), 0).1 || numbered(mapping.dataset.as_ref(), 0).1
}

/// What is known of the sources of an open virtual dataset, for small reads by HDF5.
///
/// HDF5 keeps a source open as it was when it first read through it, and no other program may write to it then.
/// So a mapping that fits fits on, as long as the file has the same status; one whose file changed is not left to HDF5
/// any more. A source is looked at for each read if its file is open for writing, or if it could not be looked at before.
pub(crate) struct Fits {
    info: Arc<DatasetInfo>,
    /// First and last index of each mapping's part of the dataset along each dimension, if it has bounds.
    bounds: Vec<Option<(Vec<u64>, Vec<u64>)>>,
    states: Vec<State>,
    files: Vec<Sighting>,
}

#[derive(Clone)]
enum State {
    Unknown,
    /// It fits while these of the files are as they were.
    Fits(Vec<usize>),
    Changed,
}

impl Fits {
    pub(crate) fn new(info: Arc<DatasetInfo>) -> Fits {
        let bounds = |mapping: &VirtualMapping| match &mapping.target {
            MappedSelection::Part { selection, shape } => selection.bounds(shape),
            _ => None,
        };
        Fits {
            bounds: mappings(&info).iter().map(bounds).collect(),
            states: vec![State::Unknown; mappings(&info).len()],
            info,
            files: Vec::new(),
        }
    }

    pub(crate) fn shape(&self) -> &[u64] {
        &self.info.shape
    }

    /// Returns whether HDF5 alone reads these elements as Penstock does. `false` also where that is not known.
    pub(crate) fn is_for_hdf5(
        &mut self,
        session: &Session<'_>,
        dataset: hid_t,
        selection: &Selection,
    ) -> bool {
        let info = Arc::clone(&self.info);
        let mut unchanged = vec![false; self.files.len()];
        let mut opened = None;
        let Some((low, high)) = selection.bounds(&info.shape) else {
            return true;
        };
        for (at, mapping) in mappings(&info).iter().enumerate() {
            if let Some((first, last)) = &self.bounds[at]
                && (0..low.len()).any(|d| last[d] < low[d] || high[d] < first[d])
            {
                continue;
            }
            if touched(mapping, selection, &info.shape).is_none() {
                continue;
            }
            match &self.states[at] {
                State::Changed => return false,
                State::Fits(files) => {
                    let known = &self.files;
                    let mut holds = |at: &usize| {
                        unchanged[*at] = unchanged[*at] || is_unchanged(&known[*at]);
                        unchanged[*at]
                    };
                    if !files.iter().all(&mut holds) {
                        self.states[at] = State::Changed;
                        return false;
                    }
                    continue;
                }
                State::Unknown => {}
            }
            if opened.is_none() {
                let sources = Sources::new(session, None);
                let Ok(place) = sources.place(dataset, info.clone()) else {
                    return false;
                };
                opened = Some((sources, place));
            }
            let Some((sources, place)) = &mut opened else {
                return false;
            };
            sources.sightings.clear();
            let all = Selection::all(&info.shape);
            let looked_at = if is_series(mapping) { selection } else { &all };
            if refuse_misfits_of(sources, place, mapping, looked_at).is_err() {
                return false;
            }
            let is_settled = |seen: &Sighting| seen.1 != Some(None);
            let stays = !is_series(mapping)
                && !sources.is_unsettled
                && sources.sightings.iter().all(is_settled);
            if stays {
                self.states[at] = State::Fits(self.add(&sources.sightings));
                unchanged.resize(self.files.len(), true);
            }
        }
        true
    }

    /// Returns the places of these files in the list.
    fn add(&mut self, sightings: &[Sighting]) -> Vec<usize> {
        let mut places = Vec::with_capacity(sightings.len());
        for seen in sightings {
            // Mappings of one file mostly follow each other.
            let known = self.files.iter().rposition(|known| known == seen);
            places.push(known.unwrap_or_else(|| {
                self.files.push(seen.clone());
                self.files.len() - 1
            }));
        }
        places
    }
}

fn is_unchanged((path, status): &Sighting) -> bool {
    let now = fs::metadata(path).ok();
    now.map(|meta| Status::settled(&meta)) == *status
}
