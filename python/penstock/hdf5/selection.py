"""The elements that the argument of ``dataset[...]`` selects.

Of lists of indices, h5py takes one, sorted and without repeats. ``readable`` and ``writable`` put
others into that form. Of virtual datasets, it is asked only for elements that HDF5 reads as the
mappings say, see ``is_read_alike``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock._core import Elements, elements
from penstock._native import NULL, CData, ffi, lib
from penstock.errors import InvalidError, check
from penstock.hdf5.library import is_virtual, lock
from penstock.records import has_padding, of_type

Reorder = Callable[["np.ndarray[Any, Any]"], Any]

_alike = ffi.new("int *")
"""Where the library puts the answer of :func:`is_read_alike`; used under HDF5's lock."""


class Runs:
    """Runs of elements, as the argument of a read. The array has one dimension.

    Elements are counted in C order through the dataset. The library sorts the runs, and decodes
    each chunk once, whatever their order; they may overlap in the dataset. The attributes are those
    of :class:`penstock._core.Elements`.

    Args:
        starts: The first element of each run.
        lengths: The number of elements of each run.
        positions: The place of each first element in the array, which ends with the last of them.
            By default, each run follows the one before it.
    """

    order = None
    index = None
    is_regular = False
    is_grid = False

    def __init__(
        self,
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        positions: NDArray[np.int64] | None = None,
    ) -> None:
        if positions is None:
            positions = np.cumsum(lengths) - lengths
        # An empty run may start beyond the last element of the array.
        filled = lengths > 0
        starts, positions, lengths = starts[filled], positions[filled], lengths[filled]
        self.count = int((positions + lengths).max(initial=0))
        self.shape = self.lengths = (self.count,)
        self._runs = _merged(starts, positions, lengths)
        self._selection = ffi.new("penstock_selection *")
        self._selection[0] = (
            ffi.sizeof("penstock_selection"),
            1,
            lib.PENSTOCK_RUNS,
            ffi.NULL,
            ffi.cast("uint64_t *", self._runs.__array_interface__["data"][0]),
            len(self._runs),
        )

    @property
    def selection(self) -> int:
        """The address of a ``penstock_selection``, which is valid as long as this object."""
        return int(ffi.cast("uintptr_t", self._selection))

    @property
    def by_start(self) -> list[tuple[int, int, int]]:
        """The first element, the position and the length of each run, in the dataset's order."""
        return sorted(map(tuple, self._runs.tolist()))

    @property
    def points(self) -> NDArray[np.int64]:
        """The number of each element, in the order of the array."""
        starts, positions, lengths = self._runs.astype(np.int64).T
        found = np.zeros(self.count, np.int64)
        each = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        found[np.repeat(positions, lengths) + each] = np.repeat(starts, lengths) + each
        return found

    def span(self, shape: tuple[int, ...]) -> int:
        """The number of elements."""
        return self.count


def _merged(
    starts: NDArray[np.int64], positions: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return runs, of which those that continue the one before it are a part of that."""
    follows = starts[1:] == starts[:-1] + lengths[:-1]
    follows &= positions[1:] == positions[:-1] + lengths[:-1]
    firsts = np.flatnonzero(np.concatenate([[True], ~follows])[: len(starts)])
    totals = np.add.reduceat(lengths, firsts) if len(firsts) else lengths
    return np.stack([starts[firsts], positions[firsts], totals], axis=1).astype(np.uint64)


class Selection(NamedTuple):
    """The selected elements of a dataset that has one or more dimensions."""

    shape: tuple[int, ...]
    """The shape of an array of the selected elements."""
    extent: tuple[int, ...]
    """The shape of the dataset."""
    elements: Elements | Runs | None = None
    """The elements as plain data, or ``None``."""
    parsed: Any = None
    """h5py's selection object, or ``None``. If neither this nor ``elements`` is given, all are
    selected."""

    @property
    def size(self) -> int:
        """The number of selected elements."""
        return math.prod(self.shape)

    @property
    def span(self) -> int:
        """The number of elements between the first and the last index of each dimension."""
        return self.size if self.elements is None else self.elements.span(self.extent)

    @property
    def has_lists(self) -> bool:
        """Whether lists select the elements."""
        return self.elements is not None and not self.elements.is_regular

    @property
    def is_grid(self) -> bool:
        """Whether arrays of any strides are allowed."""
        if self.parsed is not None:
            from h5py._hl.selections import SimpleSelection

            return isinstance(self.parsed, SimpleSelection)
        return self.elements is None or self.elements.is_grid

    def check_broadcast(self, shape: tuple[int, ...]) -> None:
        """Raise TypeError unless an array of this shape can be broadcast to the selection."""
        if shape == self.shape:
            return
        if self.parsed is not None:
            self.parsed.expand_shape(shape)
            return
        count = max(len(shape) - len(self.shape), 0)
        leading, own = shape[:count], shape[count:]
        # h5py drops leading dimensions without elements, too.
        is_taken = all(length == 1 or (length == 0 and not self.size) for length in leading)
        with suppress(ValueError):
            if is_taken and np.broadcast_shapes(own, self.shape) == self.shape:
                return
        raise TypeError(f"Can't broadcast {shape} -> {self.shape}")

    def broadcast(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
        """Return the strides of an array that is broadcast to the selection.

        :meth:`check_broadcast` has accepted the shape. A repeated dimension has the stride 0.
        """
        source = list(zip(shape, strides, strict=True))
        broadcast = []
        for length in reversed(self.shape):
            own, stride = source.pop() if source else (1, 0)
            broadcast.append(stride if own == length else 0)
        return tuple(reversed(broadcast))


def split(argument: Any) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """Split the argument of ``dataset[...]`` into indices and names of fields."""
    parts = tuple(argument) if isinstance(argument, tuple) else (argument,)
    names = tuple([part for part in parts if isinstance(part, str)])
    return tuple([part for part in parts if not isinstance(part, str)]) if names else parts, names


def stored_type(dataset: Any, argument: Any) -> np.dtype[Any]:
    """Return the type of the elements of ``dataset[argument]``."""
    _, names = split(argument)
    stored: np.dtype[Any] = dataset.dtype
    return field_dtype(stored, names) if names else stored


def select(dataset: Any, shape: tuple[int, ...], indices: tuple[Any, ...]) -> Selection:
    """Select elements of a dataset that has this shape, of one or more dimensions.

    Raises:
        ValueError, TypeError, IndexError: What h5py raises for such indices.
    """
    if not indices or (len(indices) == 1 and indices[0] is Ellipsis):
        return Selection(shape, shape)
    found = as_elements(shape, indices)
    if found is not None:
        return Selection(found.shape, shape, found)
    import h5py
    from h5py._hl import selections

    if any(index is None for index in indices):
        raise TypeError("indexing with None (or np.newaxis) is not supported")
    if len(indices) == 1 and isinstance(indices[0], h5py.RegionReference):
        return _region(dataset, indices[0])
    parsed = selections.select(shape, indices, dataset=dataset)
    return Selection(tuple(parsed.array_shape), shape, parsed=parsed)


def as_elements(shape: tuple[int, ...], indices: tuple[Any, ...]) -> Elements | Runs | None:
    """Return elements as plain data; ``None`` for what h5py has to understand or refuse."""
    if len(indices) == 1 and type(indices[0]) is Runs:
        return indices[0]
    return elements(shape, indices)


def _region(dataset: Any, reference: Any) -> Selection:
    import h5py
    from h5py._hl import selections

    if h5py.h5r.dereference(reference, dataset.id) != dataset.id:
        raise ValueError("the region reference points to another dataset")
    space = h5py.h5r.get_region(reference, dataset.id)
    shape = tuple(selections.guess_shape(space))
    parsed = selections.Selection(dataset.shape, spaceid=space)
    return Selection(shape, dataset.shape, parsed=parsed)


def field_dtype(stored: np.dtype[Any], names: tuple[str, ...]) -> np.dtype[Any]:
    """Return the type of some fields of a structured type; for one field, that field's own type."""
    if stored.names is None:
        raise InvalidError(f"the elements have no fields, so no field {', '.join(names)}")
    missing = [name for name in names if name not in stored.names]
    if missing:
        raise InvalidError(f"there is no field {', '.join(missing)} in {', '.join(stored.names)}")
    assert stored.fields is not None
    if len(names) == 1:
        return stored.fields[names[0]][0]
    return np.dtype([(name, stored.fields[name][0]) for name in names])


def is_read_alike(dataset: Any, elements: Any = None) -> bool:
    """Whether h5py certainly reads the same elements of a virtual dataset as the library.

    A source may have another shape than its mapping says. Then HDF5 returns other elements, or
    crashes; the library has the rule (``virtual_dataset/fit.rs``).

    Args:
        dataset: The ``h5py.Dataset``.
        elements: What is selected, an object with the address of a ``penstock_selection``; all
            by default.
    """
    with lock():
        status = lib.penstock_virtual_is_read_alike(dataset.id.id, _address(elements), _alike)
        return status == lib.PENSTOCK_OK and bool(_alike[0])


def refuse_misread(dataset: Any, argument: Any) -> None:
    """Raise an error if h5py would read other elements than ``dataset[argument]``.

    The caller holds the lock until h5py has read.
    """
    if not dataset.shape or not is_virtual(dataset):
        return
    elements = select(dataset, dataset.shape, split(argument)[0]).elements
    if not is_read_alike(dataset, elements):
        check(lib.penstock_virtual_check(dataset.id.id, _address(elements)))


def _address(elements: Any) -> CData:
    return NULL if elements is None else ffi.cast("penstock_selection *", elements.selection)


def readable(dataset: Any, argument: Any) -> tuple[Any, Reorder | None]:
    """Return an argument that h5py reads, and what makes its array that of the selection.

    The second value is ``None`` where h5py's array is it.
    """
    found = _by_lists(dataset, argument)
    if found is None:
        return argument, None
    names, rank = split(argument)[1], len(dataset.shape)
    if not math.prod(found.shape):
        return (slice(0, 0), *names), lambda array: _in_shape(array[:0], rank, found.shape)
    points = found.points
    if points is not None:
        if not is_virtual(dataset):
            from h5py._hl.selections import PointSelection

            alone = PointSelection(dataset.shape, points=points)
            return (alone, *names), lambda array: _in_shape(array, 1, found.shape)
        # HDF5 reads no single elements of virtual datasets.
        points = points.astype(np.int64)
        low, high = points.min(axis=0), points.max(axis=0)
        sides = tuple(slice(int(a), int(b) + 1) for a, b in zip(low, high, strict=True))
        return (*sides, *names), lambda array: _in_shape(
            array[tuple((points - low).T)], 1, found.shape
        )
    # h5py reads what the first list needs; NumPy takes the others out of the whole dimension.
    given: list[Any] = []
    taken: list[Any] = []
    assert found.index is not None
    for one, length in zip(found.index, dataset.shape, strict=True):
        if not isinstance(one, np.ndarray):
            given.append(one)
            if isinstance(one, slice):
                taken.append(np.arange(len(range(length)[one])))
        elif any(isinstance(other, list) for other in given):
            given.append(slice(0, length))
            taken.append(one.astype(np.int64))
        else:
            once, inverse = np.unique(one, return_inverse=True)
            given.append(once.tolist())
            taken.append(inverse.ravel())

    def reorder(array: np.ndarray[Any, Any]) -> Any:
        grid = array[np.ix_(*taken)]
        if found.order is None:
            return _in_shape(grid, len(taken), found.shape)
        return grid.transpose(*np.argsort(found.order), *range(len(taken), grid.ndim))

    return (*given, *names), reorder


def _in_shape(
    array: np.ndarray[Any, Any], rank: int, shape: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """Return an array whose first dimensions have another shape; the others are of its elements."""
    in_shape: np.ndarray[Any, Any] = array.reshape(shape + array.shape[rank:])
    return in_shape


def writable(dataset: Any, argument: Any, value: Any) -> tuple[Any, Any]:
    """Return an argument and a value that h5py writes for the ones given.

    Of an index that repeats, the last value is written, as by NumPy.
    """
    found = _by_lists(dataset, argument)
    if found is None:
        return argument, value
    number = _only_list(found)
    if number is None:
        raise TypeError("HDF5 itself writes such elements, which it does for one list at a time")
    assert found.index is not None
    indices, names = split(argument)
    once, last = np.unique(found.index[number][::-1], return_index=True)
    given = [one if _is_no_list(one) else [int(index) for index in once] for one in indices]
    array, inner = values_of(dataset, value, names)
    count = len(found.index[number])
    place = sum(not isinstance(one, int) for one in found.index[:number])
    side = place - len(found.shape) - inner
    if array.ndim >= -side and array.shape[side] == count:
        array = array.take(count - 1 - last, axis=side)
    return (*given, *names), array


def are_writable(dataset: Any, argument: Any) -> bool:
    """Whether h5py can write what an argument selects."""
    found = _by_lists(dataset, argument)
    return found is None or _only_list(found) is not None


def _only_list(found: Elements) -> int | None:
    """Return the dimension of the only list; ``None`` if there is none, or several."""
    lists = [n for n, one in enumerate(found.index or ()) if isinstance(one, np.ndarray)]
    return lists[0] if len(lists) == 1 and found.is_grid else None


def spread(dataset: Any, argument: Any, value: Any) -> Any:
    """Return a value for each selected element, where h5py would repeat wrong bytes.

    h5py repeats a structure with undefined bytes between its fields. It repeats other values by an
    offset of the dataspace, which HDF5 (2.0.0) ignores in a write of a virtual dataset: all go to
    the first place.
    """
    import h5py

    is_record = isinstance(value, np.ndarray) and not value.ndim and has_padding(value.dtype)
    if not dataset.shape or isinstance(value, h5py.Empty):
        return value
    if not is_record and not is_virtual(dataset):
        return value
    indices, names = split(argument)
    shape = select(dataset, dataset.shape, indices).shape
    array, inner = values_of(dataset, value, names)
    while array.ndim - inner > len(shape) and array.shape[0] == 1:
        array = array[0]
    outer, of_element = array.shape[: array.ndim - inner], array.shape[array.ndim - inner :]
    if outer == shape:
        return value
    try:
        return np.broadcast_to(array, shape + of_element)
    except ValueError:
        return value  # h5py says why they do not fit


def values_of(dataset: Any, value: Any, names: tuple[str, ...]) -> tuple[Any, int]:
    """Return values as an array, and how many of its last dimensions belong to one element."""
    import h5py

    stored = stored_type(dataset, names)
    array = value if isinstance(value, np.ndarray) else None
    if stored.subdtype is not None:
        base, inner = stored.subdtype
        return (of_type(value, base) if array is None else array), len(inner)
    of_each = h5py.check_vlen_dtype(stored)
    if of_each not in (None, str, bytes):
        if array is None:
            try:
                array = np.asarray(value, of_each)
            except ValueError:  # of several lengths
                array = np.empty(len(value), object)
                array[:] = [np.asarray(one, of_each) for one in value]
        return array, int(array.dtype != object)
    if array is None and (stored.names is not None or stored.kind == "S"):
        array = of_type(value, stored)
    return (np.asarray(value) if array is None else array), 0


def _by_lists(dataset: Any, argument: Any) -> Elements | None:
    """Return what an argument selects, if it has lists that h5py refuses."""
    indices, _ = split(argument)
    if not dataset.shape or all(_is_no_list(one) for one in indices):
        return None
    found = elements(dataset.shape, indices)
    if found is None or found.is_regular:
        return None
    if found.index is None:
        mask = indices[0] if len(indices) == 1 else None
        is_mask_of_all = isinstance(mask, np.ndarray) and mask.shape == dataset.shape
        # HDF5 reads no single elements of virtual datasets.
        return None if is_mask_of_all and not is_virtual(dataset) else found
    only = _only_list(found)
    # h5py takes a mask of one dimension only as an array, alone, and as single elements.
    is_mask = len(dataset.shape) == 1 and any(_is_mask(one) for one in indices)
    is_alone = len(indices) == 1 and isinstance(indices[0], np.ndarray)
    if is_mask and (not is_alone or is_virtual(dataset)):
        return found
    if any(_is_short_and_negative(one) for one in indices):
        return found  # h5py adds the length in the type of the list
    if only is not None and math.prod(found.shape) > 0:
        listed = found.index[only]
        if bool((listed[1:] > listed[:-1]).all()):
            return None
    return found


def _is_mask(index: Any) -> bool:
    return isinstance(index, (list, np.ndarray)) and np.asarray(index).dtype.kind == "b"


def _is_short_and_negative(index: Any) -> bool:
    is_signed = isinstance(index, np.ndarray) and index.dtype.kind == "i"
    return is_signed and index.dtype.itemsize < 8 and bool((index < 0).any())


def _is_no_list(index: Any) -> bool:
    return index is Ellipsis or isinstance(index, (slice, int, np.integer))
