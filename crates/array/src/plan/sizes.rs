//! Sizes of an element, with a type for each side. An element of variable length, or a record with
//! such a member, has a different size in memory than in the file.

use std::fmt;

/// Size in bytes of an element as it is stored, after all filters are undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoredSize(pub u64);

/// Size in bytes of an element in the caller's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemorySize(pub u64);

impl MemorySize {
    /// Returns the size of elements that are stored as they are in memory: those of a temporary array.
    pub fn as_stored(self) -> StoredSize {
        StoredSize(self.0)
    }
}

impl fmt::Display for StoredSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for MemorySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
