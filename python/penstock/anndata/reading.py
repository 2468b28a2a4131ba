"""Whole h5ad files."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import numpy as np

from penstock._options import OptionKeys, Unpack, resolve
from penstock.anndata import stored
from penstock.anndata.libraries import Maker, cupy_matrix, needs_cupy, scipy_matrix
from penstock.anndata.stored import Matrix
from penstock.data.files import opened_file
from penstock.hdf5.many import read_many, start_into
from penstock.placement import Device

_ON_DEVICE = ("X", "layers", "obsm", "obsp", "varm", "varp")
"""What goes to the device. Annotations, ``uns`` and ``raw`` stay on the host."""

_PARALLEL = 1 << 16
"""The least bytes of a dense array that h5py would not read as fast."""


def read_h5ad(path: Any, device: Device = None, **options: Unpack[OptionKeys]) -> Any:
    """Read an h5ad file, as ``anndata.io.read_h5ad`` does, by all cores or the GPU.

    Args:
        path: The file.
        device: Where ``X`` and the arrays of ``layers``, ``obsm``, ``obsp``, ``varm`` and ``varp``
            go: ``"cpu"`` (NumPy's and SciPy's) or a GPU (CuPy's, as ``rapids_singlecell`` takes
            them). ``obs`` and ``var`` are pandas' on the host, where ``raw`` and ``uns`` are, too.
        **options: Those of the reads: see :class:`penstock.OptionKeys`.

    Returns:
        An ``anndata.AnnData``.

    Raises:
        UnavailableError: There is no such GPU, or no CuPy.
        InvalidError: A sparse matrix is damaged.
        OSError: The file cannot be opened.
        Exception: What anndata raises for elements that it cannot read.

    >>> adata = read_h5ad("cells.h5ad", device="cuda")
    """
    resolve(options)
    maker = Maker("cpu", None)
    if device is not None and not _is_host(device):
        needs_cupy()
        maker = Maker(device, "cupy")
    name = os.path.abspath(os.fsdecode(path))
    with opened_file(name) as file, maker.on_device():
        if not _is_old(file.h5py):
            return _Reader(name, maker, options).read(file.h5py)
        made = import_module("anndata.io").read_h5ad(name)
        _check(made, name)
        return made if maker.on_host else _moved(made, maker)


def _is_host(device: Device) -> bool:
    return Maker(device, None).on_host


def _is_old(file: Any) -> bool:
    """Whether a file is of before anndata 0.7, which anndata itself reads."""
    frames = (file.get("obs"), file.get("var"))
    known = all(frame is not None and "encoding-type" in frame.attrs for frame in frames)
    return not known or any(name.startswith("raw.") for name in file)


class _Reader:
    """Reads the elements of a file: large numeric ones by Penstock, others by anndata."""

    def __init__(self, path: str, maker: Maker, options: OptionKeys) -> None:
        self._path = path
        self._maker = maker
        self._options = options

    def read(self, file: Any) -> Any:
        dispatched = import_module("anndata.experimental").read_dispatched
        parts = {name: dispatched(file[name], self._element) for name in _NAMES if name in file}
        if "raw" in parts and not isinstance(parts["raw"], dict):
            raw = parts["raw"]
            parts["raw"] = {"X": raw.X, "var": raw.var, "varm": dict(raw.varm)}
        return import_module("anndata").AnnData(**parts)

    def _element(self, read: Any, name: str, element: Any, iospec: Any) -> Any:
        parts = element.name.strip("/").split("/")
        # The columns of a dataframe in obsm are pandas', which stays on the host.
        on_device = parts[0] in _ON_DEVICE and len(parts) == 1 + (parts[0] != "X")
        if iospec.encoding_type in ("csr_matrix", "csc_matrix"):
            return self._sparse(element, on_device=on_device)
        to_gpu = on_device and not self._maker.on_host
        is_numeric = iospec.encoding_type == "array" and _is_numeric(element)
        if is_numeric and (to_gpu or element.nbytes >= _PARALLEL):
            device = self._maker.where if to_gpu else None
            return read_many([element], device=device, **self._options)[0]
        found = read(element)
        is_boolean = isinstance(found, np.ndarray) and found.dtype == bool
        return self._maker.moved(found) if to_gpu and is_boolean else found

    def _sparse(self, group: Any, *, on_device: bool) -> Any:
        matrix = stored.sparse(group, self._path, group.name)
        maker = self._maker if on_device else Maker("cpu", None)
        return read_sparse(group, matrix, maker, self._options)


def read_sparse(group: Any, matrix: Matrix, maker: Maker, options: OptionKeys) -> Any:
    """Read all of the matrix of a group, as one of SciPy or CuPy.

    In host memory, indices and index pointers have the stored integer types, as anndata's have.

    Raises:
        InvalidError: An index is outside the matrix.
        IncompatibleError: SciPy or CuPy has no such matrix.
    """
    if maker.on_host and matrix.dtype.newbyteorder("=") == np.float16:
        raise matrix.not_in_scipy("write it again as float32")
    data = maker.empty(int(matrix.indptr[-1]), matrix.dtype.newbyteorder("="))
    if maker.on_host:
        kinds = [group[name].dtype.newbyteorder("=") for name in ("indices", "indptr")]
    else:
        kinds = [maker.index_type(len(data), matrix.minor)] * 2
    indices = read_into(group, matrix, maker, data, kinds[0], options)
    pointers = maker.moved(matrix.indptr.astype(kinds[1]))
    make = scipy_matrix if maker.on_host else cupy_matrix
    return make(matrix.format, data, indices, pointers, matrix.shape)


def read_into(
    group: Any, matrix: Matrix, maker: Maker, data: Any, kind: np.dtype[Any], options: OptionKeys
) -> Any:
    """Read all values of the matrix of a group into an array, and return the indices, of a type.

    Raises:
        InvalidError: An index is outside the matrix.
    """
    count = int(matrix.indptr[-1])
    indices = maker.empty(count, kind)
    if count:
        datasets = group["data"], group["indices"]
        start_into(datasets, [np.s_[:count]] * 2, [data, indices], options).wait()
        matrix.check_indices(*maker.bounds(indices))
    return indices


_NAMES = ("X", "obs", "var", "obsm", "varm", "obsp", "varp", "layers", "uns", "raw")


def _is_numeric(element: Any) -> bool:
    return element.shape is not None and element.ndim > 0 and element.dtype.kind in "iufc"


def _check(made: Any, path: str) -> None:
    """Raise an error if a sparse matrix is damaged, which neither anndata nor SciPy checks."""
    groups = {name: getattr(made, name) for name in _ON_DEVICE[1:]}
    found = {
        f"{name}/{key}": one
        for name, group in groups.items()
        for key, one in group.items()
        if key is not None  # from anndata 0.13 on, that layer is X
    }
    found["X"] = made.X
    found["raw.X"] = None if made.raw is None else made.raw.X
    for name, array in found.items():
        if import_module("scipy.sparse").issparse(array):
            matrix = stored.of_scipy(array, path, name)
            matrix.check_pointers(array.indptr, len(array.data))
            if len(array.indices):
                matrix.check_indices(int(array.indices.min()), int(array.indices.max()))


def _moved(made: Any, maker: Maker) -> Any:
    """Move the arrays of a file that anndata has read to a GPU."""
    sparse = import_module("scipy.sparse")

    def move(array: Any) -> Any:
        if sparse.issparse(array):
            data, indices, indptr = map(maker.moved, (array.data, array.indices, array.indptr))
            return cupy_matrix(array.format, data, indices, indptr, array.shape)
        is_numeric = isinstance(array, np.ndarray) and array.dtype.kind in "biufc"
        return maker.moved(array) if is_numeric else array

    if made.X is not None:
        made.X = move(made.X)
    for name in _ON_DEVICE[1:]:
        elements = getattr(made, name)
        for key in filter(None, list(elements)):
            elements[key] = move(elements[key])
    return made
