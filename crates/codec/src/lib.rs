//! Undoing and doing the filters of HDF5 chunks.
//!
//! Everything but [`gpu`] works on byte slices: no file, no HDF5 library, no threads. Bytes from a file are
//! hostile, so every decoder checks what it reads, never writes past the output, never allocates
//! more than the size that the caller allows, and answers nonsense by an error.

pub mod convert;
mod error;
pub mod filters;
pub mod fuzz;
pub mod gpu;
mod pipeline;

pub use error::{CodecError, Result};
pub use fuzz::fuzz_one;
pub use pipeline::{Filter, Pipeline, Scratch};
