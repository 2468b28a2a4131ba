"""Boxes in several dimensions: which of them overlap."""

from __future__ import annotations

from typing import Any

import numpy as np

_Numbers = np.ndarray[Any, Any]

_ROUNDS = 16
"""Divisions along all dimensions before pairs are compared. One is enough for a grid."""
_PAIRS = 1 << 20
"""Pairs that are compared at a time."""


def overlapping(starts: _Numbers, stops: _Numbers) -> tuple[int, int] | None:
    """Return the places of two boxes that overlap, if there are any. No box is empty.

    Boxes are divided into groups that a plane separates, along one dimension after the other. Those
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
    """Compare the boxes of a group that meet along the dimension in which the fewest pairs do."""
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
