"""Writes of datasets, from what the caller says to a request."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import arrays, request
from penstock.hdf5 import by_h5py
from penstock.hdf5 import memory_types as hdf5_types
from penstock.hdf5 import selection as selections
from penstock.hdf5 import submit as hdf5_native
from penstock.hdf5.library import writable
from penstock.request import Request


def start(
    dataset: Any, array: Any, argument: Any, how: hdf5_native.Manner, *, waits: bool
) -> Request[Any]:
    after = how.stream
    stored = dataset.dtype
    view = _source(array, stored, after)

    def left_to_h5py(reason: str) -> Request[Any]:
        return by_h5py.write(dataset, array, argument, view, after, reason)

    if not dataset.shape:
        return left_to_h5py(by_h5py.without_dimensions(dataset))
    indices, names = selections.split(argument)
    field = selections.field_dtype(stored, names) if names else stored
    if view is None or field.hasobject:
        return left_to_h5py(f"values of type {field} are for HDF5 to make")
    dtype = view.dtype.numpy
    opaque = stored.kind == "V" and stored.subdtype is None
    if opaque and not names and (dtype is None or dtype.kind != "V"):
        return left_to_h5py(f"values of type {view.dtype.name} become {stored} by NumPy")
    if not writable(dataset):
        return left_to_h5py("the file is not open for writing")  # HDF5 says so

    base, inner = field.subdtype or (field, ())
    kind = hdf5_types.memory_type(view.dtype, base)
    if kind is not None and names:
        if dtype is not None and dtype.names is not None:
            kind, inner = hdf5_types.fields_type(dtype, names), ()
        elif len(names) == 1 and dtype == base and not inner:
            kind = hdf5_types.field_type(kind, names[0])
        else:
            return left_to_h5py("NumPy makes the values of the fields")
    elif kind is not None:
        kind = hdf5_types.array_type(kind, inner)
    for_numpy = dtype is not None and hdf5_types.is_for_numpy(dtype, base)
    if kind is None or for_numpy or not hdf5_types.converts(kind, dataset.id.get_type()):
        return left_to_h5py(f"HDF5 has no conversion from {view.dtype.name}")
    outer = view.shape[: view.ndim - len(inner)]
    if view.shape[len(outer) :] != inner:
        return left_to_h5py("the arrays in the elements have another shape")

    selected = selections.select(dataset, indices)
    if waits and view.device < 0 and not view.dtype.is_extended:
        nbytes = selected.count * field.itemsize
        if by_h5py.is_small(dataset, selected, nbytes, plain=dtype == base and not names):
            return left_to_h5py(by_h5py.TOO_SMALL)
    if outer == () and selected.shape != () and (inner or not selected.regular):
        return left_to_h5py("one value for arrays or single elements is for h5py to take or refuse")
    selected.fits(outer)
    if not selected.count:
        return by_h5py.nothing(array)
    if not view.contiguous and not (selected.regular and view.is_dense(len(inner))):
        view = arrays.source(array, after)
    strides = view.outer_strides(len(inner))
    if selected.regular and outer != selected.shape:
        strides = selected.repeat(outer, view.byte_strides[: len(outer)])
    return hdf5_native.submit(
        request.WRITE,
        dataset,
        selected,
        hdf5_native.Memory(view, kind, strides),
        how,
        waits=waits,
        array=array,
    )


def _source(array: Any, stored: np.dtype[Any], stream: int | None) -> arrays.View | None:
    """The memory of an array, ``None`` for values that h5py alone can make something of."""
    if isinstance(array, np.ndarray) and not array.dtype.hasobject:
        return None if array.dtype.kind in "UT" else arrays.view(array, stream)
    if isinstance(array, (list, tuple, bool, int, float, complex, np.generic)):
        # As h5py does: numbers become those of the dataset at once.
        if stored.kind not in "biufc":
            return None
        return arrays.view(np.asarray(array, dtype=stored.base), stream)
    if isinstance(array, (str, bytes)):
        return None
    found = None if isinstance(array, np.ndarray) else arrays.find(array, stream)
    if found is not None:
        return found
    # A table, a range, a decimal number or an array of them, another dataset.
    made = _numbers(array, stored)
    return None if made is None else arrays.view(made, stream)


def _numbers(value: Any, stored: np.dtype[Any]) -> np.ndarray[Any, Any] | None:
    """What NumPy makes of a value for a dataset of numbers; ``None`` if that is none."""
    if stored.kind not in "biufc":
        return None
    try:
        made: np.ndarray[Any, Any] = np.asarray(value)
        return made if made.dtype.kind in "biufc" else np.asarray(value, dtype=stored.base)
    except (TypeError, ValueError):
        return None
