"""Checks that a read delivered the file's bytes, at places spread over its range, or all values."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import count as counting
from typing import Any, NamedTuple

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


class Expected:
    """The expected values of a dataset or selection."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.values = values
        self._on_gpu: Any = None

    def part(self, count: int) -> Expected:
        """Return the values of the first elements of a one-dimensional dataset."""
        return Expected(self.values[:count])

    def poison(self, array: Any) -> None:
        """Overwrite a destination with values that the dataset does not have."""
        if isinstance(array, np.ndarray):
            array.view(np.uint8).fill(0xA5)
        elif gpu.torch:
            array.view(gpu.torch.int32).fill_(-1)
            gpu.synchronize()
        else:
            gpu.put(gpu.address_of(array), np.full(self.values.nbytes, 0xA5, np.uint8))

    def check(self, array: Any) -> None:
        """Raise unless all values of an array, on the host or a GPU, are right."""
        if isinstance(array, np.ndarray):
            equal = np.array_equal(array, self.values)
        elif gpu.torch:
            if self._on_gpu is None:
                self._on_gpu = gpu.torch.from_numpy(self.values).cuda()
            equal = gpu.torch.equal(array, self._on_gpu)
        else:
            equal = np.array_equal(array.numpy(), self.values)
        if not equal:
            raise WrongBytesError("wrong values")
