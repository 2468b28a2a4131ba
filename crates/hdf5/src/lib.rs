//! HDF5: describes datasets as plain data and turns transfers of datasets into plans.
//!
//! HDF5 itself is called only through a [`Session`](library::Session), on the caller's thread and
//! under the caller's lock. [`dataset`] reads the description of a dataset; `penstock_array` plans
//! and executes from it without HDF5. All reads and writes go through [`transfer`], which orders
//! those that conflict.

#![deny(missing_docs, unreachable_pub, rustdoc::broken_intra_doc_links)]

mod conversion;
pub mod dataset;
pub mod library;
mod open_files;
pub mod transfer;
mod virtual_dataset;

pub use conversion::Conversion;
pub use open_files::SourceFile;
pub use virtual_dataset::{
    CachedSource, KeptSource, Mapping, Resolution, SourceCache, SourceDataset, SourcePart, Store,
    resolve,
};
