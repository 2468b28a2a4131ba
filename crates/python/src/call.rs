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
use crate::structs::{CArray, CAxis, CFacts, CSelection};

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

/// `PENSTOCK_FILE_IS_OPEN`
const FILE_IS_OPEN: c_int = 64;

/// Declares functions of the C API, which are found at addresses.
macro_rules! functions {
    ($(#[$about:meta])* $name:ident { $($function:ident: ($($argument:ty),*) $(-> $result:ty)?;)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name {
            $(pub(crate) $function: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl $name {
            /// # Safety
            /// The addresses are those of the functions, in their order, of a library that is never unloaded.
            unsafe fn at(addresses: [usize; [$(stringify!($function)),*].len()]) -> $name {
                let [$($function),*] = addresses;
                // SAFETY: by contract of this function.
                unsafe {
                    $name {
                        $($function: transmute::<usize, unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                            $function,
                        ),)*
                    }
                }
            }
        }
    };
}

functions! {
    /// The functions of a `penstock_reader`, each without `penstock_reader_`.
    ReaderFunctions {
        open_decoded: (i64, i64, *const c_void, *mut *mut c_void) -> c_int;
        describe: (*mut c_void, *mut CFacts) -> c_int;
        shape: (*mut c_void, c_int, *mut u64) -> c_int;
        pieces: (*mut c_void, u64) -> u64;
        read: (*mut c_void, *const CSelection, *const CArray, *const c_void, *mut c_void, c_int, *mut u64) -> c_int;
        start: (*mut c_void, *const CSelection, *const CArray, *const c_void, *mut c_void, c_int, *mut *mut c_void)
            -> c_int;
        write: (*mut c_void, *const CSelection, *const CArray, *mut u64) -> c_int;
        is_forgotten: (*mut c_void) -> c_int;
        close: (*mut c_void);
    }
}

functions! {
    /// The functions for files, and for the streams of their arrays, each without `penstock_`.
    FileFunctions {
        open: (*const c_char, c_int, *const c_void, *mut *mut c_void) -> c_int;
        open_descriptor: (c_int, c_int, *const c_void, *mut *mut c_void) -> c_int;
        close: (*mut c_void) -> c_int;
        read: (*mut c_void, *mut c_void, u64, u64, *const c_void, *mut u64) -> c_int;
        load: (*const c_char, *mut c_void, u64, u64, *const c_void, *mut u64) -> c_int;
        save: (*const c_char, *const c_void, u64, *const c_void, *mut u64) -> c_int;
        stream_query: (c_int, *mut c_void, *mut c_int) -> c_int;
    }
}

/// A `penstock_reader *` that is open. The library rejects one that is closed: it is not an address.
pub(crate) struct OpenedReader {
    handle: usize,
    functions: ReaderFunctions,
}

impl OpenedReader {
    /// Returns what the reader knows of the dataset.
    fn describe(&self) -> (c_int, CFacts) {
        let mut facts = CFacts::default();
        // SAFETY: the struct has the size that it says.
        let status =
            unsafe { (self.functions.describe)(self.handle as *mut c_void, &raw mut facts) };
        (status, facts)
    }

    /// Returns in how many pieces of the file so many bytes lie; 0 if they are not those of the elements.
    pub(crate) fn pieces(&self, bytes: u64) -> u64 {
        // SAFETY: a function of numbers.
        unsafe { (self.functions.pieces)(self.handle as *mut c_void, bytes) }
    }

    /// Returns whether the library has forgotten the dataset, so that the reader reads nothing any more.
    pub(crate) fn is_forgotten(&self) -> bool {
        // SAFETY: a function of a number.
        unsafe { (self.functions.is_forgotten)(self.handle as *mut c_void) != 0 }
    }
}

impl Drop for OpenedReader {
    fn drop(&mut self) {
        // SAFETY: a function of a number.
        unsafe { (self.functions.close)(self.handle as *mut c_void) };
    }
}

/// A loaded libpenstock.so, with Python's handling of the results of its calls.
///
/// Args:
///     readers: The addresses of the functions of a reader, in the order of `ReaderFunctions`.
///     files: Those for files, in the order of `FileFunctions`.
///     sizes: The sizes of `penstock_axis`, `penstock_selection`, `penstock_array`, `penstock_reader_facts` and
///         `penstock_report`.
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
    readers: ReaderFunctions,
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
    #[pyo3(signature = (*, readers, files, sizes, fallback, options, parse, check, remember, note_write, torch_stream, device_array, view))]
    fn new(
        readers: [usize; 9],
        files: [usize; 7],
        sizes: (usize, usize, usize, usize, usize),
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
        let (axis, selection, array, facts, report_size) = sizes;
        let ours = (
            size_of::<CAxis>(),
            size_of::<CSelection>(),
            size_of::<CArray>(),
            size_of::<CFacts>(),
        );
        if readers.contains(&0)
            || files.contains(&0)
            || ours != (axis, selection, array, facts)
            || report_size < size_of::<u64>()
        {
            return Err(PyImportError::new_err(
                "penstock._core and the headers of penstock belong to different releases: reinstall the package",
            ));
        }
        Ok(Library {
            // SAFETY: by contract, the addresses of those functions, of a library that is never unloaded.
            readers: unsafe { ReaderFunctions::at(readers) },
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
    /// Opens a reader of elements of an HDF5 type, which a `penstock_decoding` at an address may decode (0 for
    /// none), and describes it. The caller holds HDF5's lock. Returns `None` if there can be none.
    pub(crate) fn open_reader(
        &self,
        py: Python<'_>,
        dataset: i64,
        element: i64,
        decoding: usize,
    ) -> PyResult<Option<(OpenedReader, CFacts)>> {
        let functions = self.readers;
        let (status, handle) = py.detach(move || {
            let mut place = std::ptr::null_mut();
            let decoding = decoding as *const c_void;
            // SAFETY: the place is valid; the caller keeps the decoding.
            let status =
                unsafe { (functions.open_decoded)(dataset, element, decoding, &raw mut place) };
            (status, place as usize)
        });
        let opened = (handle != 0).then(|| OpenedReader { handle, functions });
        if let Some(raised) = PyErr::take(py) {
            return Err(raised); // that of a file object of Python
        }
        if !self.fallback.contains(&status) {
            self.check(py, status)?;
        }
        let Some(opened) = opened else {
            return Ok(None);
        };
        let (status, facts) = opened.describe();
        self.check(py, status)?;
        Ok(Some((opened, facts)))
    }

    /// Reads by a `penstock_reader *`, without the GIL. Returns the report; `None` if the fallback
    /// path carries out the read.
    ///
    /// # Errors
    /// The error of the library.
    ///
    /// # Safety
    /// The file is open. The destination has room for the selected elements, and no other code uses it until the
    /// call returns.
    pub(crate) unsafe fn read(
        &self,
        py: Python<'_>,
        reader: &OpenedReader,
        selected: &Elements,
        to: &Destination,
    ) -> PyResult<Option<Report>> {
        let (options, _kept) = self.options(py, to)?;
        let array = array_of(selected, to.address, to.element);
        let (selection, array) = (&selected.selection, &array);
        let mut report = self.empty_report();
        let (read, reader) = (self.readers.read, reader.handle);
        let (stream, flags) = (to.stream, to.flags | FILE_IS_OPEN);
        let place = report.place().expose_provenance();
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
        reader: &OpenedReader,
        selected: &Elements,
        (address, element): (usize, i64),
    ) -> PyResult<Option<Report>> {
        let array = array_of(selected, address, element);
        let (selection, array) = (&selected.selection, &array);
        let mut report = self.empty_report();
        let (write, reader) = (self.readers.write, reader.handle);
        let place = report.place().expose_provenance();
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

    /// Returns the shape that a dataset has now; `None` in a forked child. The caller holds HDF5's lock.
    pub(crate) fn shape(
        &self,
        py: Python<'_>,
        reader: &OpenedReader,
        rank: usize,
    ) -> PyResult<Option<Vec<u64>>> {
        let (shape, reader) = (self.readers.shape, reader.handle as *mut c_void);
        let mut lengths = vec![0; rank];
        // SAFETY: room for as many lengths as are passed.
        let status = unsafe { shape(reader, rank as c_int, lengths.as_mut_ptr()) };
        if self.fallback.contains(&status) {
            return Ok(None);
        }
        self.check(py, status).map(|()| Some(lengths))
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
        reader: &OpenedReader,
        selected: &Elements,
        to: &Destination,
        place: usize,
    ) -> PyResult<Option<c_int>> {
        let (options, _kept) = self.options(py, to)?;
        let array = array_of(selected, to.address, to.element);
        let (selection, array) = (&selected.selection, &array);
        let (start, reader) = (self.readers.start, reader.handle);
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
