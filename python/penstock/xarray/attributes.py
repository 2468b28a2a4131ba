"""Attributes of objects of HDF5, as xarray's netCDF4 engine gives them."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import h5py
import numpy as np
from h5py import h5, h5a, h5p, h5t

from penstock.hdf5 import memory_types

HIDDEN: Final = frozenset(
    {
        "CLASS",
        "DIMENSION_LIST",
        "NAME",
        "REFERENCE_LIST",
        "_NCProperties",
        "_Netcdf4Coordinates",
        "_Netcdf4Dimid",
        "_nc3_strict",
    }
)
"""Attributes by which netCDF-4 stores its data model."""


class Attributes:
    """The attributes of a group or dataset, in the order of their creation if HDF5 keeps it.

    Each object of h5py, such as a type, takes some 20 microseconds; this makes few of them.

    Args:
        identifier: The ``h5py.h5g.GroupID`` or ``h5py.h5d.DatasetID``.
        creation: Its list of creation properties.
    """

    __slots__ = ("_identifier", "_order", "_places")

    def __init__(self, identifier: Any, creation: Any) -> None:

        is_tracked = creation.get_attr_creation_order() & h5p.CRT_ORDER_TRACKED
        self._identifier = identifier
        self._order = h5.INDEX_CRT_ORDER if is_tracked else h5.INDEX_NAME
        names: list[bytes] = []
        # A result other than None would end the iteration.
        h5a.iterate(identifier, names.append, index_type=self._order)
        self._places = {
            name.decode("utf-8", "surrogateescape"): place for place, name in enumerate(names)
        }

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def elements(self, name: str) -> np.ndarray[Any, Any] | None:
        """Return the elements of an attribute as h5py reads them; ``None`` if it is missing."""
        if name not in self._places:
            return None
        attribute = self._open(name)
        return _elements(attribute, attribute.get_type(), attribute.shape)

    def integers(self, name: str) -> list[int] | None:
        """Return the integers of an attribute; ``None`` if it is missing."""
        if name not in self._places:
            return None
        attribute = self._open(name)
        values = np.zeros(attribute.shape, np.int64)
        attribute.read(values, mtype=h5t.NATIVE_INT64)
        found: list[int] = values.reshape(-1).tolist()
        return found

    def visible(self) -> dict[str, Any]:
        """Return the attributes that netCDF shows.

        A text is a string, several are a list, one number is a scalar of NumPy, and several are an
        array, all in the byte order of the machine. References are left out: they are meaningless
        without the file.
        """
        found = {}
        for name in self._places:
            if name not in HIDDEN:
                value = self._value(name)
                if value is not None:
                    found[name] = value
        return found

    def _open(self, name: str) -> Any:

        return h5a.open(self._identifier, index=self._places[name], index_type=self._order)

    def _value(self, name: str) -> Any:

        attribute = self._open(name)
        kind, shape = attribute.get_type(), attribute.get_space().shape
        if kind.get_class() == h5t.STRING:
            is_variable = kind.is_variable_str()
            if shape is None:  # a null dataspace
                return [] if is_variable else ""
            return _text(attribute, kind, shape, name, is_variable=is_variable)
        if kind.get_class() == h5t.REFERENCE:
            return None
        if shape is None:
            return np.empty(0, type_of(kind).newbyteorder("="))
        values = _elements(attribute, kind, shape)
        if not values.dtype.isnative:
            values = values.astype(values.dtype.newbyteorder("="))
        return values.reshape(-1)[0] if values.size == 1 else values


def type_of(kind: Any) -> np.dtype[Any]:
    """Return NumPy's type of a ``TypeID`` of h5py, which takes 20 microseconds to make it.

    Raises:
        TypeError: NumPy has none.
    """
    found: np.dtype[Any] = _known(kind) or kind.dtype
    return found


def _known(kind: Any) -> np.dtype[Any] | None:
    """Return NumPy's type of a usual type of numbers; ``None`` for other types."""
    for known, dtype in _numbers().get((kind.get_class(), kind.get_size()), ()):
        if known.equal(kind):
            return dtype
    return None


@cache
def _numbers() -> dict[tuple[int, int], list[tuple[Any, np.dtype[Any]]]]:
    """Return the usual types of numbers by class and size."""

    found: dict[tuple[int, int], list[tuple[Any, np.dtype[Any]]]] = {}
    for letters in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"):
        for dtype in dict.fromkeys((np.dtype("<" + letters), np.dtype(">" + letters))):
            kind = h5t.py_create(dtype)
            found.setdefault((kind.get_class(), kind.get_size()), []).append((kind, dtype))
    return found


@cache
def _variable_text(encoding: str) -> tuple[Any, np.dtype[Any]]:
    """Return the type of strings of variable length, for HDF5 and for NumPy."""
    dtype = h5py.string_dtype(encoding)
    return h5py.h5t.py_create(dtype), dtype


def _elements(attribute: Any, kind: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    known = _known(kind)
    if known is not None:
        values = np.zeros(shape, known)
        attribute.read(values, mtype=kind)
        return values
    dtype = kind.dtype
    base, inner = dtype.subdtype or (dtype, ())
    values = np.zeros(shape + inner, base)
    attribute.read(values, mtype=_memory_type(kind, dtype))
    memory_types.correct_lists(values, dtype)
    return values


def _memory_type(kind: Any, dtype: np.dtype[Any]) -> Any:
    """Return the HDF5 type of elements in memory, which may be another one than in the file.

    h5py reads a bfloat16 as a float32, for example. HDF5 has no conversion between opaque types.
    """
    wanted = h5t.py_create(dtype)
    is_opaque = kind.get_size() == dtype.itemsize and h5t.find(kind, wanted) is None
    return kind if is_opaque else wanted


def _text(
    attribute: Any, kind: Any, shape: tuple[int, ...], name: str, *, is_variable: bool
) -> Any:
    # netCDF takes a fixed-length string without dimensions for characters, others for strings.
    if is_variable:
        of_file = "utf-8" if kind.get_cset() == h5t.CSET_UTF8 else "ascii"
        kind, dtype = _variable_text(of_file)
    else:
        dtype = np.dtype(("S", kind.get_size()))
    values = np.zeros(shape, dtype)
    attribute.read(values, mtype=kind)
    if name == "_FillValue" and not is_variable and not shape:
        return np.bytes_(values[()])
    texts = [_decoded(value) for value in values.flat]
    return texts[0] if len(texts) == 1 else texts


def _decoded(value: Any) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text.replace("\0", "")
