"""Selections as data, and what they mean to NumPy and to h5py."""

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
        self._whole = shape
        self._parts = parts
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

    @property
    def regular(self) -> bool:
        """Whether integers and slices make it, so that arrays may have strides."""
        return self._mask is None and not any(isinstance(p, list) for p in self._parts or ())

    @property
    def argument(self) -> Any:
        """What stands between the brackets of an h5py dataset."""
        if self._mask is not None:
            return self._mask
        return () if self._parts is None else tuple(self._parts)

    def of(self, array: Array) -> Array:
        """A copy of the selected elements."""
        if self._mask is not None:
            return array[self._mask]
        if self._parts is None:
            return array.copy()
        return array[self._index()].reshape(self.shape).copy()

    def put(self, array: Array, values: Any) -> None:
        if self._mask is not None:
            array[self._mask] = values
        elif self._parts is None:
            array[...] = values
        else:
            spread = np.broadcast_to(values, self.shape).reshape(self._lengths)
            array[self._index()] = spread

    def _index(self) -> tuple[Any, ...]:
        assert self._parts is not None
        if not any(isinstance(part, list) for part in self._parts):
            return tuple(slice(p, p + 1) if isinstance(p, int) else p for p in self._parts)
        whole = zip(self._parts, self._whole, strict=True)
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


def pick(shape: tuple[int, ...], data: Any) -> Picked | None:
    """The selection that data describe, cut down to a shape; ``None`` if nothing is left."""
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
            parts.append([index for index in part["list"] if index < length] or [0])
        else:
            start = min(part["start"], length - 1)
            parts.append(slice(start, max(min(part["stop"], length), start + 1), part["step"]))
    return Picked(shape, parts)


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
    if draw.random() < 0.2:
        axis = draw.randrange(len(shape))
        count = min(shape[axis], draw.choice([1, 3, 10, 60]))
        parts[axis] = {"list": sorted(draw.sample(range(shape[axis]), count))}
    return {"kind": "box", "parts": parts}


def _box(draw: random.Random, length: int) -> Any:
    chance = draw.random()
    if chance < 0.1:
        return draw.randrange(length)
    if chance < 0.3:
        return {"start": 0, "stop": length, "step": 1}
    start = draw.randrange(length)
    stop = draw.randint(start + 1, length)
    return {"start": start, "stop": stop, "step": draw.choice([1, 1, 1, 1, 2, 3])}
