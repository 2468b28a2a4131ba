"""Values, their conversion to other types, and the memory that holds them."""

from __future__ import annotations

import math
from typing import Any

import h5py
import numpy as np

Array = np.ndarray[Any, Any]

_GUARD = 64
_UNTOUCHED = 0xA5
_MOST_DOUBLINGS = 80
"""How often small floats are doubled, to lie beyond the limits of integers as well."""


def make(seed: int, shape: tuple[int, ...], dtype: Any, *, narrow: bool = False) -> Array:
    """The values of a seed.

    Of a third of the seeds, and of narrow types, they are from 0 to 119, for floats in quarters,
    and thus exact in every type. Of another third, their absolute values are as small. Of the last
    third, they fill the range of the type.
    """
    source = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    spread = 0 if narrow or kind.str == "<f2" else seed % 3
    if kind.names is not None:
        made = np.empty(shape, kind)
        for place, name in enumerate(kind.names):
            base, inner = kind[name].subdtype or (kind[name], ())
            made[name] = make(seed + place, shape + inner, base, narrow=narrow)
        return made
    if kind.kind in "SVO?":
        numbers = make(seed, shape, "u1", narrow=True)
        if kind.kind == "?":
            return numbers % 2 == 1
        texts = np.asarray(numbers).astype("S5")
        if kind.kind == "V":
            return np.ascontiguousarray(texts).view(kind).reshape(shape)
        return np.array(texts, object).astype(kind) if kind.kind == "O" else texts.astype(kind)
    # Of no dimensions, NumPy would make scalars, which have no byte order.
    if kind.kind == "f":
        quarters = np.asarray(source.integers(-480 if spread else 0, 480, shape, np.int16))
        if spread:
            # HDF5 2.0 itself converts some powers of two that limit an integer type, and numbers
            # between -1 and 0 in the other byte order, to integers that are not the nearest.
            quarters = np.where(abs(quarters) < 5, 5, quarters | 1)
        powers = source.integers(0, _MOST_DOUBLINGS, shape) if spread == 2 else 0
        return np.asarray(np.ldexp(quarters / 4, powers)).astype(kind)
    if spread == 2 and kind.kind in "iu":
        return np.asarray(
            source.integers(*_limits(kind), shape, kind.newbyteorder("="), True), kind
        )
    is_signed = spread == 1 and kind.kind == "i"
    return np.asarray(source.integers(-120 if is_signed else 0, 120, shape, np.int8)).astype(kind)


def _limits(kind: np.dtype[Any]) -> tuple[int, int]:
    limits = np.iinfo(kind)
    return int(limits.min), int(limits.max)


def convert(values: Array, dtype: Any) -> Array:
    """The values as HDF5 converts them.

    Numbers beyond the limits of an integer type become the nearest limit. Only between integers of
    one length and two byte orders HDF5 exchanges the bytes alone, and ignores the signs. It rounds
    a float that lies halfway between two shorter ones by another rule than NumPy, unless both have
    the byte order of the machine.
    """
    kind, given = np.dtype(dtype), values.dtype
    if kind.kind == given.kind == "f" and kind.itemsize < given.itemsize:
        raw = values.flatten().view("u1")
        h5py.h5t.convert(h5py.h5t.py_create(given), h5py.h5t.py_create(kind), values.size, raw)
        return raw[: values.size * kind.itemsize].view(kind).reshape(values.shape)
    with np.errstate(over="ignore"):
        if kind.kind not in "iu" or given.kind not in "iuf":
            return values.astype(kind)
    if given.kind == "f":
        least, most = _limits(kind)
        whole = np.asarray(np.trunc(values.astype("f8")))
        is_low, is_high = whole <= float(least), whole >= float(most)
        made = np.where(is_low | is_high, 0, whole).astype(kind)
        made[is_low], made[is_high] = least, most
        return made
    if given.itemsize != kind.itemsize or given.isnative == kind.isnative:
        of, to = _limits(given), _limits(kind)
        values = np.asarray(np.clip(values, max(of[0], to[0]), min(of[1], to[1])))
    return values.astype(kind)


def to_host(array: Any) -> Array:
    """An array of any framework in host memory."""
    if hasattr(array, "cpu"):
        array = array.cpu()
    elif hasattr(array, "get"):
        array = array.get()
    return np.asarray(array.numpy() if hasattr(array, "numpy") else array)


class Memory:
    """An array in some kind of memory, between bytes that must stay unchanged.

    Kinds: ``c`` and ``f`` for the two orders, ``step`` for every second element of rows of a larger
    array, ``device`` for a GPU.
    """

    def __init__(self, kind: str, shape: tuple[int, ...], dtype: Any) -> None:
        self.kind = kind if shape else "device" if kind == "device" else "c"
        self.dtype = np.dtype(dtype)
        if self.kind == "step" and self.dtype.names:
            self.kind = "c"  # NumPy does not copy the padding of elements between
        if self.kind == "device":
            import penstock

            self.array: Any = penstock.DeviceArray(shape, self.dtype)
            return
        if self.dtype.hasobject:  # which cannot be had at a given address
            self._whole = np.full(2 * _GUARD, _UNTOUCHED, np.uint8)
            self._between, self.array = None, np.empty(shape, self.dtype)
            return
        held = (*shape[:-1], shape[-1] * 2) if self.kind == "step" else shape
        nbytes = math.prod(held) * self.dtype.itemsize
        self._whole = np.full(nbytes + 2 * _GUARD, _UNTOUCHED, np.uint8)
        order: Any = "F" if self.kind == "f" else "C"
        body = self._whole[_GUARD : _GUARD + nbytes].view(self.dtype).reshape(held, order=order)
        self._between = body[..., 1::2] if self.kind == "step" else None
        self.array = body[..., ::2] if self.kind == "step" else body

    @classmethod
    def holding(cls, kind: str, values: Array) -> Memory:
        if kind == "device":
            import penstock

            made = cls.__new__(cls)
            made.kind, made.dtype = kind, values.dtype
            made.array = penstock.DeviceArray.from_numpy(values)
            return made
        made = cls(kind, values.shape, values.dtype)
        made.array[...] = values
        return made

    @property
    def nbytes(self) -> int:
        return int(self.array.nbytes)

    @property
    def address(self) -> int:
        array = self.array
        return int(array.data_ptr if self.kind == "device" else array.ctypes.data)

    @property
    def strides(self) -> tuple[int, ...] | None:
        """In bytes; ``None`` for C order."""
        return tuple(self.array.strides) if self.kind in ("f", "step") else None

    def change(self) -> None:
        """Give the elements other values."""
        self.array[...] = 33 if self.dtype.kind in "iufc?" else np.zeros((), self.dtype)

    def values(self) -> Array:
        """A copy in host memory; AssertionError if something around them was changed."""
        if self.kind == "device":
            return to_host(self.array)
        guards = (self._whole[:_GUARD], self._whole[-_GUARD:])
        for guard in guards:
            assert (guard == _UNTOUCHED).all(), "bytes around the array were changed"
        if self._between is not None:
            gaps = np.ascontiguousarray(self._between).view(np.uint8)
            assert (gaps == _UNTOUCHED).all(), "elements between those of the array were changed"
        return np.array(self.array)
