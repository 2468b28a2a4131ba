//! An array as a file stores it: all that a plan must know of it.

use std::path::PathBuf;
use std::sync::Arc;

use penstock_codec::Pipeline;
use penstock_engine::error::{Error, Kind, Result};

use crate::chunks::ChunkTable;

/// An array in a file, described by plain data.
#[derive(Clone, Debug)]
pub struct StoredArray {
    /// What errors call it.
    pub name: String,
    /// Empty for a scalar, which has one element.
    pub shape: Vec<u64>,
    /// Bytes of an element in the file.
    pub element: u64,
    /// Where its elements are.
    pub source: Source,
    /// The filters of its chunks, in the order in which a chunk is encoded.
    pub pipeline: Pipeline,
    /// Chunks that stick out of the array are stored without any filter.
    pub unfiltered_edges: bool,
    /// One element, as stored, for every element that was never written; `None` if the memory keeps there
    /// what it had.
    pub fill: Option<Vec<u8>>,
}

/// Where the stored bytes of an array are.
#[derive(Clone, Debug)]
pub enum Source {
    /// Chunks of the file.
    Chunks(Arc<ChunkTable>),
    /// Contiguous from this offset of the file on; jobs are blocks of it.
    Contiguous {
        /// In bytes from the start of the file.
        offset: u64,
    },
    /// As contiguous, from offset 0 of these segments put one behind the other.
    Segments(Vec<FileSegment>),
    /// In memory, all elements in C order. Jobs are blocks of it, with offsets in that memory as their
    /// addresses.
    Memory,
    /// Nothing was ever written.
    Missing,
}

/// A stretch of a file. Bytes past the end of that file read as zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSegment {
    /// The file, by an absolute path.
    pub path: PathBuf,
    /// Where the stretch begins, in bytes.
    pub offset: u64,
    /// Bytes; `None` for the last segment if it takes all that is left.
    pub size: Option<u64>,
}

impl StoredArray {
    /// An array that is in memory as a dense C array.
    pub fn in_memory(name: &str, shape: Vec<u64>, element: u64) -> StoredArray {
        StoredArray {
            name: name.to_owned(),
            shape,
            element,
            source: Source::Memory,
            pipeline: Pipeline::default(),
            unfiltered_edges: false,
            fill: None,
        }
    }

    /// Bytes of all elements; an error if they cannot be counted.
    pub fn bytes(&self) -> Result<u64> {
        bytes(&self.name, &self.shape, self.element)
    }
}

/// Bytes of all elements of an array; an error, which names it, if they cannot be counted.
pub fn bytes(name: &str, shape: &[u64], element: u64) -> Result<u64> {
    shape
        .iter()
        .try_fold(element, |all, n| all.checked_mul(*n))
        .filter(|bytes| i64::try_from(*bytes).is_ok())
        .ok_or_else(|| {
            Error::new(
                Kind::Io,
                format!(
                    "the dataset {name} of shape {shape:?} with elements of {element} bytes is too large to count"
                ),
            )
        })
}
