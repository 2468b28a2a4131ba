"""Copies of arrays of structures, for files.

NumPy copies the fields of a structure. What is between them, for alignment, stays as it was in the
new memory: bytes of arrays that were freed. The functions here define these bytes.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np


def has_padding(dtype: np.dtype[Any]) -> bool:
    """Whether elements have bytes that belong to no field."""
    if dtype.subdtype is not None:
        return has_padding(dtype.subdtype[0])
    if dtype.names is None:
        return False
    members = [dtype[name] for name in dtype.names]
    used = sum(member.itemsize for member in members)
    return used < dtype.itemsize or any(map(has_padding, members))


def in_c_order(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array, or a C-contiguous copy, with all its bytes, also those between fields."""
    kind = array.dtype
    if array.flags.c_contiguous or kind.names is None or kind.hasobject or not kind.itemsize:
        return np.asarray(array, order="C")
    made: np.ndarray[Any, Any] = np.asarray(array).view(f"V{kind.itemsize}").copy("C").view(kind)
    return made


def of_type(values: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return values as an array of a type; bytes that NumPy adds between the fields are zero."""
    made: np.ndarray[Any, Any] = np.asarray(values, dtype)
    return made if made is values or dtype.names is None else converted(made, dtype)


def converted(
    array: Any, dtype: np.dtype[Any], casting: Literal["same_kind", "unsafe"] = "unsafe"
) -> np.ndarray[Any, Any]:
    """Return a copy of another type; the bytes between its fields are zero.

    NumPy 2.5 copies these bytes as well where both types are the same, so each field is copied.
    """
    given = np.asarray(array)
    if dtype.names is None:
        return given.astype(dtype, casting=casting)
    if given.dtype != dtype:
        given = given.astype(dtype, casting=casting)
    made = np.zeros(given.shape, dtype)
    _copy_fields(made, given)
    return made


def _copy_fields(to: np.ndarray[Any, Any], given: np.ndarray[Any, Any]) -> None:
    assert to.dtype.names is not None
    for name in to.dtype.names:
        if to[name].dtype.names is None:
            to[name] = given[name]
        else:
            _copy_fields(to[name], given[name])
