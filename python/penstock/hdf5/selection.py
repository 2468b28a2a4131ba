"""The elements that the argument of ``dataset[...]`` selects."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from penstock._core import Elements, elements
from penstock.errors import InvalidError
from penstock.hdf5.runs import Runs


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
        leading = (1,) * (len(shape) - len(self.shape))
        with suppress(ValueError):
            if np.broadcast_shapes(shape, self.shape) == leading + self.shape:
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
