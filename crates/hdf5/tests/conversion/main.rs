//! Element conversion against HDF5's own.

#[path = "../common/mod.rs"]
// Another test uses the rest.
#[allow(dead_code)]
mod common;
mod elements;
mod numbers;
mod types;
