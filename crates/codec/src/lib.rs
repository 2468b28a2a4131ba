//! Decodes and encodes the filters of HDF5 chunks.
//!
//! A [`Pipeline`] applies the filters of a dataset; [`convert`] converts numbers as HDF5 does. Both
//! work on byte slices and need no files, threads or HDF5 library. [`gpu`] runs filters and
//! conversions on a GPU.
//!
//! Bytes from a file are untrusted: each decoder validates its input, never writes beyond the
//! output, bounds its memory by the size that the caller allows, and returns an error for damaged
//! input.
//!
//! ```
//! use penstock_codec::filters::id;
//! use penstock_codec::{Filter, Pipeline, Scratch};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // As h5py's `shuffle=True, compression="gzip"` for elements of 4 bytes.
//! let filters = vec![Filter::new(id::SHUFFLE, &[4]), Filter::new(id::DEFLATE, &[4])];
//! let (pipeline, mut scratch) = (Pipeline { filters }, Scratch::default());
//!
//! let chunk: Vec<u8> = (0..10_000u32).flat_map(u32::to_le_bytes).collect();
//! let (stored, mask) = pipeline.encode(&chunk, &mut scratch)?;
//! assert!(stored.len() < chunk.len() / 2);
//!
//! let mut decoded = vec![0; chunk.len()];
//! pipeline.decode(mask, &stored, &mut decoded, &mut scratch)?;
//! assert!(decoded == chunk);
//! # Ok(())
//! # }
//! ```

#![deny(missing_docs, unreachable_pub, rustdoc::broken_intra_doc_links)]

pub mod convert;
mod error;
pub mod filters;
pub mod fuzz;
pub mod gpu;
mod pipeline;

pub use error::{CodecError, Fault, Result};
pub use fuzz::fuzz_one;
pub use pipeline::{Filter, Pipeline, Scratch};
