//! Typed tables of the foreign libraries that Penstock uses, opened at run time.
//!
//! Nothing is linked. Each accessor ([`cuda::cuda`], [`cufile::cufile`], [`nvcomp::nvcomp`],
//! [`nvtx::nvtx`]) opens its library once a process and keeps it open until the process ends, so the
//! function pointers in a table never dangle. If a library is missing, the accessor returns
//! [`Absent`]. This crate never panics, prints or exits, and it initialises no driver: it calls
//! neither `cuInit` nor `cuFileDriverOpen`.
//!
//! Names, types and values in the modules of the libraries are those of the libraries' own headers,
//! which document them. Only what a header does not say is documented here.

#![deny(missing_docs, unreachable_pub, rustdoc::broken_intra_doc_links)]

#[allow(missing_docs, reason = "documented by the CUDA driver's header")]
pub mod cuda;
#[allow(missing_docs, reason = "documented by cuFile's header")]
pub mod cufile;
#[allow(missing_docs, reason = "documented by HDF5's headers")]
pub mod hdf5;
mod library;
#[allow(missing_docs, reason = "documented by nvCOMP's headers")]
pub mod nvcomp;
pub mod nvtx;

pub use library::{Absent, add_library_folders};
