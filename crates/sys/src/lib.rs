//! Typed function tables of the foreign libraries that Penstock uses, opened at run time.
//!
//! Nothing is linked. Each accessor ([`cuda::cuda`], [`cufile::cufile`], [`nvcomp::nvcomp`],
//! [`nvtx::nvtx`]) opens its library once per process and never closes it, so the function pointers
//! in a table never dangle. If a library is missing, the accessor returns [`Absent`]. This crate
//! never panics, prints or exits, and it initialises no driver: it calls neither `cuInit` nor
//! `cuFileDriverOpen`.
//!
//! The modules use the names, types and values of the libraries' own headers, which document them.
//! The comments here add only what the headers do not say.

#![deny(missing_docs, unreachable_pub, rustdoc::broken_intra_doc_links)]

#[allow(missing_docs, reason = "documented by the CUDA driver's header")]
pub mod cuda;
#[allow(missing_docs, reason = "documented by cuFile's header")]
pub mod cufile;
pub mod environment;
#[allow(missing_docs, reason = "documented by HDF5's headers")]
pub mod hdf5;
mod library;
#[allow(missing_docs, reason = "documented by MPI's header")]
pub mod mpi;
#[allow(missing_docs, reason = "documented by nvCOMP's headers")]
pub mod nvcomp;
pub mod nvtx;

pub use library::{Absent, add_library_folders, function_at, is_copy};
