"""Divides an array into hyperslabs: balanced, disjoint, aligned to chunks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from operator import index as as_index
from typing import Any, TypeAlias, overload

import numpy as np

from penstock.errors import InvalidError

Slab: TypeAlias = "tuple[slice, ...]"


def partition(
    shape: Sequence[int] | int,
    chunks: Sequence[int] | int | None,
    n: int,
    *,
    stripe: int | None = None,
    itemsize: int = 1,
) -> Partition:
    """Divide an array into ``n`` hyperslabs, one for each reader or writer.

    The hyperslabs are disjoint, cover the array, and come in C order of their first elements. Each
    starts and ends at borders of chunks or at the array's edge, so no chunk belongs to two of them.

    The cost depends neither on ``n`` nor on the number of chunks in memory; in time it grows with
    the square root of the number of chunks along each dimension.

    Args:
        shape: The shape of the array; ``()`` for a scalar.
        chunks: The shape of a chunk; ``None`` for a contiguous array, of which each hyperslab is
            then one range of the file.
        n: The number of hyperslabs, at least 1.
        stripe: The stripe of the file system in bytes. Hyperslabs then start at a multiple of it,
            counted from the first element, if that leaves every reader its share (see
            :attr:`Partition.is_striped`). Chunks count as stored uncompressed in C order.
        itemsize: The size of an element in bytes, which ``stripe`` needs.

    Returns:
        A sequence of ``n`` tuples of slices. All slices of an empty hyperslab are
        ``slice(0, 0)``. A scalar has no empty hyperslab: its first part is ``()``,
        the others are ``None``.

    Balance: call the number of chunks ``t`` (of elements, for a contiguous array). If ``t <= n``,
    no part has more than one. Else every part has fewer than ``4 * t / n``; with one dimension, or
    with a first dimension of at least ``n`` chunks, at most ``ceil(c / n)`` rows of chunks, where
    ``c`` is the number of rows. Along each dimension the sizes of the parts that are not empty
    differ by at most one chunk, apart from a last chunk that the array's edge cuts off. With
    stripes, a unit of several rows of chunks takes the place of a row.

    Raises:
        InvalidError: A size is negative, a chunk is empty, or the numbers of dimensions differ.

    >>> [part[0] for part in partition((10,), (3,), 3)]
    [slice(0, 3, None), slice(3, 6, None), slice(6, 10, None)]
    """
    sides = _numbers("shape", shape, least=0)
    units = None if chunks is None else _numbers("chunks", chunks, least=1)
    if units is not None and len(units) != len(sides):
        raise InvalidError(
            f"chunks {units} have {len(units)} dimensions, shape {sides} {len(sides)}"
        )
    (count,) = _numbers("n", n, least=1)
    rows = 0
    if stripe is not None:
        (stripe,), (itemsize,) = (
            _numbers("stripe", stripe, least=1),
            _numbers("itemsize", itemsize, least=1),
        )
        rows = _rows_of_stripes(sides, units, stripe, itemsize, count)
    if units is None:
        contiguous = _contiguous_units(sides, count) if not rows else (rows, *sides[1:])
        return Partition(sides, contiguous, count, rows_first=True, is_striped=rows > 0)
    if rows:
        units = (rows, *units[1:])
    return Partition(sides, units, count, rows_first=rows > 0, is_striped=rows > 0)


class Partition(Sequence["Slab | None"]):
    """The hyperslabs that :func:`partition` returns. Each is computed on access."""

    def __init__(
        self,
        shape: tuple[int, ...],
        units: tuple[int, ...],
        n: int,
        *,
        rows_first: bool,
        is_striped: bool,
    ) -> None:
        self.shape = shape
        self.is_striped = is_striped
        """Whether hyperslabs start at multiples of the requested stripe."""
        self._units = tuple(max(unit, 1) for unit in units)
        self._n = n
        counts = tuple(-(-side // unit) for side, unit in zip(shape, self._units, strict=True))
        self._counts = counts
        self.grid: tuple[int, ...]
        """The number of parts along each dimension."""
        if 0 in counts:
            self.grid = tuple(0 for _ in counts)
        elif rows_first:
            self.grid = _rows_first(counts, n)
        else:
            self.grid = _best_grid(counts, n)

    def __len__(self) -> int:
        return self._n

    @property
    def filled(self) -> int:
        """The number of hyperslabs that are not empty; they come first."""
        return math.prod(self.grid)

    @overload
    def __getitem__(self, index: int) -> Slab | None: ...

    @overload
    def __getitem__(self, index: slice) -> list[Slab | None]: ...

    def __getitem__(self, index: int | slice) -> Slab | list[Slab | None] | None:
        if isinstance(index, slice):
            return [self._part(rank) for rank in range(*index.indices(self._n))]
        rank = as_index(index)
        if not -self._n <= rank < self._n:
            raise IndexError(f"part {rank} of {self._n}")
        return self._part(rank % self._n)

    def __iter__(self) -> Iterator[Slab | None]:
        return map(self._part, range(self._n))

    @property
    def tile(self) -> tuple[int, ...]:
        """The shape of equal tiles in place of the parts, for engines that support only those.

        It is that of the largest part before the array's edge cuts it off. So tiles start and end
        at borders of chunks, and along no dimension are there more of them than parts. A side is
        at least 1.
        """
        together = zip(self._counts, self.grid, self._units, strict=True)
        return tuple(-(-count // max(parts, 1)) * unit or unit for count, parts, unit in together)

    def __repr__(self) -> str:
        return f"<Partition of {self.shape} into {self._n}: {' x '.join(map(str, self.grid))}>"

    def _part(self, rank: int) -> Slab | None:
        if rank >= self.filled:
            return tuple(slice(0, 0) for _ in self.shape) if self.shape else None
        slices = []
        for parts, count, unit, side in self._dimensions():
            rank, at = divmod(rank, parts)
            start, stop = (count * at // parts, count * (at + 1) // parts)
            slices.append(slice(min(start * unit, side), min(stop * unit, side)))
        return tuple(reversed(slices))

    def _dimensions(self) -> Iterator[tuple[int, int, int, int]]:
        """Return parts, units, unit and side of each dimension, the last one first."""
        together = list(zip(self.grid, self._counts, self._units, self.shape, strict=True))
        return reversed(together)

    def bounds(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the first and the end index of all parts: an array of shape ``(n, rank, 2)``.

        It is faster than an access to each part, and takes 16 bytes a part and dimension.
        """
        found = np.zeros((self._n, len(self.shape), 2), dtype=np.int64)
        ranks = np.arange(self.filled, dtype=np.int64)
        last = len(self.shape) - 1
        for at, (parts, count, unit, side) in enumerate(self._dimensions()):
            ranks, place = np.divmod(ranks, max(parts, 1))
            # count * place // parts, whose product could exceed 63 bits.
            whole, rest = divmod(count, max(parts, 1))
            for end in (0, 1):
                border = whole * (place + end) + rest * (place + end) // max(parts, 1)
                # The end of the last unit may not be below 2**63, nor its length.
                start = np.minimum(border, count - 1) * min(unit, side)
                found[: self.filled, last - at, end] = np.where(border < count, start, side)
        return found


def _numbers(name: str, value: Any, least: int) -> tuple[int, ...]:
    try:
        numbers = tuple(map(as_index, value if np.iterable(value) else (value,)))
    except TypeError:
        raise InvalidError(f"{name} is {value!r}, but must be of integers") from None
    for number in numbers:
        if not least <= number < 1 << 63:
            raise InvalidError(f"{name} is {value!r}, but must be at least {least} and below 2**63")
    return numbers


def _contiguous_units(shape: tuple[int, ...], n: int) -> tuple[int, ...]:
    """Return the largest blocks of whole inner dimensions of which there are at least ``n``."""
    outer = 1
    for at, side in enumerate(shape):
        outer *= side
        if outer >= n or outer == 0:
            return (1,) * (at + 1) + shape[at + 1 :]
    return (1,) * len(shape)


def _rows_first(counts: tuple[int, ...], n: int) -> tuple[int, ...]:
    """Return a grid of contiguous parts: all dimensions outside the last divided one are full."""
    grid = [1] * len(counts)
    for at, count in enumerate(counts):
        grid[at] = min(count, n)
        n //= grid[at]
        if n <= 1:
            break
    return tuple(grid)


def _best_grid(counts: tuple[int, ...], n: int) -> tuple[int, ...]:
    """Return the grid of at most ``n`` parts whose largest part has the fewest chunks.

    Of several, it is the one that divides outer dimensions most, because such parts are in fewer
    ranges of the file.
    """
    # The remaining parts and the largest part so far, for each choice along the outer dimensions.
    # Only choices that no other one beats in both can be part of the best grid.
    choices: list[tuple[int, int, tuple[int, ...]]] = [(n, 1, ())]
    for at, count in enumerate(counts):
        is_last = at == len(counts) - 1
        found: dict[int, tuple[int, int, tuple[int, ...]]] = {}
        for left, largest, grid in choices:
            tried = [min(count, left)] if is_last else _distinct(count, left)
            for parts in tried:
                made = (left // parts, largest * -(-count // parts), (*grid, parts))
                known = found.get(made[0])
                if known is None or (made[1], _negative(made[2])) < (known[1], _negative(known[2])):
                    found[made[0]] = made
        choices = _unbeaten(found)
    best: tuple[int, ...] = min(choices, key=lambda one: (one[1], _negative(one[2])))[2]
    return best


def _negative(grid: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(-parts for parts in grid)


def _unbeaten(
    found: dict[int, tuple[int, int, tuple[int, ...]]],
) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return the choices that no other beats in both remaining parts and largest part."""
    kept: list[tuple[int, int, tuple[int, ...]]] = []
    for left in sorted(found, reverse=True):
        if not kept or found[left][1] < kept[-1][1]:
            kept.append(found[left])
    return kept


def _distinct(count: int, most: int) -> list[int]:
    """Return the least number of parts for each size of the largest part of ``count`` chunks."""
    parts, found = 1, []
    limit = min(count, most)
    while parts <= limit:
        found.append(parts)
        size = -(-count // parts)
        if size == 1:
            break
        parts = -(-count // (size - 1))
    return found


def _rows_of_stripes(
    shape: tuple[int, ...], chunks: tuple[int, ...] | None, stripe: int, itemsize: int, n: int
) -> int:
    """Return the rows of elements after which a border of chunks is one of stripes as well.

    0 if a reader among ``n`` would get no rows, or if a row has no bytes.
    """
    if not shape or 0 in shape:
        return 0
    padded = shape[1:]
    if chunks is not None:
        padded = tuple(-(-s // c) * c for s, c in zip(shape[1:], chunks[1:], strict=True))
    row = math.prod(padded) * itemsize
    unit = row if chunks is None else row * chunks[0]
    rows = math.lcm(unit, stripe) // row
    return rows if -(-shape[0] // rows) >= n else 0
