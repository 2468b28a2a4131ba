"""Small transfers by h5py: of objects, scalars and other elements that a native reader lacks."""

from __future__ import annotations

import math
from time import perf_counter_ns
from typing import Any, Final

import numpy as np

from penstock import request
from penstock._core import Elements, elements
from penstock.hdf5 import library, memory_types, small
from penstock.hdf5 import selection as selections
from penstock.hdf5.library import (
    MissingFilterError,
    check_dataset,
    creation_properties,
    explain,
    holds_objects,
    is_virtual,
    lock,
    make_durable,
    wait_for_dataset,
)
from penstock.report import remember

_ALL: Final = object()


class H5pyReader:
    """Moves few elements of one dataset, of which it asks what never changes only once."""

    def __init__(self, dataset: Any) -> None:
        self._chunk = _chunk_of(dataset)
        self._is_virtual = is_virtual(dataset)
        stored, kind = dataset.dtype, dataset.id.get_type()
        self._stored, self._itemsize = stored, stored.itemsize
        self._type: Any = None
        # h5py may return other numbers, or memory that HDF5 leaves as it is.
        is_narrow = memory_types.has_narrow_integers(kind)
        self._is_wrong = (
            is_narrow or memory_types.has_wrong_lists(stored) or small.may_leave_memory(dataset)
        )
        self._values = None if is_narrow or self._is_virtual else _values_of(stored)

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
            value = self._elements(dataset, chosen)
        except MissingFilterError:
            self._is_wrong = True
            return None, False
        remember((getattr(value, "nbytes", 0), perf_counter_ns() - start, small.REASON))
        return value, True

    def _elements(self, dataset: Any, chosen: Any) -> Any:
        """Return what h5py makes of elements."""
        with lock():
            _wait(dataset, request.READ)
            made = np.zeros(chosen.shape if chosen is not _ALL else dataset.shape, self._stored)
            try:
                if made.size:
                    dataset.id.read(*self._places(dataset, chosen), made, self._type)
                else:
                    check_dataset(dataset)
            except (ValueError, OSError, RuntimeError) as error:
                check_dataset(dataset)  # it may have been closed
                explain(dataset, error)
                raise
        return made if made.shape else made[()]

    def _places(self, dataset: Any, chosen: Any) -> tuple[Any, Any]:
        """Return HDF5's selections of an array and of the dataset."""
        from h5py import h5s, h5t

        if self._type is None:
            self._type = h5t.py_create(self._stored)
        if chosen is _ALL:
            return h5s.ALL, h5s.ALL
        return h5s.create_simple(chosen.shape), _space(dataset.id, chosen)

    def write(self, dataset: Any, selection: Any, value: Any) -> bool:
        """Write a number, or text into strings; return whether that is done, to few elements."""
        start = perf_counter_ns()
        check_dataset(dataset)
        if self._values is None or not isinstance(value, self._values):
            return False
        chosen = self._few(dataset, selection)
        if chosen is None:
            return False
        made = np.empty(chosen.shape if chosen is not _ALL else dataset.shape, self._stored)
        made[...] = value if isinstance(value, (str, bytes)) else np.asarray(value, self._stored)
        with lock():
            make_durable(dataset)  # refuses, before HDF5 writes, what cannot be kept
            _wait(dataset, request.WRITE)
            try:
                if made.size:
                    dataset.id.write(*self._places(dataset, chosen), made, self._type)
            except OSError as error:
                explain(dataset, error)
                raise
            make_durable(dataset)
        nbytes = len(value) if isinstance(value, (str, bytes)) else made.nbytes
        remember((nbytes, perf_counter_ns() - start, small.WRITE_REASON))
        return True

    def _few(self, dataset: Any, selection: Any) -> Any | None:
        """Return the elements that a selection has, or ``_ALL``; ``None`` if they are not few."""
        try:
            shape = dataset.shape
        except (ValueError, RuntimeError):
            check_dataset(dataset)
            raise
        if type(selection) is tuple and not selection:
            nbytes = 0 if shape is None else math.prod(shape) * self._itemsize
            return _ALL if 0 < nbytes <= small.LIMIT else None
        found = elements(shape, selection) if shape else None
        if found is None or math.prod(found.shape) * self._itemsize > small.LIMIT:
            return None
        chunk = self._chunk
        if not found.is_regular:
            # HDF5 reads no single elements of virtual datasets.
            is_alike = chunk is None and found.order is None and not self._is_virtual
            return found if is_alike else None
        is_few = chunk is None or small.are_few_chunks(dataset, chunk, found.chunks(chunk))
        return found if is_few else None


def _values_of(dtype: np.dtype[Any]) -> tuple[type, ...] | None:
    """Return the classes of values that h5py stores as the library does; ``None`` if it may not."""
    from h5py import check_string_dtype

    if dtype.kind in "biufc":
        return bool, int, float, complex, np.number, np.bool_
    return (str, bytes) if dtype.kind == "O" and check_string_dtype(dtype) is not None else None


def _chunk_of(dataset: Any) -> tuple[int, ...] | None:
    """Return the shape of chunks; ``None`` for objects, or if there are none."""
    if holds_objects(dataset) or dataset.id.get_offset() is not None:
        return None
    with creation_properties(dataset) as known:
        chunk: tuple[int, ...] | None = known.chunks
    return chunk


def _wait(dataset: Any, operation: int) -> None:
    if library.unsettled[0]:  # saves a call where nothing is pending
        wait_for_dataset(dataset, operation)


def _space(identifier: Any, chosen: Elements) -> Any:
    """Return HDF5's selection of elements, in their order."""
    space, points, index = identifier.get_space(), chosen.points, chosen.index
    if index is not None:
        places = [
            range(one.start, one.stop, one.step) if isinstance(one, slice) else one for one in index
        ]
        if chosen.is_regular:
            axes = [
                (one.start, len(one), one.step) if isinstance(one, range) else (one, 1, 1)
                for one in places
            ]
            space.select_hyperslab(*zip(*axes, strict=True))
            return space
        points = np.stack(np.meshgrid(*places, indexing="ij"), axis=-1).reshape(-1, len(places))
    space.select_elements(points)
    return space
