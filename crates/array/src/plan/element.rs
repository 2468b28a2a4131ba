//! The part of each element that is moved.

/// The part of an element that is moved, and the element that results. All sizes are in bytes.
///
/// The source is the file in a read and the memory in a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Returns the mapping of whole elements without conversion.
    pub fn whole(size: u64) -> ElementMapping {
        ElementMapping {
            source: size,
            offset: 0,
            length: size,
            target: size,
        }
    }

    /// Returns whether a run of elements has the same number of bytes on both sides.
    pub fn is_whole(&self) -> bool {
        *self == ElementMapping::whole(self.source)
    }
}
