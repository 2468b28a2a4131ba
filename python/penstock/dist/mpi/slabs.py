"""Slabs that ranks write: what rank 0 knows of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.dist.transfers import Ranges
from penstock.errors import InvalidError


def row_of(rank: int, number: int, ranges: Ranges) -> np.ndarray[Any, Any]:
    """Return a row about a slab: rank, number of the write, start and stop of each dimension."""
    ends = [end for one in ranges for end in (one.start, one.stop)]
    return np.array([[rank, number, *ends]], np.int64)


def refuse_overlap(name: str, rows: np.ndarray[Any, Any], known: int) -> None:
    """Raise an error if a slab overlaps another one; the first ``known`` were looked at before.

    Args:
        name: The dataset.
        rows: A row for each slab, as :func:`row_of` makes them.
        known: How many rows do not overlap.
    """
    starts, stops = rows[:, 2::2], rows[:, 3::2]
    for at in range(known, len(rows)):
        meets = (starts[:at] < stops[at]).all(axis=1) & (stops[:at] > starts[at]).all(axis=1)
        if meets.any():
            first, second = rows[np.flatnonzero(meets)[0], 0], rows[at, 0]
            raise InvalidError(
                f"{name}: ranks {first} and {second} write the same elements",
                remedy="divide the dataset by penstock.dist.partition(shape, chunks, n)",
            )
