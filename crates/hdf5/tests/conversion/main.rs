//! Element conversion against HDF5's own.

#[path = "../common/mod.rs"]
// Another test uses the rest.
mod common;
mod elements;
mod numbers;
mod types;
