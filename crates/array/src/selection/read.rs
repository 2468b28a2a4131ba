//! What a read makes of a selection.

use std::collections::BTreeMap;

use penstock_engine::error::Result;

use super::{Run, Selection};
use crate::reserve::push;

impl Selection {
    /// Returns the selection with one element for each position: the last one, in the order of the
    /// runs. Workers fill positions at the same time, so no two elements may have one position.
    pub(crate) fn last_at_each_position(self) -> Result<Selection> {
        match self {
            Selection::Runs(runs) if have_common_positions(&runs) => last_of(&runs),
            other => Ok(other),
        }
    }
}

fn have_common_positions(runs: &[Run]) -> bool {
    let are_apart = |ranges: &[(u64, u64)]| ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0);
    let is_apart = |pair: &[Run]| pair[0].position + pair[0].length <= pair[1].position;
    if runs.windows(2).all(is_apart) {
        return false;
    }
    let filled = runs.iter().filter(|run| run.length > 0);
    let mut ranges: Vec<(u64, u64)> = filled
        .map(|run| (run.position, run.position + run.length))
        .collect();
    ranges.sort_unstable();
    !are_apart(&ranges)
}

fn last_of(runs: &[Run]) -> Result<Selection> {
    let mut left = Vec::new();
    // Ranges of positions that later runs take: end by start. They do not overlap.
    let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
    for run in runs.iter().rev().filter(|run| run.length > 0) {
        let (first, end) = (run.position, run.position + run.length);
        let before = taken.range(..first).next_back();
        let mut at = before.map_or(first, |(_, end)| first.max(*end));
        let mut free = Vec::new();
        for (start, stop) in taken.range(first..end) {
            if at < *start {
                push(&mut free, (at, *start))?;
            }
            at = at.max(*stop);
        }
        if at < end {
            push(&mut free, (at, end))?;
        }
        for (low, high) in free {
            taken.insert(low, high);
            let rest = Run {
                start: run.start + (low - first),
                position: low,
                length: high - low,
            };
            push(&mut left, rest)?;
        }
    }
    left.reverse();
    Ok(Selection::Runs(left))
}

#[cfg(test)]
mod tests {
    use super::*;
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
