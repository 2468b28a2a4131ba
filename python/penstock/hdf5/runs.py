"""Runs of elements of a dataset, each of which goes to a place of its own in an array."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock._native import ffi, lib


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
