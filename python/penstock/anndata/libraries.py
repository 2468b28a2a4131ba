"""Matrices of SciPy, torch and CuPy, which are imported when they are first used."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock import frameworks
from penstock.arrays import view
from penstock.device_array import DeviceArray
from penstock.dtypes import ElementType, element_type
from penstock.errors import IncompatibleError, UnavailableError
from penstock.placement import (
    HOST,
    Device,
    Library,
    Placement,
    allocate,
    parse_device,
    place_changed,
)

_BEYOND_INT32 = 1 << 31


class Sparse(NamedTuple):
    """A CSR matrix of arrays without a library of sparse matrices."""

    data: Any
    indices: Any
    indptr: Any
    shape: tuple[int, int]


class Maker:
    """Makes arrays and matrices in the memory of one device.

    Args:
        device: The device, as for :func:`penstock.read`.
        like: The library: ``"numpy"`` (SciPy), ``"torch"``, ``"cupy"`` or ``"device"``.
    """

    def __init__(self, device: Device, like: Library | None) -> None:
        self.where = place_changed(device, like)
        self.on_host = parse_device(self.where) == HOST
        if isinstance(self.where, Placement):
            self.library: str = self.where.library
        elif self.on_host:
            self.library = "numpy"
        else:
            self.library = _library_of(self.empty(1, np.dtype("f4")))
        if self.library in ("torch", "cupy") and not self.on_host:
            self.ordinal = view(self.empty(1, np.dtype("f4"))).device

    @property
    def module(self) -> Any:
        """The library of dense arrays."""
        return np if self.library == "numpy" else import_module(self.library)

    def on_device(self) -> AbstractContextManager[Any]:
        """Make the device the current one of CuPy, whose functions work on that alone."""
        if self.library != "cupy":
            return nullcontext()
        device: AbstractContextManager[Any] = self.module.cuda.Device(self.ordinal)
        return device

    def empty(self, count: int, dtype: Any) -> Any:
        """Return a new array of one dimension."""
        kind = dtype if isinstance(dtype, ElementType) else element_type(dtype)
        return allocate((count,), kind, self.where)

    def part(self, array: Any, begin: int, end: int) -> Any:
        """Return a part of an array, in its memory."""
        if isinstance(array, DeviceArray):
            kind = element_type(array.dtype)
            return array.part(begin * kind.itemsize, (end - begin,), kind)
        return array[begin:end]

    def moved(self, array: NDArray[Any]) -> Any:
        """Return a NumPy array as one of the library."""
        if self.library == "numpy":
            return array
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        if self.library == "device":
            return DeviceArray.from_numpy(array, parse_device(self.where) or 0)
        if self.library == "cupy":
            return self.module.asarray(array)
        made = self.module.from_numpy(np.ascontiguousarray(array))
        return made if self.on_host else made.to(f"cuda:{self.ordinal}", non_blocking=True)

    def bits(self, array: Any) -> Any:
        """Return an array as one of signed integers, unless its elements have more than 8 bytes.

        torch has few functions of its unsigned types of 16 bits and more, and SciPy none of
        float16.
        """
        if self.library == "torch":
            return array.view(getattr(self.module, f"int{8 * array.element_size()}"))
        return array if array.dtype.itemsize > 8 else array.view(f"i{array.dtype.itemsize}")

    def take(self, array: Any, indices: Any, axis: int = 0) -> Any:
        """Return elements of an array, or rows or columns of one."""
        if self.library == "torch":
            return self.bits(array).index_select(axis, indices).view(array.dtype)
        return array.take(indices, axis=axis)

    def kept(self, array: Any, mask: Any) -> Any:
        """Return the elements of an array where a mask is true."""
        return self.bits(array)[mask].view(array.dtype)

    def put(self, array: Any, places: Any, values: NDArray[Any]) -> None:
        """Write NumPy's values to places of an array: bits of its elements, or integers."""
        if self.library == "device":
            raise IncompatibleError(
                "no library writes single elements in GPU memory", remedy="install torch or CuPy"
            )
        target, moved = self.bits(array), self.moved(values)
        target[places] = moved.to(target.dtype) if self.library == "torch" else moved

    def index_type(self, count: int, width: int) -> np.dtype[Any]:
        """Return the type of indices and index pointers: the shortest, which is the fastest.

        Args:
            count: The number of elements.
            width: The number of columns, or of rows of CSC.

        Raises:
            IncompatibleError: CuPy has no matrix of so many elements or columns.
        """
        if max(count, width) < _BEYOND_INT32:
            return np.dtype("i4")
        if self.library == "cupy":
            raise IncompatibleError(
                f"CuPy's sparse matrices have indices of 32 bits, too few for {count} elements of "
                f"{width} columns",
                remedy="read fewer rows at a time, by penstock.anndata.Rows",
            )
        return np.dtype("i8")

    def bounds(self, array: Any) -> tuple[int, int]:
        """Return the least and the greatest number of an array that is not empty."""
        if self.library == "torch" and not self.on_host:
            low, high = array.aminmax()
            return int(low), int(high)
        # NumPy takes no threads for it, which torch's may have to wait for.
        found = np.asarray(array) if self.on_host else array
        return int(found.min()), int(found.max())

    def csr(self, data: Any, indices: Any, indptr: NDArray[Any], shape: tuple[int, int]) -> Any:
        """Return a CSR matrix in the memory of its values and indices."""
        if self.library == "numpy":
            return scipy_matrix("csr", data, indices, indptr, shape)
        pointers = self.moved(indptr)
        if self.library == "torch":
            return self.module.sparse_csr_tensor(
                pointers, indices, data, size=shape, check_invariants=False
            )
        if self.library == "cupy":
            return cupy_matrix("csr", data, indices, pointers, shape)
        return Sparse(data, indices, pointers, shape)

    def dense(self, data: Any, indices: Any, indptr: NDArray[Any], shape: tuple[int, int]) -> Any:
        """Return the matrix of CSR arrays as an array of two dimensions."""
        if self.library == "device":
            raise IncompatibleError(
                "no library fills a dense matrix in GPU memory", remedy="install torch or CuPy"
            )
        if not self.on_host or not _is_known_to_numpy(data):
            if self.library != "torch":
                return self.csr(data, indices, indptr, shape).toarray()
            # The sum of elements of one place is the same in signed integers.
            summed = self.bits(data) if str(data.dtype).startswith("torch.uint") else data
            return self.csr(summed, indices, indptr, shape).to_dense().view(data.dtype)
        parts = np.asarray(data), np.asarray(indices)
        return self.moved(scipy_matrix("csr", *parts, indptr, shape).toarray())


def _is_known_to_numpy(array: Any) -> bool:
    return isinstance(array, np.ndarray) or str(array.dtype) != "torch.bfloat16"


def scipy_matrix(form: str, data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> Any:
    """Return a sparse matrix of SciPy, of the class that anndata's settings name.

    SciPy does not check arrays that are assigned: the caller has.
    """
    kind = getattr(import_module("scipy.sparse"), f"{form}_{_scipy_kind()}")
    made = kind(shape, dtype=data.dtype)
    made.data, made.indices, made.indptr = data, indices, indptr
    return made


def _scipy_kind() -> str:
    settings = getattr(frameworks.loaded("anndata"), "settings", None)
    return "array" if getattr(settings, "use_sparse_array_on_read", False) else "matrix"


def cupy_matrix(form: str, data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> Any:
    """Return a sparse matrix of CuPy, which has values of some types only."""
    if data.dtype.char not in "?fdFD":
        raise IncompatibleError(
            f"CuPy has no sparse matrices of {data.dtype}", remedy='give dtype="float32"'
        )
    kind = getattr(import_module("cupyx.scipy.sparse"), f"{form}_matrix")
    return kind((data, indices, indptr), shape=shape, copy=False)


def needs_cupy() -> None:
    """Raise an error unless CuPy can use a GPU."""
    if frameworks.with_gpu("cupy") is None:
        raise UnavailableError(
            "AnnData holds arrays of CuPy in GPU memory, and CuPy is not installed, or finds no "
            "GPU",
            remedy='install cupy-cuda12x, or use penstock.anndata.Rows with like="torch"',
        )


def _library_of(array: Any) -> str:
    if isinstance(array, DeviceArray):
        return "device"
    return "torch" if frameworks.is_torch(array) else "cupy"
