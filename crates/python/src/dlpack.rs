//! Arrays from and for other libraries: DLPack's structs and capsules (dlpack.h, version 1.0).
//!
//! The destructors of exported arrays run while an exception of the consumer is set. Their deleters
//! run on any thread, even after the interpreter has exited. Python code can do neither.

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use pyo3::exceptions::{PyBufferError, PyMemoryError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

const NAME: &CStr = c"dltensor";
const NAME_VERSIONED: &CStr = c"dltensor_versioned";
const EXCHANGE_NAME: &CStr = c"dlpack_exchange_api";
pub(crate) const VERSION: (u32, u32) = (1, 0);
/// Numbers of kinds of memory.
pub(crate) const CPU: i32 = 1;
pub(crate) const CUDA: i32 = 2;
pub(crate) const CUDA_HOST: i32 = 3;
/// The bit of `flags` that says that the elements may only be read.
const IS_READ_ONLY: u64 = 1;
/// The bit of `flags` that says that the elements are a copy.
const IS_COPIED: u64 = 2;

#[repr(C)]
pub(crate) struct Device {
    pub(crate) kind: i32,
    pub(crate) id: i32,
}

#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// `DLTensor`
#[repr(C)]
pub(crate) struct Tensor {
    data: *mut c_void,
    pub(crate) device: Device,
    dimensions: i32,
    dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`
#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// `DLManagedTensorVersioned`
#[repr(C)]
struct ManagedVersioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    tensor: Tensor,
}

/// Makes an array of a `DLManagedTensorVersioned`, which it takes over. Returns another number than 0
/// after an error, with an exception set.
type Import = unsafe extern "C" fn(*mut c_void, *mut *mut ffi::PyObject) -> c_int;

/// `DLPackExchangeAPI` (dlpack.h, version 1.3), by which a library describes its arrays to C.
#[repr(C)]
pub(crate) struct ExchangeApi {
    major: u32,
    minor: u32,
    previous: *const c_void,
    allocate: *const c_void,
    export: *const c_void,
    import: Option<Import>,
    /// May be null. The shape and the strides belong to the array.
    pub(crate) describe: Option<unsafe extern "C" fn(*mut ffi::PyObject, *mut Tensor) -> c_int>,
    pub(crate) current_stream: Option<unsafe extern "C" fn(c_int, i32, *mut *mut c_void) -> c_int>,
}

/// The array of a capsule: the address of the first element, DLPack's number of the kind of memory and of the
/// device, the lengths of the dimensions, the distances between elements (`None` for C order), the code, bits
/// and lanes of an element, and whether it may only be read.
type Described = (
    usize,
    (i32, i32),
    Vec<i64>,
    Option<Vec<i64>>,
    (u8, u8, u16),
    bool,
);

/// Return the array of a capsule, or None if the object is not a capsule of DLPack.
///
/// The capsule stays unconsumed, so it deletes the array with its last reference.
///
/// Raises:
///     BufferError: The capsule is of a later major version.
#[pyfunction]
pub(crate) fn read_capsule(capsule: &Bound<'_, PyAny>) -> PyResult<Option<Described>> {
    if let Some(managed) = pointer(capsule, NAME_VERSIONED) {
        let managed = managed.cast::<ManagedVersioned>().as_ptr();
        // SAFETY: a capsule of this name holds this struct; all versions begin with these members.
        let (major, flags) = unsafe { ((*managed).major, (*managed).flags) };
        if major > VERSION.0 {
            let what = format!("DLPack version {major} is not supported");
            return Err(PyBufferError::new_err(what));
        }
        // SAFETY: the struct is of this version.
        let described = unsafe { (*managed).tensor.describe(flags & IS_READ_ONLY != 0) };
        return Ok(Some(described));
    }
    // SAFETY: by contract of DLPack, the shape and the strides are those of the dimensions.
    Ok(tensor_of(capsule).map(|tensor| unsafe { tensor.describe(false) }))
}

/// Returns the exchange API in a capsule, if it is of this version. It is never freed.
pub(crate) fn api_of(capsule: &Bound<'_, PyAny>) -> Option<*const ExchangeApi> {
    let api = pointer(capsule, EXCHANGE_NAME)?.cast::<ExchangeApi>();
    // SAFETY: a capsule of this name holds the struct, all versions of which begin with this member.
    let major = unsafe { (*api.as_ptr()).major };
    (major == VERSION.0).then(|| api.as_ptr().cast_const())
}

/// Returns the array of an unconsumed capsule that is not versioned.
pub(crate) fn tensor_of<'a>(capsule: &'a Bound<'_, PyAny>) -> Option<&'a Tensor> {
    // SAFETY: a capsule of this name holds this struct, and keeps it.
    pointer(capsule, NAME).map(|managed| unsafe { &managed.cast::<Managed>().as_ref().tensor })
}

/// Returns the pointer of a capsule of this name; `None` for any other object.
pub(crate) fn pointer(capsule: &Bound<'_, PyAny>, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the object and the name are valid, and the pointer is requested only by its own name.
    unsafe {
        let is_it = ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) != 0;
        is_it
            .then(|| NonNull::new(ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr())))
            .flatten()
    }
}

impl Tensor {
    /// Returns a place for the description of an array.
    pub(crate) fn empty() -> Tensor {
        Tensor {
            data: null_mut(),
            device: Device { kind: 0, id: 0 },
            dimensions: 0,
            dtype: DataType {
                code: 0,
                bits: 0,
                lanes: 0,
            },
            shape: null_mut(),
            strides: null_mut(),
            byte_offset: 0,
        }
    }

    /// Returns the address of the first element if the array is in C order, has elements, and has this shape, if one
    /// is given.
    ///
    /// # Safety
    /// As for [`describe`](Self::describe).
    pub(crate) unsafe fn address_in_c_order(&self, shape: Option<&[u64]>) -> Option<usize> {
        let rank = usize::try_from(self.dimensions).ok()?;
        if shape.is_some_and(|shape| shape.len() != rank) || self.data.is_null() {
            return None;
        }
        let mut step = 1;
        for at in (0..rank).rev() {
            // SAFETY: by contract of this function.
            let (ours, stride) = unsafe {
                let is_given = !self.strides.is_null();
                let stride = if is_given {
                    *self.strides.add(at)
                } else {
                    step
                };
                (*self.shape.add(at), stride)
            };
            let is_same = shape.is_none_or(|shape| shape[at] == ours as u64);
            if !is_same || (ours != 1 && stride != step) {
                return None;
            }
            step *= ours;
        }
        Some(self.data.expose_provenance() + self.byte_offset as usize)
    }

    /// Returns whether the elements are complex numbers.
    pub(crate) fn is_complex(&self) -> bool {
        /// `kDLComplex`
        const COMPLEX: u8 = 5;
        self.dtype.code == COMPLEX
    }

    /// # Safety
    /// The shape, and the strides unless they are null, have an entry for each dimension.
    unsafe fn describe(&self, is_read_only: bool) -> Described {
        let lengths = |at: *mut i64| {
            let dimensions = 0..self.dimensions.max(0) as usize;
            // SAFETY: by contract of this function.
            dimensions
                .map(|dimension| unsafe { *at.add(dimension) })
                .collect()
        };
        (
            self.data.addr() + self.byte_offset as usize,
            (self.device.kind, self.device.id),
            lengths(self.shape),
            (!self.strides.is_null()).then(|| lengths(self.strides)),
            (self.dtype.code, self.dtype.bits, self.dtype.lanes),
            is_read_only,
        )
    }
}

/// Lengths and distances of the elements of an array in C order.
struct Layout {
    shape: Vec<i64>,
    /// The distance between elements along each dimension, in elements.
    strides: Vec<i64>,
}

impl Layout {
    fn new(shape: Vec<i64>) -> Arc<Layout> {
        let mut strides = vec![1_i64; shape.len()];
        for at in (1..shape.len()).rev() {
            strides[at - 1] = strides[at].wrapping_mul(shape[at]);
        }
        Arc::new(Layout { shape, strides })
    }
}

/// What an exported array keeps until it is deleted.
struct Export {
    /// Consumers only read it: arrays share it.
    layout: Arc<Layout>,
    owner: Py<PyAny>,
}

/// Return a capsule with an array in C order, which keeps `owner` until it is deleted.
///
/// Args:
///     address: The address of the first element.
///     shape: The lengths of the dimensions.
///     dtype: DLPack's code of the type, and the bits of an element.
///     device: DLPack's number of the kind of memory, and of the device.
///     owner: The object that keeps the memory alive.
///     versioned: Whether the consumer supports DLPack 1.0.
///     copied: Whether the memory is a copy without another owner.
#[pyfunction]
#[pyo3(signature = (address, shape, dtype, device, owner, *, versioned, copied))]
#[allow(clippy::too_many_arguments)] // They are the fields of the struct.
pub(crate) fn export_array(
    py: Python<'_>,
    address: usize,
    shape: Vec<i64>,
    dtype: (u8, u8),
    device: (i32, i32),
    owner: Py<PyAny>,
    versioned: bool,
    copied: bool,
) -> PyResult<Py<PyAny>> {
    let export = Box::new(Export {
        layout: Layout::new(shape),
        owner,
    });
    let tensor = export.describe(address, dtype, device);
    if versioned {
        let flags = if copied { IS_COPIED } else { 0 };
        let managed = ManagedVersioned::new(tensor, export, flags);
        capsule(py, Box::into_raw(managed).cast(), true)
    } else {
        capsule_of(py, tensor, export)
    }
    .map(Bound::unbind)
}

/// The memory of arrays: its owner, its address and its bytes.
type Memory = (Py<PyAny>, usize, u64);

/// DLPack's code of a type, the bits of an element, and the layout.
type Kind = ((u8, u8), Arc<Layout>);

/// Return arrays that a library makes of parts of an allocation, each of its own capsule.
///
/// `None` stands for a part without elements, one that is the whole allocation, and one whose type
/// has no code.
///
/// Args:
///     make: The capsule with the library's exchange API, or its function for a capsule that is not
///         versioned.
///     parts: Tuples of a name, a type, a shape, and two offsets, which differ by the bytes.
///     places: At which byte of the memory each part begins.
///     codes: DLPack's code of each type, and the bits of an element.
///     memory: The owner of the memory, its address and its bytes.
///     device: DLPack's number of the kind of memory, and of the device.
#[pyfunction]
pub(crate) fn import_arrays<'py>(
    make: &Bound<'py, PyAny>,
    parts: Vec<Bound<'py, PyTuple>>,
    places: Vec<usize>,
    codes: &Bound<'py, PyDict>,
    memory: Memory,
    device: (i32, i32),
) -> PyResult<Vec<Option<Bound<'py, PyAny>>>> {
    let py = make.py();
    // SAFETY: the struct is of this version, and never freed.
    let import = api_of(make).and_then(|api| unsafe { (*api).import });
    let (owner, address, longest) = memory;
    // By the addresses of type and shape, which the parts keep and mostly share.
    let mut kinds: HashMap<(usize, usize), Option<Kind>> = HashMap::new();
    let mut made = Vec::with_capacity(parts.len());
    for (part, place) in parts.iter().zip(places) {
        let (begin, end): (u64, u64) = (part.get_item(3)?.extract()?, part.get_item(4)?.extract()?);
        let nbytes = end.saturating_sub(begin);
        if !(1..longest).contains(&nbytes) {
            made.push(None); // a shape without elements may have lengths that DLPack has not
            continue;
        }
        let (dtype, shape) = (part.get_item(1)?, part.get_item(2)?);
        let key = (dtype.as_ptr().addr(), shape.as_ptr().addr());
        let kind = match kinds.get(&key) {
            Some(known) => known,
            None => {
                let code = codes.get_item(&dtype)?;
                let kind = code
                    .map(|code| Ok::<_, PyErr>((code.extract()?, Layout::new(shape.extract()?))));
                kinds.entry(key).or_insert(kind.transpose()?)
            }
        };
        made.push(match kind {
            Some((code, layout)) => {
                let export = Box::new(Export {
                    layout: layout.clone(),
                    owner: owner.clone_ref(py),
                });
                let tensor = export.describe(address + place, *code, device);
                Some(match import {
                    // SAFETY: the function is that of an exchange API.
                    Some(import) => unsafe { imported(py, import, tensor, export)? },
                    None => make.call1((capsule_of(py, tensor, export)?,))?,
                })
            }
            None => None,
        });
    }
    Ok(made)
}

/// Returns the array that a library makes.
///
/// # Safety
/// The function is that of the library's exchange API.
unsafe fn imported(
    py: Python<'_>,
    import: Import,
    tensor: Tensor,
    export: Box<Export>,
) -> PyResult<Bound<'_, PyAny>> {
    let managed = Box::into_raw(ManagedVersioned::new(tensor, export, 0)).cast();
    let mut array = null_mut();
    // SAFETY: by contract of this function. The library takes the tensor over.
    if unsafe { import(managed, &raw mut array) } != 0 {
        return Err(PyErr::fetch(py));
    }
    // SAFETY: a new reference.
    Ok(unsafe { Bound::from_owned_ptr(py, array) })
}

/// Returns a capsule that is not versioned.
fn capsule_of(py: Python<'_>, tensor: Tensor, export: Box<Export>) -> PyResult<Bound<'_, PyAny>> {
    let managed = Managed {
        tensor,
        context: Box::into_raw(export).cast(),
        deleter: Some(delete),
    };
    capsule(py, Box::into_raw(Box::new(managed)).cast(), false)
}

impl ManagedVersioned {
    fn new(tensor: Tensor, export: Box<Export>, flags: u64) -> Box<ManagedVersioned> {
        Box::new(ManagedVersioned {
            major: VERSION.0,
            minor: VERSION.1,
            context: Box::into_raw(export).cast(),
            deleter: Some(delete_versioned),
            flags,
            tensor,
        })
    }
}

impl Export {
    fn describe(&self, address: usize, dtype: (u8, u8), device: (i32, i32)) -> Tensor {
        Tensor {
            data: address as *mut c_void,
            device: Device {
                kind: device.0,
                id: device.1,
            },
            dimensions: self.layout.shape.len() as i32,
            dtype: DataType {
                code: dtype.0,
                bits: dtype.1,
                lanes: 1,
            },
            shape: self.layout.shape.as_ptr().cast_mut(),
            strides: self.layout.strides.as_ptr().cast_mut(),
            byte_offset: 0,
        }
    }
}

/// Returns a capsule that owns a `ManagedVersioned` or a `Managed`.
fn capsule(py: Python<'_>, managed: *mut c_void, versioned: bool) -> PyResult<Bound<'_, PyAny>> {
    let name = if versioned { NAME_VERSIONED } else { NAME };
    // SAFETY: the pointer is not null, and the name lives as long as the process.
    let capsule = unsafe { ffi::PyCapsule_New(managed, name.as_ptr(), Some(destroy)) };
    if capsule.is_null() {
        // SAFETY: no other code has the pointer.
        unsafe { delete_by_name(managed, versioned) };
        return Err(PyErr::take(py).unwrap_or_else(|| PyMemoryError::new_err("no capsule")));
    }
    // SAFETY: a new reference.
    Ok(unsafe { Bound::from_owned_ptr(py, capsule) })
}

/// Deletes the array of a capsule that was not consumed. A consumer renames the capsule.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule and the GIL.
    unsafe {
        // The capsule may be destroyed while an exception of its consumer propagates.
        let (mut kind, mut value, mut trace) = (null_mut(), null_mut(), null_mut());
        #[allow(deprecated)] // Its successor is newer than the oldest Python that this serves.
        ffi::PyErr_Fetch(&mut kind, &mut value, &mut trace);
        for (name, versioned) in [(NAME, false), (NAME_VERSIONED, true)] {
            if ffi::PyCapsule_IsValid(capsule, name.as_ptr()) != 0 {
                let managed = ffi::PyCapsule_GetPointer(capsule, name.as_ptr());
                delete_by_name(managed, versioned);
            }
        }
        #[allow(deprecated)]
        ffi::PyErr_Restore(kind, value, trace);
    }
}

/// # Safety
/// `managed` is a `ManagedVersioned` or `Managed` that is not used any more.
unsafe fn delete_by_name(managed: *mut c_void, versioned: bool) {
    // SAFETY: passed on.
    unsafe {
        if versioned {
            delete_versioned(managed.cast())
        } else {
            delete(managed.cast())
        }
    }
}

unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: DLPack's consumer calls this once, with what `export_array` made.
    unsafe { free(Box::from_raw(managed).context) };
}

unsafe extern "C" fn delete_versioned(managed: *mut ManagedVersioned) {
    // SAFETY: as above.
    unsafe { free(Box::from_raw(managed).context) };
}

/// # Safety
/// `context` is that of an export, whose tensor is not used any more.
unsafe fn free(context: *mut c_void) {
    // SAFETY: by contract of this function.
    let export = unsafe { Box::from_raw(context.cast::<Export>()) };
    let owner = ManuallyDrop::new(export.owner);
    // After the interpreter has exited, the owner is leaked, as all of its objects are.
    Python::try_attach(|_| drop(ManuallyDrop::into_inner(owner)));
}
