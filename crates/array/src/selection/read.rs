//! The selection that a read uses.

use std::collections::BinaryHeap;

use penstock_engine::error::Result;

use super::{Run, Selection};
use crate::reserve::{lack, make_room, push};

impl Selection {
    /// Returns whether two elements have the same position in the result. Only runs can have this.
    pub fn has_common_positions(&self) -> bool {
        matches!(self, Selection::Runs(runs) if have_common_positions(runs))
    }

    /// Returns the selection with one element for each position: the last one, in the order of the
    /// runs. Workers fill positions at the same time, so no two elements may have one position.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn last_at_each_position(self) -> Result<Selection> {
        match self {
            Selection::Runs(runs) if have_common_positions(&runs) => {
                Ok(Selection::Runs(last_of(&runs)?))
            }
            other => Ok(other),
        }
    }
}

fn have_common_positions(runs: &[Run]) -> bool {
    let are_apart = |ranges: &[(u64, u64)]| ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0);
    let end = |run: &Run| run.position.saturating_add(run.length);
    let is_apart = |pair: &[Run]| end(&pair[0]) <= pair[1].position;
    if runs.windows(2).all(is_apart) {
        return false;
    }
    let filled = runs.iter().filter(|run| run.length > 0);
    let mut ranges: Vec<(u64, u64)> = filled.map(|run| (run.position, end(run))).collect();
    ranges.sort_unstable();
    !are_apart(&ranges)
}

/// Returns each position once, with the element of the last run that has it, ordered by positions.
///
/// A sweep over the positions: runs enter a heap where they begin, and the latest run of the list
/// is on top. Between two beginnings, the top run supplies the elements, until it ends and is
/// dropped. Each run enters and leaves the heap once, so the cost is that of a sort.
pub(super) fn last_of(runs: &[Run]) -> Result<Vec<Run>> {
    let mut by_position: Vec<(u64, usize)> = Vec::new();
    make_room(&mut by_position, runs.len())?;
    by_position.extend(runs.iter().map(|run| run.position).zip(0..));
    by_position.sort_unstable();
    let mut left = Vec::new();
    // The runs that begin at or before `at`: number and end, the last run first.
    let mut begun: BinaryHeap<(usize, u64)> = BinaryHeap::new();
    let mut at = 0;
    let starts = by_position.iter().copied().map(Some).chain([None]);
    for next in starts {
        let until = next.map_or(u64::MAX, |(position, _)| position);
        while let Some((number, end)) = begun.peek().copied() {
            if end <= at {
                begun.pop();
                continue;
            }
            if at == until {
                break;
            }
            let run = &runs[number];
            let low = at;
            at = end.min(until);
            append(&mut left, run.start + (low - run.position), low, at - low)?;
        }
        if let Some((position, number)) = next {
            begun.try_reserve(1).map_err(|e| lack(begun.len(), &e))?;
            begun.push((number, position + runs[number].length));
            at = position;
        }
    }
    Ok(left)
}

/// Appends elements to the runs, and extends the last run if they continue it.
fn append(runs: &mut Vec<Run>, start: u64, position: u64, length: u64) -> Result<()> {
    match runs.last_mut() {
        Some(run) if (run.start + run.length, run.position + run.length) == (start, position) => {
            run.length += length;
            Ok(())
        }
        _ => push(
            runs,
            Run {
                start,
                position,
                length,
            },
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    fn positions(runs: &[Run]) -> BTreeMap<u64, u64> {
        let each = |run: &Run| {
            let run = *run;
            (0..run.length).map(move |at| (run.position + at, run.start + at))
        };
        runs.iter().flat_map(each).collect()
    }

    proptest! {
        #[test]
        fn the_last_element_of_each_position_is_left_once(
            runs in prop::collection::vec((0..50u64, 0..50u64, 0..9u64), 0..20)
        ) {
            let run = |(start, position, length)| Run { start, position, length };
            let runs: Vec<Run> = runs.into_iter().map(run).collect();
            let expected = positions(&runs);
            let left = Selection::Runs(runs).last_at_each_position().unwrap();
            let Selection::Runs(left) = left else { panic!("runs stay runs") };
            let elements: u64 = left.iter().map(|run| run.length).sum();
            prop_assert_eq!(elements, expected.len() as u64);
            prop_assert_eq!(positions(&left), expected);
        }
    }

    #[test]
    fn positions_that_overflow_are_compared_up_to_the_largest() {
        let run = |position| Run {
            start: 0,
            position,
            length: 2,
        };
        let have_common = |runs: Vec<Run>| Selection::Runs(runs).has_common_positions();
        assert!(!have_common(vec![run(u64::MAX - 1), run(0)]));
        assert!(have_common(vec![run(u64::MAX - 1), run(u64::MAX - 2)]));
    }

    #[test]
    fn runs_with_positions_of_their_own_stay_as_they_are() {
        let runs = vec![
            Run {
                start: 5,
                position: 3,
                length: 2,
            },
            Run {
                start: 5,
                position: 0,
                length: 3,
            },
        ];
        let selection = Selection::Runs(runs);
        assert_eq!(
            selection.clone().last_at_each_position().unwrap(),
            selection
        );
    }
}
