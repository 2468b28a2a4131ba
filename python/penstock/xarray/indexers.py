"""xarray's indexers by the rules of NumPy, which ``dataset[...]`` follows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from xarray.core.indexing import ExplicitIndexer, OuterIndexer, VectorizedIndexer


class Index(NamedTuple):
    """What to read, and how the array of it becomes the one that xarray expects."""

    selection: tuple[Any, ...]
    """Integers, slices with positive steps, and arrays of integers."""
    order: tuple[int, ...] | None
    """The order of the dimensions."""
    view: tuple[Any, ...] | None
    """Slices that reverse dimensions, and zeros that drop them."""

    def apply(self, array: Any) -> Any:
        """Return a view of the array that was read."""
        if self.order is not None:
            array = array.transpose(self.order)
        return array if self.view is None else array[self.view]


def index_of(key: ExplicitIndexer, shape: tuple[int, ...]) -> Index:
    """Return the index of an array of this shape that an indexer means."""
    parts: list[Any] = list(key.tuple)
    arrays = [at for at, part in enumerate(parts) if isinstance(part, np.ndarray)]
    if isinstance(key, OuterIndexer) and len(arrays) > 1:
        return _outer(parts, arrays, shape)
    selection = []
    view: list[Any] = []
    for part, length in zip(parts, shape, strict=True):
        if isinstance(part, slice):
            part, step = _forward(part, length)
            view.append(step)
        elif isinstance(part, np.ndarray):
            if not part.ndim:
                part = int(part)
            elif isinstance(key, OuterIndexer):
                view.append(slice(None))
        selection.append(part)
    order = None
    if isinstance(key, VectorizedIndexer) and arrays:
        order, view = _vectorized(parts, arrays, view)
    return Index(tuple(selection), order, _needed(view))


def _outer(parts: list[Any], arrays: list[int], shape: tuple[int, ...]) -> Index:
    """Return the index of the product of several arrays, which NumPy takes as that of points."""
    selection = []
    view: list[Any] = []
    slices: list[int] = []
    for at, (part, length) in enumerate(zip(parts, shape, strict=True)):
        if isinstance(part, slice):
            part, step = _forward(part, length)
            slices.append(at)
            view.append(step)
        elif at in arrays:
            number = arrays.index(at)
            part = part.reshape([-1 if other == number else 1 for other in range(len(arrays))])
            view.append(slice(None))
        else:  # NumPy would count an integer among the arrays
            first = part % length
            part = slice(first, first + 1)
            slices.append(at)
            view.append(0)
        selection.append(part)
    order = None
    if arrays[-1] - arrays[0] >= len(arrays):  # NumPy puts the dimensions of the arrays first
        order = tuple(int(at) for at in np.argsort([*arrays, *slices]))
    return Index(tuple(selection), order, _needed(view))


def _vectorized(
    parts: list[Any], arrays: list[int], view: list[Any]
) -> tuple[tuple[int, ...] | None, list[Any]]:
    """Return the order that puts the dimensions of the arrays first, and the view after that."""
    rank = parts[arrays[0]].ndim
    view = [slice(None)] * rank + view
    is_adjacent = arrays[-1] - arrays[0] < len(arrays)
    before = arrays[0]
    if not is_adjacent or not before or not rank:
        return None, view
    moved = range(before, before + rank)
    rest = [at for at in range(len(view)) if at not in moved]
    return (*moved, *rest), view


def _forward(part: slice, length: int) -> tuple[slice, slice]:
    """Return a slice with a positive step, and the slice that restores the order."""
    indices = range(*part.indices(length))
    if not indices:
        return slice(0, 0), slice(None)
    if indices.step > 0:
        return slice(indices.start, indices[-1] + 1, indices.step), slice(None)
    return slice(indices[-1], indices.start + 1, -indices.step), slice(None, None, -1)


def _needed(view: list[Any]) -> tuple[Any, ...] | None:
    return None if all(part == slice(None) for part in view) else tuple(view)
