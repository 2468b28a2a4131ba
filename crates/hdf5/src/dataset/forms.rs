//! The two forms of an element type. HDF5 describes types as they are in memory, where a member of
//! variable length is a pointer and a reference a buffer. In the file such a member has another size, and
//! what follows it in a record another offset.

use penstock_array::{MemorySize, StoredSize};
use penstock_engine::error::Result;
use penstock_sys::hdf5::hid_t;

use super::ElementType;
use super::type_reader::Reader;
use crate::library::Session;

/// The type of an element in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryType(ElementType);

/// The type of an element as it is stored in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileType(ElementType);

impl MemoryType {
    /// Reads a type.
    pub fn read(session: &Session<'_>, id: hid_t) -> Result<MemoryType> {
        Reader::of_memory(session).element(id, 0).map(MemoryType)
    }

    /// Returns the fields, offsets and formats.
    pub fn form(&self) -> &ElementType {
        &self.0
    }

    /// Returns the size of an element.
    pub fn size(&self) -> MemorySize {
        MemorySize(self.0.size() as u64)
    }
}

impl FileType {
    /// Reads a type of a file whose addresses have `address_size` bytes.
    pub fn read(session: &Session<'_>, id: hid_t, address_size: usize) -> Result<FileType> {
        Reader::of_file(session, address_size)
            .element(id, 0)
            .map(FileType)
    }

    /// Returns the fields, offsets and formats.
    pub fn form(&self) -> &ElementType {
        &self.0
    }

    /// Returns the size of an element.
    pub fn size(&self) -> StoredSize {
        StoredSize(self.0.size() as u64)
    }

    /// Returns which part of the type, if any, has values that are not in the stored bytes.
    pub fn only_hdf5(&self) -> Option<&'static str> {
        self.0.only_hdf5()
    }
}

impl From<ElementType> for FileType {
    fn from(form: ElementType) -> FileType {
        FileType(form)
    }
}

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
