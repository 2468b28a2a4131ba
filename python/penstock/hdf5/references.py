"""Reads of references where HDF5 may leave memory as it is.

h5py reads references through memory that it does not clear. Elements that were never written then
show what that memory held before. Here the engine reads the bytes into zeros, and h5py's conversion
makes objects of them: zeros are a null reference.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from penstock import arrays, request, transfer
from penstock.hdf5 import memory_types, small
from penstock.hdf5 import selection as selections
from penstock.hdf5.library import is_writable, lock
from penstock.hdf5.submit import SubmitOptions, TypedMemory, submit


def is_needed(dataset: Any, argument: Any) -> bool:
    """Whether h5py's read of ``dataset[argument]`` may show memory that was never written."""
    return (
        dataset.shape is not None
        and small.may_leave_memory(dataset)
        and _has_references(selections.stored_type(dataset, argument))
        and not (dataset.shape == () and dataset.id.get_storage_size())
    )


def read(dataset: Any, argument: Any) -> Any:
    """Return ``dataset[argument]``, with null references and zeros where HDF5 leaves memory."""
    import h5py
    from h5py._hl.selections2 import select_read

    indices, names = selections.split(argument)
    stored = selections.stored_type(dataset, argument)
    kind = h5py.h5t.py_create(stored, logical=True)
    if dataset.shape == ():
        shape = select_read(dataset.id.get_space(), indices).mshape
        made = _objects(np.zeros((), _bytes_of(kind)), stored.base)
        return made[()] if shape is None else made
    selection = selections.select(dataset, dataset.shape, indices)
    packed = np.zeros(selection.size * kind.get_size(), np.uint8)
    in_memory = memory_types.field_type(kind, names[0]) if len(names) == 1 else kind
    reading = submit(
        request.READ,
        dataset,
        selection,
        TypedMemory(arrays.view(packed, None), in_memory, None),
        SubmitOptions.of(None, {}),
        blocking=True,
        may_change=is_writable(dataset),
        array=packed,
        is_new=True,
    )
    transfer.finish(reading)
    record = np.dtype([("element", _bytes_of(kind))])
    return _objects(packed.view(record).reshape(selection.shape)["element"], stored.base)[()]


def _has_references(stored: np.dtype[Any]) -> bool:
    """Whether elements hold references and no other objects."""
    import h5py

    base = stored.base
    if base.names is None:
        return h5py.check_ref_dtype(base) is not None
    with_objects = [base[name] for name in base.names if base[name].hasobject]
    return bool(with_objects) and all(map(_has_references, with_objects))


def _bytes_of(kind: Any) -> np.dtype[Any]:
    """Return NumPy's type for the bytes of elements, in which references are plain bytes."""
    import h5py

    if isinstance(kind, h5py.h5t.TypeReferenceID):
        return np.dtype((np.void, kind.get_size()))
    if isinstance(kind, h5py.h5t.TypeArrayID):
        return np.dtype((_bytes_of(kind.get_super()), kind.get_array_dims()))
    if not isinstance(kind, h5py.h5t.TypeCompoundID):
        found: np.dtype[Any] = kind.dtype
        return found
    members = range(kind.get_nmembers())
    return np.dtype(
        {
            "names": [kind.get_member_name(at).decode() for at in members],
            "formats": [_bytes_of(kind.get_member_type(at)) for at in members],
            "offsets": [kind.get_member_offset(at) for at in members],
            "itemsize": kind.get_size(),
        }
    )


def _objects(found: np.ndarray[Any, Any], stored: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return elements of the dataset's type from their bytes."""
    if not stored.hasobject:
        return found.astype(stored, copy=False)
    if stored.names is None:
        return _references(found, stored)
    made = np.zeros(found.shape, stored)
    for name in stored.names:
        made[name] = _objects(found[name], stored[name].base)
    return made


def _references(found: np.ndarray[Any, Any], stored: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return references from their bytes."""
    import h5py

    buffer = np.frombuffer(bytearray(found.tobytes()), np.uint8)
    with lock():
        source, target = h5py.h5t.py_create(stored, logical=True), h5py.h5t.py_create(stored)
        # h5py releases the objects of the background; zeros are not objects.
        h5py.h5t.convert(source, target, found.size, buffer, np.zeros_like(buffer))
    # The buffer now has the addresses of objects, which the array takes over. The array loses
    # references to None, whose reference count does not matter.
    made = np.empty(found.shape, stored)
    ctypes.memmove(made.ctypes.data, buffer.ctypes.data, made.nbytes)
    return made
