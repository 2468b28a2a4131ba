//! Typed tables of the foreign libraries that Penstock uses, opened at run time.
//!
//! Nothing is linked: each accessor ([`cuda::cuda`], [`cufile::cufile`], [`nvcomp::nvcomp`],
//! [`nvtx::nvtx`]) opens its library once a process and keeps it open until the process ends, so the
//! function pointers in a table never dangle. A library that is not there is an ordinary answer,
//! [`Absent`]. This crate never panics, prints or exits, and it initialises no driver: opening runs
//! no `cuInit` and no `cuFileDriverOpen`.

pub mod cuda;
pub mod cufile;
pub mod hdf5;
mod library;
pub mod nvcomp;
pub mod nvtx;

pub use library::{Absent, add_library_folders};
