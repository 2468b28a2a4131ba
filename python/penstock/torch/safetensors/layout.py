"""Where the bytes of tensors go in memory: one allocation, which is filled by few long reads.

Neighbours in the file stay neighbours in memory as long as each tensor is aligned there, because
the longest reads are the fastest. A tensor that would not be aligned begins a new run.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from penstock.torch.safetensors.header import Entry
from penstock.transfer import RANGE

ALIGNMENT = 16
"""The alignment in bytes of a tensor whose length is a multiple of it: kernels load vectors."""


class Part(NamedTuple):
    """A slice of a tensor that is read. An :class:`Entry` is one as well: the whole tensor."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    """The lengths in elements."""
    begin: int
    """The offset in the file of the first byte."""
    end: int
    """``begin`` and the bytes of the slice: the offset behind it if it is one piece."""
    starts: np.ndarray[Any, Any] | None = None
    """Offsets in the file of pieces of equal length, if there are several."""

    @property
    def nbytes(self) -> int:
        """The length in bytes."""
        return self.end - self.begin


AnyPart: TypeAlias = "Entry | Part"


class Layout(NamedTuple):
    """A plan for some parts of a file."""

    nbytes: int
    """The bytes of memory."""
    places: list[int]
    """At which byte of the memory each part begins."""
    ranges: np.ndarray[Any, Any]
    """What is read, in the order of the file; ``buffer`` counts from the start of the memory."""

    def move_to(self, address: int) -> np.ndarray[Any, Any]:
        """Return the ranges, which now are for memory at an address: ``penstock_range``."""
        buffers = self.ranges["buffer"]
        buffers += np.uint64(address)
        return self.ranges


def lay_out(parts: Sequence[AnyPart]) -> Layout:
    """Return a plan for parts in the order of the file."""
    if len(parts) == 1 and parts[0].nbytes and getattr(parts[0], "starts", None) is None:
        nbytes = parts[0].nbytes
        return Layout(nbytes, [0], np.array([(parts[0].begin, nbytes, 0)], RANGE))
    return _one_run(parts) or _several_runs(parts)


def _one_run(parts: Sequence[AnyPart]) -> Layout | None:
    """Return a plan of one read; ``None`` if there is none."""
    begins = np.fromiter(map(itemgetter(3), parts), np.int64, len(parts))
    lengths = np.fromiter(map(itemgetter(4), parts), np.int64, len(parts)) - begins
    places = np.zeros(len(parts) + 1, np.int64)
    np.cumsum(lengths, out=places[1:])
    if not places[-1] or (begins != begins[0] + places[:-1]).any():
        return None
    alignments = np.minimum(lengths & -lengths, ALIGNMENT)
    if (places[:-1] & np.maximum(alignments - 1, 0)).any():
        return None
    if Part in map(type, parts) and any(
        isinstance(part, Part) and part.starts is not None for part in parts
    ):
        return None
    ranges = np.array([(begins[0], places[-1], 0)], RANGE)
    return Layout(int(places[-1]), places[:-1].tolist(), ranges)


def _several_runs(parts: Sequence[AnyPart]) -> Layout:
    places: list[int] = []
    offsets: list[int] = []
    lengths: list[int] = []
    buffers: list[int] = []
    made: list[tuple[Any, Any, Any]] = [(offsets, lengths, buffers)]
    at, end_of_run = 0, -1
    for part in parts:
        begin, nbytes = part.begin, part.nbytes
        starts = part.starts if isinstance(part, Part) else None
        runs_on = begin == end_of_run and starts is None and is_aligned(part, at)
        if nbytes and not runs_on:
            at = -(-at // ALIGNMENT) * ALIGNMENT
        places.append(at)
        if not nbytes:
            continue
        if runs_on:
            lengths[-1] += nbytes
        elif starts is None:
            offsets.append(begin)
            lengths.append(nbytes)
            buffers.append(at)
        else:
            step = nbytes // len(starts)
            made.append((starts, step, np.arange(at, at + nbytes, step)))
            offsets, lengths, buffers = [], [], []
            made.append((offsets, lengths, buffers))
        end_of_run = part.end if starts is None else -1
        at += nbytes
    # There may be a range for each row of each tensor: these are written once.
    ranges: np.ndarray[Any, Any] = np.empty(sum(len(few) for few, _, _ in made), RANGE)
    end = 0
    for offsets, lengths, buffers in made:
        start, end = end, end + len(offsets)
        few = ranges[start:end]
        few["offset"], few["length"], few["buffer"] = offsets, lengths, buffers
    return Layout(at, places, ranges)


def lay_out_contiguous(parts: Sequence[AnyPart], begin: int) -> tuple[int, list[int]]:
    """Return a plan that keeps the bytes of a file from ``begin`` on together.

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


def is_aligned(part: AnyPart, place: int) -> bool:
    """Whether a part is aligned at this byte of an aligned allocation."""
    return not part.nbytes or place % min(part.nbytes & -part.nbytes, ALIGNMENT) == 0
