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
    /// Whether the input may be valid, in a form that this crate does not decode or encode.
    pub is_unsupported: bool,
}

impl CodecError {
    /// A failure of the filter with this name.
    pub fn new(filter: &'static str, cause: impl Into<String>) -> Self {
        CodecError {
            filter,
            cause: cause.into(),
            is_unsupported: false,
        }
    }

    /// What to do if a stored chunk cannot be decoded.
    pub fn remedy(&self) -> &'static str {
        if self.is_unsupported {
            "unless the chunk is damaged, HDF5 reads it by a plugin of this filter: with the package \
             hdf5plugin, by h5py"
        } else {
            "the chunk is damaged: restore the file from a copy"
        }
    }

    /// The same failure, of input that may be valid.
    pub(crate) fn unsupported(self) -> Self {
        CodecError {
            is_unsupported: true,
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
