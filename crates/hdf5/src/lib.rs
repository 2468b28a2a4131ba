//! HDF5: what it knows of datasets becomes plain data, and transfers of datasets become plans.
//!
//! HDF5 itself is called only through a [`Session`](library::Session), on the caller's thread and under
//! the caller's lock. What [`dataset`] has read from it, `penstock_array` plans and carries out without
//! it; [`transfer`] is the one way of all reads and writes, and keeps those apart that conflict.

#![deny(missing_docs, unreachable_pub, rustdoc::broken_intra_doc_links)]

mod conversion;
pub mod dataset;
pub mod library;
pub mod transfer;
mod virtual_dataset;

pub use conversion::Conversion;
pub use virtual_dataset::{Resolution, SourceFile, SourcePart, Store, resolve};
