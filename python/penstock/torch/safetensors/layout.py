"""Where the bytes of tensors go in memory: one allocation, which is filled by few long reads.

Neighbours in the file stay neighbours in memory as long as each tensor is aligned there, because
the longest reads are the fastest. A tensor that would not be aligned begins a new run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.torch.safetensors.header import Entry

ALIGNMENT = 16
"""Bytes to whose multiple a tensor is aligned if its length is one, as kernels' vector loads ask."""
_RANGE = np.dtype([("offset", "u8"), ("length", "u8"), ("buffer", "u8")])


class Part(NamedTuple):
    """A tensor, or a slice of one, that is read."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    """The lengths in elements."""
    begin: int
    """The offset in the file of the first byte."""
    nbytes: int
    starts: np.ndarray[Any, Any] | None = None
    """Offsets in the file of pieces of equal length, if there are several."""

    @property
    def end(self) -> int:
        """The offset in the file behind a part that is one piece."""
        return self.begin + self.nbytes


def whole(entry: Entry) -> Part:
    """Return the part that is all of a tensor."""
    name, dtype, shape, begin, end = entry
    return Part(name, dtype, shape, begin, end - begin)


class Layout(NamedTuple):
    """A plan for some parts of a file."""

    nbytes: int
    """The bytes of memory."""
    places: list[int]
    """At which byte of the memory each part begins."""
    ranges: np.ndarray[Any, Any]
    """What is read, in the order of the parts; ``buffer`` counts from the start of the memory."""

    def at(self, address: int) -> np.ndarray[Any, Any]:
        """Return the ranges for memory at an address, in the form of ``penstock_range``."""
        ranges = self.ranges.copy()
        ranges["buffer"] += np.uint64(address)
        return ranges


def lay_out(parts: Iterable[Part]) -> Layout:
    """Return a plan for parts in the order of the file."""
    places: list[int] = []
    offsets: list[int] = []
    lengths: list[int] = []
    buffers: list[int] = []
    at, end = 0, -1
    for _, _, _, begin, nbytes, starts in parts:
        if not nbytes:
            places.append(at)
            continue
        alignment = min(nbytes & -nbytes, ALIGNMENT)
        runs_on = begin == end and starts is None and not at % alignment
        if not runs_on:
            at = -(-at // ALIGNMENT) * ALIGNMENT
        places.append(at)
        if starts is not None:
            piece = nbytes // len(starts)
            offsets += starts.tolist()
            lengths += [piece] * len(starts)
            buffers += range(at, at + nbytes, piece)
            end = -1
        elif runs_on:
            lengths[-1] += nbytes
            end += nbytes
        else:
            offsets.append(begin)
            lengths.append(nbytes)
            buffers.append(at)
            end = begin + nbytes
        at += nbytes
    ranges = np.empty(len(offsets), _RANGE)
    ranges["offset"], ranges["length"], ranges["buffer"] = offsets, lengths, buffers
    return Layout(at, places, ranges)


def lay_out_contiguous(parts: Sequence[Part], begin: int, end: int) -> tuple[int, list[int]]:
    """Return a plan that keeps the bytes ``[begin, end)`` of a file together.

    Returns:
        The byte of an aligned allocation at which the first one goes, so that as many bytes as
        possible belong to aligned tensors; and at which byte of the allocation each part begins.
    """
    aligned = [0] * ALIGNMENT
    for part in parts:
        need = min(part.nbytes & -part.nbytes, ALIGNMENT) or 1
        for shift in range(-(part.begin - begin) % need, ALIGNMENT, need):
            aligned[shift] += part.nbytes
    shift = max(range(ALIGNMENT), key=aligned.__getitem__)
    return shift, [shift + part.begin - begin for part in parts]


def is_aligned(part: Part, place: int) -> bool:
    """Whether a part is aligned at this byte of an aligned allocation."""
    return not part.nbytes or place % min(part.nbytes & -part.nbytes, ALIGNMENT) == 0
