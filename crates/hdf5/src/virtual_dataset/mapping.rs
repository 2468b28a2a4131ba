//! Turns what is wanted of a virtual dataset into what is wanted of one of its sources.

use penstock_array::{Axis, MemoryLayout, Run, Segment, Selection};
use penstock_engine::error::Error;

use super::limits::Stop;
use super::progression::{Spaced, flipped, meet_all, segments};
use super::rows::{Numbered, Rows, push};

/// What is wanted of a dataset, and the memory for it.
#[derive(Clone)]
pub(super) struct Wanted {
    pub selection: Selection,
    pub memory: MemoryLayout,
}

/// The wanted elements that a mapping provides. The elements of a mapping are numbered in the order
/// of its selections.
pub(super) enum Touched {
    /// For each dimension of the virtual dataset, the map from number to position.
    Grid(Vec<Vec<Segment>>),
    /// The map from number (as run start) to position in the one-dimensional memory.
    Rows(Vec<Run>),
}

/// The selection on one side of a mapping.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    pub selection: &'a Selection,
    /// Shape of the dataspace in which the selection was made.
    pub made_for: &'a [u64],
    /// Shape of the dataset.
    pub shape: &'a [u64],
}

impl Wanted {
    /// Returns what is wanted if only these elements are.
    pub(super) fn only(&self, selection: Selection) -> Wanted {
        let memory = self.memory.clone();
        Wanted { selection, memory }
    }
}

impl Side<'_> {
    /// Returns the axes, or an error if their number is not that of the dataset.
    fn axes<'b>(&self, axes: &'b [Axis]) -> Result<&'b [Axis], Stop> {
        if axes.len() != self.shape.len() {
            return Err(Stop::other_rank(axes.len(), self.shape.len()));
        }
        Ok(axes)
    }

    fn numbered(&self) -> Result<Numbered, Stop> {
        for shape in [self.shape, self.made_for] {
            let elements = shape.iter().copied().try_fold(1, u64::checked_mul);
            elements.ok_or_else(Stop::too_many)?;
        }
        Numbered::new(self.selection, self.made_for, self.shape)
    }

    /// Returns the index range (first, end) along each dimension, or `None` if it is empty.
    pub(super) fn bounds(axes: &[Axis]) -> Option<Vec<(u64, u64)>> {
        axes.iter()
            .map(|axis| Some((axis.next(0)?, axis.last()? + 1)))
            .collect()
    }
}

impl Touched {
    /// Returns the wanted elements in boxes; `None` if the mapping has none.
    pub(super) fn grid(
        target: &Side<'_>,
        axes: &[Axis],
        wanted: &[Axis],
    ) -> Result<Option<Touched>, Stop> {
        let mut along = Vec::with_capacity(axes.len());
        for (target, wanted) in target.axes(axes)?.iter().zip(wanted) {
            let (Some(first), Some(last)) = (target.next(0), target.last()) else {
                return Ok(None);
            };
            let asked = segments(wanted, first, last + 1)?;
            let (Some(low), Some(high)) = (wanted.next(first), wanted.last()) else {
                return Ok(None);
            };
            let given = segments(target, low, high.min(last) + 1)?;
            let met = meet_all(&given, &asked)?;
            if met.is_empty() {
                return Ok(None);
            }
            along.push(met);
        }
        Ok(Some(Touched::Grid(along)))
    }

    /// Returns the wanted elements in runs; `None` if the mapping has none.
    pub(super) fn rows(target: &Side<'_>, wanted: &[Run]) -> Result<Option<Touched>, Stop> {
        let target = target.numbered()?;
        let mut runs = Vec::new();
        for run in wanted {
            target.numbers(run.start, run.length, &mut |ahead, number, length| {
                push(&mut runs, number, run.position + ahead, length)
            })?;
        }
        Ok((!runs.is_empty()).then_some(Touched::Rows(runs)))
    }

    pub(super) fn elements(&self) -> u64 {
        match self {
            Touched::Grid(along) => along.iter().fold(1, |all, segments| {
                let here = segments.iter().map(|s| s.count).sum();
                u64::saturating_mul(all, here)
            }),
            Touched::Rows(runs) => runs.iter().map(|run| run.length).sum(),
        }
    }

    /// Returns what is wanted of the source. `wanted` is what is wanted of the virtual dataset.
    pub(super) fn of_source(
        self,
        target: &Side<'_>,
        source: &Side<'_>,
        wanted: &Wanted,
    ) -> Result<Wanted, Stop> {
        let along = match self {
            Touched::Rows(runs) => return rows_of_source(&runs, source, &wanted.memory),
            Touched::Grid(along) => along,
        };
        if let (Selection::Grid(targets), Selection::Grid(sources)) =
            (target.selection, source.selection)
            && let Some(found) =
                grid_of_source(&along, targets, source.axes(sources)?, &wanted.memory)?
        {
            return Ok(found);
        }
        // The sides have different shapes, so elements are mapped in runs, but only those within
        // the bounds.
        if let Selection::Grid(targets) = target.selection {
            let bounds = Side::bounds(targets).unwrap_or_default();
            let rows = Rows::new(&wanted.selection, target.shape, &wanted.memory, &bounds)?;
            if let Some(Touched::Rows(runs)) = Touched::rows(target, &rows.runs)? {
                return rows_of_source(&runs, source, &rows.memory);
            }
        }
        Err(Stop::Hdf5(
            "a mapping has an irregular selection".to_owned(),
        ))
    }
}

/// Returns `None` if the dimensions of the two sides do not correspond to each other.
fn grid_of_source(
    along: &[Vec<Segment>],
    targets: &[Axis],
    sources: &[Axis],
    memory: &MemoryLayout,
) -> Result<Option<Wanted>, Stop> {
    let mut base = i128::from(memory.base);
    let mut axes: Vec<Axis> = Vec::with_capacity(sources.len());
    let mut strides = vec![0i64; sources.len()];
    let mut theirs = sources.iter().enumerate();
    for ((numbers, target), stride) in along.iter().zip(targets).zip(&memory.strides) {
        if target.len() == 1 {
            let [
                Segment {
                    position, count: 1, ..
                },
            ] = numbers[..]
            else {
                return Ok(None);
            };
            base += i128::from(position) * i128::from(*stride);
            continue;
        }
        let Some((at, source)) = theirs.by_ref().find(|(_, source)| source.len() != 1) else {
            return Ok(None);
        };
        if source.len() != target.len() {
            return Ok(None);
        }
        single_indices(&mut axes, &sources[..at]);
        let spaced = Spaced::of(&meet_all(&of_numbers(source, numbers)?, numbers)?)?;
        base += i128::from(spaced.first) * i128::from(*stride);
        let stride = i128::from(spaced.step) * i128::from(*stride);
        strides[at] = i64::try_from(stride).map_err(|_| outside_memory())?;
        axes.push(spaced.axis);
    }
    if theirs.any(|(_, source)| source.len() != 1) {
        return Ok(None);
    }
    single_indices(&mut axes, sources);
    let base = u64::try_from(base).map_err(|_| outside_memory())?;
    Ok(Some(Wanted {
        selection: Selection::Grid(axes),
        memory: MemoryLayout {
            base,
            length: memory.length,
            strides,
        },
    }))
}

fn outside_memory() -> Stop {
    Stop::Failed(Error::invalid("the selection extends past its memory"))
}

/// Appends those of the remaining `sources`, each of which has a single index.
fn single_indices(axes: &mut Vec<Axis>, sources: &[Axis]) {
    for source in &sources[axes.len()..] {
        axes.push(Axis::range(source.next(0).unwrap_or(0), 1));
    }
}

/// Maps the numbers between the first and the last wanted one to indices of the source.
fn of_numbers(source: &Axis, wanted: &[Segment]) -> Result<Vec<Segment>, Stop> {
    let last = |s: &Segment| s.index + (s.count - 1) * if s.count == 1 { 0 } else { s.index_step };
    let low = wanted.iter().map(|s| s.index).min().unwrap_or(0);
    let high = wanted.iter().map(last).max().unwrap_or(0);
    let (from, to) = match source {
        Axis::Slab {
            start,
            stride,
            block,
            ..
        } => (
            start + low / block * stride,
            start + high / block * stride + block,
        ),
        Axis::Runs(_) => (0, source.last().map_or(0, |last| last + 1)),
    };
    let segments = segments(source, from, to)?;
    Ok(segments.into_iter().map(flipped).collect())
}

fn rows_of_source(runs: &[Run], source: &Side<'_>, memory: &MemoryLayout) -> Result<Wanted, Stop> {
    let source = source.numbered()?;
    let mut found = Vec::new();
    for run in runs {
        source.elements(run.start, run.length, &mut |ahead, element, length| {
            push(&mut found, element, run.position + ahead, length)
        })?;
    }
    Ok(Wanted {
        selection: Selection::Runs(found),
        memory: memory.clone(),
    })
}
