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
        let address = None;
        Reader { session, address }.element(id, 0).map(MemoryType)
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
        let address = Some(address_size);
        Reader { session, address }.element(id, 0).map(FileType)
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
