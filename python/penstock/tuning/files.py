"""The tuner's own files and their contents."""

from __future__ import annotations

import os
import shutil
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from penstock.errors import NoSpaceError

_PART = 8 << 20
Bytes = NDArray[np.uint8]


@lru_cache(maxsize=1)
def _noise() -> Bytes:
    return np.random.default_rng(12).integers(0, 256, _PART, np.uint8)


class Contents:
    """The bytes that a file of the tuner has at each offset: noise that differs in each part."""

    def __init__(self, version: int = 0) -> None:
        self._noise = _noise()
        self._version = version

    def at(self, offset: int, nbytes: int) -> Bytes:
        """Return the bytes of a range."""
        found = np.empty(nbytes, np.uint8)
        done = 0
        while done < nbytes:
            part, start = divmod(offset + done, _PART)
            count = min(nbytes - done, _PART - start)
            key = np.uint8((part * 37 + self._version * 101 + 1) & 0xFF)
            np.bitwise_xor(self._noise[start : start + count], key, out=found[done : done + count])
            done += count
        return found


def require_space(folder: Path, nbytes: int) -> None:
    """Raise an error unless the file system has room for ``nbytes``, with a margin."""
    free = shutil.disk_usage(folder).free
    if free < nbytes * 1.05:
        raise NoSpaceError(
            f"{folder} has {free:,} bytes left, and tuning needs {int(nbytes * 1.05):,}",
            path=os.fspath(folder),
            remedy="free some space, or use a smaller --budget, which makes smaller files",
        )


def make(path: Path, nbytes: int) -> None:
    """Make a file with the bytes of :class:`Contents`; it is on the medium when this returns."""
    contents = Contents()
    with open(path, "xb", buffering=0) as file:
        try:
            for start in range(0, nbytes, _PART):
                part = contents.at(start, min(_PART, nbytes - start)).data
                while part:
                    part = part[file.write(part) :]
            os.fsync(file.fileno())
        except OSError as error:
            error.filename = os.fspath(path)
            raise
