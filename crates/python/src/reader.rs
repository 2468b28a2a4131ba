//! Reads and small writes of one dataset.

use std::borrow::Cow;
use std::ffi::c_int;

use numpy::npyffi::{PY_ARRAY_API, npy_intp};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyWeakrefMethods, PyWeakrefReference};

use crate::call::{AFTER_STREAM, Destination, Library, MAY_CALL_HDF5, OpenedReader, ZERO_HOLES};
use crate::index::Elements;
use crate::memory::{Memory, address_of, source_in_c_order};
use crate::report::Report;

/// The elements of a dataset as those of one type in memory.
#[pyclass(frozen, module = "penstock._core")]
pub(crate) struct Typed {
    opened: OpenedReader,
    /// What keeps the type open.
    _kept: Py<PyAny>,
    /// The HDF5 identifier of the type.
    element: i64,
    /// The type in NumPy; `None` if NumPy does not have it.
    dtype: Option<Py<PyArrayDescr>>,
    itemsize: u64,
    /// Whether the bytes of the file are those of the elements in memory.
    copies: bool,
}

impl Typed {
    /// Returns the bytes of the selected elements; `None` if they are beyond 64 bits.
    fn bytes(&self, selected: &Elements) -> Option<u64> {
        selected.count()?.checked_mul(self.itemsize)
    }
}

/// A type in memory: its HDF5 identifier, its type in NumPy, its bytes, the address of the `penstock_decoding` (0
/// for none), whether it is the type in the file, and what keeps all that.
type InMemory<'py> = (
    i64,
    Option<Bound<'py, PyArrayDescr>>,
    u64,
    usize,
    bool,
    Bound<'py, PyAny>,
);

/// The sizes that decide who reads; see `penstock.hdf5.small`.
#[derive(Clone, Copy, FromPyObject)]
struct Limits {
    /// The most bytes of a read.
    most: u64,
    /// The most bytes that `read` and `fill` read. Longer reads are for `start`, whose request can be waited for
    /// and interrupted.
    at_once: u64,
    /// The most bytes that are copied to host memory with the GIL, as h5py does: that takes less time than
    /// another thread needs to wake up for the GIL.
    brief: u64,
    /// The most pieces of the file in which `brief` bytes may lie then.
    few: u64,
    /// The flags of a read without a stream.
    flags: c_int,
}

/// Reads the elements that integers, slices and a list select of a dataset, and writes few of them. An index that it
/// does not take is for the fallback path.
///
/// An `opener` is asked by `open_type(reader, key)` for the elements of another type; it returns a `Typed`, or `None`
/// if there is none. The key is the `dtype` of an array or of a call, or what the opener makes of a field.
#[pyclass(frozen, module = "penstock._core")]
pub(crate) struct Reader {
    library: Py<Library>,
    /// The `h5py.h5d.DatasetID`. It may be deleted; reads then return nothing.
    dataset: Py<PyWeakrefReference>,
    rank: usize,
    /// The shape of the dataset; `None` if it may change.
    shape: Option<(Vec<u64>, Py<PyTuple>)>,
    /// h5py's lock, under which HDF5 may read; `None` if it reads nothing.
    lock: Option<Py<PyAny>>,
    /// The type of elements, unless another one is asked for.
    dtype: Py<PyArrayDescr>,
    /// Elements of that type.
    own: Py<Typed>,
    /// By the key of a type; `None` for types that there are not.
    typed: Py<PyDict>,
    limits: Limits,
}

#[pymethods]
impl Reader {
    /// Open a reader of a dataset; return `None` if there can be none. The caller holds h5py's lock.
    ///
    /// Args:
    ///     library: The library of the reader.
    ///     dataset: The `h5py.h5d.DatasetID`.
    ///     lock: h5py's lock.
    ///     limits: The sizes that decide who reads.
    ///     memory: The type of the elements; `None` for that of the file, if it is a number of the machine.
    #[staticmethod]
    fn open(
        library: &Bound<'_, Library>,
        dataset: &Bound<'_, PyAny>,
        lock: &Bound<'_, PyAny>,
        limits: Limits,
        memory: Option<InMemory<'_>>,
    ) -> PyResult<Option<Reader>> {
        let py = library.py();
        let (element, decoding) = memory
            .as_ref()
            .map_or((0, 0), |memory| (memory.0, memory.3));
        let number = dataset.getattr(id(py))?.extract()?;
        let Some((opened, facts)) = library.get().open_reader(py, number, element, decoding)?
        else {
            return Ok(None);
        };
        let memory = match (memory, facts.number()) {
            (Some(memory), _) => memory,
            (None, Some(name)) if facts.rank > 0 => {
                let dtype = PyArrayDescr::new(py, name)?;
                let itemsize = dtype.itemsize() as u64;
                (0, Some(dtype), itemsize, 0, true, py.None().into_bound(py))
            }
            _ => return Ok(None),
        };
        let Some(dtype) = memory.1.clone() else {
            return Ok(None);
        };
        let shape = match facts.fixed_shape() {
            Some(fixed) => Some((fixed.to_vec(), PyTuple::new(py, fixed)?.unbind())),
            None => None,
        };
        let own = Py::new(py, typed_of(opened, memory, &limits))?;
        let typed = PyDict::new(py);
        typed.set_item(&dtype, &own)?;
        Ok(Some(Reader {
            library: library.clone().unbind(),
            dataset: PyWeakrefReference::new(dataset)?.unbind(),
            rank: facts.rank as usize,
            shape,
            lock: facts.may_call_hdf5().then(|| lock.clone().unbind()),
            dtype: dtype.unbind(),
            own,
            typed: typed.unbind(),
            limits,
        }))
    }

    /// Open the elements of a type; return `None` if there are none. The caller holds h5py's lock.
    fn open_as(&self, dataset: &Bound<'_, PyAny>, memory: InMemory<'_>) -> PyResult<Option<Typed>> {
        let py = dataset.py();
        let number = dataset.getattr(id(py))?.extract()?;
        let library = self.library.get();
        let found = library.open_reader(py, number, memory.0, memory.3)?;
        Ok(found.map(|(opened, _)| typed_of(opened, memory, &self.limits)))
    }

    /// The shape of the dataset; `None` if it may change.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyTuple>> {
        self.shape.as_ref().map(|(_, shape)| shape.bind(py).clone())
    }

    /// The type of elements, unless another one is asked for.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> Bound<'py, PyArrayDescr> {
        self.dtype.bind(py).clone()
    }

    /// The elements of that type.
    #[getter]
    fn own<'py>(&self, py: Python<'py>) -> Bound<'py, Typed> {
        self.own.bind(py).clone()
    }

    /// Return whether the library has forgotten the dataset, so that this reads nothing any more.
    fn is_forgotten(&self, py: Python<'_>) -> bool {
        let others = self.typed.bind(py).values();
        others.iter().any(
            |one| matches!(one.cast::<Typed>(), Ok(typed) if typed.get().opened.is_forgotten()),
        )
    }

    /// Return whether there are elements of a type.
    fn has(
        slf: &Bound<'_, Self>,
        opener: &Bound<'_, PyAny>,
        key: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        Ok(Self::typed(slf, opener, key)?.is_some())
    }

    /// Return a new NumPy array, or a scalar, and whether it has the elements. If not, the fallback
    /// path reads them, into that array if it is not `None`.
    ///
    /// Args:
    ///     index: What `dataset[...]` takes.
    ///     opener: As above.
    ///     key: That of another type of the elements.
    #[pyo3(signature = (index, opener = None, key = None))]
    fn read<'py>(
        slf: &Bound<'py, Self>,
        index: &Bound<'py, PyAny>,
        opener: Option<&Bound<'py, PyAny>>,
        key: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Option<Bound<'py, PyAny>>, bool)> {
        let (py, this) = (slf.py(), slf.get());
        let other = match (opener, key) {
            (Some(opener), Some(key)) => match Self::typed(slf, opener, key)? {
                None => return Ok((None, false)),
                found => found,
            },
            _ => None,
        };
        let typed = other.as_ref().map_or_else(|| this.own.get(), Bound::get);
        let Some(dtype) = &typed.dtype else {
            return Ok((None, false));
        };
        let _locked = this.lock_if_it_may_change(py)?;
        let Some(shape) = this.shape_now(py)? else {
            return Ok((None, false));
        };
        let Some(selected) = Elements::parse(index, &shape)? else {
            return Ok((None, false));
        };
        let bytes = typed.bytes(&selected);
        if !selected.is_plain() || bytes.is_none_or(|bytes| bytes > this.limits.at_once) {
            return Ok((None, false));
        }
        let array = empty(py, selected.shape(), dtype)?;
        if bytes == Some(0) {
            let is_open = this.is_open(py)?;
            if is_open {
                this.library.get().remember_nothing(py)?;
            }
            return Ok((is_open.then(|| array.into_any()), is_open));
        }
        let mut to = this.to_host(typed, &selected, &shape, address_of(&array), 0);
        to.flags = this.limits.flags | ZERO_HOLES;
        // SAFETY: a new array of the selected shape and of the elements' type.
        let is_read = unsafe { this.read_by(py, typed, &selected, &to)? };
        let value = match selected.shape() {
            [] if is_read => Some(array.get_item(PyTuple::empty(py))?),
            [] => None,
            _ => Some(array.into_any()),
        };
        Ok((value, is_read))
    }

    /// Fill an array of NumPy, torch or Penstock, or a `View`; return false if the fallback path fills it.
    ///
    /// Args:
    ///     opener: As above.
    ///     index: What `dataset[...]` takes.
    ///     out: The array.
    ///     stream: Memory of a GPU is used after the work that is queued there; if `None`, after that of
    ///         the current stream of the array's library.
    ///     options: The address of the `penstock_options` of the call, which the caller keeps, or 0.
    ///     is_new: Whether the caller has not seen the array yet.
    fn fill(
        slf: &Bound<'_, Self>,
        opener: &Bound<'_, PyAny>,
        index: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
        stream: Option<usize>,
        options: usize,
        is_new: bool,
    ) -> PyResult<bool> {
        let (py, this) = (slf.py(), slf.get());
        let _locked = this.lock_if_it_may_change(py)?;
        let Some(shape) = this.shape_now(py)? else {
            return Ok(false);
        };
        let Some(found) = Self::find(slf, opener, index, &shape, out)? else {
            return Ok(false);
        };
        let Some(mut to) = this.to_memory(&found, &shape, stream, options) else {
            return Ok(false);
        };
        let typed = found.typed.get();
        let bytes = typed.bytes(&found.selected);
        if bytes.is_none_or(|bytes| bytes > this.limits.at_once) {
            return Ok(false);
        }
        to.flags |= this.limits.flags | holes(is_new);
        // SAFETY: `find` has checked the memory. It is a rule of arrays that their memory is not replaced while
        // it is in use.
        let is_filled = unsafe { this.read_by(py, typed, &found.selected, &to)? };
        if is_filled && found.memory.is_tensor && !is_new {
            this.library.get().classes.note_write(out)?;
        }
        Ok(is_filled)
    }

    /// Write the elements of a NumPy array in C order, and return whether they are written.
    ///
    /// Args:
    ///     opener: As above.
    ///     index: What `dataset[...]` takes.
    ///     array: The array, which has the shape of the selected elements.
    fn write(
        slf: &Bound<'_, Self>,
        opener: &Bound<'_, PyAny>,
        index: &Bound<'_, PyAny>,
        array: &Bound<'_, PyUntypedArray>,
    ) -> PyResult<bool> {
        let (py, this) = (slf.py(), slf.get());
        let Some(lock) = &this.lock else {
            return Ok(false);
        };
        let _locked = Locked::take(lock.bind(py))?;
        let Some(shape) = this.shape_now(py)? else {
            return Ok(false);
        };
        let Some(selected) = Elements::parse(index, &shape)? else {
            return Ok(false);
        };
        let Some(address) = source_in_c_order(array, selected.shape()) else {
            return Ok(false);
        };
        let Some(typed) = Self::typed(slf, opener, array.dtype().as_any())? else {
            return Ok(false);
        };
        let typed = typed.get();
        let bytes = typed.bytes(&selected);
        if !this.takes(typed, &selected) || bytes.is_none_or(|bytes| bytes > this.limits.at_once) {
            return Ok(false);
        }
        let from = (address, typed.element);
        let library = this.library.get();
        // SAFETY: the array lives, and has the selected shape and the elements' type.
        match unsafe { library.write(py, &typed.opened, &selected, from)? } {
            Some(report) => library.remember(py, report).map(|()| true),
            None => Ok(false),
        }
    }

    /// Start to fill an array as `fill` does, and store the `penstock_request *` at the address `place`. Return
    /// the status, for the caller to check; `None` if the fallback path fills it.
    #[allow(clippy::too_many_arguments)] // As those of the C API.
    fn start(
        slf: &Bound<'_, Self>,
        opener: &Bound<'_, PyAny>,
        index: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
        stream: Option<usize>,
        options: usize,
        is_new: bool,
        place: usize,
    ) -> PyResult<Option<c_int>> {
        let (py, this) = (slf.py(), slf.get());
        let Some((shape, _)) = &this.shape else {
            return Ok(None);
        };
        let Some(found) = Self::find(slf, opener, index, shape, out)? else {
            return Ok(None);
        };
        let Some(mut to) = this.to_memory(&found, shape, stream, options) else {
            return Ok(None);
        };
        if !this.is_open(py)? {
            return Ok(None);
        }
        to.flags |= holes(is_new);
        let (library, opened) = (this.library.get(), &found.typed.get().opened);
        // SAFETY: as in `fill`; the caller keeps the array until the request has finished.
        let status = unsafe { library.start(py, opened, &found.selected, &to, place)? };
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
        let selected = Elements::parse(index, &shape)?;
        selected
            .filter(|selected| self.takes(self.own.get(), selected))
            .map(|selected| PyTuple::new(py, selected.shape()))
            .transpose()
    }
}

/// Returns the elements of a type, by a reader that was opened for them.
fn typed_of(opened: OpenedReader, memory: InMemory<'_>, limits: &Limits) -> Typed {
    let (element, dtype, itemsize, _, is_stored, kept) = memory;
    let pieces = if is_stored {
        opened.pieces(limits.brief)
    } else {
        0
    };
    Typed {
        opened,
        _kept: kept.unbind(),
        element,
        dtype: dtype.map(Bound::unbind),
        itemsize,
        copies: 0 < pieces && pieces <= limits.few,
    }
}

/// What a read fills.
struct Found<'py> {
    selected: Elements,
    memory: Memory<'py>,
    typed: Bound<'py, Typed>,
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
            Some((fixed, _)) => Ok(Some(Cow::Borrowed(fixed))),
            None if !self.is_open(py)? => Ok(None),
            None => {
                let opened = &self.own.get().opened;
                let now = self.library.get().shape(py, opened, self.rank)?;
                Ok(now.map(Cow::Owned))
            }
        }
    }

    /// Returns the elements of a type, which `opener` opens at their first use; `None` if there are none.
    fn typed<'py>(
        slf: &Bound<'py, Self>,
        opener: &Bound<'py, PyAny>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, Typed>>> {
        let py = slf.py();
        let known = slf.get().typed.bind(py);
        let found = match known.get_item(key) {
            // The type of a structure that is no key.
            Err(error) if error.is_instance_of::<PyTypeError>(py) => return Ok(None),
            found => found?,
        };
        let found = match found {
            Some(found) => found,
            None => {
                let opened = opener.call_method1(open_type(py), (slf, key))?;
                known.set_item(key, &opened)?;
                opened
            }
        };
        Ok(match found.is_none() {
            true => None,
            false => Some(found.cast_into()?),
        })
    }

    /// Returns whether elements can be read or written here: a few, selected in the order of memory.
    fn takes(&self, typed: &Typed, selected: &Elements) -> bool {
        let bytes = typed.bytes(selected);
        selected.is_plain() && bytes.is_some_and(|bytes| 0 < bytes && bytes <= self.limits.most)
    }

    /// Evaluates the index, and then describes an array, which an object in the index may change.
    /// Returns `None` if the fallback path reads.
    fn find<'py>(
        slf: &Bound<'py, Self>,
        opener: &Bound<'py, PyAny>,
        index: &Bound<'py, PyAny>,
        shape: &[u64],
        out: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Found<'py>>> {
        let this = slf.get();
        let Some(selected) = Elements::parse(index, shape)? else {
            return Ok(None);
        };
        let classes = &this.library.get().classes;
        let Some(memory) = classes.describe(out, Some(selected.shape()))? else {
            return Ok(None);
        };
        let Some(typed) = Self::typed(slf, opener, &memory.dtype)? else {
            return Ok(None);
        };
        // A key that stands for another type than that of the array would move other bytes than it has.
        let is_filled = typed.get().bytes(&selected) == Some(memory.bytes);
        Ok(
            (is_filled && this.takes(typed.get(), &selected)).then_some(Found {
                selected,
                memory,
                typed,
            }),
        )
    }

    /// Describes memory that was found. Returns `None` for host memory and a stream.
    fn to_memory(
        &self,
        found: &Found<'_>,
        shape: &[u64],
        stream: Option<usize>,
        options: usize,
    ) -> Option<Destination> {
        let (selected, memory, typed) = (&found.selected, &found.memory, found.typed.get());
        if !memory.is_on_gpu {
            let is_plain = stream.is_none();
            return is_plain.then(|| self.to_host(typed, selected, shape, memory.address, options));
        }
        let stream = stream.or(memory.stream.map(|stream| stream.handle));
        Some(Destination {
            address: memory.address,
            element: typed.element,
            stream: stream.unwrap_or(0),
            flags: if stream.is_some() { AFTER_STREAM } else { 0 },
            is_brief: false,
            options,
        })
    }

    /// Describes host memory for the selected elements.
    fn to_host(
        &self,
        typed: &Typed,
        selected: &Elements,
        shape: &[u64],
        address: usize,
        options: usize,
    ) -> Destination {
        let is_copy = typed.copies && selected.is_one_run(shape);
        let bytes = typed.bytes(selected);
        Destination {
            address,
            element: typed.element,
            stream: 0,
            flags: 0,
            is_brief: is_copy && bytes.is_some_and(|bytes| bytes <= self.limits.brief),
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
        typed: &Typed,
        selected: &Elements,
        to: &Destination,
    ) -> PyResult<bool> {
        if !self.is_open(py)? {
            return Ok(false);
        }
        let library = self.library.get();
        let report: Option<Report> = match &self.shape {
            // SAFETY: passed on.
            Some(_) => unsafe { library.read(py, &typed.opened, selected, to)? },
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
                unsafe { library.read(py, &typed.opened, selected, &with_hdf5)? }
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
    for name in [id, acquire, release, open_type] {
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

fn open_type(py: Python<'_>) -> &Bound<'_, PyString> {
    pyo3::intern!(py, "open_type")
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
