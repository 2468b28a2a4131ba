//! Contiguous data of which one stretch is wanted, as it is and where it is: no block need be looked at.

use super::{FileRange, Plan, Source};
use crate::selection::Selection;

impl Plan {
    /// All that is wanted, where that is whole elements of contiguous data which follow each other in
    /// the file and in memory. `None` does not say that they do not.
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
        // Bytes from an index to the next, and whether all within one index is wanted.
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
}
