"""Small transfers by h5py: of objects, scalars and other elements that a native reader lacks."""

from __future__ import annotations

import math
from time import perf_counter_ns
from typing import Any, Final

import numpy as np

from penstock import request
from penstock._core import elements
from penstock.hdf5 import library, memory_types, small
from penstock.hdf5 import selection as selections
from penstock.hdf5.library import (
    MissingFilterError,
    check_dataset,
    creation_properties,
    explain,
    holds_objects,
    is_virtual,
    is_writable,
    lock,
    make_durable,
    plain,
    wait_for_dataset,
)
from penstock.report import remember

_ALL: Final = object()


class H5pyReader:
    """Moves few elements of one dataset, of which it asks what never changes only once."""

    def __init__(self, dataset: Any) -> None:
        self._is_small_whole = small.is_small_whole(dataset)
        self._chunk = _chunk_of(dataset)
        self._is_virtual = is_virtual(dataset)
        stored, kind = dataset.dtype, dataset.id.get_type()
        self._itemsize = stored.itemsize
        # h5py may return other numbers, or memory that HDF5 leaves as it is.
        is_narrow = memory_types.has_narrow_integers(kind)
        self._is_wrong = (
            is_narrow or memory_types.has_wrong_lists(stored) or small.may_leave_memory(dataset)
        )
        is_left = is_narrow or self._is_virtual or not is_writable(dataset)
        self._values = None if is_left else _values_of(stored)

    def read(self, dataset: Any, selection: Any) -> tuple[Any, bool]:
        """Return what ``dataset[selection]`` is for h5py, and whether it is few elements."""
        start = perf_counter_ns()
        chosen = None if self._is_wrong else self._few(dataset, selection)
        if chosen is None:
            return None, False
        if self._is_virtual:
            selected = None if chosen is _ALL else chosen
            if not selections.is_read_alike(dataset, selected):
                return None, False
        try:
            value = _read(dataset, selection)
        except MissingFilterError:
            self._is_wrong = True
            return None, False
        remember((getattr(value, "nbytes", 0), perf_counter_ns() - start, small.REASON))
        return value, True

    def write(self, dataset: Any, selection: Any, value: Any) -> bool:
        """Write a number, or text into strings; return whether that is done, to few elements."""
        start = perf_counter_ns()
        check_dataset(dataset)
        if self._values is None or not isinstance(value, self._values):
            return False
        if self._few(dataset, selection) is None:
            return False
        if not isinstance(value, (str, bytes)):
            value = np.asarray(value, dataset.dtype)
        with lock():
            make_durable(dataset)  # refuses, before HDF5 writes, what cannot be kept
            _wait(dataset, request.WRITE)
            try:
                plain(dataset)[selection] = value
            except OSError as error:
                explain(dataset, error)
                raise
            make_durable(dataset)
        nbytes = getattr(value, "nbytes", None) or len(value)
        remember((nbytes, perf_counter_ns() - start, small.WRITE_REASON))
        return True

    def _few(self, dataset: Any, selection: Any) -> Any | None:
        """Return the elements that a selection has, or ``_ALL``; ``None`` if they are not few."""
        if type(selection) is tuple and not selection:
            return _ALL if self._is_small_whole else None
        try:
            shape = dataset.shape
        except (ValueError, RuntimeError):
            check_dataset(dataset)
            raise
        found = elements(shape, selection) if shape else None
        if found is None or math.prod(found.shape) * self._itemsize > small.LIMIT:
            return None
        chunk = self._chunk
        if not found.is_regular:
            # Without a reorder, h5py reads these elements.
            is_alike = chunk is None and selections.readable(dataset, selection)[1] is None
            return found if is_alike else None
        is_few = chunk is None or small.are_few_chunks(dataset, chunk, found.chunks(chunk))
        return found if is_few else None


def _values_of(dtype: np.dtype[Any]) -> tuple[type, ...] | None:
    """Return the classes of values that h5py stores as the library does; ``None`` if it may not."""
    from h5py import check_string_dtype

    if dtype.kind in "biufc":
        return bool, int, float, complex, np.number, np.bool_
    return (str, bytes) if check_string_dtype(dtype) is not None else None


def _chunk_of(dataset: Any) -> tuple[int, ...] | None:
    """Return the shape of chunks; ``None`` for objects, or if there are none."""
    if holds_objects(dataset):
        return None
    with creation_properties(dataset) as known:
        chunk: tuple[int, ...] | None = known.chunks
    return chunk


def _wait(dataset: Any, operation: int) -> None:
    if library.unsettled[0]:  # saves a call where nothing is pending
        wait_for_dataset(dataset, operation)


def _read(dataset: Any, selection: Any) -> Any:
    with lock():
        _wait(dataset, request.READ)
        try:
            return plain(dataset)[selection]
        except (ValueError, OSError, RuntimeError) as error:
            check_dataset(dataset)  # it may have been closed
            explain(dataset, error)
            raise
