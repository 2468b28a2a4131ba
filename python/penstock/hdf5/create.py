"""Creation of datasets from data in any memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock import arrays, frameworks
from penstock.dtypes import ElementType, element_type
from penstock.errors import IncompatibleError, InvalidError
from penstock.hdf5 import dropped, memory_types
from penstock.hdf5.library import make_durable, plain
from penstock.hdf5.writing import write
from penstock.records import has_padding, in_c_order, of_type
from penstock.shapes import Shape, lengths_of
from penstock.streams import stream_handle


def create(
    group: Any,
    file: Any,
    name: str | None,
    shape: Shape | None,
    dtype: Any,
    data: Any,
    stream: Any,
    arguments: dict[str, Any],
) -> Any:
    """Create a dataset as ``h5py.Group.create_dataset`` does, and write the data to it.

    ``file`` is the :class:`penstock.File` that the group was reached from, if there is one.
    """
    handle = stream_handle(stream)
    view = None if data is None else memory(data, handle)
    if view is None:
        lengths = None if shape is None else lengths_of(shape)
        kind = _h5py_dtype(dtype)
        wanted = getattr(data, "dtype", None) if kind is None else kind
        is_value = isinstance(data, (list, tuple, np.generic))
        if is_value and isinstance(wanted, np.dtype) and has_padding(wanted):
            data = of_type(data, wanted)
        made = plain(group).create_dataset(name, lengths, kind, data, **arguments)
        dropped.adopt(made, file)
        dropped.watch(made)
        if data is not None:
            make_durable(made)
        return made
    lengths = view.shape if shape is None else lengths_of(shape)
    if math.prod(lengths) != math.prod(view.shape):
        raise InvalidError(f"data of shape {view.shape} do not fill a dataset of shape {lengths}")
    kind = _h5py_dtype(getattr(data, "dtype", view.dtype) if dtype is None else dtype)
    made = plain(group).create_dataset(name, lengths, kind, **arguments)
    dropped.adopt(made, file)
    if lengths == view.shape:
        write(made, data, stream=stream)
    else:
        with frameworks.on_stream(view.framework, view.stream, view.device):
            reshaped = _reshaped(data, lengths)
        write(made, reshaped, stream=stream)
    return made


def memory(data: Any, stream: int | None) -> arrays.View | None:
    """Return the memory of the data; ``None`` for values that only h5py converts."""
    if isinstance(data, np.ndarray) and (data.dtype.hasobject or data.dtype.kind in "UTM"):
        return None
    if isinstance(data, (str, bytes, list, tuple, bool, int, float, complex, np.generic)):
        return None
    try:
        found = arrays.view(data, stream)
    except IncompatibleError:
        # h5py has no types that torch has and NumPy lacks, and knows no DLPack.
        if frameworks.is_torch(data) or _has_only_dlpack(data):
            raise
        return None
    # h5py converts single values of the types that it has.
    is_known = found.framework == "numpy" and not found.dtype.is_extended
    return found if found.shape or not is_known or _has_only_dlpack(data) else None


def _has_only_dlpack(data: Any) -> bool:
    """Whether NumPy makes no array of an object whose memory DLPack describes."""
    others = ("__array__", "__array_interface__", "__array_struct__", "__buffer__")
    return hasattr(data, "__dlpack__") and not any(hasattr(data, name) for name in others)


def _h5py_dtype(dtype: Any) -> Any:
    """Return a type that h5py accepts, also for types that only torch and ml_dtypes have."""
    import h5py

    if dtype is None or isinstance(dtype, (h5py.Datatype, h5py.h5t.TypeID)):
        return dtype
    try:
        element = dtype if isinstance(dtype, ElementType) else element_type(dtype)
    except IncompatibleError:
        return dtype  # h5py judges types of strings and objects
    special = memory_types.special_type(element.name)
    if special is not None:
        return h5py.Datatype(special)
    if element.is_extended:
        raise IncompatibleError(f"HDF5 has no data type {element.name}")
    return dtype if isinstance(dtype, np.dtype) else element.numpy


def _reshaped(data: Any, shape: tuple[int, ...]) -> Any:
    if not hasattr(data, "reshape"):
        raise InvalidError(
            f"a {type(data).__name__} cannot be reshaped to {shape}",
            remedy="leave the shape out, or give data of that shape",
        )
    return (in_c_order(data) if isinstance(data, np.ndarray) else data).reshape(shape)
