"""The elements that ``dataset[...]`` names, in the order in which NumPy would return them.

What h5py takes means here what it means there; lists in any order, with repeats, of several
dimensions and several at a time, which h5py refuses, mean what they mean to NumPy.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from penstock.errors import OutOfMemoryError

Axis: TypeAlias = "range | np.ndarray[Any, Any]"
"""The indices of one dimension: a range with a positive step, or a list (``uint64``, one
dimension)."""

_MOST_POINTS = 1 << 28
"""The most single elements of a selection, each of which takes 8 bytes a dimension."""


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements of an array that has one or more dimensions."""

    shape: tuple[int, ...]
    """The shape of the result."""
    axes: tuple[Axis, ...] | None
    """For each dimension its indices, of which every combination is selected; or ``None``."""
    points: np.ndarray[Any, Any] | None = None
    """The indices of single elements, one row each, in the order of the result; or ``None``."""
    places: tuple[int | None, ...] = ()
    """With ``axes``: the dimension of the result to which each dimension belongs, the first one of
    a list that is flattened, ``None`` for an integer."""

    flattened: bool = False
    """Whether a list has more or fewer dimensions than the one for which it stands."""

    @property
    def order(self) -> tuple[int, ...]:
        """The dimension of the result to which each dimension that is no integer belongs."""
        return tuple(place for place in self.places if place is not None)

    @property
    def is_in_order(self) -> bool:
        """Whether the dimensions of the result are in the order of those of the array."""
        return all(a < b for a, b in itertools.pairwise(self.order))

    @property
    def is_regular(self) -> bool:
        """Whether only integers and slices select the elements."""
        return self.axes is not None and all(isinstance(axis, range) for axis in self.axes)


def elements(shape: tuple[int, ...], indices: tuple[Any, ...]) -> Elements | None:
    """Return what indices select of an array of this shape.

    ``None`` for what h5py has to understand or refuse.

    Raises:
        IndexError: An index of a list is outside the array, or lists do not fit each other.
        OutOfMemoryError: Too many single elements are selected.
    """
    parts = _parts(shape, indices)
    if parts is None:
        return None
    lists = [part for part in parts if isinstance(part, _List)]
    if len(lists) > 1:
        return _by_several_lists(parts, lists, _parts_before_ellipsis(indices))
    axes: list[Axis] = []
    result: list[int] = []
    places: list[int | None] = []
    for part in parts:
        places.append(None if isinstance(part, int) else len(result))
        if isinstance(part, _List):
            axes.append(part.indices.ravel())
            result.extend(part.indices.shape)
        elif isinstance(part, int):
            axes.append(range(part, part + 1))
        else:
            axes.append(part)
            result.append(len(part))
    flattened = any(part.indices.ndim != 1 for part in lists)
    return Elements(tuple(result), tuple(axes), places=tuple(places), flattened=flattened)


@dataclass(frozen=True, slots=True)
class _List:
    """A list or mask, as indices of one dimension."""

    indices: np.ndarray[Any, Any]


_Part: TypeAlias = "int | range | _List"


def _parts(shape: tuple[int, ...], indices: tuple[Any, ...]) -> list[_Part] | None:
    """Return one part for each dimension; ``None`` if some index is none of those known here."""
    found = [_known(index) for index in indices]
    if any(index is None for index in found):
        return None
    taken = sum(_dimensions(index) for index in found)
    missing = len(shape) - taken
    if missing < 0 or sum(index is Ellipsis for index in found) > 1:
        return None
    whole = [slice(None)] * missing
    if Ellipsis in [index for index in found if not isinstance(index, np.ndarray)]:
        at = next(number for number, index in enumerate(found) if index is Ellipsis)
        found[at : at + 1] = whole
    else:
        found += whole
    parts: list[_Part] = []
    outside: IndexError | None = None
    for index in found:
        size = shape[len(parts)]
        if isinstance(index, np.ndarray) and index.dtype == bool:
            sides = shape[len(parts) : len(parts) + index.ndim]
            if index.shape != sides:
                return None
            parts += [_List(side.astype(np.uint64)) for side in index.nonzero()]
        elif isinstance(index, np.ndarray):
            try:
                parts.append(_List(_counted_from_start(index, size)))
            except IndexError as error:
                parts.append(_List(index))
                outside = error
        elif isinstance(index, slice):
            if index.step is not None and index.step < 1:
                return None
            part = range(*index.indices(size))
            # The step of none or one means nothing, and may be larger than 64 bits.
            parts.append(part if len(part) > 1 else range(part.start, part.start + len(part)))
        else:
            if not -size <= index < size:
                return None
            parts.append(index % size)
    if outside is not None:
        if any(isinstance(part, range) and not part for part in parts):
            return None  # h5py does not look at a list of which nothing is read
        if not _join_to_nothing(parts):
            raise outside
    return parts


def _join_to_nothing(parts: list[_Part]) -> bool:
    """Return whether several lists are broadcast to no index: NumPy looks at none of them then."""
    sides = [part.indices.shape for part in parts if isinstance(part, _List)]
    try:
        return len(sides) > 1 and 0 in np.broadcast_shapes(*sides)
    except ValueError:
        return False


def _known(index: Any) -> Any:
    """Return the index as an integer, slice, Ellipsis or array; ``None`` for any other."""
    if index is Ellipsis or isinstance(index, bool):
        return index if index is Ellipsis else None
    if isinstance(index, (int, np.integer)):
        return int(index)
    if isinstance(index, slice):
        ends = (index.start, index.stop, index.step)
        if all(end is None or isinstance(end, (int, np.integer)) for end in ends):
            return slice(*(end if end is None else int(end) for end in ends))
        return None
    is_sequence = isinstance(index, (list, tuple, range))
    if not is_sequence and (not hasattr(index, "__array__") or isinstance(index, np.generic)):
        return None
    try:
        array = np.asarray(index)
    except (TypeError, ValueError):  # as for lists of several lengths
        return None
    if array.size == 0 and is_sequence:
        array = array.astype(np.int64)
    if array.ndim == 0 or array.dtype.kind not in "biu":
        return int(array) if array.ndim == 0 and array.dtype.kind in "iu" else None
    return array


def _dimensions(index: Any) -> int:
    """Return how many dimensions an index is for."""
    if index is Ellipsis:
        return 0
    is_mask = isinstance(index, np.ndarray) and index.dtype == bool
    return index.ndim if is_mask else 1


def _counted_from_start(array: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    if array.size and (int(array.max()) >= size or int(array.min()) < -size):
        outside = int(array.max()) if int(array.max()) >= size else int(array.min())
        raise IndexError(f"index {outside} is outside a dimension of size {size}")
    if array.dtype.kind == "i":
        # As int64 before the sum, which a short type cannot hold.
        array = array.astype(np.int64)
        array = np.where(array < 0, array + size, array)
    return array.astype(np.uint64)


def _parts_before_ellipsis(indices: tuple[Any, ...]) -> int:
    """Return how many parts stand before an Ellipsis; 0 if there is none."""
    known = [_known(index) for index in indices]
    for number, index in enumerate(known):
        if index is Ellipsis:
            return sum(_dimensions(before) for before in known[:number])
    return 0


def _by_several_lists(
    parts: Sequence[_Part], lists: Sequence[_List], before_ellipsis: int
) -> Elements:
    """Return what several lists select, which NumPy broadcasts to each other.

    ``before_ellipsis`` is how many parts stand before an Ellipsis, which separates lists even if
    it stands for no dimension.
    """
    try:
        common = np.broadcast_shapes(*(part.indices.shape for part in lists))
    except ValueError:
        shapes = ", ".join(str(part.indices.shape) for part in lists)
        raise IndexError(f"lists of the shapes {shapes} cannot be broadcast together") from None
    # As NumPy does: the dimensions of the lists stay where the lists are, if only integers are
    # between them, and else come first.
    advanced = [number for number, part in enumerate(parts) if not isinstance(part, range)]
    is_separated = advanced[0] < before_ellipsis <= advanced[-1]
    adjacent = advanced[-1] - advanced[0] + 1 == len(advanced) and not is_separated
    before = sum(isinstance(part, range) for part in parts[: advanced[0]]) if adjacent else 0
    slices = [len(part) for part in parts if isinstance(part, range)]
    result = (*slices[:before], *common, *slices[before:])
    if _is_mesh(lists):
        return _product(parts, len(common), before, result)
    if math.prod(result) > _MOST_POINTS:
        raise OutOfMemoryError(
            f"the lists select {math.prod(result)} single elements",
            remedy="read the elements in parts, or as a product: numpy.ix_",
        )
    return Elements(result, None, _points(parts, len(common), before, result))


def _is_mesh(lists: Sequence[_List]) -> bool:
    """Whether every combination of the lists is selected, as by ``numpy.ix_``."""
    count = len(lists)
    return all(
        part.indices.ndim == count
        and all(n == 1 for d, n in enumerate(part.indices.shape) if d != number)
        for number, part in enumerate(lists)
    )


def _product(parts: Sequence[_Part], common: int, before: int, result: tuple[int, ...]) -> Elements:
    axes: list[Axis] = []
    places: list[int | None] = []
    of_lists = iter(range(before, before + common))
    of_slices = iter([*range(before), *range(before + common, len(result))])
    for part in parts:
        if isinstance(part, int):
            axes.append(range(part, part + 1))
            places.append(None)
        elif isinstance(part, _List):
            axes.append(part.indices.ravel())
            places.append(next(of_lists))
        else:
            axes.append(part)
            places.append(next(of_slices))
    return Elements(result, tuple(axes), places=tuple(places))


def _points(
    parts: Sequence[_Part], common: int, before: int, result: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    points = np.empty((*result, len(parts)), np.uint64)
    of_slices = iter([*range(before), *range(before + common, len(result))])
    for number, part in enumerate(parts):
        if isinstance(part, int):
            points[..., number] = part
        elif isinstance(part, _List):
            after = len(result) - before - common
            inner = np.broadcast_to(part.indices, result[before : before + common])
            points[..., number] = inner.reshape(*inner.shape, *[1] * after)
        else:
            side = [1] * len(result)
            side[next(of_slices)] = len(part)
            points[..., number] = np.arange(
                part.start, part.stop, part.step, dtype=np.uint64
            ).reshape(side)
    return points.reshape(-1, len(parts))
