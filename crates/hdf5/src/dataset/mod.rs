//! The description of a dataset, read through HDF5 on the caller's thread and kept as plain data.

mod chunk_index;
pub mod dataspace;
mod datatype;
mod description;
pub mod pointers;
pub(crate) mod swizzle;

pub use chunk_index::read_chunk_table;
pub use datatype::{
    ByteOrder, Complex, ElementType, Enumeration, Field, Float, FloatKind, FloatLayout, Integer,
    Padding,
};
pub use description::{DatasetInfo, FileInfo, Layout, MappedSelection, VirtualMapping};
