"""Whether a read delivered the file's bytes, at places spread over what it reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from . import gpu
from .files import DataFile
from .measure import WrongBytesError

_WINDOW = 64 << 10


class Place(NamedTuple):
    """Bytes of a file and where in the destination they belong."""

    in_memory: int
    in_file: int
    length: int


def windows(nbytes: int, offset: int = 0, count: int = 17) -> list[Place]:
    """Places spread over a contiguous transfer, its first and last bytes among them."""
    length = min(_WINDOW, nbytes)
    starts = {round(part) for part in np.linspace(0, nbytes - length, count)}
    return [Place(start, offset + start, length) for start in sorted(starts)]


def poisoner(address: int, places: Sequence[Place]) -> Callable[[], None]:
    """Overwrites the places of a destination with what is nowhere in the file."""

    def poison() -> None:
        for place in places:
            gpu.put(address + place.in_memory, np.full(place.length, 0xA5, np.uint8))

    return poison


def checker(
    path: os.PathLike[str], places: Sequence[Place], address: int | None = None
) -> Callable[[object], None]:
    """Compares GPU memory with the file: that at ``address``, or else the run's result."""

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


def reading(
    file: DataFile, nbytes: int, address: int
) -> tuple[Callable[[], None], Callable[[object], None]]:
    """Poison and check of a contiguous read from the start of the data."""
    places = windows(nbytes, file.offset)
    return poisoner(address, places), checker(file.path, places, address)
