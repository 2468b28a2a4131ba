"""The last step of a save: checks of what all ranks wrote, and the lock of the folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from penstock.errors import EndOfFileError, NotFoundError

_REMEDY = "save again; all ranks must write into one folder that all of them see"


def unique() -> str:
    """Return text for names of files that no other save has, now or later."""
    return uuid4().hex


@contextmanager
def locked(folder: Path, *, shared: bool = False) -> Iterator[int]:
    """Yield a descriptor of a folder in which no other save publishes a checkpoint meanwhile.

    Where a file system has no locks for folders, or has them for each host alone, as NFS does,
    nothing keeps those of other hosts out.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield descriptor
    finally:
        with suppress(OSError):  # a child of fork may have the descriptor, too
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def check(sizes: Mapping[Path, int]) -> None:
    """Check that files of a save are there, with these lengths.

    Raises:
        NotFoundError: A file is not there.
        EndOfFileError: A file has another length.
    """
    for path, size in sizes.items():
        try:
            found = path.stat().st_size
        except FileNotFoundError:
            raise NotFoundError(
                f"{path}: a rank has written this file, and it is not there",
                path=str(path),
                remedy=_REMEDY,
            ) from None
        if found != size:
            raise EndOfFileError(
                f"{path} has {found} bytes, and the rank that wrote it has written {size}",
                path=str(path),
                remedy=_REMEDY,
            )


def remove(paths: Iterable[Path]) -> None:
    """Remove files, as far as that is possible."""
    for path in paths:
        with suppress(OSError):
            path.unlink()


def inside(folder: Path, names: Iterable[object], suffix: str) -> set[Path]:
    """Return the files of a folder that have these names, without those of another suffix."""
    return {
        folder / name
        for name in names
        if isinstance(name, str) and name.endswith(suffix) and os.path.basename(name) == name
    }
