"""Slabs that ranks write: rank 0 checks that they are disjoint."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from penstock.dist.transfers import Ranges
from penstock.errors import InvalidError
from penstock.overlaps import overlapping

_Numbers = np.ndarray[Any, Any]


def row_of(rank: int, number: int, ranges: Ranges) -> _Numbers:
    """Return a row about a slab: rank, number of the write, start and stop of each dimension."""
    ends = [end for one in ranges for end in (one.start, one.stop)]
    return np.array([[rank, number, *ends]], np.int64)


def refuse_overlap(name: str, rows: _Numbers, known: Iterable[_Numbers] = ()) -> None:
    """Raise an error if a slab overlaps another one.

    The time for disjoint slabs is about that of sorting them; for known slabs far from all others,
    about that of detecting this.

    Args:
        name: The dataset.
        rows: A row for each slab, as :func:`row_of` makes them. No slab is empty.
        known: Tables of further rows, which do not overlap each other.
    """
    near = [table[_is_near(table, rows)] for table in known] if len(rows) else []
    together = np.concatenate([*near, rows])
    is_scalar = together.shape[1] == row_of(0, 0, ()).shape[1]
    if is_scalar:
        pair = (0, 1) if len(together) > 1 else None
    else:
        pair = overlapping(together[:, 2::2], together[:, 3::2])
    if pair is not None:
        first, second = together[sorted(pair), 0]
        raise InvalidError(
            f"{name}: ranks {first} and {second} write the same elements",
            remedy="divide the dataset by penstock.dist.partition(shape, chunks, n), or give "
            "slab=None on all ranks but one",
        )


def _is_near(table: _Numbers, rows: _Numbers) -> _Numbers:
    """Return for each row of a table whether it meets some of the other rows in each dimension."""
    found = np.ones(len(table), bool)
    for at in range(2, rows.shape[1], 2):
        starts, stops = rows[np.argsort(rows[:, at]), at : at + 2].T
        # Of those that start before the end of a slab, the one that ends last.
        before = np.searchsorted(starts, table[:, at + 1]) - 1
        found &= (before >= 0) & (np.maximum.accumulate(stops)[before] > table[:, at])
    return found
