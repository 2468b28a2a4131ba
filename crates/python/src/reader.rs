//! Reads of one dataset into elements of one type.

use std::ffi::c_int;

use numpy::npyffi::{NPY_ARRAY_CARRAY, PY_ARRAY_API, PyArrayObject, npy_intp};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyWeakrefMethods, PyWeakrefReference};

use crate::call::{Destination, Library, ZERO_HOLES};
use crate::index::Elements;
use crate::report::Report;

/// Reads the elements that integers, slices and a list select of a dataset, by a `penstock_reader`.
///
/// Args:
///     library: The library of the reader.
///     handle: The `penstock_reader *`, as a number.
///     owner: An object that keeps the handle open.
///     dataset: The `h5py.h5d.DatasetID`. It may be deleted; reads then return nothing.
///     shape: The shape of the dataset.
///     element: The HDF5 identifier of the type of an element in memory.
///     dtype: That type in NumPy; `None` if NumPy does not have it.
///     itemsize: The bytes of an element in memory.
///     most: The most bytes of a read by this reader.
///     at_once: The most bytes that `read_at` reads. Longer reads are for `start`, whose request can be
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
    shape: Vec<u64>,
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
    #[pyo3(signature = (*, library, handle, owner, dataset, shape, element, dtype, itemsize, most, at_once, brief, flags, copies))]
    fn new(
        library: Py<Library>,
        handle: usize,
        owner: Py<PyAny>,
        dataset: &Bound<'_, PyAny>,
        shape: Vec<u64>,
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
            shape,
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
        let Some(selected) = self.select(index)? else {
            return Ok((None, false));
        };
        let array = empty(py, selected.shape(), dtype)?;
        let mut to = self.to_host(&selected, address_of(&array));
        to.flags |= ZERO_HOLES;
        // SAFETY: a new array of the selected shape and of the reader's type.
        let is_read = unsafe { self.read_by(py, &selected, &to)? };
        let value = match selected.shape() {
            [] if is_read => Some(array.get_item(PyTuple::empty(py))?),
            [] => None,
            _ => Some(array.into_any()),
        };
        Ok((value, is_read))
    }

    /// Fill a NumPy array; return false if the fallback path fills it, `None` if it has another
    /// type.
    fn read_into(
        &self,
        py: Python<'_>,
        index: &Bound<'_, PyAny>,
        out: &Bound<'_, PyUntypedArray>,
    ) -> PyResult<Option<bool>> {
        let (address, selected) = match self.check(index, out)? {
            Ok(found) => found,
            Err(refusal) => return Ok(refusal),
        };
        let to = self.to_host(&selected, address);
        // SAFETY: `check` has checked the array. NumPy's rule is that an array is not resized
        // while it is referenced.
        unsafe { self.read_by(py, &selected, &to).map(Some) }
    }

    /// Start to fill a NumPy array, as `start` does.
    fn start_into(
        &self,
        py: Python<'_>,
        index: &Bound<'_, PyAny>,
        out: &Bound<'_, PyUntypedArray>,
        flags: c_int,
        options: usize,
        place: usize,
    ) -> PyResult<Option<c_int>> {
        let Ok((address, selected)) = self.check(index, out)? else {
            return Ok(None);
        };
        if !self.is_open(py)? {
            return Ok(None);
        }
        let to = self.to(address, 0, flags, options);
        let library = self.library.get();
        // SAFETY: as in `read_into`; the caller keeps the array until the request has finished.
        unsafe { library.start(py, self.handle, &selected, &to, place) }
    }

    /// Fill C-contiguous memory of the shape `shape`, after the work of a stream (0 for no stream);
    /// return false if the fallback path fills it, as it does above `at_once` bytes. The caller keeps the
    /// memory, whose elements have the reader's type, and the `penstock_options` of the call, if it passes
    /// their address.
    #[allow(clippy::too_many_arguments)] // As those of the C API.
    fn read_at(
        &self,
        index: &Bound<'_, PyAny>,
        shape: &Bound<'_, PyTuple>,
        address: usize,
        stream: usize,
        flags: c_int,
        options: usize,
    ) -> PyResult<bool> {
        let Some(selected) = self.select_shape(index, shape)? else {
            return Ok(false);
        };
        if self
            .bytes(&selected)
            .is_none_or(|bytes| bytes > self.at_once)
        {
            return Ok(false);
        }
        let to = self.to(address, stream, flags, options);
        // SAFETY: by contract of this method.
        unsafe { self.read_by(index.py(), &selected, &to) }
    }

    /// Start to fill such memory, and store the `penstock_request *` at the address `place`. Return
    /// the status, for the caller to check; `None` if the fallback path fills it.
    #[allow(clippy::too_many_arguments)] // As those of the C API.
    fn start(
        &self,
        index: &Bound<'_, PyAny>,
        shape: &Bound<'_, PyTuple>,
        address: usize,
        stream: usize,
        flags: c_int,
        options: usize,
        place: usize,
    ) -> PyResult<Option<c_int>> {
        let py = index.py();
        let Some(selected) = self.select_shape(index, shape)? else {
            return Ok(None);
        };
        if !self.is_open(py)? {
            return Ok(None);
        }
        let to = self.to(address, stream, flags, options);
        let library = self.library.get();
        // SAFETY: by contract of this method.
        unsafe { library.start(py, self.handle, &selected, &to, place) }
    }

    /// Return the shape of the selected elements; `None` if the fallback path reads them.
    fn shape_of<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let selected = self.select(index)?;
        selected
            .map(|selected| PyTuple::new(py, selected.shape()))
            .transpose()
    }
}

impl Reader {
    /// Evaluates the index; returns `None` if the fallback path reads.
    fn select(&self, index: &Bound<'_, PyAny>) -> PyResult<Option<Elements>> {
        let selected = Elements::parse(index, &self.shape)?;
        Ok(selected.filter(|selected| {
            let bytes = self.bytes(selected);
            selected.is_plain() && bytes.is_some_and(|bytes| 0 < bytes && bytes <= self.most)
        }))
    }

    /// Evaluates the index for memory of this shape; returns `None` if the fallback path reads.
    fn select_shape(
        &self,
        index: &Bound<'_, PyAny>,
        shape: &Bound<'_, PyTuple>,
    ) -> PyResult<Option<Elements>> {
        let shape = shape.extract::<Vec<u64>>()?;
        let selected = self.select(index)?;
        Ok(selected.filter(|selected| selected.shape() == shape))
    }

    /// Returns the bytes of the selected elements in memory; `None` if they are beyond 64 bits.
    fn bytes(&self, selected: &Elements) -> Option<u64> {
        selected.count()?.checked_mul(self.itemsize)
    }

    fn to(&self, address: usize, stream: usize, flags: c_int, options: usize) -> Destination {
        Destination {
            address,
            element: self.element,
            stream,
            flags,
            is_brief: false,
            options,
        }
    }

    /// Describes host memory for the selected elements.
    fn to_host(&self, selected: &Elements, address: usize) -> Destination {
        let is_copy = self.copies && selected.is_one_run(&self.shape);
        let bytes = self.bytes(selected);
        Destination {
            is_brief: is_copy && bytes.is_some_and(|bytes| bytes <= self.brief),
            ..self.to(address, 0, self.flags, 0)
        }
    }

    /// Evaluates the index, and then checks an array, which an object in the index may change.
    /// Returns the address of its elements, or what `read_into` returns for an array that it does not
    /// fill.
    fn check(
        &self,
        index: &Bound<'_, PyAny>,
        out: &Bound<'_, PyUntypedArray>,
    ) -> PyResult<Result<(usize, Elements), Option<bool>>> {
        let Some(selected) = self.select(index)? else {
            return Ok(Err(Some(false)));
        };
        let dtype = out.dtype();
        match &self.dtype {
            Some(ours) if dtype.is(ours) || dtype.is_equiv_to(ours.bind(out.py())) => (),
            _ => return Ok(Err(None)),
        }
        let lengths = out.shape().iter().map(|length| *length as u64);
        // SAFETY: the pointer is to a live array.
        let flags = unsafe { (*out.as_array_ptr()).fields.flags };
        if flags & NPY_ARRAY_CARRAY != NPY_ARRAY_CARRAY
            || !lengths.eq(selected.shape().iter().copied())
        {
            return Ok(Err(Some(false)));
        }
        Ok(Ok((address_of(out), selected)))
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
        // SAFETY: passed on.
        let report: Option<Report> = unsafe { library.read(py, self.handle, selected, to)? };
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
        let identifier = dataset.getattr(pyo3::intern!(py, "id"))?;
        Ok(identifier.extract::<i64>()? != 0)
    }
}

/// Returns a new array in C order whose elements are uninitialised.
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
    // SAFETY: the number of lengths is the one passed. The call steals a reference to the type, and
    // returns an array, or null with an exception.
    unsafe {
        let array = PY_ARRAY_API.PyArray_Empty(
            py,
            shape.len() as c_int,
            lengths.as_mut_ptr(),
            dtype.into_dtype_ptr(),
            0,
        );
        Ok(Bound::from_owned_ptr_or_err(py, array)?.cast_into_unchecked())
    }
}

fn address_of(array: &Bound<'_, PyUntypedArray>) -> usize {
    let object: *mut PyArrayObject = array.as_array_ptr();
    // SAFETY: the pointer is to a live array.
    unsafe { (*object).fields.data.expose_provenance() }
}
