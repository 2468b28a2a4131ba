//! Properties of a selection that a write depends on.

use super::{Axis, Selection};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_selection_is_one_run_of_as_many_bytes_as_asked_for() {
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
        assert!(Selection::Grid(vec![Axis::list(&[3, 1, 3])]).has_repeats());
        assert!(!Selection::Grid(vec![Axis::list(&[3, 1, 2])]).has_repeats());
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
