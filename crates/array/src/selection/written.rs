//! Properties of a selection that a write depends on.

use penstock_engine::error::Result;

use super::read::last_of;
use super::{Axis, Run, Selection};
use crate::reserve::push;

impl Selection {
    /// Returns whether an element is selected more than once.
    pub fn has_repeats(&self) -> bool {
        match self {
            Selection::Grid(axes) => axes.iter().any(|axis| match axis {
                Axis::Slab { .. } => false,
                Axis::Runs(runs) => runs
                    .windows(2)
                    .any(|pair| pair[0].start + pair[0].length > pair[1].start),
            }),
            Selection::Runs(runs) => {
                let is_sorted = |runs: &[(u64, u64)]| runs.windows(2).all(|p| p[0].1 <= p[1].0);
                let mut ends: Vec<(u64, u64)> = runs
                    .iter()
                    .filter(|run| run.length > 0)
                    .map(|run| (run.start, run.start.saturating_add(run.length)))
                    .collect();
                if is_sorted(&ends) {
                    return false;
                }
                ends.sort_unstable();
                !is_sorted(&ends)
            }
        }
    }

    /// Returns the selection without the elements that are selected again later in the order of the
    /// result: an array assigned to an index that repeats leaves the last value. No two elements
    /// may have a common position.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn without_repeats(self) -> Result<Selection> {
        if !self.has_repeats() {
            return Ok(self);
        }
        match self {
            Selection::Grid(axes) => {
                let axes = axes.into_iter().map(Axis::without_repeats);
                Ok(Selection::Grid(axes.collect::<Result<_>>()?))
            }
            Selection::Runs(runs) => Ok(Selection::Runs(last_of_each(runs.into_iter())?)),
        }
    }

    /// Returns the first and the last selected index along each dimension of an array of this
    /// shape; `None` if nothing is selected. For runs, the bounds are exact only along the first
    /// dimension.
    pub fn bounds(&self, shape: &[u64]) -> Option<(Vec<u64>, Vec<u64>)> {
        match self {
            Selection::Grid(axes) => {
                let ends = axes.iter().map(|axis| Some((axis.next(0)?, axis.last()?)));
                ends.collect::<Option<Vec<_>>>()
                    .map(|e| e.into_iter().unzip())
            }
            Selection::Runs(runs) => {
                let runs = || runs.iter().filter(|run| run.length > 0);
                let first = runs().map(|run| run.start).min()?;
                let last = runs().map(|run| run.start + run.length - 1).max()?;
                let row = shape.iter().skip(1).product::<u64>().max(1);
                let mut low = vec![0; shape.len()];
                let mut high: Vec<u64> = shape.iter().map(|size| size.saturating_sub(1)).collect();
                if let (Some(low), Some(high)) = (low.first_mut(), high.first_mut()) {
                    (*low, *high) = (first / row, last / row);
                }
                Some((low, high))
            }
        }
    }

    /// Returns an upper bound of the number of chunks of this shape that are touched.
    pub fn touched_chunks(&self, chunk: &[u64]) -> u64 {
        match self {
            Selection::Grid(axes) => {
                let sides = axes.iter().zip(chunk);
                sides
                    .map(|(axis, side)| axis.touched(*side))
                    .fold(1, u64::saturating_mul)
            }
            Selection::Runs(_) => self.elements().unwrap_or(u64::MAX),
        }
    }

    /// Returns whether every touched chunk is selected completely, apart from what lies outside the
    /// array.
    pub fn covers_chunks(&self, shape: &[u64], chunk: &[u64]) -> bool {
        let Selection::Grid(axes) = self else {
            return false;
        };
        let is_covered = |(axis, (size, side)): (&Axis, (&u64, &u64))| {
            let range = axis.clone().normal().as_range();
            range.is_some_and(|(start, count)| {
                let end = start + count;
                start % side == 0 && (end % side == 0 || end == *size)
            })
        };
        axes.iter().zip(shape.iter().zip(chunk)).all(is_covered)
    }

    /// Returns the first index and the lengths of a contiguous run of selected elements that ends
    /// with the last one. The run has slightly more than `more_than` bytes if that many are
    /// contiguous, else it is one element.
    pub fn end(&self, shape: &[u64], element: u64, more_than: u64) -> Option<(Vec<u64>, Vec<u64>)> {
        let last = self.last(shape)?;
        let one = vec![1; last.len()];
        let Selection::Grid(axes) = self else {
            return Some((last, one));
        };
        let (mut start, mut count, mut bytes) = (last.clone(), one.clone(), element.max(1));
        for (at, axis) in axes.iter().enumerate().rev() {
            count[at] = axis.last_run().min(more_than / bytes + 1);
            start[at] -= count[at] - 1;
            bytes = bytes.saturating_mul(count[at]);
            if bytes > more_than {
                return Some((start, count));
            }
            if count[at] != shape[at] {
                break;
            }
        }
        Some((last, one))
    }

    /// Returns the index of the last selected element of the array.
    fn last(&self, shape: &[u64]) -> Option<Vec<u64>> {
        match self {
            Selection::Grid(axes) => axes.iter().map(Axis::last).collect(),
            Selection::Runs(runs) => {
                let runs = runs.iter().filter(|run| run.length > 0);
                let mut left = runs.map(|run| run.start + run.length - 1).max()?;
                let mut at = vec![0; shape.len()];
                for (at, size) in at.iter_mut().zip(shape).rev() {
                    *at = left % (*size).max(1);
                    left /= (*size).max(1);
                }
                Some(at)
            }
        }
    }
}

impl Axis {
    fn without_repeats(self) -> Result<Axis> {
        let Axis::Runs(runs) = self else {
            return Ok(self);
        };
        Ok(Axis::Runs(last_of_each(runs.into_iter())?))
    }
}

/// Returns each index once, with the highest of its positions, as sorted runs.
fn last_of_each(runs: impl Iterator<Item = Run>) -> Result<Vec<Run>> {
    // Indices and positions are exchanged, so that the last position of each index is kept.
    let turned = |run: Run| Run {
        start: run.position,
        position: run.start,
        length: run.length,
    };
    let mut by_position = Vec::new();
    for run in runs {
        push(&mut by_position, turned(run))?;
    }
    by_position.sort_unstable();
    Ok(last_of(&by_position)?.into_iter().map(turned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_index_that_repeats_keeps_its_last_position(
            list in prop::collection::vec(0..12u64, 0..20)
        ) {
            let kept = Selection::Grid(vec![Axis::list(&list).unwrap()]).without_repeats().unwrap();
            prop_assert!(!kept.has_repeats());
            let Selection::Grid(axes) = &kept else { panic!("a grid stays one") };
            let mut found = [None; 12];
            for ranges in axes[0].ranges(0, 12).unwrap() {
                for (index, position) in ranges.firsts() {
                    for at in 0..ranges.length {
                        found[(index + at) as usize] = Some(position + at);
                    }
                }
            }
            for (index, position) in found.iter().enumerate() {
                let last = list.iter().rposition(|i| *i == index as u64);
                prop_assert_eq!(*position, last.map(|at| at as u64));
            }
            prop_assert_eq!(axes[0].len(), list.len() as u64);
        }
    }

    proptest! {
        #[test]
        fn a_point_that_repeats_keeps_its_last_position(
            list in prop::collection::vec(0..12u64, 0..20)
        ) {
            let kept = Selection::points(&[12], &list).unwrap().without_repeats().unwrap();
            prop_assert!(!kept.has_repeats());
            let Selection::Runs(runs) = &kept else { panic!("runs stay runs") };
            let mut found = [None; 12];
            for run in runs {
                for at in 0..run.length {
                    found[(run.start + at) as usize] = Some(run.position + at);
                }
            }
            for (index, position) in found.iter().enumerate() {
                let last = list.iter().rposition(|i| *i == index as u64);
                prop_assert_eq!(*position, last.map(|at| at as u64));
            }
        }
    }

    #[test]
    fn bounds_are_the_first_and_the_last_index() {
        let grid = Selection::Grid(vec![
            Axis::list(&[4, 2, 3]).unwrap(),
            Axis::strided(1, 3, 3),
        ]);
        assert_eq!(grid.bounds(&[6, 10]), Some((vec![2, 1], vec![4, 7])));
        let points = Selection::points(&[6, 10], &[3, 9, 1, 2]).unwrap();
        assert_eq!(points.bounds(&[6, 10]), Some((vec![1, 0], vec![3, 9])));
        assert_eq!(Selection::none().bounds(&[6, 10]), None);
    }

    #[test]
    fn the_end_of_a_selection_is_one_run_of_the_requested_number_of_bytes() {
        let end = |selection: &Selection, bytes| selection.end(&[6, 10], 4, bytes).unwrap();
        let all = Selection::all(&[6, 10]);
        assert_eq!(end(&all, 39), (vec![5, 0], vec![1, 10]));
        assert_eq!(end(&all, 40), (vec![4, 0], vec![2, 10]));
        assert_eq!(end(&all, 12), (vec![5, 6], vec![1, 4]));
        let rows = Selection::Grid(vec![Axis::range(1, 3), Axis::all(10)]);
        assert_eq!(end(&rows, 60), (vec![2, 0], vec![2, 10]));
        let one = (vec![3, 9], vec![1, 1]);
        assert_eq!(end(&rows, 120), one, "not so much is selected");
        let strided = Selection::Grid(vec![Axis::range(0, 4), Axis::strided(1, 2, 5)]);
        assert_eq!(end(&strided, 8), one);
        let columns = Selection::Grid(vec![Axis::range(0, 4), Axis::range(2, 8)]);
        assert_eq!(end(&columns, 28), (vec![3, 2], vec![1, 8]));
        assert_eq!(end(&columns, 40), one, "the rows do not follow each other");
    }

    #[test]
    fn an_element_that_is_selected_twice_is_found_in_any_order() {
        let points = |list: &[u64]| Selection::points(&[10], list).unwrap();
        assert!(points(&[5, 1, 5]).has_repeats());
        assert!(!points(&[5, 1, 4, 2]).has_repeats());
        let list = |list: &[u64]| Selection::Grid(vec![Axis::list(list).unwrap()]);
        assert!(list(&[3, 1, 3]).has_repeats());
        assert!(!list(&[3, 1, 2]).has_repeats());
    }

    #[test]
    fn only_ranges_that_end_with_chunks_or_the_dataset_cover_chunks() {
        let covers = |axis| Selection::Grid(vec![axis]).covers_chunks(&[10], &[4]);
        assert!(covers(Axis::all(10)));
        assert!(covers(Axis::range(4, 6)));
        assert!(covers(Axis::range(4, 4)));
        assert!(!covers(Axis::range(4, 5)));
        assert!(!covers(Axis::range(3, 7)));
        assert!(!covers(Axis::strided(0, 2, 5)));
    }
}
