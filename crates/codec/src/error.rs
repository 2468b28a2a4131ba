//! The error of decoding and encoding.

use std::fmt;

/// The result of decoding or encoding.
pub type Result<T> = std::result::Result<T, CodecError>;

/// A failure of one filter. The caller adds dataset, chunk and file offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodecError {
    /// The filter's name, such as "deflate".
    pub filter: &'static str,
    /// What is wrong, as a clause without a full stop.
    pub cause: String,
    /// The kind of failure.
    pub kind: Fault,
}

/// The kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The input is damaged, or the filter cannot encode it.
    Input,
    /// The input may be valid, in a form that this crate does not decode or encode.
    Unsupported,
    /// Memory is exhausted.
    Memory,
}

impl CodecError {
    /// A failure of the filter with this name.
    pub fn new(filter: &'static str, cause: impl Into<String>) -> Self {
        CodecError {
            filter,
            cause: cause.into(),
            kind: Fault::Input,
        }
    }

    /// The remedy for a stored chunk that cannot be decoded.
    pub fn remedy(&self) -> &'static str {
        match self.kind {
            Fault::Input => "the chunk is damaged: restore the file from a copy",
            Fault::Unsupported => {
                "if the chunk is not damaged, HDF5 can read it with a plugin for this filter: install \
                 the package hdf5plugin and read it by h5py"
            }
            Fault::Memory => "free memory, or use fewer threads",
        }
    }

    /// The failure of an allocation of `size` bytes.
    pub(crate) fn no_memory(filter: &'static str, size: usize) -> Self {
        CodecError {
            kind: Fault::Memory,
            ..CodecError::new(filter, format!("no memory for {size} bytes"))
        }
    }

    /// The same failure, of input that may be valid.
    pub(crate) fn unsupported(self) -> Self {
        CodecError {
            kind: Fault::Unsupported,
            ..self
        }
    }
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "filter {}: {}", self.filter, self.cause)
    }
}

impl std::error::Error for CodecError {}
