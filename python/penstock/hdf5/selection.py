"""The elements that the argument of ``dataset[...]`` selects, by h5py's own rules."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.errors import InvalidError


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected elements of a dataset that has one or more dimensions."""

    space: Any
    """The dataset's dataspace with the elements selected, an ``h5py.h5s.SpaceID``; ``None`` if all
    are selected."""
    shape: tuple[int, ...]
    """The shape of an array of the selected elements."""
    regular: bool
    """Whether only integers and slices select the elements. Arrays of any strides are then allowed,
    and a write broadcasts its array."""
    parsed: Any = None
    """h5py's own selection object; ``None`` where all elements are selected."""

    @property
    def count(self) -> int:
        """The number of selected elements."""
        return math.prod(self.shape)

    @property
    def is_rows(self) -> bool:
        """Whether the elements are those of consecutive indices of the first dimension."""
        if self.space is None:
            return True
        if not self.regular:
            return False
        count, step = self.parsed._sel[1:3]
        return bool(step[:1] == (1,) and count[1:] == self.parsed.shape[1:])

    def check_broadcast(self, shape: tuple[int, ...]) -> None:
        """Raise h5py's TypeError unless an array of this shape can be broadcast to it."""
        from h5py._hl.selections import SimpleSelection

        parsed = self.parsed or SimpleSelection(self.shape)
        parsed.expand_shape(shape)

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
    parts = argument if isinstance(argument, tuple) else (argument,)
    names = tuple(part for part in parts if isinstance(part, str))
    return tuple(part for part in parts if not isinstance(part, str)), names


def stored_type(dataset: Any, argument: Any) -> np.dtype[Any]:
    """Return the type of the elements of ``dataset[argument]``."""
    _, names = split(argument)
    stored: np.dtype[Any] = dataset.dtype
    return field_dtype(stored, names) if names else stored


def select(dataset: Any, indices: tuple[Any, ...]) -> Selection:
    """Select elements of a dataset that has dimensions.

    Raises:
        ValueError, TypeError, IndexError: What h5py raises for such indices.
    """
    import h5py
    from h5py._hl import selections

    if any(index is None for index in indices):
        raise TypeError("indexing with None (or np.newaxis) is not supported")
    shape = dataset.shape
    whole = indices == () or (len(indices) == 1 and indices[0] is Ellipsis)
    if whole:
        return Selection(None, shape, regular=True)
    if len(indices) == 1 and isinstance(indices[0], h5py.RegionReference):
        return _region(dataset, indices[0])
    parsed = selections.select(shape, indices, dataset=dataset)
    regular = isinstance(parsed, selections.SimpleSelection)
    return Selection(parsed.id, tuple(parsed.array_shape), regular, parsed)


def _region(dataset: Any, reference: Any) -> Selection:
    import h5py
    from h5py._hl import selections

    if h5py.h5r.dereference(reference, dataset.id) != dataset.id:
        raise ValueError("the region reference points to another dataset")
    space = h5py.h5r.get_region(reference, dataset.id)
    shape = tuple(selections.guess_shape(space))
    parsed = selections.Selection(dataset.shape, spaceid=space)
    return Selection(space, shape, regular=False, parsed=parsed)


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
