//! Members of an element whose values are stored elsewhere, and the size of their reference in the element.

/// Where the value of a member that only HDF5 reads is stored.
#[derive(Clone, Copy)]
pub(super) enum Elsewhere {
    /// In a global heap: the element has the length and the place of a sequence or string.
    Sequence,
    /// At the target of a reference. The kinds of references differ in their sizes in memory.
    Reference,
}

impl Elsewhere {
    /// Returns the size in a file whose addresses have `address` bytes, of what has `memory` bytes in memory.
    pub(super) fn stored(self, memory: usize, address: usize) -> usize {
        /// `sizeof(hobj_ref_t)` and `sizeof(hdset_reg_ref_t)`.
        const OBJECT: usize = 8;
        const REGION: usize = 12;
        // The number of an object in a heap takes 4 bytes, beside the address of the heap.
        let in_heap = address + 4;
        match (self, memory) {
            (Elsewhere::Reference, OBJECT) => address,
            (Elsewhere::Reference, REGION) => in_heap,
            // After the kind and the flags of the reference.
            (Elsewhere::Reference, _) => 2 + 4 + in_heap,
            (Elsewhere::Sequence, _) => 4 + in_heap,
        }
    }
}
