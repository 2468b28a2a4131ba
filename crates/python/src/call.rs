//! Calls of the C API.

use std::ffi::{c_char, c_int, c_void};
use std::mem::transmute;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use crate::gil;
use crate::index::Elements;
use crate::memory::Classes;
use crate::report::Report;
use crate::structs::{CArray, CAxis, CSelection};

/// Describes memory in C order with the shape of the selected elements.
fn array_of(selected: &Elements, address: usize, element: i64) -> CArray {
    CArray {
        struct_size: size_of::<CArray>(),
        data: address,
        element,
        rank: selected.shape().len() as i32,
        reserved: 0,
        shape: selected.shape().as_ptr().expose_provenance(),
        strides: 0,
        decoding: 0,
    }
}

/// `PENSTOCK_AFTER_STREAM`
pub(crate) const AFTER_STREAM: c_int = 1;

/// `PENSTOCK_ZERO_HOLES`
pub(crate) const ZERO_HOLES: c_int = 16;

/// `PENSTOCK_ONLY_CACHED`
const ONLY_CACHED: c_int = 8;

/// `PENSTOCK_MAY_CALL_HDF5`
pub(crate) const MAY_CALL_HDF5: c_int = 32;

/// `penstock_reader_read`
type Read = unsafe extern "C" fn(
    reader: *mut c_void,
    selection: *const CSelection,
    array: *const CArray,
    options: *const c_void,
    stream: *mut c_void,
    flags: c_int,
    report: *mut u64,
) -> c_int;

/// `penstock_reader_start`
type Start = unsafe extern "C" fn(
    reader: *mut c_void,
    selection: *const CSelection,
    array: *const CArray,
    options: *const c_void,
    stream: *mut c_void,
    flags: c_int,
    request: *mut *mut c_void,
) -> c_int;

/// `penstock_reader_write`
type Write = unsafe extern "C" fn(
    reader: *mut c_void,
    selection: *const CSelection,
    array: *const CArray,
    report: *mut u64,
) -> c_int;

/// `penstock_reader_shape`
type Shape = unsafe extern "C" fn(reader: *mut c_void, rank: c_int, lengths: *mut u64) -> c_int;

/// `penstock_open`
type Open = unsafe extern "C" fn(
    path: *const c_char,
    flags: c_int,
    options: *const c_void,
    file: *mut *mut c_void,
) -> c_int;

/// `penstock_open_descriptor`
type OpenDescriptor = unsafe extern "C" fn(
    descriptor: c_int,
    flags: c_int,
    options: *const c_void,
    file: *mut *mut c_void,
) -> c_int;

/// `penstock_close`
type Close = unsafe extern "C" fn(file: *mut c_void) -> c_int;

/// `penstock_read`
type ReadFile = unsafe extern "C" fn(
    file: *mut c_void,
    buffer: *mut c_void,
    length: u64,
    offset: u64,
    options: *const c_void,
    report: *mut u64,
) -> c_int;

/// `penstock_load`
type Load = unsafe extern "C" fn(
    path: *const c_char,
    buffer: *mut c_void,
    length: u64,
    offset: u64,
    options: *const c_void,
    report: *mut u64,
) -> c_int;

/// `penstock_save`
type Save = unsafe extern "C" fn(
    path: *const c_char,
    buffer: *const c_void,
    length: u64,
    options: *const c_void,
    report: *mut u64,
) -> c_int;

/// `penstock_stream_query`
type QueryStream =
    unsafe extern "C" fn(device: c_int, stream: *mut c_void, is_idle: *mut c_int) -> c_int;

/// The functions for files, and for the streams of their arrays.
pub(crate) struct FileFunctions {
    pub(crate) open: Open,
    pub(crate) open_descriptor: OpenDescriptor,
    pub(crate) close: Close,
    pub(crate) read: ReadFile,
    pub(crate) load: Load,
    pub(crate) save: Save,
    pub(crate) query_stream: QueryStream,
}

impl FileFunctions {
    /// # Safety
    /// The addresses are those of `penstock_open`, `penstock_open_descriptor`, `penstock_close`,
    /// `penstock_read`, `penstock_load`, `penstock_save` and `penstock_stream_query` of a library that is
    /// never unloaded.
    unsafe fn at(addresses: [usize; 7]) -> FileFunctions {
        let [open, open_descriptor, close, read, load, save, query] = addresses;
        // SAFETY: by contract of this function.
        unsafe {
            FileFunctions {
                open: transmute::<usize, Open>(open),
                open_descriptor: transmute::<usize, OpenDescriptor>(open_descriptor),
                close: transmute::<usize, Close>(close),
                read: transmute::<usize, ReadFile>(read),
                load: transmute::<usize, Load>(load),
                save: transmute::<usize, Save>(save),
                query_stream: transmute::<usize, QueryStream>(query),
            }
        }
    }
}

/// A loaded libpenstock.so, with Python's handling of the results of its calls.
///
/// Args:
///     read: The address of `penstock_reader_read`.
///     start: The address of `penstock_reader_start`.
///     write: The address of `penstock_reader_write`.
///     shape: The address of `penstock_reader_shape`.
///     files: The addresses of `penstock_open`, `penstock_open_descriptor`, `penstock_close`,
///         `penstock_read`, `penstock_load`, `penstock_save` and `penstock_stream_query`.
///     sizes: The sizes of `penstock_axis`, `penstock_selection`, `penstock_array` and `penstock_report`.
///     fallback: The statuses of reads that the fallback path carries out.
///     options: Returns the options of the thread or task, a tuple.
///     parse: Returns the address of the `penstock_options` for such a tuple that is not empty, and an
///         object that keeps the options there.
///     check: Raises the error of a status that is not 0.
///     remember: Stores the report of a read.
///     note_write: Records in torch's autograd that a tensor has changed.
///     torch_stream: Returns torch's current stream of a device.
///     device_array: The class `penstock.DeviceArray`.
///     view: The class `penstock.arrays.View`.
#[pyclass(frozen, module = "penstock._core")]
pub(crate) struct Library {
    read: Read,
    start: Start,
    write: Write,
    shape: Shape,
    pub(crate) files: FileFunctions,
    report_size: usize,
    fallback: Vec<c_int>,
    options: Py<PyAny>,
    parse: Py<PyAny>,
    check: Py<PyAny>,
    remember: Py<PyAny>,
    pub(crate) classes: Classes,
}

#[pymethods]
impl Library {
    #[new]
    #[allow(clippy::too_many_arguments)] // They are named where Python calls.
    #[pyo3(signature = (*, read, start, write, shape, files, sizes, fallback, options, parse, check, remember, note_write, torch_stream, device_array, view))]
    fn new(
        read: usize,
        start: usize,
        write: usize,
        shape: usize,
        files: [usize; 7],
        sizes: (usize, usize, usize, usize),
        fallback: Vec<c_int>,
        options: Py<PyAny>,
        parse: Py<PyAny>,
        check: Py<PyAny>,
        remember: Py<PyAny>,
        note_write: Py<PyAny>,
        torch_stream: Py<PyAny>,
        device_array: Py<PyType>,
        view: Py<PyType>,
    ) -> PyResult<Library> {
        let (axis, selection, array, report_size) = sizes;
        let ours = (
            size_of::<CAxis>(),
            size_of::<CSelection>(),
            size_of::<CArray>(),
        );
        if read == 0
            || start == 0
            || write == 0
            || shape == 0
            || files.contains(&0)
            || ours != (axis, selection, array)
            || report_size < size_of::<u64>()
        {
            return Err(PyImportError::new_err(
                "penstock._core and the headers of penstock belong to different releases: reinstall the package",
            ));
        }
        Ok(Library {
            // SAFETY: by contract, the address of that function, of a library that is never unloaded.
            read: unsafe { transmute::<usize, Read>(read) },
            // SAFETY: as above.
            start: unsafe { transmute::<usize, Start>(start) },
            // SAFETY: as above.
            write: unsafe { transmute::<usize, Write>(write) },
            // SAFETY: as above.
            shape: unsafe { transmute::<usize, Shape>(shape) },
            // SAFETY: as above.
            files: unsafe { FileFunctions::at(files) },
            report_size,
            fallback,
            options,
            parse,
            check,
            remember,
            classes: Classes::new(device_array, view, torch_stream, note_write),
        })
    }
}

/// The destination and the circumstances of a read.
pub(crate) struct Destination {
    /// The address of the first element; the rest follow it in C order.
    pub(crate) address: usize,
    /// The HDF5 identifier of the type of an element.
    pub(crate) element: i64,
    /// The CUDA stream after whose work the read takes place, or 0.
    pub(crate) stream: usize,
    /// `PENSTOCK_CALLER_WAITS` and further flags.
    pub(crate) flags: c_int,
    /// Whether the read keeps the GIL where the bytes are cached, because it only copies a few of the
    /// file's bytes to host memory.
    pub(crate) is_brief: bool,
    /// The address of the `penstock_options` of the call, which its caller keeps there; 0 for those of the
    /// thread or task.
    pub(crate) options: usize,
}

impl Library {
    /// Reads by a `penstock_reader *`, without the GIL. Returns the report; `None` if the fallback
    /// path carries out the read.
    ///
    /// # Errors
    /// The error of the library.
    ///
    /// # Safety
    /// The destination has room for the selected elements, and no other code uses it until the call
    /// returns.
    pub(crate) unsafe fn read(
        &self,
        py: Python<'_>,
        reader: usize,
        selected: &Elements,
        to: &Destination,
    ) -> PyResult<Option<Report>> {
        let (options, _kept) = self.options(py, to)?;
        let array = array_of(selected, to.address, to.element);
        let (selection, array) = (&selected.selection, &array);
        let mut report = self.empty_report();
        let read = self.read;
        let (stream, flags, place) = (to.stream, to.flags, report.place().expose_provenance());
        let call = move |flags: c_int| {
            // SAFETY: the structs outlive the call; the caller vouches for the destination. A
            // reader is not an address, and the library rejects one that is closed.
            unsafe {
                read(
                    reader as *mut c_void,
                    selection,
                    array,
                    options as *const c_void,
                    stream as *mut c_void,
                    flags,
                    std::ptr::with_exposed_provenance_mut(place),
                )
            }
        };
        // HDF5 may decode a chunk, or wait for a pending request that takes the GIL.
        let is_brief = to.is_brief && flags & MAY_CALL_HDF5 == 0;
        let status = match is_brief.then(|| call(flags | ONLY_CACHED)) {
            Some(status) if !self.fallback.contains(&status) => status,
            _ => gil::without(py, move || call(flags)),
        };
        self.outcome(py, status, report)
    }

    /// Returns the report of a read or write; `None` if the fallback path carries it out.
    ///
    /// # Errors
    /// The error of the library, or that of a file object of Python by which HDF5 reads and writes.
    fn outcome(&self, py: Python<'_>, status: c_int, report: Report) -> PyResult<Option<Report>> {
        if let Some(raised) = PyErr::take(py) {
            return Err(raised);
        }
        if self.fallback.contains(&status) {
            return Ok(None);
        }
        self.check(py, status).map(|()| Some(report))
    }

    /// Writes by a `penstock_reader *` from memory in C order, of elements of an HDF5 type. The caller holds
    /// HDF5's lock. Returns the report; `None` if the fallback path writes.
    ///
    /// # Safety
    /// The memory has the selected elements.
    pub(crate) unsafe fn write(
        &self,
        py: Python<'_>,
        reader: usize,
        selected: &Elements,
        (address, element): (usize, i64),
    ) -> PyResult<Option<Report>> {
        let array = array_of(selected, address, element);
        let (selection, array) = (&selected.selection, &array);
        let mut report = self.empty_report();
        let (write, place) = (self.write, report.place().expose_provenance());
        let call = move || {
            // SAFETY: the structs outlive the call; the caller vouches for the memory. The library rejects a
            // reader that is closed.
            unsafe {
                let report = std::ptr::with_exposed_provenance_mut(place);
                write(reader as *mut c_void, selection, array, report)
            }
        };
        let status = gil::without(py, call);
        self.outcome(py, status, report)
    }

    /// Returns the shape that a dataset has now. The caller holds HDF5's lock.
    pub(crate) fn shape(&self, py: Python<'_>, reader: usize, rank: usize) -> PyResult<Vec<u64>> {
        let mut lengths = vec![0; rank];
        // SAFETY: room for as many lengths as are passed; the library rejects a reader that is closed.
        let status =
            unsafe { (self.shape)(reader as *mut c_void, rank as c_int, lengths.as_mut_ptr()) };
        self.check(py, status).map(|()| lengths)
    }

    /// Starts a read by a `penstock_reader *`, without the GIL, and stores its `penstock_request *`
    /// at the address `place`. Returns the status; `None` if the fallback path carries out the
    /// read.
    ///
    /// # Safety
    /// As for [`read`](Self::read), but until the request has finished. `place` is valid.
    pub(crate) unsafe fn start(
        &self,
        py: Python<'_>,
        reader: usize,
        selected: &Elements,
        to: &Destination,
        place: usize,
    ) -> PyResult<Option<c_int>> {
        let (options, _kept) = self.options(py, to)?;
        let array = array_of(selected, to.address, to.element);
        let (selection, array) = (&selected.selection, &array);
        let start = self.start;
        let (stream, flags) = (to.stream, to.flags);
        let status = py.detach(move || {
            // SAFETY: the structs outlive the call; the caller vouches for the destination and the
            // place. A reader is not an address, and the library rejects one that is closed.
            unsafe {
                start(
                    reader as *mut c_void,
                    selection,
                    array,
                    options as *const c_void,
                    stream as *mut c_void,
                    flags,
                    place as *mut *mut c_void,
                )
            }
        });
        Ok((!self.fallback.contains(&status)).then_some(status))
    }

    /// Returns the address of the options of a read (0 for no options), and the object that keeps
    /// them.
    fn options<'py>(
        &self,
        py: Python<'py>,
        to: &Destination,
    ) -> PyResult<(usize, Bound<'py, PyAny>)> {
        if to.options != 0 {
            return Ok((to.options, py.None().into_bound(py)));
        }
        let options = self.options.bind(py).call0()?;
        if options.cast::<PyTuple>()?.is_empty() {
            Ok((0, options))
        } else {
            self.parse.bind(py).call1((options,))?.extract()
        }
    }

    /// Raises the error of a status that is not 0.
    pub(crate) fn check(&self, py: Python<'_>, status: c_int) -> PyResult<()> {
        if status != 0 {
            self.check.call1(py, (status,))?;
        }
        Ok(())
    }

    /// Returns a report for a call to fill.
    pub(crate) fn empty_report(&self) -> Report {
        Report::empty(self.report_size)
    }

    /// Stores the report of a read of no elements.
    pub(crate) fn remember_nothing(&self, py: Python<'_>) -> PyResult<()> {
        self.remember(py, self.empty_report())
    }

    /// Stores a report as the last one of the thread or task.
    pub(crate) fn remember(&self, py: Python<'_>, report: Report) -> PyResult<()> {
        self.remember.call1(py, (Py::new(py, report)?,))?;
        Ok(())
    }
}
