//! Reads of one dataset into elements of one type.

use std::borrow::Cow;
use std::ffi::c_int;

use numpy::npyffi::{PY_ARRAY_API, npy_intp};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyWeakrefMethods, PyWeakrefReference};

use crate::call::{AFTER_STREAM, Destination, Library, MAY_CALL_HDF5, ZERO_HOLES};
use crate::index::Elements;
use crate::memory::{Memory, address_of, source_in_c_order};
use crate::report::Report;

/// Reads the elements that integers, slices and a list select of a dataset, by a `penstock_reader`.
///
/// Args:
///     library: The library of the reader.
///     handle: The `penstock_reader *`, as a number.
///     owner: An object that keeps the handle open.
///     dataset: The `h5py.h5d.DatasetID`. It may be deleted; reads then return nothing.
///     rank: The number of dimensions.
///     shape: The shape of the dataset; `None` if it may change.
///     lock: h5py's lock, under which HDF5 may read; `None` if it reads nothing.
///     element: The HDF5 identifier of the type of an element in memory.
///     dtype: That type in NumPy; `None` if NumPy does not have it.
///     itemsize: The bytes of an element in memory.
///     most: The most bytes of a read by this reader.
///     at_once: The most bytes that `read` and `fill` read. Longer reads are for `start`, whose request can be
///         waited for and interrupted.
///     brief: The most bytes that are copied to host memory with the GIL, as h5py does: that takes less time
///         than another thread needs to wake up for the GIL.
///     flags: The flags of a read without a stream.
///     copies: Whether the bytes of the file are those of the elements in memory.
#[pyclass(frozen, module = "penstock._core")]
pub(crate) struct Reader {
    library: Py<Library>,
    handle: usize,
    _owner: Py<PyAny>,
    dataset: Py<PyWeakrefReference>,
    rank: usize,
    shape: Option<Vec<u64>>,
    lock: Option<Py<PyAny>>,
    element: i64,
    dtype: Option<Py<PyArrayDescr>>,
    itemsize: u64,
    most: u64,
    at_once: u64,
    brief: u64,
    flags: c_int,
    copies: bool,
}

#[pymethods]
impl Reader {
    #[new]
    #[allow(clippy::too_many_arguments)] // They are named where Python calls.
    #[pyo3(signature = (*, library, handle, owner, dataset, rank, shape, lock, element, dtype, itemsize, most, at_once, brief, flags, copies))]
    fn new(
        library: Py<Library>,
        handle: usize,
        owner: Py<PyAny>,
        dataset: &Bound<'_, PyAny>,
        rank: usize,
        shape: Option<Vec<u64>>,
        lock: Option<Py<PyAny>>,
        element: i64,
        dtype: Option<Py<PyArrayDescr>>,
        itemsize: u64,
        most: u64,
        at_once: u64,
        brief: u64,
        flags: c_int,
        copies: bool,
    ) -> PyResult<Reader> {
        Ok(Reader {
            library,
            handle,
            _owner: owner,
            dataset: PyWeakrefReference::new(dataset)?.unbind(),
            rank,
            shape,
            lock,
            element,
            dtype,
            itemsize,
            most,
            at_once,
            brief,
            flags,
            copies,
        })
    }

    /// Return a new NumPy array, or a scalar, and whether it has the elements. If not, the fallback
    /// path reads them, into that array if it is not `None`.
    fn read<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<(Option<Bound<'py, PyAny>>, bool)> {
        let Some(dtype) = &self.dtype else {
            return Ok((None, false));
        };
        let _locked = self.lock_if_it_may_change(py)?;
        let Some(shape) = self.shape_now(py)? else {
            return Ok((None, false));
        };
        let Some(selected) = Elements::parse(index, &shape)? else {
            return Ok((None, false));
        };
        let bytes = self.bytes(&selected);
        if !selected.is_plain() || bytes.is_none_or(|bytes| bytes > self.at_once) {
            return Ok((None, false));
        }
        let array = empty(py, selected.shape(), dtype)?;
        if bytes == Some(0) {
            let is_open = self.is_open(py)?;
            if is_open {
                self.library.get().remember_nothing(py)?;
            }
            return Ok((is_open.then(|| array.into_any()), is_open));
        }
        let mut to = self.to_host(&selected, &shape, address_of(&array), 0);
        to.flags = self.flags | ZERO_HOLES;
        // SAFETY: a new array of the selected shape and of the reader's type.
        let is_read = unsafe { self.read_by(py, &selected, &to)? };
        let value = match selected.shape() {
            [] if is_read => Some(array.get_item(PyTuple::empty(py))?),
            [] => None,
            _ => Some(array.into_any()),
        };
        Ok((value, is_read))
    }

    /// Fill an array of NumPy, torch or Penstock, or a `View`; return false if the fallback path fills it, `None`
    /// if a reader of elements of its type is to be opened first.
    ///
    /// Args:
    ///     index: What `dataset[...]` takes.
    ///     out: The array.
    ///     readers: Readers of this dataset by the type of an array; `None` for types that have none.
    ///     stream: Memory of a GPU is used after the work that is queued there; if `None`, after that of
    ///         the current stream of the array's library.
    ///     options: The address of the `penstock_options` of the call, which the caller keeps, or 0.
    ///     is_new: Whether the caller has not seen the array yet.
    fn fill(
        &self,
        index: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
        readers: &Bound<'_, PyDict>,
        stream: Option<usize>,
        options: usize,
        is_new: bool,
    ) -> PyResult<Option<bool>> {
        let py = index.py();
        let _locked = self.lock_if_it_may_change(py)?;
        let Some(shape) = self.shape_now(py)? else {
            return Ok(Some(false));
        };
        let Some(found) = self.find(index, &shape, out, readers)? else {
            return Ok(Some(false));
        };
        let Some(reader) = found.reader.as_ref().map(Bound::get) else {
            return Ok(None);
        };
        let Some(mut to) = reader.to_memory(&found, &shape, stream, options) else {
            return Ok(Some(false));
        };
        let bytes = reader.bytes(&found.selected);
        if bytes.is_none_or(|bytes| bytes > self.at_once) {
            return Ok(Some(false));
        }
        to.flags |= self.flags | holes(is_new);
        // SAFETY: `find` has checked the memory. It is a rule of arrays that their memory is not replaced while
        // it is in use.
        let is_filled = unsafe { reader.read_by(py, &found.selected, &to)? };
        if is_filled && found.memory.is_tensor && !is_new {
            self.library.get().classes.note_write(out)?;
        }
        Ok(Some(is_filled))
    }

    /// Write the elements of a NumPy array in C order. Return whether they are written; `None` if a reader of
    /// elements of the array's type is to be opened first.
    ///
    /// Args:
    ///     index: What `dataset[...]` takes.
    ///     array: The array, which has the shape of the selected elements.
    ///     readers: As for `fill`.
    fn write(
        &self,
        index: &Bound<'_, PyAny>,
        array: &Bound<'_, PyUntypedArray>,
        readers: &Bound<'_, PyDict>,
    ) -> PyResult<Option<bool>> {
        let py = index.py();
        let Some(lock) = &self.lock else {
            return Ok(Some(false));
        };
        let _locked = Locked::take(lock.bind(py))?;
        let Some(shape) = self.shape_now(py)? else {
            return Ok(Some(false));
        };
        let Some(selected) = self.select(index, &shape)? else {
            return Ok(Some(false));
        };
        let Some(address) = source_in_c_order(array, selected.shape()) else {
            return Ok(Some(false));
        };
        let Some(reader) = reader_of(readers, array.dtype().as_any())? else {
            return Ok(Some(false));
        };
        let Some(reader) = reader.as_ref().map(Bound::get) else {
            return Ok(None);
        };
        let bytes = reader.bytes(&selected);
        if bytes.is_none_or(|bytes| bytes > self.at_once) {
            return Ok(Some(false));
        }
        let from = (address, reader.element);
        let library = self.library.get();
        // SAFETY: the array lives, and has the selected shape and the reader's type.
        match unsafe { library.write(py, reader.handle, &selected, from)? } {
            Some(report) => library.remember(py, report).map(|()| Some(true)),
            None => Ok(Some(false)),
        }
    }

    /// Start to fill such an array, and store the `penstock_request *` at the address `place`. Return
    /// the status, for the caller to check; `None` if the fallback path fills it.
    #[allow(clippy::too_many_arguments)] // As those of the C API.
    fn start(
        &self,
        index: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
        readers: &Bound<'_, PyDict>,
        stream: Option<usize>,
        options: usize,
        is_new: bool,
        place: usize,
    ) -> PyResult<Option<c_int>> {
        let py = index.py();
        let Some(shape) = &self.shape else {
            return Ok(None);
        };
        let Some(found) = self.find(index, shape, out, readers)? else {
            return Ok(None);
        };
        let Some(reader) = found.reader.as_ref().map(Bound::get) else {
            return Ok(None);
        };
        let Some(mut to) = reader.to_memory(&found, shape, stream, options) else {
            return Ok(None);
        };
        if !reader.is_open(py)? {
            return Ok(None);
        }
        to.flags |= holes(is_new);
        let library = self.library.get();
        // SAFETY: as in `fill`; the caller keeps the array until the request has finished.
        let status = unsafe { library.start(py, reader.handle, &found.selected, &to, place)? };
        if status == Some(0) && found.memory.is_tensor {
            library.classes.note_write(out)?;
        }
        Ok(status)
    }

    /// Return the shape of the selected elements; `None` if the fallback path reads them.
    fn shape_of<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let _locked = self.lock_if_it_may_change(py)?;
        let Some(shape) = self.shape_now(py)? else {
            return Ok(None);
        };
        let selected = self.select(index, &shape)?;
        selected
            .map(|selected| PyTuple::new(py, selected.shape()))
            .transpose()
    }
}

/// What a read fills, and by which reader.
struct Found<'py> {
    selected: Elements,
    memory: Memory<'py>,
    /// `None` if that of the type is to be opened first.
    reader: Option<Bound<'py, Reader>>,
}

/// Returns the reader of elements of a type: `Some(None)` if it is to be opened first, `None` if there is
/// none.
fn reader_of<'py>(
    readers: &Bound<'py, PyDict>,
    dtype: &Bound<'py, PyAny>,
) -> PyResult<Option<Option<Bound<'py, Reader>>>> {
    match readers.get_item(dtype)? {
        None => Ok(Some(None)),
        Some(known) if known.is_none() => Ok(None),
        Some(known) => Ok(Some(Some(known.cast_into()?))),
    }
}

/// Returns the flag for memory whose old elements must not be seen.
fn holes(is_new: bool) -> c_int {
    if is_new { ZERO_HOLES } else { 0 }
}

impl Reader {
    /// Takes h5py's lock until the result is dropped, if the dataset may change.
    fn lock_if_it_may_change<'py>(&self, py: Python<'py>) -> PyResult<Option<Locked<'py>>> {
        match &self.lock {
            Some(lock) if self.shape.is_none() => Locked::take(lock.bind(py)).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns the shape of the dataset; `None` if it is closed. The caller holds the lock if it may change.
    fn shape_now(&self, py: Python<'_>) -> PyResult<Option<Cow<'_, [u64]>>> {
        match &self.shape {
            Some(fixed) => Ok(Some(Cow::Borrowed(fixed))),
            None if !self.is_open(py)? => Ok(None),
            None => {
                let now = self.library.get().shape(py, self.handle, self.rank)?;
                Ok(Some(Cow::Owned(now)))
            }
        }
    }

    /// Evaluates the index; returns `None` if the fallback path reads.
    fn select(&self, index: &Bound<'_, PyAny>, shape: &[u64]) -> PyResult<Option<Elements>> {
        let selected = Elements::parse(index, shape)?;
        Ok(selected.filter(|selected| self.reads(selected)))
    }

    fn reads(&self, selected: &Elements) -> bool {
        let bytes = self.bytes(selected);
        selected.is_plain() && bytes.is_some_and(|bytes| 0 < bytes && bytes <= self.most)
    }

    /// Returns the bytes of the selected elements in memory; `None` if they are beyond 64 bits.
    fn bytes(&self, selected: &Elements) -> Option<u64> {
        selected.count()?.checked_mul(self.itemsize)
    }

    /// Evaluates the index, and then describes an array, which an object in the index may change.
    /// Returns `None` if the fallback path reads.
    fn find<'py>(
        &self,
        index: &Bound<'py, PyAny>,
        shape: &[u64],
        out: &Bound<'py, PyAny>,
        readers: &Bound<'py, PyDict>,
    ) -> PyResult<Option<Found<'py>>> {
        let Some(selected) = Elements::parse(index, shape)? else {
            return Ok(None);
        };
        let classes = &self.library.get().classes;
        let Some(memory) = classes.describe(out, Some(selected.shape()))? else {
            return Ok(None);
        };
        let Some(reader) = reader_of(readers, &memory.dtype)? else {
            return Ok(None);
        };
        let is_read = reader.as_ref().is_none_or(|own| own.get().reads(&selected));
        Ok(is_read.then_some(Found {
            selected,
            memory,
            reader,
        }))
    }

    /// Describes memory that was found. Returns `None` for host memory and a stream.
    fn to_memory(
        &self,
        found: &Found<'_>,
        shape: &[u64],
        stream: Option<usize>,
        options: usize,
    ) -> Option<Destination> {
        let Found {
            selected, memory, ..
        } = found;
        if !memory.is_on_gpu {
            let is_plain = stream.is_none();
            return is_plain.then(|| self.to_host(selected, shape, memory.address, options));
        }
        let stream = stream.or(memory.stream.map(|stream| stream.handle));
        Some(Destination {
            address: memory.address,
            element: self.element,
            stream: stream.unwrap_or(0),
            flags: if stream.is_some() { AFTER_STREAM } else { 0 },
            is_brief: false,
            options,
        })
    }

    /// Describes host memory for the selected elements.
    fn to_host(
        &self,
        selected: &Elements,
        shape: &[u64],
        address: usize,
        options: usize,
    ) -> Destination {
        let is_copy = self.copies && selected.is_one_run(shape);
        let bytes = self.bytes(selected);
        Destination {
            address,
            element: self.element,
            stream: 0,
            flags: 0,
            is_brief: is_copy && bytes.is_some_and(|bytes| bytes <= self.brief),
            options,
        }
    }

    /// Reads and stores the report; returns false if the fallback path reads.
    ///
    /// # Safety
    /// As for [`Library::read`].
    unsafe fn read_by(
        &self,
        py: Python<'_>,
        selected: &Elements,
        to: &Destination,
    ) -> PyResult<bool> {
        if !self.is_open(py)? {
            return Ok(false);
        }
        let library = self.library.get();
        let report: Option<Report> = match &self.shape {
            // SAFETY: passed on.
            Some(_) => unsafe { library.read(py, self.handle, selected, to)? },
            None => None,
        };
        let may_hdf5_read = report.is_none() && to.options == 0;
        let report = match self.lock.as_ref().filter(|_| may_hdf5_read) {
            Some(lock) => {
                let _locked = Locked::take(lock.bind(py))?;
                if !self.is_open(py)? {
                    return Ok(false);
                }
                let with_hdf5 = Destination {
                    flags: to.flags | MAY_CALL_HDF5,
                    ..*to
                };
                // SAFETY: passed on; the lock of HDF5 is held.
                unsafe { library.read(py, self.handle, selected, &with_hdf5)? }
            }
            None => report,
        };
        match report {
            // Another thread may have closed the file meanwhile. That is an error, which the
            // fallback path reports.
            Some(report) if self.is_open(py)? => library.remember(py, report).map(|()| true),
            _ => Ok(false),
        }
    }

    /// Returns whether the dataset is open: h5py clears the identifier when the file is closed.
    fn is_open(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(dataset) = self.dataset.bind(py).upgrade() else {
            return Ok(false);
        };
        let identifier = dataset.getattr(id(py))?;
        Ok(identifier.extract::<i64>()? != 0)
    }
}

/// Makes the names that each read uses, when the module is loaded. A child that another thread forked while they
/// are made would wait for them for ever.
pub(crate) fn make_names(py: Python<'_>) {
    for name in [id, acquire, release] {
        name(py);
    }
}

fn id(py: Python<'_>) -> &Bound<'_, PyString> {
    pyo3::intern!(py, "id")
}

fn acquire(py: Python<'_>) -> &Bound<'_, PyString> {
    pyo3::intern!(py, "acquire")
}

fn release(py: Python<'_>) -> &Bound<'_, PyString> {
    pyo3::intern!(py, "release")
}

/// h5py's lock, held until this is dropped.
struct Locked<'py>(Bound<'py, PyAny>);

impl<'py> Locked<'py> {
    fn take(lock: &Bound<'py, PyAny>) -> PyResult<Locked<'py>> {
        lock.call_method0(acquire(lock.py()))?;
        Ok(Locked(lock.clone()))
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // It only fails on a thread that does not hold the lock.
        let _ = self.0.call_method0(release(self.0.py()));
    }
}

/// Returns a new array in C order. Its elements are uninitialised, but those of structures, which may have
/// bytes that belong to no field, are zeros.
fn empty<'py>(
    py: Python<'py>,
    shape: &[u64],
    dtype: &Py<PyArrayDescr>,
) -> PyResult<Bound<'py, PyUntypedArray>> {
    let mut lengths = [0; 32];
    for (length, given) in lengths.iter_mut().zip(shape) {
        *length = *given as npy_intp;
    }
    let dtype = dtype.clone_ref(py).into_bound(py);
    let has_fields = dtype.kind() == b'V';
    // SAFETY: the number of lengths is the one passed. The call steals a reference to the type, and
    // returns an array, or null with an exception.
    unsafe {
        let (rank, lengths) = (shape.len() as c_int, lengths.as_mut_ptr());
        let dtype = dtype.into_dtype_ptr();
        let array = if has_fields {
            PY_ARRAY_API.PyArray_Zeros(py, rank, lengths, dtype, 0)
        } else {
            PY_ARRAY_API.PyArray_Empty(py, rank, lengths, dtype, 0)
        };
        Ok(Bound::from_owned_ptr_or_err(py, array)?.cast_into_unchecked())
    }
}
