//! Members whose values are not in the stored element, and the size of what is there instead.

/// What a member that HDF5 alone reads occupies in the file, by its class.
#[derive(Clone, Copy)]
pub(super) enum Elsewhere {
    /// A length and the place of a sequence or string in a global heap.
    Sequence,
    /// A reference, whose kinds differ in their sizes in memory.
    Reference,
    /// Nothing elsewhere.
    No,
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
            (Elsewhere::No, _) => memory,
            (Elsewhere::Reference, OBJECT) => address,
            (Elsewhere::Reference, REGION) => in_heap,
            // Kind and flags of the reference come first.
            (Elsewhere::Reference, _) => 2 + 4 + in_heap,
            (Elsewhere::Sequence, _) => 4 + in_heap,
        }
    }
}
