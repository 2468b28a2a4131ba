"""Matrices as h5ad files store them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.data.files import Source
from penstock.errors import Error, IncompatibleError, InvalidError
from penstock.hdf5.reading import read

FORMATS = {"csr_matrix": "csr", "csc_matrix": "csc", "csr": "csr", "csc": "csc"}
"""The format of a group, by its ``encoding-type``, or by the ``h5sparse_format`` of old files."""


class Matrix(NamedTuple):
    """A matrix of a file."""

    path: str
    name: str
    """The path of its dataset, or of its group, in the file."""
    format: str
    """``"csr"``, ``"csc"`` or ``"array"``."""
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    source: Source
    """Its datasets: of values, and of indices if it is sparse."""
    indptr: NDArray[np.int64]
    """The first element of each row (of each column of CSC), and the end of the last one."""

    @property
    def names(self) -> tuple[str, ...]:
        """The paths of the datasets."""
        return names_of(self.name, is_sparse=self.is_sparse)

    @property
    def is_sparse(self) -> bool:
        return self.format != "array"

    @property
    def minor(self) -> int:
        """The number of columns, of rows for CSC: all indices are smaller."""
        return self.shape[self.format == "csr"]

    def invalid(self, what: str) -> InvalidError:
        """Return the error of a matrix that is damaged."""
        return InvalidError(
            f"{self.name} of {self.path}: {what}",
            path=self.path,
            remedy="write the file again: this one is damaged",
        )

    def check_pointers(self, pointers: NDArray[Any], count: int) -> None:
        """Raise an error unless index pointers rise from 0 to ``count`` or less.

        They are compared, as the difference of two of a damaged file may overflow.
        """
        falls = np.flatnonzero(pointers[1:] < pointers[:-1])
        if pointers[0] != 0:
            raise self.invalid(f"the first index pointer is {pointers[0]}, and must be 0")
        if len(falls):
            raise self.invalid(f"index pointer {falls[0] + 1} is smaller than the one before it")
        if pointers[-1] > count:
            raise self.invalid(f"the index pointers end at {pointers[-1]} of {count} values")

    def check_indices(self, low: int, high: int) -> None:
        """Raise an error if the least or the greatest index is outside the matrix."""
        if low < 0 or high >= self.minor:
            wrong = text_of_index(low if low < 0 else high)
            raise self.invalid(f"the index {wrong} is outside the shape {self.shape}")

    def not_in_scipy(self, remedy: str) -> IncompatibleError:
        """Return the error of values of float16."""
        return IncompatibleError(
            f"{self.name} of {self.path}: SciPy has no sparse matrices of float16",
            path=self.path,
            remedy=remedy,
        )


class Axes(NamedTuple):
    """The dataframes that name the rows and the columns of a matrix."""

    rows: str
    columns: str | None
    """``None`` for columns without names."""


def normal(name: str) -> str:
    """Return the path of an object without empty parts: ``layers/counts`` of ``/layers//counts``.

    HDF5 takes them, so the same matrix has many names.
    """
    return "/".join(part for part in name.split("/") if part not in ("", ".")) or "/"


def axes_of(name: str) -> Axes:
    """Return what names the rows and columns of a matrix, by its normal name."""
    raw = next((raw for raw in ("raw/", "raw.") if name.startswith(raw)), "")
    genes = "raw/var" if raw else "var"
    group = name.removeprefix(raw).partition("/")[0]
    rows = genes if group in ("varm", "varp") else "obs"
    return Axes(rows, genes if group in ("X", "layers") else None)


def text_of_index(index: int) -> str:
    """Return an index for a message. One of 64 bits was limited as it was read to 32."""
    limits = {-(1 << 31): " or less", (1 << 31) - 1: " or more"}
    return f"{index}{limits.get(index, '')}"


def names_of(name: str, *, is_sparse: bool) -> tuple[str, ...]:
    return (f"{name}/data", f"{name}/indices") if is_sparse else (name,)


def described(file: Any, path: str, name: str) -> Matrix:
    """Return what an ``h5py.File`` has as a matrix, with its index pointers.

    Raises:
        KeyError: There is no object of this name.
        IncompatibleError: It is not a matrix.
        InvalidError: It is damaged.
    """
    import h5py

    found = file.get(name)
    if isinstance(found, h5py.Dataset):
        return _dense(found, path, name)
    if isinstance(found, h5py.Group):
        return sparse(found, path, name)
    raise KeyError(f"{path} has no {name!r}; it has {', '.join(file)}")


def _dense(dataset: Any, path: str, name: str) -> Matrix:
    if dataset.ndim != 2 or dataset.dtype.kind not in "biuf":
        raise IncompatibleError(
            f"{name} of {path} is not a matrix: shape {dataset.shape}, type {dataset.dtype}",
            path=path,
            remedy="name a matrix of numbers, such as X or layers/counts",
        )
    shape = int(dataset.shape[0]), int(dataset.shape[1])
    if shape[0] * shape[1] >= 1 << 63:
        raise IncompatibleError(
            f"{name} of {path} has the shape {shape}: elements are counted by 63 bits", path=path
        )
    indptr = np.arange(shape[0] + 1, dtype=np.int64) * shape[1]
    source = Source(path, "", (shape,), ())
    return Matrix(path, name, "array", shape, dataset.dtype, source, indptr)


def sparse(group: Any, path: str, name: str) -> Matrix:
    """Return the matrix of an ``h5py.Group``, whose index pointers are checked.

    Raises:
        IncompatibleError: The group is not a sparse matrix.
        InvalidError: The group is damaged.
    """
    attributes = group.attrs
    kind = attributes.get("encoding-type", attributes.get("h5sparse_format"))
    form = FORMATS.get(kind) if isinstance(kind, str) else None
    if form is None:
        has = "no encoding-type" if kind is None else f"the encoding-type {kind!r}"
        raise IncompatibleError(
            f"{name} of {path} is not a matrix: the group has {has}",
            path=path,
            remedy="name a matrix, such as X or layers/counts",
        )
    made = Matrix(path, name, form, (0, 0), np.dtype("f4"), Source(path, "", (), ()), NONE)
    shape = _shape(made, attributes.get("shape", attributes.get("h5sparse_shape")))
    data, indices, indptr = (_part(made, group, part) for part in ("data", "indices", "indptr"))
    if data.dtype.kind not in "biuf":
        raise IncompatibleError(f"{name} of {path}: values have type {data.dtype}", path=path)
    if data.shape != indices.shape:
        raise made.invalid(f"there are {data.size} values and {indices.size} indices")
    major = shape[form == "csc"]
    if indptr.size != major + 1:
        raise made.invalid(f"there are {indptr.size} index pointers, and the shape is {shape}")
    try:
        pointers = np.asarray(read(indptr))
    except Error as error:
        raise error.about(f"{name}/indptr of {path}") from error
    made.check_pointers(pointers, data.size)
    source = Source(path, "", (data.shape, indices.shape), ())
    kept = pointers.astype(np.int64)
    return made._replace(shape=shape, dtype=data.dtype, source=source, indptr=kept)


def of_scipy(array: Any, path: str, name: str) -> Matrix:
    """Return the description of a matrix of SciPy that anndata has read."""
    source = Source(path, "", (), ())
    return Matrix(path, name, array.format, array.shape, array.dtype, source, NONE)


NONE = np.zeros(1, np.int64)
"""Index pointers of a matrix without rows."""


def _shape(matrix: Matrix, given: Any) -> tuple[int, int]:
    found = np.asarray(given)
    if found.shape != (2,) or found.dtype.kind not in "iu" or (found < 0).any():
        raise matrix.invalid(f"the attribute shape is {given!r}, and not two lengths")
    return int(found[0]), int(found[1])


def _part(matrix: Matrix, group: Any, name: str) -> Any:
    import h5py

    part = group.get(name)
    if not isinstance(part, h5py.Dataset):
        raise matrix.invalid(f"there is no dataset {name}")
    if part.ndim != 1 or (name != "data" and part.dtype.kind not in "iu"):
        raise matrix.invalid(f"{name} has shape {part.shape} and type {part.dtype}")
    return part
