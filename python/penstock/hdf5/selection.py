"""What ``dataset[...]`` means, as h5py itself sees it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.errors import InvalidError


@dataclass(frozen=True, slots=True)
class Selected:
    """A part of a dataset that has a shape of one or more dimensions."""

    space: Any
    """The ``h5py.h5s.SpaceID`` of the dataset with the elements selected; ``None`` for all."""
    shape: tuple[int, ...]
    """The shape in which the elements come out."""
    regular: bool
    """Whether integers and slices selected it: then arrays may have any strides, and are broadcast
    into it on writing."""
    parsed: Any = None
    """h5py's own selection; ``None`` where it was not asked for one."""

    @property
    def count(self) -> int:
        """How many elements are selected."""
        return math.prod(self.shape)

    @property
    def rows(self) -> bool:
        """Whether it is one stretch of indices of the first dimension."""
        if self.space is None:
            return True
        if not self.regular:
            return False
        count, step = self.parsed._sel[1:3]
        return bool(step[:1] == (1,) and count[1:] == self.parsed.shape[1:])

    def fits(self, shape: tuple[int, ...]) -> None:
        """Raise TypeError, as h5py does, unless an array of this shape can be written to it."""
        from h5py._hl.selections import SimpleSelection

        parsed = self.parsed or SimpleSelection(self.shape)
        parsed.expand_shape(shape)

    def repeat(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
        """The strides with which an array of this shape, which fits, fills the selection."""
        source = list(zip(shape, strides, strict=True))
        repeated = []
        for length in reversed(self.shape):
            own, stride = source.pop() if source else (1, 0)
            repeated.append(stride if own == length else 0)
        return tuple(reversed(repeated))


def split(argument: Any) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """The argument of ``dataset[...]`` as indices and names of fields."""
    parts = argument if isinstance(argument, tuple) else (argument,)
    names = tuple(part for part in parts if isinstance(part, str))
    return tuple(part for part in parts if not isinstance(part, str)), names


def stored_type(dataset: Any, argument: Any) -> np.dtype[Any]:
    """The type of the elements that ``dataset[argument]`` means: the dataset's, or of fields."""
    _, names = split(argument)
    stored: np.dtype[Any] = dataset.dtype
    return field_dtype(stored, names) if names else stored


def select(dataset: Any, indices: tuple[Any, ...]) -> Selected:
    """Select a part of a dataset that has dimensions.

    Raises what h5py raises for indices that it does not take.
    """
    import h5py
    from h5py._hl import selections

    if any(index is None for index in indices):
        raise TypeError("indexing with None (or np.newaxis) is not supported")
    shape = dataset.shape
    whole = indices == () or (len(indices) == 1 and indices[0] is Ellipsis)
    if whole:
        return Selected(None, shape, regular=True)
    if len(indices) == 1 and isinstance(indices[0], h5py.RegionReference):
        return _region(dataset, indices[0])
    parsed = selections.select(shape, indices, dataset=dataset)
    regular = isinstance(parsed, selections.SimpleSelection)
    return Selected(parsed.id, tuple(parsed.array_shape), regular, parsed)


def _region(dataset: Any, reference: Any) -> Selected:
    import h5py
    from h5py._hl import selections

    if h5py.h5r.dereference(reference, dataset.id) != dataset.id:
        raise ValueError("the region reference points to another dataset")
    space = h5py.h5r.get_region(reference, dataset.id)
    shape = tuple(selections.guess_shape(space))
    parsed = selections.Selection(dataset.shape, spaceid=space)
    return Selected(space, shape, regular=False, parsed=parsed)


def field_dtype(stored: np.dtype[Any], names: tuple[str, ...]) -> np.dtype[Any]:
    """The type of some fields of a structured type: of one, that of the field itself."""
    if stored.names is None:
        raise InvalidError(f"the elements have no fields, and so none named {', '.join(names)}")
    missing = [name for name in names if name not in stored.names]
    if missing:
        raise InvalidError(f"there is no field {', '.join(missing)} in {', '.join(stored.names)}")
    assert stored.fields is not None
    if len(names) == 1:
        return stored.fields[names[0]][0]
    return np.dtype([(name, stored.fields[name][0]) for name in names])
