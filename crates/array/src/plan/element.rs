//! The part of each element that is moved.

use std::ops::Range;

use penstock_engine::file::position::Operation;

use super::{MemorySize, StoredSize};

/// The part of an element that is moved, and the element that results. All sizes are in bytes.
///
/// The source is the file in a read and the memory in a write. The two constructors alone decide
/// which size is which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElementMapping {
    /// Size of an element at the source.
    pub source: u64,
    /// Offset of the part in the source element: that of a field of a compound, or 0.
    pub offset: u64,
    /// Size of the part.
    pub length: u64,
    /// Size of an element at the target, after conversion.
    pub target: u64,
}

impl ElementMapping {
    /// Returns the mapping of a read: of the bytes `part` of stored elements to whole elements in memory.
    pub fn of_read(stored: StoredSize, part: Range<u64>, memory: MemorySize) -> ElementMapping {
        ElementMapping::between(stored.0, part, memory.0)
    }

    /// Returns the mapping of a write: of the bytes `part` of elements in memory to whole stored elements.
    pub fn of_write(memory: MemorySize, part: Range<u64>, stored: StoredSize) -> ElementMapping {
        ElementMapping::between(memory.0, part, stored.0)
    }

    /// Returns the mapping of whole elements that are stored as they are in memory, in either direction.
    pub fn whole(size: MemorySize) -> ElementMapping {
        ElementMapping::between(size.0, 0..size.0, size.0)
    }

    fn between(source: u64, part: Range<u64>, target: u64) -> ElementMapping {
        ElementMapping {
            source,
            offset: part.start,
            length: part.end.saturating_sub(part.start),
            target,
        }
    }

    /// Returns the size of a stored element.
    pub fn stored(&self, direction: Operation) -> StoredSize {
        match direction {
            Operation::Read => StoredSize(self.source),
            Operation::Write => StoredSize(self.target),
        }
    }

    /// Returns the size of an element in memory.
    pub fn memory(&self, direction: Operation) -> MemorySize {
        match direction {
            Operation::Read => MemorySize(self.target),
            Operation::Write => MemorySize(self.source),
        }
    }

    /// Returns whether a run of elements has the same number of bytes on both sides.
    pub fn is_whole(&self) -> bool {
        *self == ElementMapping::between(self.source, 0..self.source, self.source)
    }
}
