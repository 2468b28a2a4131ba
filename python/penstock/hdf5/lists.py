"""Lists of indices in the form that h5py takes: one list, sorted, without repeats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.hdf5.index import Elements, elements
from penstock.hdf5.selection import split

Reorder = Callable[["np.ndarray[Any, Any]"], Any]


def readable(dataset: Any, argument: Any) -> tuple[Any, Reorder | None]:
    """Return an argument that h5py reads, and what makes its array that of the selection.

    The second value is ``None`` where h5py's array is it.
    """
    found = _by_lists(dataset, argument)
    if found is None:
        return argument, None
    names = split(argument)[1]
    if found.axes is None:
        assert found.points is not None
        points = found.points.astype(np.int64)
        if not len(points):
            return (slice(0, 0), *names), lambda array: array[:0].reshape(found.shape)
        low, high = points.min(axis=0), points.max(axis=0)
        sides = tuple(slice(int(a), int(b) + 1) for a, b in zip(low, high, strict=True))
        return (*sides, *names), lambda array: array[tuple((points - low).T)].reshape(found.shape)
    # h5py reads what the first list needs; NumPy takes the others out of the whole dimension.
    given: list[Any] = []
    taken: list[Any] = []
    for number, axis in enumerate(found.axes):
        if isinstance(axis, range):
            given.append(slice(axis.start, max(axis.stop, axis.start), axis.step))
            taken.append(np.arange(len(axis)))
        elif any(isinstance(one, list) for one in given) or not len(axis):
            given.append(slice(0, dataset.shape[number] if len(axis) else 0))
            taken.append(axis.astype(np.int64))
        else:
            once, inverse = np.unique(axis, return_inverse=True)
            given.append([int(one) for one in once])
            taken.append(inverse.ravel())

    def reorder(array: np.ndarray[Any, Any]) -> Any:
        grid = array[np.ix_(*taken)]
        if found.is_in_order:
            return grid.reshape(found.shape)
        shape = [n for n, place in zip(grid.shape, found.places, strict=True) if place is not None]
        return grid.reshape(shape).transpose(np.argsort(found.order))

    return (*given, *names), reorder


def writable(dataset: Any, argument: Any, value: Any) -> tuple[Any, Any]:
    """Return an argument and a value that h5py writes for the ones given.

    Of an index that repeats, the last value is written, as by NumPy.
    """
    found = _by_lists(dataset, argument)
    if found is None:
        return argument, value
    lists = [n for n, axis in enumerate(found.axes or ()) if not isinstance(axis, range)]
    if found.axes is None or len(lists) != 1 or found.flattened:
        raise TypeError("HDF5 itself writes such elements, which it does for one list at a time")
    (number,) = lists
    indices, names = split(argument)
    once, last = np.unique(np.asarray(found.axes[number])[::-1], return_index=True)
    given = [one if _is_no_list(one) else [int(index) for index in once] for one in indices]
    array = np.asarray(value)
    count = len(found.axes[number])
    side = (found.places[number] or 0) - len(found.shape)
    if array.ndim >= -side and array.shape[side] == count:
        array = array.take(count - 1 - last, axis=side)
    return (*given, *names), array


def _by_lists(dataset: Any, argument: Any) -> Elements | None:
    """Return what an argument selects, if it has lists that h5py refuses."""
    indices, _ = split(argument)
    if not dataset.shape or all(_is_no_list(one) for one in indices):
        return None
    found = elements(dataset.shape, indices)
    if found is None or found.is_regular:
        return None
    if found.axes is None:
        mask = indices[0] if len(indices) == 1 else None
        is_mask_of_all = isinstance(mask, np.ndarray) and mask.shape == dataset.shape
        return None if is_mask_of_all else found
    lists = [np.asarray(axis) for axis in found.axes if not isinstance(axis, range)]
    is_plain = len(lists) == 1 and not found.flattened
    if is_plain and len(lists[0]) and bool((lists[0][1:] > lists[0][:-1]).all()):
        return None
    return found


def _is_no_list(index: Any) -> bool:
    return index is Ellipsis or isinstance(index, (slice, int, np.integer))
