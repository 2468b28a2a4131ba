"""The file to read, and its pages in the page cache."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import tempfile
import time
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
    # Noise: missing data would look like zeros, and holes are never read from the disk.
    pattern = np.random.default_rng(1).integers(0, 256, min(nbytes, _PATTERN), np.uint8)
    with h5py.File(h5py.h5f.create(os.fsencode(path), fapl=access)) as file:
        dataset = file.create_dataset(DATASET, (nbytes,), "uint8")
        for number, start in enumerate(range(0, nbytes, _PATTERN)):
            part = min(_PATTERN, nbytes - start)
            # Rolled, so that bytes from a wrong place differ.
            dataset[start : start + part] = np.roll(pattern, number)[:part]
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
            if (share := residency(file)) <= 0.01:
                return
    finally:
        os.close(descriptor)
    raise RuntimeError(f"{share:.0%} of {file.path.name} stays in the page cache")


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
    if residency(file) < 1:
        with Pool(8) as pool, open(file.path, "rb", buffering=0) as source:
            step = 16 << 20
            places = range(file.offset, file.offset + file.nbytes, step)
            length = {place: min(step, file.offset + file.nbytes - place) for place in places}
            list(pool.map(lambda at: len(os.pread(source.fileno(), length[at], at)), places))
    if (share := residency(file)) < 0.999:
        raise RuntimeError(f"only {share:.1%} of {file.path.name} is in the page cache")


class _Range(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]


class _CacheStat(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    ]


def residency(file: DataFile) -> float:
    """Return the fraction of the dataset's pages that is in the page cache."""
    pages = -(-file.nbytes // mmap.PAGESIZE)
    descriptor = os.open(file.path, os.O_RDONLY)
    try:
        where, found = _Range(file.offset, file.nbytes), _CacheStat()
        arguments = (ctypes.byref(where), ctypes.byref(found), 0)
        if _libc.syscall(_SYS_CACHESTAT, descriptor, *arguments) == 0:
            return min(float(found.cached) / pages, 1.0)
        return _by_mincore(descriptor, file, pages)
    finally:
        os.close(descriptor)


def _by_mincore(descriptor: int, file: DataFile, pages: int) -> float:
    """Do the same on kernels before 6.5, which have no cachestat."""
    with mmap.mmap(
        descriptor, file.nbytes, mmap.MAP_SHARED, mmap.PROT_READ, offset=file.offset
    ) as mapping:
        view = np.frombuffer(mapping, np.uint8)
        flags = np.zeros(pages, np.uint8)
        failed = _libc.mincore(
            ctypes.c_void_p(view.ctypes.data),
            ctypes.c_size_t(file.nbytes),
            ctypes.c_void_p(flags.ctypes.data),
        )
        del view
        if failed:
            raise OSError(ctypes.get_errno(), "mincore")
        return float((flags & 1).mean())
