//! What a dataset is, read from HDF5 on the caller's thread and kept as plain data.

pub mod dataspace;
mod datatype;
mod description;
pub mod pointers;
pub(crate) mod swizzle;

pub use datatype::{
    Complex, ElementType, Enumeration, Field, Float, FloatKind, FloatLayout, Integer, Order,
    Padding,
};
pub(crate) use description::in_dataset;
pub use description::{
    DatasetInfo, ExternalSlot, FileInfo, Layout, MappedSelection, VirtualMapping,
};
