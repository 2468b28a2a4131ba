//! The description of a dataset, read through HDF5 on the caller's thread and kept as plain data.

mod chunk_index;
mod common;
mod creation;
pub mod dataspace;
mod datatype;
mod description;
mod extent_index;
mod file_info;
mod fill;
mod forms;
mod index_size;
pub mod pointers;
pub(crate) mod sieve;
pub(crate) mod single_chunk;
mod stored_elsewhere;
pub(crate) mod swizzle;
mod type_reader;
mod up_to_date;

use penstock_engine::error::{Error, Kind, Result};

pub use chunk_index::read_chunk_table;
pub(crate) use common::Common;
pub use creation::creation_properties;
pub use dataspace::{MappedSelection, Slab};
pub use datatype::{
    ByteOrder, Complex, ElementType, Enumeration, Field, Float, FloatKind, FloatLayout, Integer,
    MachineNumber, Padding,
};
pub use description::{DatasetInfo, Layout, VirtualMapping};
pub(crate) use description::{external_prefix, name_of};
pub use file_info::FileInfo;
pub(crate) use file_info::is_shared;
pub use fill::Fill;
pub(crate) use fill::fill_state;
pub use forms::{FileType, MemoryType};
pub use index_size::TouchedChunks;
pub(crate) use up_to_date::{BUFFERED_WHOLE, PAGE_BUFFER, flush};

/// Returns an error of a description that is wrong, as a damaged file has it.
fn damaged<T>(cause: String) -> Result<T> {
    Err(Error::new(Kind::Io, cause))
}
