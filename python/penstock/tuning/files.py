"""The tuner's own files: their contents, and their pages in the page cache."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import NoSpaceError

_PART = 8 << 20
_libc = ctypes.CDLL(None)
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


def drop(descriptor: int) -> None:
    """Evict the file's pages from the page cache, as far as the file system allows."""
    os.fsync(descriptor)  # dirty pages cannot be evicted
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def warm(descriptor: int, nbytes: int) -> None:
    """Read the file's pages into the page cache."""
    buffer = bytearray(_PART)
    for start in range(0, nbytes, _PART):
        os.preadv(descriptor, [buffer], start)


def residency(descriptor: int, nbytes: int) -> float | None:
    """Return the fraction of the file that is in the page cache; ``None`` if it is unknown.

    Reads with RWF_NOWAIT would show it as well, but they start readahead.
    """
    try:
        mapping = mmap.mmap(descriptor, nbytes, mmap.MAP_SHARED, mmap.PROT_READ)
    except OSError:  # a file system without mappings
        return None
    with mapping:
        view = np.frombuffer(mapping, np.uint8)
        flags = np.zeros(-(-nbytes // mmap.PAGESIZE), np.uint8)
        start, answer = ctypes.c_void_p(view.ctypes.data), ctypes.c_void_p(flags.ctypes.data)
        failed = _libc.mincore(start, ctypes.c_size_t(nbytes), answer)
        del view  # otherwise the mapping could not be closed
    return None if failed else float((flags & 1).mean())


def windows(nbytes: int) -> list[tuple[int, int]]:
    """Return the ranges of a transfer to compare: both ends and some between."""
    width = min(nbytes, 4096)
    places = {0, nbytes - width, *(nbytes // 16 * number for number in range(1, 16))}
    return [(place, min(width, nbytes - place)) for place in sorted(places)]


def same(found: Any, wanted: Bytes) -> bool:
    """Whether two ranges are equal."""
    return bool(np.array_equal(np.frombuffer(found, np.uint8), wanted))
