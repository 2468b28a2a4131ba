//! Rows: ranges of one length at regular distances, such as the columns of a matrix. A request may
//! have millions of them, which are found by one pass, and planned together.

use super::Extent;

/// Ranges of one length, whose starts are regular distances apart in file and memory, without overlap;
/// or a single range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    pub first: Extent,
    /// The number of ranges, at least 1.
    pub count: u64,
    /// Bytes from the start of one range to that of the next in the file. Only for several.
    pub step: u64,
    /// The same in memory.
    pub pitch: u64,
}

/// Fewer ranges are planned one by one in as little time.
pub(crate) const LEAST_RANGES: usize = 1024;
/// Fewer regular ranges count as single ones.
const LEAST_ROWS: usize = 8;
/// Ranges for each row entry, at least, on average.
const LEAST_AVERAGE: usize = 8;

impl Rows {
    /// The rows of which many ranges consist, if nearly all are rows, and in the order of the file.
    /// All have bytes, and are valid.
    pub(crate) fn of(ranges: &[Extent]) -> Option<Vec<Rows>> {
        if ranges.len() < LEAST_RANGES {
            return None;
        }
        let (mut all, mut rest, mut end) = (Vec::new(), ranges, 0);
        while let Some(rows) = Rows::first_of(rest) {
            let later = &rest[rows.count as usize..];
            if rows.first.length == 0 || rows.first.offset < end {
                return None;
            }
            end = rows.end_checked()?;
            let done = ranges.len() - later.len();
            if all.len() > LEAST_RANGES / LEAST_AVERAGE + done / LEAST_AVERAGE {
                return None;
            }
            all.push(rows);
            rest = later;
        }
        Some(all)
    }

    /// The rows that the ranges begin with; `None` without any range.
    fn first_of(ranges: &[Extent]) -> Option<Rows> {
        let first = *ranges.first()?;
        let single = Rows {
            first,
            count: 1,
            step: 0,
            pitch: 0,
        };
        let Some(second) = ranges.get(1) else {
            return Some(single);
        };
        let step = second.offset.wrapping_sub(first.offset);
        let pitch = second.memory.wrapping_sub(first.memory);
        let is_apart = |distance| (first.length..=i64::MAX as u64).contains(&distance);
        if !is_apart(step) || !is_apart(pitch as u64) {
            return Some(single);
        }
        let runs_on = |two: &[Extent]| {
            two[1].length == first.length
                && two[1].offset.wrapping_sub(two[0].offset) == step
                && two[1].memory.wrapping_sub(two[0].memory) == pitch
        };
        let count = 1 + ranges.windows(2).take_while(|two| runs_on(two)).count();
        Some(if count >= LEAST_ROWS {
            Rows {
                count: count as u64,
                step,
                pitch: pitch as u64,
                ..single
            }
        } else {
            single
        })
    }

    /// One of the ranges.
    pub(crate) fn row(&self, index: u64) -> Extent {
        Extent {
            offset: self.first.offset + index * self.step,
            memory: self.first.memory + (index * self.pitch) as usize,
            length: self.first.length,
        }
    }

    /// The file offset behind the last range; `None` if no file or memory holds all of them.
    fn end_checked(&self) -> Option<u64> {
        let before = self.count - 1;
        let pitch = usize::try_from(before.checked_mul(self.pitch)?).ok()?;
        let last = Extent {
            offset: (self.first.offset).checked_add(before.checked_mul(self.step)?)?,
            memory: self.first.memory.checked_add(pitch)?,
            length: self.first.length,
        };
        last.end_checked()
    }

    pub(crate) fn last(&self) -> Extent {
        self.row(self.count - 1)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.count * self.first.length
    }

    /// Bytes between two ranges in the file.
    pub(crate) fn gap(&self) -> u64 {
        self.step.saturating_sub(self.first.length)
    }

    /// The rows from the one at `index` on.
    pub(crate) fn from(&self, index: u64) -> Rows {
        Rows {
            first: self.row(index),
            count: self.count - index,
            ..*self
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extent(offset: u64, length: u64, memory: usize) -> Extent {
        Extent {
            offset,
            length,
            memory,
        }
    }

    fn each(all: &[Rows]) -> Vec<Extent> {
        let each = |rows: &Rows| (0..rows.count).map(|row| rows.row(row)).collect::<Vec<_>>();
        all.iter().flat_map(each).collect()
    }

    #[test]
    fn the_columns_of_two_matrices_and_a_range_are_three_rows() {
        let mut ranges: Vec<Extent> = (0..1000)
            .map(|i| extent(9 + i * 50, 20, 700 + i as usize * 20))
            .collect();
        ranges.push(extent(60_000, 5000, 30_000));
        ranges.extend((0..500).map(|i| extent(70_000 + i * 90, 30, 40_000 + i as usize * 64)));
        let all = Rows::of(&ranges).unwrap();
        let counts: Vec<u64> = all.iter().map(|rows| rows.count).collect();
        assert_eq!(counts, [1000, 1, 500]);
        assert_eq!(each(&all), ranges);
    }

    #[test]
    fn ranges_that_are_irregular_few_empty_or_out_of_order_are_no_rows() {
        let regular = |i: u64| extent(i * 50, 20, i as usize * 20);
        let few: Vec<Extent> = (0..1023).map(regular).collect();
        assert_eq!(Rows::of(&few), None);
        let backwards: Vec<Extent> = (0..2000).rev().map(regular).collect();
        assert_eq!(Rows::of(&backwards), None);
        let irregular: Vec<Extent> = (0..2000)
            .map(|i| extent(i * i * 50, 20, i as usize * 20))
            .collect();
        assert_eq!(Rows::of(&irregular), None);
        let empty: Vec<Extent> = (0..2000).map(|i| extent(i * 50, 0, i as usize)).collect();
        assert_eq!(Rows::of(&empty), None);
        let same: Vec<Extent> = (0..2000).map(|i| extent(0, 20, i as usize * 20)).collect();
        assert_eq!(Rows::of(&same), None);
        let hostile: Vec<Extent> = (0..2000)
            .map(|i| extent(i << 53, 20, i as usize * 20))
            .collect();
        assert_eq!(Rows::of(&hostile), None);
    }

    #[test]
    fn ranges_whose_regular_distances_wrap_around_are_no_rows() {
        let far = |i: u64| i.wrapping_mul(1 << 62);
        let offsets: Vec<Extent> = (0..1025)
            .map(|i| extent(far(i), 20, i as usize * 20))
            .collect();
        assert_eq!(Rows::of(&offsets), None);
        let addresses: Vec<Extent> = (0..1025)
            .map(|i| extent(i * 50, 20, far(i) as usize))
            .collect();
        assert_eq!(Rows::of(&addresses), None);
    }

    proptest! {
        #[test]
        fn rows_are_the_ranges_of_which_they_are_made(
            groups in prop::collection::vec((1u64..2000, 1u64..50, 0u64..50, 0u64..50), 1..6),
        ) {
            let (mut offset, mut memory, mut ranges) = (0, 0, Vec::new());
            for (count, length, gap, apart) in groups {
                for _ in 0..count {
                    ranges.push(extent(offset, length, memory));
                    (offset, memory) = (offset + length + gap, memory + (length + apart) as usize);
                }
            }
            if let Some(all) = Rows::of(&ranges) {
                prop_assert!(all.len() <= 128 + ranges.len() / 8);
                prop_assert_eq!(each(&all), ranges);
            } else {
                prop_assert!(ranges.len() < 1024);
            }
        }
    }
}
