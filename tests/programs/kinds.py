"""The types of datasets: NumPy's by their names, others by names defined here."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

_INTEGERS = tuple(order + kind for kind in ("i2", "u2", "i4", "u4", "i8", "u8") for order in "<>")
NUMBERS = ("i1", "u1", *_INTEGERS, "<f2", "<f4", ">f4", "<f8", ">f8")
"""Those that the programs convert between."""
_ENUM = h5py.enum_dtype({f"n{value}": value for value in range(120)}, basetype="<i2")
_TEXT = h5py.string_dtype()
_NAMED: dict[str, np.dtype[Any]] = {
    "record": np.dtype([("a", "<i4"), ("b", "<f8"), ("c", ">i2")]),
    "padded": np.dtype([("a", "u1"), ("b", "<f8"), ("c", "<i2")], align=True),
    "nested": np.dtype([("p", [("x", "<i2"), ("y", "<f4")]), ("v", "<i4", (3,)), ("s", "S5")]),
    "text": np.dtype([("k", "<i4"), ("name", _TEXT), ("z", "<f8")]),
    "enum": _ENUM,
    "bool": np.dtype("?"),
    "complex": np.dtype("<c8"),
    "string": np.dtype("S7"),
    "opaque": np.dtype("V5"),
    "bits": np.dtype("<u2"),
    "odd float": np.dtype("<f4"),
    "odd integer": np.dtype("<i4"),
}
OTHERS = tuple(_NAMED)
_NARROW = ("<f2", "enum", "odd float", "odd integer")
"""Those that hold only some values of the type in memory, or that HDF5 2.0 itself converts to
undefined integers: half floats that are negative or infinite."""


def dtype(name: str) -> np.dtype[Any]:
    """The type in memory."""
    return _NAMED[name] if name in _NAMED else np.dtype(name)


def is_number(name: str) -> bool:
    return name not in _NAMED


def is_narrow(name: str) -> bool:
    return name in _NARROW


def stored(name: str) -> Any:
    """The type for ``create_dataset``, if it is not the type in memory."""
    made: Any
    if name == "bits":
        made = h5py.h5t.STD_B16LE.copy()
    elif name == "odd float":  # of 24 bits, of which the highest is unused
        made = h5py.h5t.IEEE_F32LE.copy()
        made.set_fields(22, 16, 6, 0, 16)
        made.set_precision(23)
        made.set_size(3)
        made.set_ebias(31)
    elif name == "odd integer":
        made = h5py.h5t.STD_I32LE.copy()
        made.set_precision(19)
        made.set_offset(3)
    else:
        return dtype(name)
    return h5py.Datatype(made)


def some_fields(whole: np.dtype[Any], names: list[str]) -> np.dtype[Any]:
    """A type of some members of a record, without padding."""
    return np.dtype([(name, whole[name]) for name in names])


def pick_fields(values: np.ndarray[Any, Any], wanted: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The members that a type of records has, of records with more members."""
    made = np.empty(values.shape, wanted)
    for name in wanted.names or ():
        made[name] = values[name]
    return made


def flags(whole: np.dtype[Any]) -> np.dtype[Any]:
    """A boolean type for an element, or for each member of a record."""
    return np.dtype([(name, "?") for name in whole.names] if whole.names else "?")


def filled(shape: tuple[int, ...], fill: Any, kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An array of a fill value: HDF5's default for all types but numbers."""
    if kind.names is None and kind.kind in "iuf":
        return np.full(shape, fill, kind)
    made = np.zeros(shape, kind)
    for name in kind.names or ():
        if kind[name].hasobject:
            made[name] = b""
    return made
