//! Contiguous data of which one range, or a number of rows, is selected.

use super::{FileRange, Plan, Source};
use crate::selection::Selection;

impl Plan {
    /// Returns the selection as one file range if it consists of whole, unconverted elements that
    /// are contiguous in the file and in memory. May return `None` even for a contiguous selection.
    pub fn one_range(&self) -> Option<FileRange> {
        let (Source::Contiguous { offset }, Selection::Grid(axes)) =
            (&self.source, &self.selection)
        else {
            return None;
        };
        if !self.element.is_whole() || self.selection.is_empty() {
            return None;
        }
        let sides = self.grid.shape().iter().zip(&self.geometry.memory_strides);
        let (mut before, mut length) = (0, self.file_element());
        // Bytes from one index to the next, and whether everything within one index is selected.
        let (mut row, mut is_full) = (self.file_element(), true);
        for (axis, (side, stride)) in axes.iter().zip(sides).rev() {
            let (first, count) = axis.as_range()?;
            if count > 1 {
                let follows = is_full && u64::try_from(*stride) == Ok(length);
                if !follows {
                    return None;
                }
            }
            before += first * row;
            length *= count;
            is_full &= count == *side;
            row *= side;
        }
        Some(FileRange {
            offset: offset + before,
            length,
            memory: self.geometry.base,
        })
    }

    /// Returns the bytes of contiguous data from the first to the last selected element.
    pub fn span(&self) -> u64 {
        let shape = self.grid.shape();
        let Some((first, last)) = self.selection.bounds(shape) else {
            return 0;
        };
        let sides = shape.iter().zip(first.iter().zip(&last));
        let elements = sides.fold(0, |all, (side, (low, high))| all * side + (high - low));
        (elements + 1) * self.file_element()
    }

    /// Returns the number of ranges of the file in which the selection of contiguous data lies, or more if some of
    /// them follow each other. `None` for other data, and if the number overflows.
    pub fn rows_at_most(&self) -> Option<u64> {
        let Source::Contiguous { .. } = &self.source else {
            return None;
        };
        match &self.selection {
            Selection::Runs(runs) => Some(runs.len() as u64),
            Selection::Grid(axes) => {
                let (mut rows, mut is_full) = (1u64, true);
                for (axis, side) in axes.iter().zip(self.grid.shape()).rev() {
                    let of_axis = if is_full {
                        axis.run_count()
                    } else {
                        axis.len()
                    };
                    rows = rows.checked_mul(of_axis)?;
                    is_full &= axis.as_range() == Some((0, *side));
                }
                Some(rows)
            }
        }
    }
}
