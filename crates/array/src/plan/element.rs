//! What of each element is moved.

/// The part of an element that is moved, and the element that it becomes. All in bytes.
///
/// The source is the file in a read and the memory in a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementMapping {
    /// Size of an element where it comes from.
    pub source: u64,
    /// Where the part begins in it: a field of a compound, or 0.
    pub offset: u64,
    /// Size of the part.
    pub length: u64,
    /// Size of an element where it goes, after conversion.
    pub target: u64,
}

impl ElementMapping {
    /// Whole elements, as they are.
    pub fn whole(size: u64) -> ElementMapping {
        ElementMapping {
            source: size,
            offset: 0,
            length: size,
            target: size,
        }
    }

    /// Whether runs of elements are the same number of bytes on both sides.
    pub fn is_whole(&self) -> bool {
        *self == ElementMapping::whole(self.source)
    }
}
