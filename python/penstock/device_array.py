"""An array in GPU memory for programs that have neither torch nor CuPy."""

from __future__ import annotations

import math
import operator
from typing import Any, SupportsIndex

import numpy as np

from penstock import dlpack
from penstock._native import ffi, lib
from penstock.dtypes import ElementType, element_type, numpy_dtype
from penstock.errors import IncompatibleError, InvalidError, check
from penstock.memory import copy_bytes
from penstock.shapes import Shape, lengths_of


class DeviceArray:
    """A C-contiguous array that owns memory of one GPU.

    Other libraries share its memory through DLPack (``torch.from_dlpack(a)``) or
    ``__cuda_array_interface__`` (``cupy.asarray(a)``); :meth:`numpy` copies it to the host. The
    memory is not initialised. It is freed with its last user.

    Args:
        shape: Lengths of the dimensions; an integer for one dimension.
        dtype: Anything that ``numpy.dtype`` takes, or the name of an ml_dtypes type.
        device: The CUDA ordinal.

    Raises:
        InvalidError: ``device`` is negative or too large, or a length is negative.
        OutOfMemoryError: The GPU does not have that much memory left.
        UnavailableError: There is no such GPU.

    >>> a = ps.DeviceArray.from_numpy(np.arange(6.0).reshape(2, 3))
    >>> a.numpy().sum()
    15.0
    """

    __slots__ = ("__weakref__", "_device", "_element", "_memory", "_pointer", "_shape")

    def __init__(self, shape: Shape, dtype: object = "uint8", device: SupportsIndex = 0) -> None:
        self._shape = lengths_of(shape)
        if min(self._shape, default=0) < 0:
            raise InvalidError(f"shape {self._shape} has a negative length")
        self._element = element_type(dtype)
        self._device = ordinal_of(device)
        self._memory = _Memory(self._device, math.prod(self._shape) * self._element.itemsize)
        self._pointer = self._memory.address

    @classmethod
    def from_numpy(cls, array: Any, device: SupportsIndex = 0) -> DeviceArray:
        """Copy a NumPy array, or anything that ``numpy.asarray`` takes, to the GPU."""
        source = np.asarray(array, order="C")
        made = cls(source.shape, source.dtype, device)
        address = source.__array_interface__["data"][0]
        copy_bytes(made.data_ptr, address, made.nbytes)
        return made

    def part(self, at: int, shape: tuple[int, ...], dtype: ElementType) -> DeviceArray:
        """Return an array in the memory of this one, ``at`` bytes after its start.

        The memory is freed with the last of these arrays.
        """
        made: DeviceArray = object.__new__(DeviceArray)
        made._shape, made._element, made._device = shape, dtype, self._device
        if at < 0 or at + made.nbytes > self.nbytes:
            raise InvalidError(
                f"{made.nbytes} bytes from byte {at} on are outside an array of {self.nbytes}"
            )
        made._memory, made._pointer = self._memory, self._pointer + at
        return made

    def numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """Return a copy in host memory."""
        copy = np.empty(self._shape, numpy_dtype(self._element))
        address = copy.__array_interface__["data"][0]
        copy_bytes(address, self._pointer, self.nbytes)
        return copy

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the dimensions."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The data type as a NumPy dtype."""
        return numpy_dtype(self._element)

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes between neighbouring elements in each dimension."""
        lengths = [max(n, 1) for n in self._shape]
        return tuple(
            math.prod(lengths[i + 1 :]) * self._element.itemsize for i in range(len(lengths))
        )

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self._shape)

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        return self.size * self._element.itemsize

    @property
    def device(self) -> int:
        """The CUDA ordinal."""
        return self._device

    @property
    def data_ptr(self) -> int:
        """The device address of the first element; 0 if there is none."""
        return self._pointer

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        dtype = self._element.numpy
        if dtype is None or dtype.kind == "V":
            raise AttributeError(
                f"the CUDA array interface has no type for {self._element.name}; use DLPack"
            )
        return {
            "shape": self._shape,
            "typestr": dtype.str,
            "data": (self._pointer, False),
            "strides": None,
            "stream": None,  # Penstock has no work queued on the memory
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self._device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        versioned = max_version is not None and max_version[0] >= 1
        if dl_device is not None and dl_device[0] == dlpack.CPU:
            if copy is False:
                raise BufferError("GPU memory cannot be used by the CPU without a copy")
            host = self.numpy()
            return dlpack.export_array(
                host.__array_interface__["data"][0],
                self._shape,
                self._element,
                (dlpack.CPU, 0),
                host,
                versioned=versioned,
                copied=True,
            )
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the array is on cuda:{self._device}, not on {dl_device}")
        owner = self._copy() if copy else self
        return dlpack.export_array(
            owner.data_ptr,
            self._shape,
            self._element,
            self.__dlpack_device__(),
            owner,
            versioned=versioned,
            copied=bool(copy),
        )

    def _copy(self) -> DeviceArray:
        made = DeviceArray(self._shape, self._element.numpy or self._element.name, self._device)
        copy_bytes(made.data_ptr, self._pointer, self.nbytes)
        return made

    def __array__(self, *_: object, **__: object) -> Any:
        raise IncompatibleError("a DeviceArray is not copied to the host implicitly: use .numpy()")

    def __len__(self) -> int:
        if not self._shape:
            raise IncompatibleError("len() of an array without dimensions")
        return self._shape[0]

    def __repr__(self) -> str:
        return (
            f"DeviceArray(shape={self._shape}, dtype={self._element.name}, "
            f"device='cuda:{self._device}')"
        )


def ordinal_of(device: SupportsIndex) -> int:
    """Return a CUDA ordinal, which is a C ``int``.

    Raises:
        InvalidError: It is negative or too large.
    """
    found = operator.index(device)
    if not 0 <= found < 1 << 31:
        raise InvalidError(f"device {device} is not a CUDA ordinal")
    return found


class _Memory:
    """Memory of a GPU."""

    __slots__ = ("_address",)

    def __init__(self, device: int, nbytes: int) -> None:
        # The native call stores the address where its destructor finds it, whatever interrupts the
        # rest. The destructor is native, too: a signal handler that raises in a Python destructor
        # would leak the memory. In a forked child, it frees no memory of the parent.
        self._address = ffi.gc(ffi.new("void **"), lib.penstock_device_release)
        if nbytes:
            check(lib.penstock_device_alloc(device, nbytes, self._address))

    @property
    def address(self) -> int:
        """The device address; 0 if there are no bytes."""
        return int(ffi.cast("uintptr_t", self._address[0]))


def element_of(array: DeviceArray) -> ElementType:
    """Return the element type, even if NumPy cannot express it."""
    return array._element
