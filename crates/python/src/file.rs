//! Open files. Opening, reading and closing one is one native call each.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut, with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pyo3::ffi::{PyObject, PyUnicode_FSConverter};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt};

use crate::call::Library;
use crate::gil;
use crate::memory::{Memory, Stream};

/// An open file. The end of its last reference closes it.
///
/// Args:
///     library: The library that opens it.
///     path: The file, or an open descriptor, which the caller closes.
///     flags: Those of `penstock_open`.
#[pyclass(frozen, subclass, weakref, module = "penstock._core")]
pub(crate) struct File {
    library: Py<Library>,
    handle: usize,
    is_closed: AtomicBool,
}

#[pymethods]
impl File {
    #[new]
    fn new(library: Bound<'_, Library>, path: &Bound<'_, PyAny>, flags: c_int) -> PyResult<File> {
        let py = path.py();
        let functions = &library.get().files;
        let mut handle = 0;
        let place = (&raw mut handle).expose_provenance();
        let status = if path.is_instance_of::<PyInt>() {
            let (open, descriptor) = (functions.open_descriptor, path.extract()?);
            // SAFETY: no options; the place outlives the call.
            py.detach(|| unsafe {
                open(
                    descriptor,
                    flags,
                    null(),
                    with_exposed_provenance_mut(place),
                )
            })
        } else {
            let name = encoded(path)?;
            let (open, name) = (functions.open, address_of(&name));
            // SAFETY: the name is a C string that outlives the call; the rest is as above.
            py.detach(|| unsafe {
                open(
                    with_exposed_provenance(name),
                    flags,
                    null(),
                    with_exposed_provenance_mut(place),
                )
            })
        };
        library.get().check(py, status)?;
        Ok(File {
            library: library.unbind(),
            handle,
            is_closed: AtomicBool::new(false),
        })
    }

    /// The `penstock_file *`, as a number.
    #[getter]
    fn number(&self) -> usize {
        self.handle
    }

    /// Fill an array from the file; return false for one that needs more than one call. It is then as it was.
    ///
    /// That is an array that is longer than `at_once`, not in C order, read-only, needed by autograd, of
    /// another library than NumPy, torch and Penstock, or on which a library may have queued work.
    ///
    /// Args:
    ///     out: An array, or a `View` of one.
    ///     offset: The offset in the file of its first byte.
    ///     options: The address of the `penstock_options` of the call, which the caller keeps, or 0.
    ///     at_once: The most bytes to read. Longer reads are for a request, which can be interrupted.
    fn fill(
        &self,
        out: &Bound<'_, PyAny>,
        offset: u64,
        options: usize,
        at_once: u64,
    ) -> PyResult<bool> {
        let (library, handle) = (self.library.get(), self.handle);
        let read = library.files.read;
        // SAFETY: `fill` vouches for the memory. The library rejects a file that is closed.
        library.fill(out, at_once, |address, bytes, report| unsafe {
            read(
                handle as *mut c_void,
                address,
                bytes,
                offset,
                options as *const c_void,
                report,
            )
        })
    }

    /// Wait for the file's requests and close it. Closing again does nothing.
    fn close(&self, py: Python<'_>) {
        if !self.is_closed.swap(true, Relaxed) {
            let (close, handle) = (self.library.get().files.close, self.handle);
            // SAFETY: the handle is that of a file of this library. In a forked child, the call closes nothing
            // of the parent.
            py.detach(|| unsafe { close(handle as *mut c_void) });
        }
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) {
        self.close(py);
    }
}

impl Drop for File {
    fn drop(&mut self) {
        Python::attach(|py| self.close(py));
    }
}

/// Open a file, do what [`File::fill`] does, and close the file. Where this returns false, it was not opened.
#[pyfunction]
pub(crate) fn load(
    library: &Bound<'_, Library>,
    path: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    offset: u64,
    options: usize,
    at_once: u64,
) -> PyResult<bool> {
    if path.is_instance_of::<PyInt>() {
        return Ok(false);
    }
    let (load, name) = (library.get().files.load, encoded(path)?);
    let place = address_of(&name);
    // SAFETY: the name is a C string that outlives the call; `Library::fill` vouches for the memory.
    library
        .get()
        .fill(out, at_once, |address, bytes, report| unsafe {
            load(
                with_exposed_provenance(place),
                address,
                bytes,
                offset,
                options as *const c_void,
                report,
            )
        })
}

/// Replace a file by the bytes of an array; return false for one that needs more than one call. The file is then as
/// it was. The arguments are those of `load`.
#[pyfunction]
pub(crate) fn save(
    library: &Bound<'_, Library>,
    path: &Bound<'_, PyAny>,
    array: &Bound<'_, PyAny>,
    options: usize,
    at_once: u64,
) -> PyResult<bool> {
    let library = library.get();
    let Some(memory) = library.classes.describe_source(array)? else {
        return Ok(false);
    };
    let (save, name) = (library.files.save, encoded(path)?);
    let place = address_of(&name);
    // SAFETY: as for `load`.
    library.at_once(
        path.py(),
        &memory,
        at_once,
        |address, bytes, report| unsafe {
            save(
                with_exposed_provenance(place),
                address.cast_const(),
                bytes,
                options as *const c_void,
                report,
            )
        },
    )
}

impl Library {
    /// Lets a call fill the memory of an array. Returns false if [`at_once`](Self::at_once) does.
    fn fill(
        &self,
        out: &Bound<'_, PyAny>,
        at_once: u64,
        call: impl FnOnce(*mut c_void, u64, *mut u64) -> c_int + Send,
    ) -> PyResult<bool> {
        let Some(memory) = self.classes.describe(out, None)? else {
            return Ok(false);
        };
        let is_filled = self.at_once(out.py(), &memory, at_once, call)?;
        if is_filled && memory.is_tensor {
            self.classes.note_write(out)?;
        }
        Ok(is_filled)
    }

    /// Calls without the GIL, with address and length of memory and the place of the report, which is then the last
    /// one. Returns false, without a call, for memory on which a library has queued work, of more than
    /// `at_once` bytes, or that is missing.
    fn at_once(
        &self,
        py: Python<'_>,
        memory: &Memory<'_>,
        at_once: u64,
        call: impl FnOnce(*mut c_void, u64, *mut u64) -> c_int + Send,
    ) -> PyResult<bool> {
        let (address, bytes) = (memory.address, memory.bytes);
        if bytes > at_once || (address == 0 && bytes > 0) {
            return Ok(false);
        }
        if let Some(stream) = memory.stream
            && !self.is_idle(py, stream)?
        {
            return Ok(false);
        }
        let mut report = self.empty_report();
        let place = report.place().expose_provenance();
        // The memory was described, and the caller keeps its array. It is a rule of arrays that their memory is not
        // replaced while it is in use.
        let status = gil::without(py, move || {
            let address = with_exposed_provenance_mut(address);
            call(address, bytes, with_exposed_provenance_mut(place))
        });
        self.check(py, status)?;
        self.remember(py, report)?;
        Ok(true)
    }

    /// Returns whether the work queued on a stream is done.
    fn is_idle(&self, py: Python<'_>, stream: Stream) -> PyResult<bool> {
        let mut is_idle = 0;
        // SAFETY: the stream is one of a live library, and the place is valid.
        let status = unsafe {
            (self.files.stream_query)(
                stream.device,
                stream.handle as *mut c_void,
                &raw mut is_idle,
            )
        };
        self.check(py, status)?;
        Ok(is_idle != 0)
    }
}

/// Returns a path as the bytes that system calls take.
fn encoded<'py>(path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let py = path.py();
    let mut found: *mut PyObject = null_mut();
    // SAFETY: both are valid. The call returns 0 with an exception, or puts a new reference to an object of
    // `bytes` in the place.
    unsafe {
        if PyUnicode_FSConverter(path.as_ptr(), (&raw mut found).cast()) != 0 {
            return Ok(Bound::from_owned_ptr(py, found).cast_into_unchecked());
        }
    }
    // Python's function says what is wrong with the path.
    drop(PyErr::take(py));
    let files = py.import("penstock.files")?;
    Ok(files.call_method1("encode", (path,))?.cast_into()?)
}

/// Returns the address of bytes as a C string: those of [`encoded`] have no zero, and Python puts one behind them.
fn address_of(name: &Bound<'_, PyBytes>) -> usize {
    name.as_bytes().as_ptr().expose_provenance()
}
