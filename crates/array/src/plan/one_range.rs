//! Contiguous data of which one range is selected, which is moved without cutting it into blocks.

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
}
