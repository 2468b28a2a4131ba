//! The module `penstock._core`: work for which Python is too slow, or not able.
//!
//! - Small reads of HDF5 datasets. They take a few microseconds, most of which would be steps of
//!   the interpreter. They call the C API as any client does: Python passes the addresses of
//!   `penstock_reader_read` and `penstock_reader_start` to the module, which links nothing of
//!   Penstock.
//! - Files, which it opens, reads, replaces and closes by the C API as above.
//! - The argument of `dataset[...]`, parsed once for small reads and for all others.
//! - Arrays that small reads fill: NumPy's, torch's by DLPack's exchange API for C, and ours.
//! - Capsules of DLPack, whose destructors must not run Python code, and arrays of many of them.
//! - Headers of safetensors files, which can list thousands of tensors.

#![deny(missing_docs, unreachable_pub)]

mod call;
mod dlpack;
mod file;
mod gil;
mod index;
mod memory;
mod reader;
mod report;
mod safetensors;
mod structs;

use pyo3::prelude::*;

#[pymodule]
mod _core {
    #[pymodule_export]
    use crate::call::Library;
    #[pymodule_export]
    use crate::dlpack::{export_array, import_arrays, read_capsule};
    #[pymodule_export]
    use crate::file::{File, load, save};
    #[pymodule_export]
    use crate::index::{Elements, elements};
    #[pymodule_export]
    use crate::reader::{Reader, Typed};
    #[pymodule_export]
    use crate::report::Report;
    #[pymodule_export]
    use crate::safetensors::canonical_tensors;

    /// Loads NumPy's functions with this module. At their first use, an exception of a signal handler
    /// would be a panic.
    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        let _ = numpy::PyArray1::<u8>::zeros(module.py(), 0, false);
        crate::reader::make_names(module.py());
        Ok(())
    }
}
