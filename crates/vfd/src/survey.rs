//! Properties of the ranges of a call, found in one pass.

use penstock_engine::Extent;

use crate::sieve::{NEAR, SMALL};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Survey {
    /// Sum of the lengths.
    pub bytes: u64,
    /// The largest end of a range.
    pub end: u64,
    /// Whether each range begins at or after the end of the previous one.
    pub is_ascending: bool,
    /// Whether a range is empty.
    pub has_empty: bool,
    /// Whether there are several ranges, of which at least three quarters are small and begin close
    /// to the end of the previous one. Moving the gaps as well then takes less time.
    pub follow_each_other: bool,
}

impl Survey {
    pub(crate) fn of(extents: &[Extent]) -> Survey {
        let (mut bytes, mut end, mut before) = (0_u64, 0, 0);
        let (mut is_ascending, mut has_empty, mut is_past_the_end) = (true, false, false);
        let mut close = 0_usize;
        for extent in extents {
            let gap = extent.offset.wrapping_sub(before);
            is_ascending &= extent.offset >= before;
            has_empty |= extent.length == 0;
            let is_close = gap.wrapping_add(NEAR as u64) <= 2 * NEAR as u64;
            close += usize::from(is_close & (extent.length <= SMALL));
            bytes = bytes.wrapping_add(extent.length);
            before = extent.offset.wrapping_add(extent.length);
            is_past_the_end |= before < extent.offset;
            end = before.max(end);
        }
        if is_past_the_end {
            end = u64::MAX;
        }
        let pairs = extents.len().saturating_sub(1);
        Survey {
            bytes,
            end,
            is_ascending,
            has_empty,
            // The first range may count as close to the start of the file.
            follow_each_other: pairs > 0 && 4 * close >= 3 * pairs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(ranges: &[(u64, u64)]) -> Vec<Extent> {
        let extent = |&(offset, length): &(u64, u64)| Extent {
            offset,
            length,
            memory: 0,
        };
        ranges.iter().map(extent).collect()
    }

    #[test]
    fn strided_ranges_follow_each_other_but_scattered_ones_do_not() {
        let strided: Vec<_> = (0..100).map(|i| (1_000_000 + 24 * i, 8)).collect();
        let survey = Survey::of(&extents(&strided));
        assert!(survey.follow_each_other && survey.is_ascending && !survey.has_empty);
        assert_eq!((survey.bytes, survey.end), (800, 1_000_000 + 24 * 99 + 8));
        let tall: Vec<_> = (0..100).map(|i| (16_384 * i, 8)).collect();
        assert!(!Survey::of(&extents(&tall)).follow_each_other);
        let large: Vec<_> = (0..100).map(|i| (65_536 * i, 65_536)).collect();
        assert!(!Survey::of(&extents(&large)).follow_each_other);
        assert!(!Survey::of(&extents(&[(0, 8)])).follow_each_other);
    }

    #[test]
    fn overlapping_ranges_are_not_ascending() {
        assert!(!Survey::of(&extents(&[(10, 5), (14, 5)])).is_ascending);
        assert!(Survey::of(&extents(&[(10, 5), (15, 5)])).is_ascending);
        assert!(Survey::of(&extents(&[(10, 0), (15, 5)])).has_empty);
        assert_eq!(Survey::of(&extents(&[(u64::MAX, 5)])).end, u64::MAX);
    }
}
