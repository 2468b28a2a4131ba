//! Selections as HDF5 takes them, for transfers that only HDF5 can carry out.
//!
//! HDF5 moves the elements of a hyperslab in C order, each once. A list in another order, or with
//! repeats, therefore becomes a hyperslab of the listed indices, and a selection of what HDF5 moves.

use std::ffi::c_int;

use penstock_array::{Axis, Run, Selection, make_room};
use penstock_engine::error::Result;
use penstock_sys::hdf5::{H5S_ALL, H5S_SELECT_AND, H5S_SELECT_OR, H5S_SELECT_SET, hid_t};

use crate::library::{Id, Session};

pub(in crate::transfer) enum Dataspace {
    /// The caller's, or `H5S_ALL`.
    Callers(hid_t),
    Own(Id),
}

impl Dataspace {
    pub(in crate::transfer) fn id(&self) -> hid_t {
        match self {
            Dataspace::Callers(id) => *id,
            Dataspace::Own(own) => own.get(),
        }
    }
}

/// The elements that HDF5 moves for a selection.
pub(in crate::transfer) struct Hdf5Selection {
    /// The dataspace of the dataset's side.
    pub space: Dataspace,
    /// The shape of an array of the elements that HDF5 moves, in its order.
    pub shape: Vec<u64>,
    /// The elements of that array in the order of the selection; `None` if HDF5's order is the same.
    pub taken: Option<Selection>,
}

impl Hdf5Selection {
    /// Makes one of the selection of a dataspace.
    pub(in crate::transfer) fn of_space(space: hid_t, selection: &Selection) -> Hdf5Selection {
        let shape = match selection {
            Selection::Grid(_) => selection.shape().unwrap_or_default(),
            Selection::Runs(_) => vec![selection.elements().unwrap_or(0)],
        };
        Hdf5Selection {
            space: Dataspace::Callers(space),
            shape,
            taken: None,
        }
    }

    /// Makes one of a selection as plain data, which lies inside the shape. For a write it has no repeats.
    pub(in crate::transfer) fn of_elements(
        session: &Session<'_>,
        shape: &[u64],
        selection: &Selection,
    ) -> Result<Hdf5Selection> {
        match selection {
            whole if *whole == Selection::all(shape) => {
                Ok(Hdf5Selection::of_space(H5S_ALL, selection))
            }
            Selection::Grid(axes) => of_grid(session, shape, axes),
            Selection::Runs(runs) => of_runs(session, shape, runs),
        }
    }
}

/// Indices of one dimension as HDF5 selects them.
#[derive(Clone, Copy)]
struct Slab {
    start: u64,
    stride: u64,
    count: u64,
    block: u64,
}

impl Slab {
    fn range(start: u64, length: u64) -> Slab {
        Slab {
            start,
            stride: 1,
            count: 1,
            block: length,
        }
    }
}

fn of_grid(session: &Session<'_>, shape: &[u64], axes: &[Axis]) -> Result<Hdf5Selection> {
    let sides: Vec<_> = axes.iter().map(once).collect::<Result<_>>()?;
    let space = slabs_of_all(session, shape, &sides)?;
    let taken: Vec<Axis> = sides.into_iter().map(|(_, taken)| taken).collect();
    let moved = taken.iter().map(|axis| axis.last().map_or(0, |l| l + 1));
    let moved: Vec<u64> = moved.collect();
    let taken = Some(Selection::Grid(taken)).filter(|taken| *taken != Selection::all(&moved));
    Ok(Hdf5Selection {
        space: Dataspace::Own(space),
        shape: moved,
        taken,
    })
}

/// Selects every combination of the slabs: what the slabs of all dimensions have in common.
fn slabs_of_all(session: &Session<'_>, shape: &[u64], sides: &[(Vec<Slab>, Axis)]) -> Result<Id> {
    let mut whole: Vec<Slab> = shape.iter().map(|size| Slab::range(0, *size)).collect();
    let mut lists = Vec::new();
    for (at, (slabs, _)) in sides.iter().enumerate() {
        match slabs.as_slice() {
            [one] => whole[at] = *one,
            _ => lists.push((at, slabs)),
        }
    }
    let mut common: Option<Id> = None;
    for (at, slabs) in lists {
        let union = union(session, shape, (at, slabs), &whole)?;
        match &common {
            None => common = Some(union),
            Some(common) => combine(session, common, H5S_SELECT_AND, &union)?,
        }
    }
    common.map_or_else(|| hyperslab(session, shape, &whole), Ok)
}

/// Unites the slabs of a dimension in pairs, then the pairs in pairs and so on. HDF5 copies the selection with
/// each union, so unions one after the other would take quadratic time.
fn union(
    session: &Session<'_>,
    shape: &[u64],
    (dimension, slabs): (usize, &[Slab]),
    others: &[Slab],
) -> Result<Id> {
    let mut side = others.to_vec();
    // Each has at least twice as many slabs as the next.
    let mut united: Vec<(usize, Id)> = Vec::new();
    for slab in slabs {
        side[dimension] = *slab;
        let (mut count, mut last) = (1, hyperslab(session, shape, &side)?);
        while let Some((_, before)) = united.pop_if(|(before, _)| *before == count) {
            combine(session, &before, H5S_SELECT_OR, &last)?;
            (count, last) = (2 * count, before);
        }
        united.push((count, last));
    }
    let mut rest = united.into_iter().rev().map(|(_, space)| space);
    let last = rest
        .next()
        .map_or_else(|| session.simple_space(shape), Ok)?;
    rest.try_fold(last, |last, before| {
        combine(session, &before, H5S_SELECT_OR, &last)?;
        Ok(before)
    })
}

fn combine(session: &Session<'_>, into: &Id, operation: c_int, other: &Id) -> Result<()> {
    // SAFETY: takes identifiers, which HDF5 checks.
    let status = unsafe { (session.hdf5.H5Smodify_select)(into.get(), operation, other.get()) };
    session.check(status, "combine hyperslabs").map(drop)
}

fn hyperslab(session: &Session<'_>, shape: &[u64], slabs: &[Slab]) -> Result<Id> {
    let space = session.simple_space(shape)?;
    let all = |number: fn(&Slab) -> u64| slabs.iter().map(number).collect::<Vec<u64>>();
    let (start, stride) = (all(|slab| slab.start), all(|slab| slab.stride));
    let (count, block) = (all(|slab| slab.count), all(|slab| slab.block));
    // SAFETY: the lists have as many numbers as the dataspace has dimensions.
    let status = unsafe {
        (session.hdf5.H5Sselect_hyperslab)(
            space.get(),
            H5S_SELECT_SET,
            start.as_ptr(),
            stride.as_ptr(),
            count.as_ptr(),
            block.as_ptr(),
        )
    };
    session.check(status, "select a hyperslab")?;
    Ok(space)
}

/// Returns the indices of an axis, each once and sorted, and the axis in numbers of these.
fn once(axis: &Axis) -> Result<(Vec<Slab>, Axis)> {
    let runs = match axis {
        Axis::Slab {
            start,
            stride,
            count,
            block,
        } => {
            let slab = Slab {
                start: *start,
                stride: (*stride).max(1),
                count: *count,
                block: *block,
            };
            return Ok((vec![slab], Axis::all(axis.len())));
        }
        Axis::Runs(runs) => runs,
    };
    let (slabs, numbered) = distinct(runs)?;
    let count = slabs.iter().map(|slab| slab.block).sum();
    let taken = if is_in_order(&numbered) {
        Axis::all(count)
    } else {
        Axis::Runs(numbered)
    };
    Ok((slabs, taken))
}

/// Returns the elements of the runs, each once and sorted, and the runs in numbers of these.
fn distinct(runs: &[Run]) -> Result<(Vec<Slab>, Vec<Run>)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    make_room(&mut ranges, runs.len())?;
    ranges.extend(runs.iter().map(|run| (run.start, run.start + run.length)));
    ranges.sort_unstable();
    let mut slabs: Vec<Slab> = Vec::new();
    // Number of the first element of each slab.
    let mut firsts: Vec<u64> = Vec::new();
    make_room(&mut slabs, runs.len())?;
    make_room(&mut firsts, runs.len())?;
    let mut count = 0;
    for (start, end) in ranges {
        match slabs.last_mut() {
            Some(slab) if start <= slab.start + slab.block => {
                let longer = slab.block.max(end - slab.start);
                count += longer - slab.block;
                slab.block = longer;
            }
            _ => {
                slabs.push(Slab::range(start, end - start));
                firsts.push(count);
                count += end - start;
            }
        }
    }
    let mut numbered: Vec<Run> = Vec::new();
    make_room(&mut numbered, runs.len())?;
    numbered.extend(runs.iter().map(|run| {
        let at = slabs.partition_point(|slab| slab.start <= run.start) - 1;
        Run {
            start: firsts[at] + (run.start - slabs[at].start),
            ..*run
        }
    }));
    Ok((slabs, numbered))
}

/// Returns whether the position of each element is its number.
fn is_in_order(numbered: &[Run]) -> bool {
    numbered.iter().all(|run| run.start == run.position)
}

/// Selects each element once, sorted: of a virtual dataset, HDF5 reads no points in another order, and
/// crashes if points repeat.
fn of_runs(session: &Session<'_>, shape: &[u64], runs: &[Run]) -> Result<Hdf5Selection> {
    let space = session.simple_space(shape)?;
    let (slabs, taken) = distinct(runs)?;
    let elements: u64 = slabs.iter().map(|slab| slab.block).sum();
    let numbers = usize::try_from(elements).unwrap_or(usize::MAX);
    let mut coordinates: Vec<u64> = Vec::new();
    make_room(&mut coordinates, numbers.saturating_mul(shape.len()))?;
    for slab in slabs {
        for mut left in slab.start..slab.start + slab.block {
            let end = coordinates.len() + shape.len();
            coordinates.resize(end, 0);
            for (at, size) in coordinates[end - shape.len()..].iter_mut().zip(shape).rev() {
                (*at, left) = (left % size, left / size);
            }
        }
    }
    // SAFETY: as many points as are passed, of as many numbers as the dataspace has dimensions.
    let status = unsafe {
        (session.hdf5.H5Sselect_elements)(
            space.get(),
            H5S_SELECT_SET,
            numbers,
            coordinates.as_ptr(),
        )
    };
    session.check(status, "select elements")?;
    Ok(Hdf5Selection {
        space: Dataspace::Own(space),
        shape: vec![elements],
        taken: (!is_in_order(&taken)).then_some(Selection::Runs(taken)),
    })
}
