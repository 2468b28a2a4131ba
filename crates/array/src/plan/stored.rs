//! The description of a stored array, with everything that a plan needs.

use std::path::PathBuf;
use std::sync::Arc;

use penstock_codec::Pipeline;
use penstock_engine::error::{Error, Kind, Result};

use super::StoredSize;
use crate::chunks::ChunkTable;

/// An array in a file, as plain data.
#[derive(Clone, Debug)]
pub struct StoredArray {
    /// Name of the array in errors.
    pub name: String,
    /// Shape; empty for a scalar, which has one element.
    pub shape: Vec<u64>,
    /// Size of an element in the file.
    pub element: StoredSize,
    /// Where the elements are.
    pub source: Source,
    /// The filters of the chunks, in order of encoding.
    pub pipeline: Pipeline,
    /// Whether chunks that extend past the array's edge are stored without filters.
    pub unfiltered_edges: bool,
    /// The stored element that unwritten elements read as; `None` if a read leaves their memory
    /// unchanged.
    pub fill: Option<Vec<u8>>,
}

/// Where the stored bytes of an array are.
#[derive(Clone, Debug)]
pub enum Source {
    /// In chunks of the file.
    Chunks(Arc<ChunkTable>),
    /// Contiguous in the file; jobs are blocks of it.
    Contiguous {
        /// Offset in bytes from the start of the file.
        offset: u64,
    },
    /// Contiguous in the concatenation of these segments, from its offset 0.
    Segments(Vec<FileSegment>),
    /// In memory, as a C array of all elements. Jobs are blocks of it, whose addresses are offsets
    /// in that memory.
    Memory,
    /// Nowhere: no element was ever written.
    Missing,
}

/// A byte range of a file. Bytes past the end of that file read as zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSegment {
    /// Absolute path of the file.
    pub path: PathBuf,
    /// Offset of the range, in bytes.
    pub offset: u64,
    /// Length in bytes; `None` for a last segment that takes all remaining bytes.
    pub size: Option<u64>,
}

impl StoredArray {
    /// Describes an array without filters and without a fill value.
    pub fn new(name: &str, shape: &[u64], element: StoredSize, source: Source) -> StoredArray {
        StoredArray {
            name: name.to_owned(),
            shape: shape.to_vec(),
            element,
            source,
            pipeline: Pipeline::default(),
            unfiltered_edges: false,
            fill: None,
        }
    }

    /// Returns the number of bytes of all elements, or an error if it overflows.
    pub fn bytes(&self) -> Result<u64> {
        bytes(&self.name, &self.shape, self.element)
    }
}

/// Returns the number of bytes of all elements of an array, or an error that names the array if it
/// overflows.
pub fn bytes(name: &str, shape: &[u64], element: StoredSize) -> Result<u64> {
    shape
        .iter()
        .try_fold(element.0, |all, n| all.checked_mul(*n))
        .filter(|bytes| i64::try_from(*bytes).is_ok())
        .ok_or_else(|| {
            Error::new(
                Kind::Io,
                format!(
                    "the size of the dataset {name} of shape {shape:?} with elements of {element} bytes overflows"
                ),
            )
        })
}

/// Puts the name of a dataset before the cause of an error.
pub fn in_dataset(error: Error, name: &str) -> Error {
    error.about(&format!("dataset {name}"))
}
