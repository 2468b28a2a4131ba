"""Records with times of HDF5's class ``H5T_TIME``, for which NumPy has no type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock import request
from penstock.hdf5 import pending
from penstock.hdf5.library import explain, lock


class Field(NamedTuple):
    """A field of records."""

    type: Any
    """h5py's."""
    dtype: np.dtype[Any] | None
    """An integer for times; ``None`` if NumPy has no elements of a fixed size for it."""
    is_time: bool


def record_type(dataset: Any) -> np.dtype[Any] | None:
    """Return the data type of an ``h5py.Dataset``; ``None`` if it has times."""
    try:
        found: np.dtype[Any] = dataset.dtype
    except TypeError:
        return None
    return found


def fields(dataset: Any) -> dict[str, Field]:
    """Return the fields of a dataset with times; none if it is not of records."""
    import h5py

    kind = dataset.id.get_type()
    if kind.get_class() != h5py.h5t.COMPOUND:
        return {}
    numbers = range(kind.get_nmembers())
    return {kind.get_member_name(at).decode(): _field(kind.get_member_type(at)) for at in numbers}


def _field(kind: Any) -> Field:
    import h5py

    base, shape = kind, ()
    if kind.get_class() == h5py.h5t.ARRAY:
        base, shape = kind.get_super(), kind.get_array_dims()
    if base.get_class() == h5py.h5t.TIME and base.get_size() in (4, 8):
        # h5py has no byte order of a time. The encoding of a type begins with its message and
        # version, and the class. Bit 0 of the next byte is the order.
        order = "<>"[base.encode()[3] & 1]
        return Field(kind, np.dtype((f"{order}i{base.get_size()}", shape)), is_time=True)
    try:
        dtype: np.dtype[Any] = kind.dtype
    except TypeError:
        return Field(kind, None, is_time=False)
    return Field(kind, None if dtype.hasobject else dtype, is_time=False)


def read(dataset: Any, known: dict[str, Field], names: Sequence[str]) -> dict[str, Any]:
    """Read fields of all records to host memory, by HDF5, which has no conversion of times."""
    import h5py

    dtype = np.dtype([(name, known[name].dtype) for name in names])
    assert dtype.fields is not None
    kind = h5py.h5t.create(h5py.h5t.COMPOUND, max(dtype.itemsize, 1))
    for name in names:
        field = known[name]
        same = field.type if field.is_time else h5py.h5t.py_create(field.dtype)
        kind.insert(name.encode(), dtype.fields[name][1], same)
    with lock():
        pending.wait_for_dataset(dataset, request.READ)
        space = dataset.id.get_space()
        records = np.zeros(space.get_simple_extent_dims(), dtype)
        try:
            if records.size and names:
                dataset.id.read(space, space, records, kind)
        except OSError as error:
            explain(dataset, error)
            raise
    is_of_pytables = dataset.attrs.get("CLASS") == b"TABLE"
    return {
        name: _seconds(records[name])
        if is_of_pytables and known[name].is_time
        else np.ascontiguousarray(records[name])
        for name in names
    }


def _seconds(stored: Any) -> Any:
    """Return times as PyTables does: whole seconds, or seconds and microseconds of 32 bits each."""
    found = stored.astype(stored.dtype.newbyteorder("="))
    if found.dtype.itemsize == 4:
        return found
    return (found >> 32) + 1e-6 * found.astype(np.int32)
