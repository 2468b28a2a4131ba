"""Slabs that ranks write: rank 0 checks that they are disjoint."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from penstock.dist.transfers import Ranges
from penstock.errors import InvalidError

_Numbers = np.ndarray[Any, Any]

_ROUNDS = 16
"""Divisions along all dimensions before pairs are compared. One is enough for a grid."""
_PAIRS = 1 << 20
"""Pairs that are compared at a time."""


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
        pair = _overlapping(together[:, 2::2], together[:, 3::2])
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


def _overlapping(starts: _Numbers, stops: _Numbers) -> tuple[int, int] | None:
    """Return the places of two slabs that overlap, if there are any.

    Slabs are divided into groups that a plane separates, along one dimension after the other. Those
    that are then in a group with others are compared with them.
    """
    places = np.arange(len(starts))
    groups = np.zeros(len(starts), np.int64)
    low, high = _ranked(starts, stops)
    # A number that encodes the group and, within it, the place along a dimension.
    unit = 2 * len(starts) + 1
    for _ in range(_ROUNDS):
        before = len(places), len(np.unique(groups))
        for at in range(low.shape[1]):
            order = np.lexsort((low[places, at], groups))
            places, groups = places[order], groups[order]
            ends = np.maximum.accumulate(groups * unit + high[places, at])
            is_cut = np.ones(len(places), bool)
            is_cut[1:] = (groups * unit + low[places, at])[1:] >= ends[:-1]
            groups = np.cumsum(is_cut) - 1
            has_others = np.bincount(groups)[groups] > 1
            places, groups = places[has_others], groups[has_others]
        if not len(places):
            return None
        if (len(places), len(np.unique(groups))) == before:
            break
    return _compared(low, high, places, groups * unit)


def _ranked(starts: _Numbers, stops: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Return small numbers of the same order in place of indices, for each dimension."""
    low, high = np.empty_like(starts), np.empty_like(stops)
    for at in range(starts.shape[1]):
        ends = np.concatenate([starts[:, at], stops[:, at]])
        low[:, at], high[:, at] = np.split(np.unique(ends, return_inverse=True)[1], 2)
    return low, high


def _compared(
    low: _Numbers, high: _Numbers, places: _Numbers, bases: _Numbers
) -> tuple[int, int] | None:
    """Compare the slabs of a group that meet along the dimension in which the fewest pairs do."""
    best: tuple[int, _Numbers, _Numbers] | None = None
    for at in range(low.shape[1]):
        order = np.argsort(bases + low[places, at], kind="stable")
        starts = (bases + low[places, at])[order]
        counts = np.searchsorted(starts, (bases + high[places, at])[order])
        counts -= np.arange(1, len(places) + 1)
        pairs = int(counts.sum())
        if best is None or pairs < best[0]:
            best = pairs, places[order], counts
    assert best is not None
    _, places, counts = best
    ends = np.cumsum(counts)
    start = 0
    while start < len(places):
        done = ends[start - 1] if start else 0
        stop = max(int(np.searchsorted(ends, done + _PAIRS, side="right")), start + 1)
        some = counts[start:stop]
        first = np.repeat(np.arange(start, stop), some)
        second = first + 1 + np.arange(len(first)) - np.repeat(np.cumsum(some) - some, some)
        one, other = places[first], places[second]
        meets = (low[one] < high[other]).all(axis=1) & (high[one] > low[other]).all(axis=1)
        if meets.any():
            at = int(np.argmax(meets))
            return int(one[at]), int(other[at])
        start = stop
    return None
