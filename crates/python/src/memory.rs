//! Arrays that a read fills, described in well under a microsecond.

use std::ffi::c_int;
use std::ptr::{null_mut, with_exposed_provenance};

use numpy::npyffi::{NPY_ARRAY_CARRAY, NPY_ARRAY_CARRAY_RO, PyArrayObject};
use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use crate::dlpack::{self, ExchangeApi, Tensor};

/// Memory that a read fills.
pub(crate) struct Memory<'py> {
    /// The address of the first element; the rest follow it in C order.
    pub(crate) address: usize,
    pub(crate) bytes: u64,
    /// The type of an element: that of NumPy or torch, or an `ElementType`.
    pub(crate) dtype: Bound<'py, PyAny>,
    pub(crate) is_on_gpu: bool,
    /// The current stream of the array's library, whose queued work a read follows.
    pub(crate) stream: Option<Stream>,
    /// Whether autograd has to record the read.
    pub(crate) is_tensor: bool,
}

/// A CUDA stream, and the device whose default stream is meant if it is one.
#[derive(Clone, Copy)]
pub(crate) struct Stream {
    pub(crate) handle: usize,
    pub(crate) device: c_int,
}

/// The classes of arrays that a reader fills: NumPy's, torch's, `DeviceArray`, and `View` for those of other
/// libraries.
pub(crate) struct Classes {
    device_array: Py<PyType>,
    view: Py<PyType>,
    /// Returns torch's current stream of a device.
    torch_stream: Py<PyAny>,
    /// Records in torch's autograd that a tensor has changed.
    note_write: Py<PyAny>,
    /// `torch.Tensor`, if it has an exchange API.
    tensor: PyOnceLock<TensorClass>,
}

struct TensorClass {
    class: Py<PyType>,
    /// The address of its `ExchangeApi`, which is never freed.
    api: usize,
    /// torch's function for tensors that have changed, which its public function calls. It ignores
    /// tensors of the inference mode.
    increment: Option<Py<PyAny>>,
    /// torch's module for forward-mode differentiation, if it has one that says whether it is on.
    forward: Option<Py<PyAny>>,
}

impl Classes {
    pub(crate) fn new(
        device_array: Py<PyType>,
        view: Py<PyType>,
        torch_stream: Py<PyAny>,
        note_write: Py<PyAny>,
    ) -> Classes {
        Classes {
            device_array,
            view,
            torch_stream,
            note_write,
            tensor: PyOnceLock::new(),
        }
    }

    /// Describes an array that can be filled, is in C order and has this shape, if one is given. Returns
    /// `None` for any other object.
    pub(crate) fn describe<'py>(
        &self,
        array: &Bound<'py, PyAny>,
        shape: Option<&[u64]>,
    ) -> PyResult<Option<Memory<'py>>> {
        self.with_flags(array, shape, NPY_ARRAY_CARRAY)
    }

    /// As [`describe`](Self::describe), for an array that may be read-only.
    pub(crate) fn describe_source<'py>(
        &self,
        array: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Memory<'py>>> {
        self.with_flags(array, None, NPY_ARRAY_CARRAY_RO)
    }

    /// Describes an array. One of NumPy needs the flags.
    fn with_flags<'py>(
        &self,
        array: &Bound<'py, PyAny>,
        shape: Option<&[u64]>,
        flags: c_int,
    ) -> PyResult<Option<Memory<'py>>> {
        if let Ok(array) = array.cast_exact::<PyUntypedArray>() {
            return Ok(of_numpy(array, shape, flags));
        }
        let class = array.get_type();
        if class.is(&self.device_array) {
            return of_device_array(array, shape);
        }
        if class.is(&self.view) {
            return of_view(array, shape);
        }
        match self.tensor_api(&class)? {
            Some(api) => self.of_tensor(array, shape, api),
            None => Ok(None),
        }
    }

    /// Returns the address of the exchange API, which is never freed, if the class is torch's; 0 if
    /// this torch has none of this version.
    fn tensor_api(&self, class: &Bound<'_, PyType>) -> PyResult<Option<usize>> {
        let py = class.py();
        if let Some(known) = self.tensor.get(py)
            && class.is(&known.class)
        {
            return Ok(Some(known.api));
        }
        let modules = py.import(intern!(py, "sys"))?.getattr("modules")?;
        let Some(torch) = modules.cast::<PyDict>()?.get_item("torch")? else {
            return Ok(None);
        };
        if !torch.getattr("Tensor")?.is(class) {
            return Ok(None);
        }
        // Other packages give older versions of torch an API of their own.
        let internal = match torch.getattr_opt("_C")? {
            Some(internal) if internal.hasattr("_dlpack_exchange_api")? => internal,
            _ => return Ok(Some(0)),
        };
        let api = exchange_api(class);
        if api != 0 {
            let increment = internal.getattr_opt("_increment_version")?;
            let forward = torch.getattr("autograd")?.getattr_opt("forward_ad")?;
            let forward = match forward {
                Some(module) if module.hasattr("_current_level")? => Some(module.unbind()),
                _ => None,
            };
            self.tensor.get_or_init(py, || TensorClass {
                class: class.clone().unbind(),
                api,
                increment: increment.map(Bound::unbind),
                forward,
            });
        }
        Ok(Some(api))
    }

    /// Records in torch's autograd that a tensor has changed.
    pub(crate) fn note_write(&self, tensor: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = tensor.py();
        match self
            .tensor
            .get(py)
            .and_then(|known| known.increment.as_ref())
        {
            Some(increment) => increment.call1(py, ((tensor,),))?,
            None => self.note_write.call1(py, (tensor,))?,
        };
        Ok(())
    }

    /// Returns whether forward-mode differentiation is on: a tensor may have a tangent.
    fn has_levels(&self, py: Python<'_>) -> PyResult<bool> {
        let forward = self.tensor.get(py).and_then(|known| known.forward.as_ref());
        match forward {
            Some(forward) => {
                let level = forward.bind(py).getattr(intern!(py, "_current_level"))?;
                Ok(level.extract::<i64>()? >= 0)
            }
            None => Ok(false),
        }
    }

    /// Describes a tensor whose elements are those in memory. Autograd cannot record a read.
    fn of_tensor<'py>(
        &self,
        tensor: &Bound<'py, PyAny>,
        shape: Option<&[u64]>,
        api: usize,
    ) -> PyResult<Option<Memory<'py>>> {
        let py = tensor.py();
        // DLPack's function ignores both, and describes types of fewer than 8 bits as longer ones.
        if tensor.getattr(intern!(py, "requires_grad"))?.is_truthy()?
            || tensor.call_method0(intern!(py, "is_neg"))?.is_truthy()?
        {
            return Ok(None);
        }
        let dtype = tensor.getattr(intern!(py, "dtype"))?;
        // SAFETY: the number is 0 or the address of a struct that is never freed.
        let api = unsafe { with_exposed_provenance::<ExchangeApi>(api).as_ref() };
        let mut described = Tensor::empty();
        let _capsule;
        let described = match api.and_then(|api| api.describe) {
            Some(describe) => {
                // SAFETY: the object is of the class of the function.
                if unsafe { describe(tensor.as_ptr(), &raw mut described) } != 0 {
                    drop(PyErr::take(py)); // such as that of a sparse tensor
                    return Ok(None);
                }
                &described
            }
            None => {
                let arguments = PyDict::new(py);
                arguments.set_item("stream", -1)?; // no wait
                let Ok(made) = tensor.call_method("__dlpack__", (), Some(&arguments)) else {
                    return Ok(None);
                };
                _capsule = made;
                let Some(found) = dlpack::tensor_of(&_capsule) else {
                    return Ok(None);
                };
                found
            }
        };
        // A conjugate has the memory of the other numbers.
        if described.is_complex() && tensor.call_method0(intern!(py, "is_conj"))?.is_truthy()? {
            return Ok(None);
        }
        // SAFETY: the tensor lives, and no other code has changed it since it was described.
        let Some(address) = (unsafe { described.address_in_c_order(shape) }) else {
            return Ok(None);
        };
        let [length, itemsize] = [intern!(py, "numel"), intern!(py, "element_size")].map(|name| {
            tensor
                .call_method0(name)
                .and_then(|number| number.extract::<usize>())
        });
        let bytes = length? * itemsize?;
        if !is_in_storage(tensor, address, bytes)? || self.has_levels(py)? {
            return Ok(None);
        }
        let device = &described.device;
        let is_on_gpu = match device.kind {
            dlpack::CPU | dlpack::CUDA_HOST => false,
            dlpack::CUDA => true,
            _ => return Ok(None),
        };
        let handle = match api.and_then(|api| api.current_stream) {
            _ if !is_on_gpu => None,
            Some(current) => {
                let mut stream = null_mut();
                // SAFETY: the place is valid.
                if unsafe { current(device.kind, device.id, &raw mut stream) } != 0 {
                    return Err(PyErr::fetch(py));
                }
                Some(stream.addr())
            }
            None => Some(self.torch_stream.bind(py).call1((device.id,))?.extract()?),
        };
        Ok(Some(Memory {
            address,
            bytes: bytes as u64,
            dtype,
            is_on_gpu,
            stream: handle.map(|handle| Stream {
                handle,
                device: device.id,
            }),
            is_tensor: true,
        }))
    }
}

/// Returns whether a tensor has all of its bytes. Its storage may be null, so that the address is the
/// offset there, or shorter than the tensor, by `resize_`.
fn is_in_storage(tensor: &Bound<'_, PyAny>, address: usize, bytes: usize) -> PyResult<bool> {
    let py = tensor.py();
    let storage = tensor.call_method0(intern!(py, "untyped_storage"))?;
    let length = storage
        .call_method0(intern!(py, "nbytes"))?
        .extract::<usize>()?;
    let start = storage
        .call_method0(intern!(py, "data_ptr"))?
        .extract::<usize>()?;
    let offset = address.checked_sub(start);
    Ok(start != 0 && offset.is_some_and(|offset| offset + bytes <= length))
}

/// Returns the address of the exchange API of a class; 0 if it has none of this version.
fn exchange_api(class: &Bound<'_, PyType>) -> usize {
    let capsule = class.getattr("__dlpack_c_exchange_api__");
    capsule.map_or(0, |capsule| {
        dlpack::api_of(&capsule).map_or(0, <*const ExchangeApi>::expose_provenance)
    })
}

fn of_numpy<'py>(
    array: &Bound<'py, PyUntypedArray>,
    shape: Option<&[u64]>,
    flags: c_int,
) -> Option<Memory<'py>> {
    let dtype = array.dtype();
    let is_same = shape.is_none_or(|shape| has_lengths(array, shape));
    (is_same && has_flags(array, flags) && !dtype.has_object()).then(|| Memory {
        address: address_of(array),
        bytes: (array.len() * dtype.itemsize()) as u64,
        dtype: dtype.into_any(),
        is_on_gpu: false,
        stream: None,
        is_tensor: false,
    })
}

fn has_lengths(array: &Bound<'_, PyUntypedArray>, shape: &[u64]) -> bool {
    let lengths = array.shape().iter().map(|length| *length as u64);
    lengths.eq(shape.iter().copied())
}

fn has_flags(array: &Bound<'_, PyUntypedArray>, flags: c_int) -> bool {
    // SAFETY: the pointer is to a live array.
    unsafe { (*array.as_array_ptr()).fields.flags & flags == flags }
}

/// Returns the address of an array of this shape from which elements can be copied in C order.
pub(crate) fn source_in_c_order(array: &Bound<'_, PyUntypedArray>, shape: &[u64]) -> Option<usize> {
    let is_plain = has_flags(array, NPY_ARRAY_CARRAY_RO) && has_lengths(array, shape);
    is_plain.then(|| address_of(array))
}

/// Returns whether the attribute `name` of an array is this shape, if one is given.
fn has_shape(
    array: &Bound<'_, PyAny>,
    name: &Bound<'_, PyString>,
    shape: Option<&[u64]>,
) -> PyResult<bool> {
    let Some(shape) = shape else {
        return Ok(true);
    };
    let lengths = array.getattr(name)?;
    let lengths = lengths.cast::<PyTuple>()?;
    let mut pairs = lengths.iter().zip(shape);
    let is_same = pairs.all(|(ours, given)| ours.extract::<u64>().is_ok_and(|ours| ours == *given));
    Ok(is_same && lengths.len() == shape.len())
}

/// Describes a `penstock.arrays.View` of memory that may be written to. Returns `None` for host memory that a
/// stream uses.
fn of_view<'py>(view: &Bound<'py, PyAny>, shape: Option<&[u64]>) -> PyResult<Option<Memory<'py>>> {
    let py = view.py();
    let is_in_c_order = view.getattr(intern!(py, "strides"))?.is_none();
    let device: c_int = view.getattr(intern!(py, "device"))?.extract()?;
    let is_on_gpu = device >= 0;
    let handle: Option<usize> = view.getattr(intern!(py, "stream"))?.extract()?;
    let is_ordered = is_on_gpu || handle.is_none();
    if !is_in_c_order || !is_ordered || !has_shape(view, intern!(py, "shape"), shape)? {
        return Ok(None);
    }
    Ok(Some(Memory {
        address: view.getattr(intern!(py, "pointer"))?.extract()?,
        bytes: view.getattr(intern!(py, "nbytes"))?.extract()?,
        dtype: view.getattr(intern!(py, "dtype"))?,
        is_on_gpu,
        stream: handle.map(|handle| Stream { handle, device }),
        is_tensor: false,
    }))
}

/// No library has queued work on the memory of a `DeviceArray`.
fn of_device_array<'py>(
    array: &Bound<'py, PyAny>,
    shape: Option<&[u64]>,
) -> PyResult<Option<Memory<'py>>> {
    let py = array.py();
    if !has_shape(array, intern!(py, "_shape"), shape)? {
        return Ok(None);
    }
    let element = array.getattr(intern!(py, "_element"))?;
    let itemsize: u64 = element.getattr(intern!(py, "itemsize"))?.extract()?;
    // The property `nbytes` would run Python.
    let lengths: Vec<u64> = array.getattr(intern!(py, "_shape"))?.extract()?;
    Ok(Some(Memory {
        address: array.getattr(intern!(py, "_pointer"))?.extract()?,
        bytes: lengths.iter().product::<u64>() * itemsize,
        dtype: element.getattr(intern!(py, "numpy"))?,
        is_on_gpu: true,
        stream: None,
        is_tensor: false,
    }))
}

/// Returns the address of the first element.
pub(crate) fn address_of(array: &Bound<'_, PyUntypedArray>) -> usize {
    let object: *mut PyArrayObject = array.as_array_ptr();
    // SAFETY: the pointer is to a live array.
    unsafe { (*object).fields.data.expose_provenance() }
}
