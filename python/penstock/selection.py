"""Selections of a dataset as runs of consecutive elements. Pure arithmetic."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

MAX_RUNS = 4096
"""A selection that falls into more runs is left to HDF5."""


@dataclass(frozen=True, slots=True)
class Hyperslab:
    """A regular selection: in each dimension ``count`` elements from ``start``, ``step`` apart."""

    start: tuple[int, ...]
    count: tuple[int, ...]
    step: tuple[int, ...]
    shape: tuple[int, ...]
    """The shape of the result: dimensions that an integer selected are gone."""


class Runs(NamedTuple):
    """The runs of a hyperslab, all of one length, in the order of the result's elements."""

    first: np.ndarray[Any, np.dtype[np.uint64]]
    """The index of the first element of each run in the dataset's C order."""
    length: int
    """Elements in a run."""


def parse(selection: Any, shape: tuple[int, ...]) -> Hyperslab | None:
    """The hyperslab that integers, slices and an ellipsis select.

    ``None`` for whatever else h5py may make of the selection, be it a result or an error.
    """
    parts = list(selection) if isinstance(selection, tuple) else [selection]
    ellipses = [i for i, part in enumerate(parts) if part is Ellipsis]
    if len(ellipses) > 1 or len(parts) - len(ellipses) > len(shape):
        return None
    missing = [slice(None)] * (len(shape) - len(parts) + len(ellipses))
    at = ellipses[0] if ellipses else len(parts)
    parts[at : at + 1] = missing

    dimensions = []
    kept = []
    for part, length in zip(parts, shape, strict=True):
        dimension = _dimension(part, length)
        if dimension is None:
            return None
        dimensions.append(dimension)
        if isinstance(part, slice):
            kept.append(dimension[1])
    start, count, step = zip(*dimensions, strict=True) if dimensions else ((), (), ())
    return Hyperslab(start, count, step, tuple(kept))


def _dimension(part: Any, length: int) -> tuple[int, int, int] | None:
    if isinstance(part, slice):
        try:
            start, stop, step = part.indices(length)
        except (TypeError, ValueError):
            return None
        if step < 1:
            return None
        return start, len(range(start, stop, step)), step
    if isinstance(part, (bool, np.bool_)) or (isinstance(part, np.ndarray) and part.ndim):
        return None
    try:
        index = operator.index(part)
    except TypeError:
        return None
    index += length if index < 0 else 0
    return (index, 1, 1) if 0 <= index < length else None


def runs(slab: Hyperslab, shape: tuple[int, ...], limit: int = MAX_RUNS) -> Runs | None:
    """The runs of a hyperslab in a dataset of this shape; ``None`` if they are too many."""
    if 0 in slab.count:
        return Runs(np.empty(0, np.uint64), 0)
    outer = len(shape)
    length = 1
    # Whole dimensions from the last one on, then one more that is consecutive, make a run.
    while outer and slab.count[outer - 1] == shape[outer - 1]:
        outer -= 1
        length *= shape[outer]
    if outer and (slab.step[outer - 1] == 1 or slab.count[outer - 1] == 1):
        outer -= 1
        length *= slab.count[outer]
    if math.prod(slab.count[:outer]) > limit:
        return None
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    origin = sum(start * stride for start, stride in zip(slab.start, strides, strict=True))
    first = np.array([origin], np.uint64)
    for i in range(outer):
        steps = np.arange(slab.count[i], dtype=np.uint64) * np.uint64(slab.step[i] * strides[i])
        first = (first[:, None] + steps).reshape(-1)
    return Runs(first, length)
