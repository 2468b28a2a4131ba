"""The file to read, and its pages in the page cache."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from penstock._threads import Pool

DATASET = "x"
_ALIGNMENT = 1 << 20
_PATTERN = 64 << 20
_SYS_CACHESTAT = 451  # the same number on every architecture
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class DataFile:
    """An HDF5 file with one contiguous dataset of bytes, which is also read as plain bytes."""

    path: Path
    offset: int
    """The offset of the dataset's bytes, a multiple of 1 MiB."""
    nbytes: int


def data_file(folder: Path, nbytes: int) -> DataFile:
    """Make the file, or use an existing one that is long enough."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "data.h5"
    if not _holds(path, nbytes):
        path.unlink(missing_ok=True)
        require_space(folder, nbytes)
        _make(path, nbytes)
    with h5py.File(path, "r") as file:
        offset = file[DATASET].id.get_offset()
    assert offset % _ALIGNMENT == 0
    return DataFile(path, offset, nbytes)


def _holds(path: Path, nbytes: int) -> bool:
    try:
        with h5py.File(path, "r") as file:
            return bool(file[DATASET].size >= nbytes)
    except (OSError, KeyError):
        return False


def require_space(folder: Path, nbytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < nbytes * 1.05:
        raise SystemExit(f"{folder} has {free:,} bytes left, but {nbytes:,} are needed")


def _make(path: Path, nbytes: int) -> None:
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_alignment(1, _ALIGNMENT)
    # Noise, because missing data would look like zeros, and holes need no read of the disk.
    pattern = np.random.default_rng(1).integers(0, 256, min(nbytes, _PATTERN), np.uint8)
    with h5py.File(h5py.h5f.create(os.fsencode(path), fapl=access)) as file:
        dataset = file.create_dataset(DATASET, (nbytes,), "uint8")
        for number, start in enumerate(range(0, nbytes, _PATTERN)):
            part = min(_PATTERN, nbytes - start)
            # Rolled, so that bytes from a wrong place differ.
            dataset[start : start + part] = np.roll(pattern, number)[:part]
    sync_file(path)


def write_noise(path: Path, nbytes: int, start: bytes = b"", seed: int = 3) -> None:
    """Write a file of so many bytes, which begins with some that are given; it is on the medium."""
    noise = np.random.default_rng(seed).integers(0, 256, min(nbytes, _PATTERN), np.uint8)
    with open(path, "wb") as file:
        file.write(start)
        for number, at in enumerate(range(len(start), nbytes, noise.size)):
            # Rolled, so that bytes from a wrong place differ.
            file.write(np.roll(noise, number)[: nbytes - at].data)
    sync_file(path)


def sync_file(path: os.PathLike[str]) -> None:
    """Wait until all that was written to a file is on the medium."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def drop(file: DataFile) -> None:
    """Evict the file's pages from the page cache; raise an error if they stay."""
    descriptor = os.open(file.path, os.O_RDONLY)
    try:
        for wait in (0.0, 0.01, 0.1, 0.5):
            # Pages that another processor has just touched cannot be evicted at once.
            time.sleep(wait)
            os.fsync(descriptor)  # dirty pages cannot be dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            cached, pages = residency(file)
            if cached <= 0.01 * pages:
                return
    finally:
        os.close(descriptor)
    raise RuntimeError(f"{cached / pages:.0%} of {file.path.name} stays in the page cache")


def try_to_drop(path: Path) -> None:
    """Evict a file's pages, or those of a new file in a folder; raise an error if they stay.

    They stay where the page cache is the file system, as with tmpfs.
    """
    if path.is_file():
        drop(DataFile(path, 0, path.stat().st_size))
        return
    with tempfile.NamedTemporaryFile(dir=path) as made:
        made.write(bytes(_ALIGNMENT))
        made.flush()
        drop(DataFile(Path(made.name), 0, _ALIGNMENT))


def warm(file: DataFile) -> None:
    """Read the file's pages into the page cache; raise an error if they do not all stay."""
    cached, pages = residency(file)
    if cached < pages:
        with Pool(8) as pool, open(file.path, "rb", buffering=0) as source:
            step = 16 << 20
            places = range(file.offset, file.offset + file.nbytes, step)
            length = {place: min(step, file.offset + file.nbytes - place) for place in places}
            list(pool.map(lambda at: len(os.pread(source.fileno(), length[at], at)), places))
        cached, pages = residency(file)
    if cached < 0.999 * pages:
        raise RuntimeError(f"only {cached / pages:.1%} of {file.path.name} is in the page cache")


class _Range(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]


class _CacheStat(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    ]


def residency(file: DataFile) -> tuple[int, int]:
    """Return how many of the dataset's pages are in the page cache, and how many it has.

    Holes do not count: tmpfs has no pages for them, and other file systems read none for them.
    """
    descriptor = os.open(file.path, os.O_RDONLY)
    try:
        stored = list(_stored(descriptor, file))
        pages = sum(nbytes for _, nbytes in stored) // mmap.PAGESIZE
        return sum(_cached(descriptor, *part) for part in stored), pages
    finally:
        os.close(descriptor)


def _stored(descriptor: int, file: DataFile) -> Iterator[tuple[int, int]]:
    """Yield offset and length of the parts that are not holes, in whole pages."""
    at, end = file.offset, file.offset + file.nbytes
    while at < end:
        try:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
            stop = os.lseek(descriptor, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            raise
        start = max(start // mmap.PAGESIZE * mmap.PAGESIZE, at)
        at = -(-min(stop, end) // mmap.PAGESIZE) * mmap.PAGESIZE
        if start < at:
            yield start, at - start


def _cached(descriptor: int, offset: int, nbytes: int) -> int:
    where, found = _Range(offset, nbytes), _CacheStat()
    arguments = (ctypes.byref(where), ctypes.byref(found), 0)
    failed = _libc.syscall(_SYS_CACHESTAT, descriptor, *arguments)
    # On a stacked file system, such as overlay, the pages belong to a file below: none is found.
    if failed or not found.cached:
        return _by_mincore(descriptor, offset, nbytes)
    return int(found.cached)


def _by_mincore(descriptor: int, offset: int, nbytes: int) -> int:
    """Replaces cachestat, which Linux has since 6.5."""
    nbytes = min(nbytes, os.fstat(descriptor).st_size - offset)
    with mmap.mmap(descriptor, nbytes, mmap.MAP_SHARED, mmap.PROT_READ, offset=offset) as mapping:
        view = np.frombuffer(mapping, np.uint8)
        flags = np.zeros(-(-nbytes // mmap.PAGESIZE), np.uint8)
        failed = _libc.mincore(
            ctypes.c_void_p(view.ctypes.data),
            ctypes.c_size_t(nbytes),
            ctypes.c_void_p(flags.ctypes.data),
        )
        del view
        if failed:
            raise OSError(ctypes.get_errno(), "mincore")
        return int(np.count_nonzero(flags & 1))
