//! Evenly spaced indices along one axis: their intersection, and their conversion back to an axis.

use penstock_array::{Axis, Ranges, Run, Segment};

use super::limits::{MOST_PIECES, Stop};

/// Returns the indices that both segments have in common, as a map from positions of `one` (the
/// result's indices) to positions of `other` (its positions). Indices and positions ascend in both.
pub(super) fn meet(one: &Segment, other: &Segment) -> Option<Segment> {
    let step = |segment: &Segment| match segment.count {
        1 => 1,
        _ => i128::from(segment.index_step),
    };
    let (a, b) = (step(one), step(other));
    let ahead = i128::from(other.index) - i128::from(one.index);
    // a * i - b * j = ahead
    let (common, inverse) = common_divisor(a, b);
    if ahead % common != 0 {
        return None;
    }
    let (step_i, step_j) = (b / common, a / common);
    let residue = (ahead / common).rem_euclid(step_i) as u128;
    let residue = (residue * inverse.rem_euclid(step_i) as u128 % step_i as u128) as i128;
    // The smallest i for which j is not negative.
    let least = if ahead > 0 { (ahead - 1) / a + 1 } else { 0 };
    let i = least + (residue - least).rem_euclid(step_i);
    if i >= i128::from(one.count) {
        return None;
    }
    let j = (a * i - ahead) / b;
    if j >= i128::from(other.count) {
        return None;
    }
    let more = |count: u64, first: i128, step: i128| (i128::from(count) - 1 - first) / step;
    let count = more(one.count, i, step_i).min(more(other.count, j, step_j)) as u64 + 1;
    // No product overflows: each stays below an index or position of the inputs.
    let along = |segment: &Segment, first: i128, step: i128| {
        let position_step = if count == 1 {
            1
        } else {
            step as u64 * segment.position_step
        };
        let from_first = first as u64 * segment.position_step;
        (segment.position + from_first, position_step)
    };
    let (index, index_step) = along(one, i, step_i);
    let (position, position_step) = along(other, j, step_j);
    Some(Segment {
        index,
        index_step,
        position,
        position_step,
        count,
    })
}

/// Returns the greatest common divisor, and x with `a * x = divisor` modulo `b`.
pub(super) fn common_divisor(a: i128, b: i128) -> (i128, i128) {
    let (mut rest, mut next) = (a, b);
    let (mut x, mut next_x) = (1, 0);
    while next != 0 {
        let quotient = rest / next;
        (rest, next) = (next, rest - quotient * next);
        (x, next_x) = (next_x, x - quotient * next_x);
    }
    (rest, x)
}

pub(super) fn meet_all(one: &[Segment], other: &[Segment]) -> Result<Vec<Segment>, Stop> {
    if one.len().saturating_mul(other.len()) > MOST_PIECES {
        return Err(Stop::too_many());
    }
    Ok(one
        .iter()
        .flat_map(|one| other.iter().filter_map(move |other| meet(one, other)))
        .collect())
}

pub(super) fn meet_any(one: &[Segment], other: &[Segment]) -> Result<bool, Stop> {
    if one.len().saturating_mul(other.len()) > MOST_PIECES {
        return Err(Stop::too_many());
    }
    let mut pairs = one
        .iter()
        .flat_map(|one| other.iter().map(move |other| (one, other)));
    Ok(pairs.any(|(one, other)| meet(one, other).is_some()))
}

/// Returns the map from the selected indices in `from..to` to their positions.
pub(super) fn segments(axis: &Axis, from: u64, to: u64) -> Result<Vec<Segment>, Stop> {
    let mut segments = Vec::new();
    for ranges in axis.ranges(from, to)? {
        let Ranges { starts, length } = ranges;
        if segments.len() as u64 + starts.count.min(length) > MOST_PIECES as u64 {
            return Err(Stop::too_many());
        }
        if starts.count < length {
            let range = |(index, position)| Segment::range(from + index, position, length);
            segments.extend(ranges.firsts().map(range));
        } else {
            segments.extend((0..length).map(|at| Segment {
                index: from + starts.index + at,
                position: starts.position + at,
                ..starts
            }));
        }
    }
    Ok(segments)
}

pub(super) fn flipped(segment: Segment) -> Segment {
    Segment {
        index: segment.position,
        index_step: segment.position_step,
        position: segment.index,
        position_step: segment.index_step,
        count: segment.count,
    }
}

/// Segments as an axis. Its index at position n has the position `first + n * step` in the segments.
pub(super) struct Spaced {
    pub axis: Axis,
    pub first: u64,
    pub step: u64,
}

impl Spaced {
    pub(super) fn of(segments: &[Segment]) -> Result<Spaced, Stop> {
        if let [only] = segments {
            let (index_step, step) = match only.count {
                1 => (1, 1),
                _ => (only.index_step, only.position_step),
            };
            return Ok(Spaced {
                axis: Axis::strided(only.index, index_step, only.count),
                first: only.position,
                step,
            });
        }
        Ok(Spaced {
            axis: Axis::Runs(runs(segments)?),
            first: 0,
            step: 1,
        })
    }
}

/// Returns the segments as runs that are consecutive on both sides, sorted by index.
pub(super) fn runs(segments: &[Segment]) -> Result<Vec<Run>, Stop> {
    let is_run = |s: &Segment| s.count == 1 || (s.index_step == 1 && s.position_step == 1);
    let pieces = segments.iter().fold(0u64, |all, s| {
        all.saturating_add(if is_run(s) { 1 } else { s.count })
    });
    if pieces > MOST_PIECES as u64 {
        return Err(Stop::too_many());
    }
    let mut runs = Vec::with_capacity(pieces as usize);
    for s in segments {
        let (times, length) = if is_run(s) {
            (1, s.count)
        } else {
            (s.count, 1)
        };
        runs.extend((0..times).map(|i| Run {
            start: s.index + i * s.index_step,
            position: s.position + i * s.position_step,
            length,
        }));
    }
    runs.sort_unstable_by_key(|run| (run.start, run.position));
    runs.dedup_by(|next, run| {
        let goes_on =
            run.start + run.length == next.start && run.position + run.length == next.position;
        if goes_on {
            run.length += next.length;
        }
        goes_on
    });
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(segment: &Segment) -> Vec<(u64, u64)> {
        (0..segment.count)
            .map(|i| {
                let index = segment.index + i * segment.index_step;
                (index, segment.position + i * segment.position_step)
            })
            .collect()
    }

    fn segment() -> impl Strategy<Value = Segment> {
        (0..50u64, 1..9u64, 0..50u64, 1..9u64, 1..30u64).prop_map(
            |(index, index_step, position, position_step, count)| Segment {
                index,
                index_step,
                position,
                position_step,
                count,
            },
        )
    }

    proptest! {
        #[test]
        fn segments_meet_in_the_indices_that_both_have(one in segment(), other in segment()) {
            let mut expected = Vec::new();
            for (index, position) in pairs(&one) {
                let same = pairs(&other).into_iter().filter(|pair| pair.0 == index);
                expected.extend(same.map(|pair| (position, pair.1)));
            }
            let found = meet(&one, &other).map_or(Vec::new(), |met| pairs(&met));
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn segments_at_the_end_of_all_numbers_meet() {
        let one = Segment {
            index: 1,
            index_step: u64::MAX - 1,
            position: 0,
            position_step: 1,
            count: 2,
        };
        let other = Segment::range(u64::MAX, 7, 1);
        let met = meet(&one, &other).unwrap();
        assert_eq!(met, Segment::range(1, 7, 1));
        assert_eq!(meet(&other, &other).unwrap(), Segment::range(7, 7, 1));
    }
}
