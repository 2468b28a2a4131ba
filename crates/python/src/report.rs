//! The report of a read.

use pyo3::prelude::*;

/// A `penstock_report`, which Python parses only when it is read.
#[pyclass(frozen, module = "penstock._core")]
pub(crate) struct Report {
    /// The size of the struct comes first, and no field of it needs more than eight bytes' alignment.
    words: Box<[u64]>,
}

impl Report {
    /// Returns a report of `bytes` bytes that is not filled yet.
    pub(crate) fn empty(bytes: usize) -> Report {
        let mut words = vec![0; bytes.div_ceil(8)].into_boxed_slice();
        words[0] = bytes as u64;
        Report { words }
    }

    /// Returns the address at which the library stores the report.
    pub(crate) fn place(&mut self) -> *mut u64 {
        self.words.as_mut_ptr()
    }
}

#[pymethods]
impl Report {
    /// The address of the struct, which is valid as long as this object.
    #[getter]
    fn address(&self) -> usize {
        self.words.as_ptr().addr()
    }
}
