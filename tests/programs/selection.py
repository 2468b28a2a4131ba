"""Selections as data, and their indices for NumPy and h5py."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Picked:
    """A selection of a dataset of some shape; never empty."""

    def __init__(
        self, shape: tuple[int, ...], parts: list[Any] | None, flat: list[int] | None = None
    ) -> None:
        self.whole = shape
        self.parts = parts
        self._mask: Array | None = None
        if flat is not None:
            self._mask = np.zeros(shape, bool)
            self._mask.flat[flat] = True
            self.shape: tuple[int, ...] = (int(self._mask.sum()),)
        elif parts is None:
            self.shape = shape
        else:
            lengths = [_length(part) for part in parts]
            self._lengths = tuple(1 if n is None else n for n in lengths)
            self.shape = tuple(n for n in lengths if n is not None)
            if self._has_several_lists:
                # NumPy moves the dimension of lists to the front if a slice separates them.
                self.shape = np.broadcast_to(np.uint8(0), shape)[self.argument].shape

    @property
    def regular(self) -> bool:
        """Whether it consists of integers and slices, so that arrays may have strides."""
        return self._mask is None and not any(isinstance(p, list) for p in self.parts or ())

    @property
    def is_of_hdf5(self) -> bool:
        """Whether h5py, and thus a dataspace of HDF5, can select it."""
        lists = [part for part in self.parts or () if isinstance(part, list)]
        return len(lists) < 2 and all(part == sorted(set(part)) for part in lists)

    @property
    def _has_several_lists(self) -> bool:
        return sum(isinstance(part, list) for part in self.parts or ()) > 1

    @property
    def argument(self) -> Any:
        """The index of a dataset: what is between the brackets."""
        if self._mask is not None:
            return self._mask
        if self.parts is None or not self._has_several_lists:
            return () if self.parts is None else tuple(self.parts)
        lists = iter(np.ix_(*(part for part in self.parts if isinstance(part, list))))
        return tuple(next(lists) if isinstance(part, list) else part for part in self.parts)

    @property
    def indices(self) -> list[list[int] | range]:
        """The indices of each dimension, of which every combination is selected."""
        assert self._mask is None
        parts = [slice(None)] * len(self.whole) if self.parts is None else self.parts
        return [
            [part] if isinstance(part, int) else part if isinstance(part, list) else range(n)[part]
            for part, n in zip(parts, self.whole, strict=True)
        ]

    @property
    def points(self) -> Array | None:
        """The indices of single elements, one row each; ``None`` if it is not a mask."""
        return None if self._mask is None else np.argwhere(self._mask)

    def of(self, array: Array) -> Array:
        """A copy of the selected elements."""
        if self._mask is not None:
            return array[self._mask]
        if self.parts is None:
            return array.copy()
        if self._has_several_lists:
            return np.array(array[self.argument])
        return array[self._index()].reshape(self.shape).copy()

    def put(self, array: Array, values: Any) -> None:
        if self._mask is not None:
            array[self._mask] = values
        elif self.parts is None:
            array[...] = values
        elif self._has_several_lists:
            array[self.argument] = values
        else:
            spread = np.broadcast_to(values, self.shape).reshape(self._lengths)
            array[self._index()] = spread

    def _index(self) -> tuple[Any, ...]:
        assert self.parts is not None
        if not any(isinstance(part, list) for part in self.parts):
            return tuple(slice(p, p + 1) if isinstance(p, int) else p for p in self.parts)
        whole = zip(self.parts, self.whole, strict=True)
        return np.ix_(
            *(
                [p] if isinstance(p, int) else p if isinstance(p, list) else np.arange(n)[p]
                for p, n in whole
            )
        )


def _length(part: Any) -> int | None:
    if isinstance(part, int):
        return None
    return len(part) if isinstance(part, list) else len(range(part.start, part.stop, part.step))


def pick(shape: tuple[int, ...], data: Any, lists: str = "sorted") -> Picked | None:
    """The selection that data describe, cut down to a shape; ``None`` if nothing is left.

    ``lists`` are the allowed lists: one that is ``sorted``, as h5py has it, ``adjacent``
    ones in any order and with repeats, or ``any``.
    """
    if not math.prod(shape):
        return None
    if data is None or (data["kind"] != "points" and len(data["parts"]) != len(shape)):
        return Picked(shape, None)
    if data["kind"] == "points":
        flat = [index for index in data["flat"] if index < math.prod(shape)]
        return Picked(shape, None, flat) if flat else None
    parts: list[Any] = []
    for part, length in zip(data["parts"], shape, strict=True):
        if isinstance(part, int):
            parts.append(min(part, length - 1))
        elif "list" in part:
            found = [index for index in part["list"] if index < length] or [0]
            parts.append(sorted(set(found)) if lists == "sorted" else found)
        else:
            start = min(part["start"], length - 1)
            parts.append(slice(start, max(min(part["stop"], length), start + 1), part["step"]))
    _leave_lists(parts, lists)
    return Picked(shape, parts)


def _leave_lists(parts: list[Any], lists: str) -> None:
    """Replace lists that are not allowed by slices."""
    at = [axis for axis, part in enumerate(parts) if isinstance(part, list)]
    between = [part for part in parts[at[0] : at[-1]] if isinstance(part, slice)] if at else []
    if lists == "sorted" or (lists == "adjacent" and between):
        for axis in at[1:]:
            parts[axis] = slice(min(parts[axis]), max(parts[axis]) + 1, 1)


def generate(draw: random.Random, shape: tuple[int, ...]) -> Any:
    """A selection for a dataset that is likely to have this shape."""
    chance = draw.random()
    if chance < 0.2:
        return None
    if chance < 0.27:
        count = min(math.prod(shape), draw.choice([1, 5, 40]))
        return {"kind": "points", "flat": sorted(draw.sample(range(math.prod(shape)), count))}
    parts: list[Any] = [_box(draw, length) for length in shape]
    if draw.random() < 0.35:  # whole rows
        parts[1:] = [{"start": 0, "stop": length, "step": 1} for length in shape[1:]]
    if draw.random() < 0.25:
        several = draw.random() < 0.3
        for axis in draw.sample(range(len(shape)), min(len(shape), 2 if several else 1)):
            parts[axis] = {"list": _list(draw, shape[axis])}
    return {"kind": "box", "parts": parts}


def _list(draw: random.Random, length: int) -> list[int]:
    """Indices in order, or in any order, or with repeats."""
    count = min(length, draw.choice([1, 3, 10, 60]))
    if draw.random() < 0.3:
        return draw.choices(range(length), k=count)
    found = draw.sample(range(length), count)
    return sorted(found) if draw.random() < 0.5 else found


def _box(draw: random.Random, length: int) -> Any:
    chance = draw.random()
    if chance < 0.1:
        return draw.randrange(length)
    if chance < 0.3:
        return {"start": 0, "stop": length, "step": 1}
    start = draw.randrange(length)
    stop = draw.randint(start + 1, length)
    return {"start": start, "stop": stop, "step": draw.choice([1, 1, 1, 1, 2, 3])}
