"""HDF5's names for the types of elements in memory."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from penstock.dtypes import ElementType

# Floats that h5py has no word for: bytes; sign bit; exponent's first bit, length and bias;
# mantissa's length (it starts at bit 0).
_FLOATS = {
    "bfloat16": (2, 15, 7, 8, 127, 7),
    "float8_e4m3fn": (1, 7, 3, 4, 7, 3),
    "float8_e5m2": (1, 7, 2, 5, 15, 2),
}


def memory_type(element: ElementType, stored: np.dtype[Any]) -> Any:
    """The HDF5 type of an element in memory, an ``h5py.h5t.TypeID``; ``None`` if HDF5 has none.

    ``stored`` is what h5py says of the dataset. Its metadata (an enumeration, the encoding of a
    string, a tag) count for an array of the same type, which may not carry them.
    """
    import h5py

    special = special_type(element.name)
    if special is not None:
        return special
    if element.numpy is None or element.is_extended:
        return None
    if element.numpy.kind in "iufc" and (element.numpy != stored or not stored.metadata):
        return _number(element.numpy.str)
    try:
        return h5py.h5t.py_create(stored if element.numpy == stored else element.numpy)
    except TypeError:
        return None


@lru_cache(maxsize=64)
def _number(name: str) -> Any:
    import h5py

    try:
        return h5py.h5t.py_create(np.dtype(name))
    except TypeError:
        return None


def special_type(name: str) -> Any:
    """The HDF5 type of a type that h5py has no word for, ``None`` for another one."""
    if name in _FLOATS:
        return _float(*_FLOATS[name])
    if name != "complex32":
        return None
    import h5py

    half = h5py.h5t.py_create(np.dtype("f2"))
    pair = h5py.h5t.create(h5py.h5t.COMPOUND, 4)
    for offset, part in zip((0, 2), h5py.get_config().complex_names, strict=True):
        pair.insert(part.encode(), offset, half)
    return pair


def array_type(element: Any, shape: tuple[int, ...]) -> Any:
    """The type of an element that is itself an array."""
    import h5py

    return h5py.h5t.array_create(element, shape) if shape else element


def field_type(element: Any, name: str) -> Any:
    """The compound type of nothing but one field, which therefore lies like the field itself."""
    import h5py

    compound = h5py.h5t.create(h5py.h5t.COMPOUND, element.get_size())
    compound.insert(name.encode(), 0, element)
    return compound


def fields_type(dtype: np.dtype[Any], names: tuple[str, ...]) -> Any:
    """The compound type of some fields of a structure, which keep their places in it.

    ``None`` if it has none of them: HDF5 crashes when it looks for a conversion of no fields.
    """
    import h5py

    if dtype.fields is None or not set(names) & set(dtype.fields):
        return None
    compound = h5py.h5t.create(h5py.h5t.COMPOUND, dtype.itemsize)
    for name in dtype.names or ():
        if name in names:
            kind, offset = dtype.fields[name][:2]
            compound.insert(name.encode(), offset, h5py.h5t.py_create(kind))
    return compound


def is_for_numpy(source: np.dtype[Any], target: np.dtype[Any] | None) -> bool:
    """Whether numbers of one type become those of another as NumPy makes them.

    HDF5 has no conversion between real and complex numbers, and none between floats and truth
    values, which it keeps as an enumeration: of an integer it leaves the bytes as they are, which
    are then neither true nor false.
    """
    if target is None or {source.kind, target.kind} - set("biufc"):
        return False
    return any((source.kind == kind) != (target.kind == kind) for kind in "bc")


def converts(source: Any, target: Any) -> bool:
    """Whether HDF5 can convert between two types."""
    import h5py

    return source.equal(target) or h5py.h5t.find(source, target) is not None


def _float(
    size: int, sign: int, exponent: int, exponent_length: int, bias: int, mantissa_length: int
) -> Any:
    import h5py

    made = h5py.h5t.IEEE_F16LE.copy()
    made.set_fields(sign, exponent, exponent_length, 0, mantissa_length)
    made.set_size(size)
    made.set_precision(8 * size)
    made.set_ebias(bias)
    return made
