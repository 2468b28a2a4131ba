"""Element types, under one name for the spellings of NumPy, torch and ml_dtypes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from penstock.errors import IncompatibleError

# Types that NumPy has only with the package ml_dtypes. Even then it lacks complex32, and torch's
# type of two numbers of 4 bits in a byte.
_EXTENDED = {
    "bfloat16": 2,
    "complex32": 4,
    "float4_e2m1fn_x2": 1,
    "float8_e4m3": 1,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
}


class ElementType(NamedTuple):
    """The type of an array's elements."""

    name: str
    itemsize: int
    numpy: np.dtype[Any] | None
    """``None`` where NumPy cannot express the type in this environment."""

    def is_numpys(self, dtype: np.dtype[Any]) -> bool:
        """Whether NumPy has the type and it equals this one: NumPy takes ``None`` for float64."""
        return self.numpy is not None and self.numpy == dtype

    @property
    def is_extended(self) -> bool:
        """Whether NumPy has the type only with the package ml_dtypes, if at all."""
        return self.name in _EXTENDED


def element_type(dtype: object) -> ElementType:
    """Return the element type of a NumPy or torch dtype, a Python type or a name."""
    if isinstance(dtype, np.dtype) and (dtype.metadata or dtype.kind == "V"):
        # NumPy compares types without their metadata, so the cache would give those of another.
        return _of_numpy(dtype)
    try:
        return _element_type(dtype)
    except TypeError:
        if getattr(dtype, "__hash__", None) is None:
            return _element_type.__wrapped__(dtype)  # a list of fields, for example
        raise


@lru_cache(maxsize=256)
def _element_type(dtype: object) -> ElementType:
    if isinstance(dtype, np.dtype):
        return _of_numpy(dtype)
    name = dtype if isinstance(dtype, str) else ""
    if type(dtype).__module__ == "torch":
        name = str(dtype).removeprefix("torch.")
    if name in _EXTENDED:
        return ElementType(name, _EXTENDED[name], _ml_dtype(name))
    try:
        made = np.dtype(name or dtype)  # type: ignore[call-overload]
    except TypeError as error:
        raise IncompatibleError(f"{dtype!r} is not a data type: {error}") from None
    return _of_numpy(made)


def _of_numpy(dtype: np.dtype[Any]) -> ElementType:
    if dtype.hasobject:
        raise IncompatibleError(
            f"arrays of data type {dtype} hold Python objects, which have no bytes to store"
        )
    if dtype.subdtype is not None:
        base, inner = dtype.subdtype
        raise IncompatibleError(
            f"elements of data type {dtype} are arrays of shape {inner}",
            remedy=f"give dtype {base}, and a shape that ends with {inner}",
        )
    return ElementType(dtype.name, dtype.itemsize, dtype)


def _ml_dtype(name: str) -> np.dtype[Any] | None:
    try:
        import ml_dtypes
    except ImportError:
        return None
    kind = getattr(ml_dtypes, name, None)
    return None if kind is None else np.dtype(kind)


def numpy_dtype(element: ElementType) -> np.dtype[Any]:
    """Return the NumPy dtype of an element type, or raise an error that says how to get it."""
    if element.numpy is None:
        raise IncompatibleError(
            f"NumPy has no data type {element.name} here",
            remedy="install ml_dtypes, use torch tensors, or the bytes of the elements as uint8",
        )
    return element.numpy
