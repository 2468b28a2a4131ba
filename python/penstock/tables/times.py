"""Records with times of HDF5's class ``H5T_TIME``, for which NumPy has no type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock import request
from penstock.hdf5.library import explain, lock, wait_for_dataset


class Field(NamedTuple):
    """A field of records."""

    memory: Any
    """The type of its elements in memory, h5py's."""
    dtype: np.dtype[Any] | None
    """Times are integers; ``None`` if NumPy has no elements of a fixed size for it."""
    is_time: bool = False
    fields: Mapping[str, Field] | None = None
    """The fields of a record that has times."""


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
    return _fields_of(kind) if kind.get_class() == h5py.h5t.COMPOUND else {}


def _fields_of(kind: Any) -> dict[str, Field]:
    numbers = range(kind.get_nmembers())
    return {kind.get_member_name(at).decode(): _field(kind.get_member_type(at)) for at in numbers}


def _field(kind: Any) -> Field:
    import h5py

    try:
        dtype: np.dtype[Any] = kind.dtype
    except TypeError:
        return _field_with_times(kind)
    if dtype.hasobject:
        return Field(kind, None)
    return Field(h5py.h5t.py_create(dtype), dtype)


def _field_with_times(kind: Any) -> Field:
    """Describe a time, or an array or a record that has times."""
    import h5py

    group = kind.get_class()
    if group == h5py.h5t.TIME and kind.get_size() in (4, 8):
        # h5py has no byte order of a time. The encoding of a type begins with its message and
        # version, and the class. Bit 0 of the next byte is the order.
        order = "<>"[kind.encode()[3] & 1]
        return Field(kind, np.dtype(f"{order}i{kind.get_size()}"), is_time=True)
    if group == h5py.h5t.ARRAY:
        one, shape = _field(kind.get_super()), kind.get_array_dims()
        if one.dtype is not None:
            memory = h5py.h5t.array_create(one.memory, shape)
            return one._replace(memory=memory, dtype=np.dtype((one.dtype, shape)))
    if group == h5py.h5t.COMPOUND:
        known = _fields_of(kind)
        if all(field.dtype is not None for field in known.values()):
            return _record(known)
    return Field(kind, None)


def _record(known: Mapping[str, Field]) -> Field:
    import h5py

    dtype = np.dtype([(name, field.dtype) for name, field in known.items()])
    memory = h5py.h5t.create(h5py.h5t.COMPOUND, max(dtype.itemsize, 1))
    for name, field in known.items():
        assert dtype.fields is not None
        memory.insert(name.encode(), dtype.fields[name][1], field.memory)
    return Field(memory, dtype, fields=known)


def read(dataset: Any, known: dict[str, Field], names: Sequence[str]) -> dict[str, Any]:
    """Read fields of all records to host memory, by HDF5, which has no conversion of times."""
    record = _record({name: known[name] for name in names})
    with lock():
        wait_for_dataset(dataset, request.READ)
        space = dataset.id.get_space()
        records = np.zeros(space.get_simple_extent_dims(), record.dtype)
        try:
            if records.size and names:
                dataset.id.read(space, space, records, record.memory)
        except OSError as error:
            explain(dataset, error)
            raise
    is_table = is_of_pytables(dataset)
    return {
        name: _as_pytables(records[name], known[name])
        if is_table
        else np.ascontiguousarray(records[name])
        for name in names
    }


def is_of_pytables(dataset: Any) -> bool:
    """Whether PyTables has written a dataset as a table."""
    return bool(dataset.attrs.get("CLASS") == b"TABLE")


def _as_pytables(stored: Any, field: Field) -> Any:
    """Return the elements of a field with its times as PyTables reads them."""
    if field.is_time:
        return _seconds(stored)
    if field.fields is None:
        return np.ascontiguousarray(stored)
    parts = {name: _as_pytables(stored[name], one) for name, one in field.fields.items()}
    inner = [(name, part.dtype, part.shape[stored.ndim :]) for name, part in parts.items()]
    made = np.empty(stored.shape, inner)
    for name, part in parts.items():
        made[name] = part
    return made


def _seconds(stored: Any) -> Any:
    """Return times as PyTables does: whole seconds, or seconds and microseconds of 32 bits each."""
    found = stored.astype(stored.dtype.newbyteorder("="))
    if found.dtype.itemsize == 4:
        return found
    return (found >> 32) + 1e-6 * found.astype(np.int32)
