//! Element conversion against HDF5's own.

#[path = "../common/mod.rs"]
mod common;
mod elements;
mod numbers;
#[path = "../../../engine/tests/common/repetitions.rs"]
mod repetitions;
mod types;
