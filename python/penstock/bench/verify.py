"""Checks that a read delivered the file's bytes, at places spread over its range."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import count as counting
from typing import NamedTuple

import numpy as np

from . import gpu
from .files import DataFile
from .measure import Contestant, WrongBytesError

_WINDOW = 64 << 10
_PIECE = 16 << 20


class Place(NamedTuple):
    """A range of a file, and its place in the destination."""

    in_memory: int
    in_file: int
    length: int


def windows(nbytes: int, offset: int = 0, count: int = 17) -> list[Place]:
    """Return places spread over a contiguous transfer, including its first and last bytes."""
    length = min(_WINDOW, nbytes)
    starts = {round(part) for part in np.linspace(0, nbytes - length, count)}
    return [Place(start, offset + start, length) for start in sorted(starts)]


def pieces(nbytes: int, offset: int = 0) -> list[Place]:
    """Return places that together are all of a contiguous transfer."""
    starts = range(0, nbytes, _PIECE)
    return [Place(start, offset + start, min(_PIECE, nbytes - start)) for start in starts]


def poisoner(address: int, places: Sequence[Place]) -> Callable[[], None]:
    """Return a function that overwrites places of a destination, so that missing bytes show."""

    def poison() -> None:
        for place in places:
            gpu.put(address + place.in_memory, np.full(place.length, 0xA5, np.uint8))

    return poison


def checker(
    path: os.PathLike[str], places: Sequence[Place], address: int | None = None
) -> Callable[[object], None]:
    """Return a function that compares GPU memory with the file.

    The memory is at ``address``; if that is ``None``, it is the run's result.
    """

    def check(result: object) -> None:
        base = gpu.address_of(result) if address is None else address
        descriptor = os.open(path, os.O_RDONLY)
        try:
            for place in places:
                seen = gpu.get(base + place.in_memory, place.length)
                wanted = os.pread(descriptor, place.length, place.in_file)
                if seen.tobytes() != wanted:
                    raise WrongBytesError(f"wrong bytes near offset {place.in_file} of the file")
        finally:
            os.close(descriptor)

    return check


def with_last_run(
    contestant: Contestant,
    runs: int,
    poison: Callable[[], None],
    check: Callable[[object], None],
) -> Contestant:
    """Add a check after the last of the runs, untimed; ``poison`` its destination beforehand.

    The check may take long, because it runs once.
    """
    begun, ended = counting(1), counting(1)
    prepare = contestant.before

    def before() -> None:
        if next(begun) == runs:
            poison()
        prepare()

    def verify(result: object) -> None:
        if next(ended) == runs:
            check(result)

    contestant.before, contestant.verify = before, verify
    return contestant


def reading(
    file: DataFile, nbytes: int, address: int
) -> tuple[Callable[[], None], Callable[[object], None]]:
    """Return poison and check of a contiguous read from the start of the data."""
    places = windows(nbytes, file.offset)
    return poisoner(address, places), checker(file.path, places, address)
