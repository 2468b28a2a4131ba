//! Finds wanted elements that no mapping covers, and mappings that cover the same elements.
//!
//! Mappings are boxes: each has a set of indices along each dimension, which may have gaps.
//!
//! - Two boxes overlap if they have a common index along every dimension. The boxes are sorted by their first index along
//!   the dimension with the most distinct first indices, so each is compared only with those that start before it ends.
//! - What a box leaves of a region is again boxes. Along each dimension in turn, the indices outside the box become a new
//!   region, and those inside remain for the next dimension:
//!
//!   ```text
//!   region = A1 x A2, box = B1 x B2   ->   (A1 - B1) x A2,  (A1 & B1) x (A2 - B2)
//!   ```
//!
//!   The parts of a series differ along one dimension only. They are first merged into one box.
//! - Runs of elements are compared by their positions in memory, sorted.

use penstock_array::{Axis, Run, Selection};

use super::limits::{MOST_PIECES, Stop};
use super::progression::{meet_all, meet_any, runs, segments};

/// Index ranges of one axis: (first, end).
type Ranges = Vec<(u64, u64)>;

/// Returns whether two of these boxes of rank `rank` have an element in common.
pub(super) fn overlap(boxes: &[&[Axis]], rank: usize) -> Result<bool, Stop> {
    if rank == 0 {
        return Ok(boxes.len() > 1);
    }
    let first = |axes: &[Axis], d: usize| axes[d].next(0).unwrap_or(0);
    let last = |axes: &[Axis], d: usize| axes[d].last().unwrap_or(0);
    // Along the dimension with the most distinct starts, the fewest boxes need comparing.
    let starts = |d: usize| {
        let mut all: Vec<u64> = boxes.iter().map(|axes| first(axes, d)).collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    };
    let along = (0..rank).max_by_key(|d| starts(*d)).unwrap_or(0);
    let mut sorted: Vec<&[Axis]> = boxes.to_vec();
    sorted.sort_by_key(|axes| first(axes, along));
    for (at, one) in sorted.iter().enumerate() {
        let reach = last(one, along);
        for other in sorted[at + 1..]
            .iter()
            .take_while(|o| first(o, along) <= reach)
        {
            let apart =
                (0..rank).any(|d| last(one, d) < first(other, d) || last(other, d) < first(one, d));
            if !apart && meet_everywhere(one, other)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn meet_everywhere(one: &[Axis], other: &[Axis]) -> Result<bool, Stop> {
    for (one, other) in one.iter().zip(other) {
        let end = one.last().max(other.last()).map_or(0, |last| last + 1);
        if !meet_any(&segments(one, 0, end)?, &segments(other, 0, end)?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the elements of a wanted box that are in none of the others, as boxes.
pub(super) fn left_of_grid(wanted: &[Axis], taken: &[&[Axis]]) -> Result<Vec<Vec<Axis>>, Stop> {
    let bounds: Option<Vec<Ranges>> = wanted
        .iter()
        .map(|axis| Some(vec![(axis.next(0)?, axis.last()? + 1)]))
        .collect();
    let Some(bounds) = bounds else {
        return Ok(Vec::new());
    };
    let mut left = vec![bounds];
    let mut work = 0;
    for taken in joined(taken, &left[0])? {
        let mut next = Vec::new();
        for region in left {
            subtract(region, &taken, &mut next);
        }
        left = next;
        work += left
            .iter()
            .flatten()
            .map(|ranges| ranges.len() + 1)
            .sum::<usize>();
        if work > MOST_PIECES {
            return Err(Stop::too_many());
        }
    }
    let mut boxes = Vec::new();
    for region in left {
        let axes: Result<Vec<Axis>, Stop> = region
            .iter()
            .zip(wanted)
            .map(|(ranges, axis)| within(axis, ranges))
            .collect();
        let axes = axes?;
        if !axes.iter().any(Axis::is_empty) {
            boxes.push(axes);
        }
    }
    Ok(boxes)
}

/// Returns the boxes as ranges inside the bounds. Boxes that differ along one dimension only, as
/// the parts of a series do, are merged.
fn joined(boxes: &[&[Axis]], bounds: &[Ranges]) -> Result<Vec<Vec<Ranges>>, Stop> {
    let differs = |d: &usize| boxes.windows(2).any(|pair| pair[0][*d] != pair[1][*d]);
    let different: Vec<usize> = (0..bounds.len()).filter(differs).collect();
    let along = |axes: &[Axis], d: usize| ranges_of(&axes[d], bounds[d][0].0, bounds[d][0].1);
    let ranges = |axes: &[Axis]| -> Result<Vec<Ranges>, Stop> {
        (0..bounds.len()).map(|d| along(axes, d)).collect()
    };
    let ([first, ..], [d]) = (boxes, &different[..]) else {
        let mut all: Vec<Vec<Ranges>> = Vec::with_capacity(boxes.len());
        let mut pieces = 0;
        for axes in boxes {
            let one = ranges(axes)?;
            pieces += one.iter().map(Vec::len).sum::<usize>();
            if pieces > MOST_PIECES {
                return Err(Stop::too_many());
            }
            all.push(one);
        }
        return Ok(all);
    };
    let mut all: Ranges = Vec::new();
    for axes in boxes {
        all.extend(along(axes, *d)?);
        if all.len() > MOST_PIECES {
            return Err(Stop::too_many());
        }
    }
    all.sort_unstable();
    all.dedup_by(|next, range| {
        let touches = next.0 <= range.1;
        if touches {
            range.1 = range.1.max(next.1);
        }
        touches
    });
    let mut one = ranges(first)?;
    one[*d] = all;
    Ok(vec![one])
}

fn ranges_of(axis: &Axis, from: u64, to: u64) -> Result<Ranges, Stop> {
    let runs = runs(&segments(axis, from, to)?)?;
    Ok(runs
        .iter()
        .map(|run| (run.start, run.start + run.length))
        .collect())
}

/// Appends the parts of `region` that are not in `taken`.
fn subtract(mut region: Vec<Ranges>, taken: &[Ranges], parts: &mut Vec<Vec<Ranges>>) {
    let common: Vec<Ranges> = region.iter().zip(taken).map(|(a, b)| both(a, b)).collect();
    if common.iter().any(Vec::is_empty) {
        parts.push(region);
        return;
    }
    for (at, common) in common.into_iter().enumerate() {
        let rest = without(&region[at], &common);
        if !rest.is_empty() {
            let mut part = region.clone();
            part[at] = rest;
            parts.push(part);
        }
        region[at] = common;
    }
}

/// Returns the intersection. All ranges are sorted and disjoint.
fn both(one: &[(u64, u64)], other: &[(u64, u64)]) -> Ranges {
    let mut common = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < one.len() && j < other.len() {
        let (low, high) = (one[i].0.max(other[j].0), one[i].1.min(other[j].1));
        if low < high {
            common.push((low, high));
        }
        let is_first = one[i].1 < other[j].1;
        i += usize::from(is_first);
        j += usize::from(!is_first);
    }
    common
}

fn without(all: &[(u64, u64)], taken: &[(u64, u64)]) -> Ranges {
    let mut rest = Vec::new();
    let mut j = 0;
    for (mut low, high) in all.iter().copied() {
        while j < taken.len() && taken[j].1 <= low {
            j += 1;
        }
        while let Some(next) = taken.get(j).filter(|next| next.0 < high) {
            if low < next.0 {
                rest.push((low, next.0));
            }
            low = next.1;
            if low >= high {
                break;
            }
            j += 1;
        }
        if low < high {
            rest.push((low, high));
        }
    }
    rest
}

/// Returns the indices of the axis that lie in the ranges, with their positions.
fn within(axis: &Axis, ranges: &Ranges) -> Result<Axis, Stop> {
    if let (Axis::Slab { .. }, [(low, high)]) = (axis, &ranges[..])
        && axis.next(0) == Some(*low)
        && axis.last().is_some_and(|last| last < *high)
    {
        return Ok(axis.clone());
    }
    let mut found = Vec::new();
    for (low, high) in ranges {
        // The positions of this segment are its indices.
        let range = penstock_array::Segment::range(*low, *low, high - low);
        found.extend(meet_all(&[range], &segments(axis, *low, *high)?)?);
        if found.len() > MOST_PIECES {
            return Err(Stop::too_many());
        }
    }
    Ok(Axis::Runs(runs(&found)?))
}

/// Returns the wanted runs whose positions are not taken, or `None` if two of the taken ranges
/// overlap.
pub(super) fn left_of_rows(
    wanted: &[Run],
    mut taken: Vec<(u64, u64)>,
) -> Result<Option<Selection>, Stop> {
    taken.sort_unstable();
    if taken.windows(2).any(|pair| pair[0].1 > pair[1].0) {
        return Ok(None);
    }
    let mut wanted = wanted.to_vec();
    wanted.sort_by_key(|run| run.position);
    let all: Ranges = wanted
        .iter()
        .map(|run| (run.position, run.position + run.length))
        .collect();
    let mut at = 0;
    let mut left = Vec::new();
    for (low, high) in without(&all, &taken) {
        while wanted[at].position + wanted[at].length <= low {
            at += 1;
        }
        left.push(Run {
            start: wanted[at].start + (low - wanted[at].position),
            position: low,
            length: high - low,
        });
    }
    Ok(Some(Selection::Runs(left)))
}
