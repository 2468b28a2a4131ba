"""The memory of other libraries' arrays: its address, its length and whether it is writable.

:func:`view` tries NumPy, torch, DLPack of GPU memory, ``__cuda_array_interface__``,
``__array_interface__``, the buffer protocol and DLPack of host memory, in this order.

A library may have work queued that makes or uses the array. The memory of a GPU is therefore asked
for in the way that orders our work after it, whether we read or fill the memory:

1. For torch and CuPy, their current stream, as they do it among themselves.
2. By DLPack: the library makes the caller's stream wait for its work, or
   :func:`penstock.streams.of_lenders`. JAX has no other way, and no stream to name.
3. By ``__cuda_array_interface__``, the stream that it names.

If there is no such way, this waits for all streams of the GPU, unless the caller has named one.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock import dlpack, frameworks
from penstock._native import ffi
from penstock.device_array import DeviceArray, element_of
from penstock.dtypes import ElementType, element_type, numpy_dtype
from penstock.errors import IncompatibleError, InvalidError
from penstock.memory import HOST, kind_of
from penstock.records import in_c_order
from penstock.streams import normal, of_lenders, wait_for, wait_for_all

_MOST_PLACES = 1 << 20
"""The largest number of elements whose addresses are compared one by one."""

_IMMUTABLE_LIBRARIES = ("jax", "jaxlib")
"""Packages whose arrays must not be written to, although an export may not say so."""


@dataclass(slots=True)
class View:
    """The memory of an array. It is valid as long as the view exists."""

    pointer: int
    nbytes: int
    shape: tuple[int, ...]
    dtype: ElementType
    array: Any
    """The array as the caller gave it, or a NumPy array that shares its memory."""
    framework: str = "numpy"
    """The library that makes copies of the array: numpy, torch or cupy; other if none can."""
    device: int = -1
    """The CUDA ordinal, -1 for host memory."""
    strides: tuple[int, ...] | None = None
    """Bytes between neighbouring elements in each dimension; ``None`` if C-contiguous."""
    readonly: bool = False
    stream: int | None = None
    """The stream whose queued work must finish before the memory is used."""
    keep: Any = None
    """Another object that keeps the memory alive."""

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def contiguous(self) -> bool:
        """Whether the elements follow each other in C order."""
        return self.strides is None

    @property
    def byte_strides(self) -> tuple[int, ...]:
        """Bytes between neighbouring elements in each dimension, for C order as well."""
        if self.strides is not None:
            return self.strides
        return c_strides(self.shape, self.dtype.itemsize)

    def outer_strides(self, inner: int) -> tuple[int, ...] | None:
        """Return the strides without the last ``inner`` dimensions, which form one element."""
        return None if self.strides is None else self.strides[: self.ndim - inner]

    def is_dense(self, inner: int) -> bool:
        """Whether the last ``inner`` dimensions are in C order."""
        expected = c_strides(self.shape, self.dtype.itemsize)
        return inner == 0 or self.byte_strides[-inner:] == expected[-inner:]


def view(array: Any, stream: int | None = None) -> View:
    """Return the memory of any supported array.

    ``stream`` is the stream that the caller passed: its work precedes any use of the memory.
    """
    found = find(array, stream)
    if found is None:
        raise IncompatibleError(
            f"an instance of {type(array).__name__} is not an array",
            remedy="pass an array that speaks DLPack, __cuda_array_interface__, "
            "__array_interface__ or the buffer protocol",
        )
    return found


def find(array: Any, stream: int | None = None) -> View | None:
    """Return what :func:`view` returns, or ``None`` if the object is not an array.

    Raises:
        InvalidError: The array has elements but no memory, or less than they need.
    """
    found = _find(array, stream)
    if found is None:
        return None
    if found.nbytes and not found.pointer:
        raise InvalidError(
            f"{_named(found)} has no memory: its address is a null pointer",
            remedy="allocate its memory, which may have been freed, before the call",
        )
    if stream is not None:
        found.stream = stream
    return found


def _find(array: Any, stream: int | None) -> View | None:
    if isinstance(array, np.ndarray):
        found = _of_numpy(array)
        if type(array) is not np.ndarray:  # Numba has arrays of NumPy in memory that GPUs use
            interface = getattr(array, "__cuda_array_interface__", None)
            if interface is not None:
                memory = _interface_memory(interface)
                found.stream = _interface_stream(array, interface, memory, stream)
        return found
    if isinstance(array, DeviceArray):
        return View(
            array.data_ptr,
            array.nbytes,
            array.shape,
            element_of(array),
            array,
            framework="other",
            device=array.device,
        )
    if frameworks.is_torch(array):
        return _of_torch(array, stream)
    refusal = None
    if hasattr(array, "__dlpack__") and not frameworks.is_cupy(array):
        device = dlpack.device_of(array)
        if dlpack.is_on_gpu(device):
            try:
                return _of_dlpack(array, stream)
            except IncompatibleError as error:  # such as a type that DLPack lacks
                refusal = error
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return _of_cuda_interface(array, interface, stream)
    if refusal is not None:
        raise refusal
    if hasattr(array, "__array_interface__"):
        found = _of_numpy(np.asarray(array))
        # NumPy's scalars expose the memory of a copy: a write there would not reach them.
        found.readonly |= isinstance(array, np.generic)
        return found
    try:
        return _of_numpy(np.asarray(memoryview(array)))
    except (TypeError, BufferError):  # JAX has no buffer of some types
        pass
    if hasattr(array, "__dlpack__"):
        return _of_dlpack(array, stream)
    return None


def source(array: Any, stream: int | None = None) -> View:
    """Return C-contiguous memory to read an array from: its own, or that of a copy."""
    found = view(array, stream)
    return found if found.contiguous else _contiguous_copy(found)


def destination(
    array: Any, stream: int | None = None, *, keeps: bool = False
) -> tuple[View, Callable[[], None] | None]:
    """Return C-contiguous memory to write to for an array: its own, or a temporary.

    For a temporary, the second value is a function that copies it to the array. The caller must
    call it once the temporary is filled. With ``keeps``, the temporary starts with the values of
    the array, so that the array keeps those that are not written.
    """
    found = strided_destination(array, stream)
    if found.contiguous:
        return found, None
    temporary = _empty_like(found)
    temporary.stream = found.stream if temporary.stream is None else temporary.stream
    if keeps:
        with frameworks.on_stream(found.framework, stream, found.device):
            if found.framework == "torch":
                temporary.array.copy_(found.array.detach())
            else:
                temporary.array[...] = found.array

    def finish() -> None:
        with frameworks.on_stream(found.framework, stream, found.device):
            if found.framework == "torch":
                found.array.detach().copy_(temporary.array)
            else:
                found.array[...] = temporary.array
            if found.device >= 0:
                wait_for(view(found.array, stream).stream, found.device)

    return temporary, finish


def new(array: Any, stream: int | None = None) -> View:
    """Return the memory of a new array, to be filled even if its library has immutable arrays."""
    found = view(array, stream)
    if found.readonly:
        found = replace(found, array=array, framework="other", readonly=False, keep=found)
    return found


def contiguous_destination(array: Any, stream: int | None = None) -> View:
    """Return memory to write to while the caller continues. The array must be C-contiguous."""
    found = strided_destination(array, stream)
    if not found.contiguous:
        raise _strided(found)
    return found


def strided_destination(array: Any, stream: int | None = None) -> View:
    """Return memory to write to, whatever the array's strides. Elements must not share memory.

    As torch does for its own functions, it refuses a tensor that requires grad, unless gradients
    are disabled.
    """
    found = view(array, stream)
    if found.readonly:
        raise InvalidError(f"out is read-only: {_named(found)}")
    if frameworks.records_gradients(array):
        raise InvalidError(
            f"out requires grad, and torch cannot record that a file fills it: {_named(found)}",
            remedy="read within torch.no_grad(), or into out.detach()",
        )
    if found.strides is not None and found.nbytes and _share_memory(found, found.strides):
        raise InvalidError(f"elements of out share memory: {_named(found)}")
    return found


def _share_memory(found: View, strides: tuple[int, ...]) -> bool:
    """Return whether two elements share bytes; also true if the exact answer takes too long."""
    sides = sorted((abs(step), n) for n, step in zip(found.shape, strides, strict=True) if n > 1)
    behind = found.dtype.itemsize
    for step, n in sides:
        if step < behind:
            break
        behind += step * (n - 1)
    else:
        return False
    if sides[0][0] == 0 or math.prod(n for _, n in sides) > _MOST_PLACES:
        return True
    # Rows may be interleaved.
    places = np.zeros(1, np.int64)
    for step, n in sides:
        places = (places[:, None] + step * np.arange(n)).ravel()
    places.sort()
    return bool((np.diff(places) < found.dtype.itemsize).any())


def refuse_overlap(views: Iterable[View]) -> None:
    """Raise an error if two C-contiguous arrays share memory. Other arrays are not compared."""
    parts = sorted(
        (one.pointer, one.pointer + one.nbytes) for one in views if one.contiguous and one.nbytes
    )
    if any(one[1] > other[0] for one, other in itertools.pairwise(parts)):
        raise InvalidError(
            "two arrays to fill share memory, so their contents would be undefined",
            remedy="give each piece memory of its own",
        )


def note_write(found: View) -> None:
    """Record in torch's autograd that a tensor's contents have changed."""
    if found.framework == "torch":
        frameworks.note_write(found.array)


def host_array(found: View) -> np.ndarray[Any, np.dtype[Any]]:
    """Return a NumPy array that shares the C-contiguous host memory of a view."""
    if isinstance(found.array, np.ndarray):
        return found.array
    buffer = ffi.buffer(ffi.cast("char *", found.pointer), found.nbytes)
    array: np.ndarray[Any, np.dtype[Any]] = np.ndarray(
        found.shape, numpy_dtype(found.dtype), buffer
    )
    return array


def _of_numpy(array: np.ndarray[Any, np.dtype[Any]]) -> View:
    # NumPy imports numpy.ma with its first use, which takes a descriptor.
    if isinstance(array, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())):
        raise IncompatibleError(
            "a masked array holds more than its data", remedy="pass its .data or .filled()"
        )
    address, readonly = array.__array_interface__["data"]
    return View(
        address,
        array.nbytes,
        array.shape,
        element_type(array.dtype),
        array,
        strides=None if array.flags.c_contiguous else array.strides,
        readonly=readonly,
    )


def _of_torch(tensor: Any, stream: int | None = None) -> View:
    torch = frameworks.loaded("torch")
    assert torch is not None
    kind = tensor.device.type
    if tensor.layout != torch.strided or tensor.is_nested or kind not in ("cpu", "cuda"):
        layout = "nested" if tensor.is_nested else tensor.layout
        raise IncompatibleError(
            f"a torch tensor of layout {layout} on {tensor.device} has no memory that a file could "
            "fill",
            remedy="pass a strided tensor on the CPU or on a CUDA device",
        )
    device = tensor.device.index if kind == "cuda" else -1
    lazy = tensor.is_conj() or tensor.is_neg()
    if lazy:
        frameworks.address(tensor)  # torch would read beyond a storage that is too short
        with frameworks.on_stream("torch", stream, device):
            tensor = tensor.resolve_conj().resolve_neg()
    itemsize = tensor.element_size()
    return View(
        frameworks.address(tensor),
        tensor.numel() * itemsize,
        tuple(tensor.shape),
        element_type(tensor.dtype),
        tensor,
        framework="torch",
        device=device,
        strides=None
        if tensor.is_contiguous()
        else tuple(step * itemsize for step in tensor.stride()),
        readonly=lazy,  # the memory is that of a copy: a write there would not reach the tensor
        stream=frameworks.torch_pending(device) if device >= 0 else None,
    )


def _interface_memory(interface: dict[str, Any]) -> tuple[int, int]:
    """Return the kind of the memory, and its CUDA ordinal."""
    address = interface["data"][0]
    return kind_of(address) if address else (HOST, 0)


def _interface_stream(
    array: Any, interface: dict[str, Any], memory: tuple[int, int], stream: int | None
) -> int | None:
    """Return the stream that the interface names, if any, after any wait that is needed."""
    kind, ordinal = memory
    if kind == HOST:
        return None
    named = interface.get("stream")
    if named is not None:
        named = normal(named)
        if stream not in (None, named) and not frameworks.is_cupy(array):
            wait_for(named, ordinal)
    elif stream is None:
        wait_for_all(ordinal)
    return named


def _of_cuda_interface(array: Any, interface: dict[str, Any], stream: int | None = None) -> View:
    if interface.get("mask") is not None:
        raise IncompatibleError("a masked array holds more than its data")
    address, readonly = interface["data"]
    shape = tuple(interface["shape"])
    dtype = element_type(np.dtype(interface["typestr"]))
    kind, ordinal = memory = _interface_memory(interface)
    return View(
        address,
        math.prod(shape) * dtype.itemsize,
        shape,
        dtype,
        array,
        framework="cupy" if frameworks.is_cupy(array) else "other",
        device=max(ordinal, 0) if address == 0 or kind != HOST else -1,
        strides=unless_c_order(shape, interface.get("strides"), dtype.itemsize),
        readonly=bool(readonly) or _library(array) in _IMMUTABLE_LIBRARIES,
        stream=_interface_stream(array, interface, memory, stream),
        keep=interface,
    )


def _of_dlpack(array: Any, stream: int | None) -> View:
    device = dlpack.device_of(array)
    gpu = dlpack.is_on_gpu(device)
    after = None
    if gpu:
        after = of_lenders(device[1]) if stream is None else stream
    imported = dlpack.import_array(array, after)
    if not imported.is_ordered and stream is None:
        wait_for_all(device[1])
    if not gpu and imported.device_type not in dlpack.HOST_MEMORY:
        raise IncompatibleError(
            f"{type(array).__name__} is on DLPack device type {imported.device_type}",
            remedy="pass an array in host memory or on a CUDA device",
        )
    itemsize = imported.dtype.itemsize
    strides = imported.strides and tuple(step * itemsize for step in imported.strides)
    # Only DLPack 1.0 and later can express that an array is immutable.
    readonly = imported.readonly or _library(array) in _IMMUTABLE_LIBRARIES
    if not gpu and imported.dtype.numpy is not None:
        shared = _shared(imported, imported.dtype.numpy, strides, readonly=readonly)
        return replace(_of_numpy(shared), keep=imported.capsule)
    return View(
        imported.pointer,
        math.prod(imported.shape) * itemsize,
        imported.shape,
        imported.dtype,
        array,
        framework="other",
        device=imported.device_id if gpu else -1,
        strides=unless_c_order(imported.shape, strides, itemsize),
        readonly=readonly,
        stream=after,
        keep=imported.capsule,
    )


def _library(array: Any) -> str:
    """Return the name of the package that defines the type of an array."""
    return type(array).__module__.partition(".")[0]


class _Export:
    """Host memory that a capsule of DLPack describes, for NumPy, whose arrays keep it alive."""

    def __init__(self, interface: dict[str, Any], capsule: Any) -> None:
        self.__array_interface__ = interface
        self._capsule = capsule


def _shared(
    imported: dlpack.Imported,
    dtype: np.dtype[Any],
    strides: tuple[int, ...] | None,
    *,
    readonly: bool,
) -> np.ndarray[Any, np.dtype[Any]]:
    """Return a NumPy array that shares the memory of an export and keeps it alive."""
    interface = {
        "data": (imported.pointer, readonly),
        "shape": imported.shape,
        "strides": strides,
        "typestr": dtype.str,
        "version": 3,
    }
    # The interface has no types of ml_dtypes: their elements come as bytes.
    return np.asarray(_Export(interface, imported.capsule)).view(dtype)


def c_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides in bytes of a C-contiguous array."""
    return tuple(math.prod(shape[i + 1 :]) * itemsize for i in range(len(shape)))


def unless_c_order(
    shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int
) -> tuple[int, ...] | None:
    """Return the strides in bytes; ``None`` if they are those of C order."""
    if strides is None or 0 in shape:
        return None
    expected = c_strides(shape, itemsize)
    same = all(n == 1 or a == b for n, a, b in zip(shape, strides, expected, strict=True))
    return None if same else tuple(strides)


def _contiguous_copy(found: View) -> View:
    array = found.array
    with frameworks.on_stream(found.framework, found.stream, found.device):
        if found.framework == "numpy":
            return _of_numpy(in_c_order(array))
        if found.framework == "torch":
            copy = _of_torch(array.detach().contiguous())
        elif found.framework == "cupy":
            cupy = frameworks.loaded("cupy")
            assert cupy is not None
            copy = _of_cuda_interface(*_with_interface(cupy.ascontiguousarray(array)))
        else:
            raise _strided(found)
    copy.stream = found.stream if copy.stream is None else copy.stream
    return copy


def _empty_like(found: View) -> View:
    """Return new contiguous memory of the same framework, shape, type and device."""
    if found.framework == "numpy":
        return _of_numpy(np.empty(found.shape, found.array.dtype))
    with frameworks.on_stream(found.framework, found.stream, found.device):
        if found.framework == "torch":
            torch = frameworks.loaded("torch")
            assert torch is not None
            return _of_torch(
                torch.empty(found.shape, dtype=found.array.dtype, device=found.array.device)
            )
        if found.framework == "cupy":
            cupy = frameworks.loaded("cupy")
            assert cupy is not None
            made = cupy.empty(found.shape, dtype=found.array.dtype)
            return _of_cuda_interface(*_with_interface(made))
    raise _strided(found)


def _with_interface(array: Any) -> tuple[Any, dict[str, Any]]:
    return array, array.__cuda_array_interface__


def _strided(found: View) -> IncompatibleError:
    return IncompatibleError(
        f"{_named(found)} is not C-contiguous, and cannot go through a copy here",
        remedy="pass a C-contiguous array",
    )


def _named(found: View) -> str:
    return f"{type(found.array).__name__} of shape {found.shape} and type {found.dtype.name}"
