"""What data sets of several files have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from penstock.data.files import OpenFiles
from penstock.data.order import Indices
from penstock.data.started import Started

A = TypeVar("A")
S = TypeVar("S", bound=Started)


class FileSamples:
    """Samples of files that follow one another, of which some files are open."""

    _ends: Indices
    """Of each file, the number of the first sample of the next one."""
    _stops: list[int]
    """The same, as numbers of Python."""

    def _add_files(self, counts: Any) -> None:
        """Begin with files that have these numbers of samples."""
        self._ends = np.cumsum(counts)
        self._stops = self._ends.tolist()
        self._files = OpenFiles()

    @property
    def _begins(self) -> Indices:
        """The number of the first sample of each file."""
        return np.concatenate([[0], self._ends[:-1]])

    def _files_of(self, samples: Any) -> Any:
        """Return the number of the file of each sample."""
        return np.searchsorted(self._ends, samples, side="right")

    def blocks(self, length: int | None = None) -> Indices:
        """Return the first sample of each block of consecutive samples. No block crosses files.

        Args:
            length: Samples of a block; those that the data set reads together by default.
        """
        step = self._block() if length is None else length
        ranges = zip(self._begins, self._ends, strict=True)
        return np.concatenate([np.arange(begin, end, step) for begin, end in ranges])

    def _block(self) -> int:
        """Return the number of samples of a block."""
        return 64

    def _read(self, started: S, parts: Sequence[A], start: Callable[[Sequence[A]], None]) -> S:
        """Start the reads of a batch, and return it. After an error, none is under way.

        Args:
            started: The batch.
            parts: What is read, of one file each.
            start: Is called with parts whose files may be open together.
        """
        with started:
            for group in self._files.groups(parts):
                start(group)
        return started

    def close(self) -> None:
        """Close the files. The next read opens them again."""
        self._files.close()


def counted(numbers: Indices, count: int, refused: Callable[[int, int], IndexError]) -> Indices:
    """Return numbers of samples, where negative ones count from the end.

    ``refused`` returns the error of a number that is none, by the number and ``count``.
    """
    wrong = (numbers < -count) | (numbers >= count)
    if wrong.any():
        raise refused(numbers[wrong][0], count)
    numbers = numbers.astype(np.int64, copy=False)
    return np.where(numbers < 0, numbers + count, numbers)
