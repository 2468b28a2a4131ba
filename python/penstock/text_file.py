"""Atomic replacement of text files: readers see the old contents or the new ones."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.replacement import Replacement


def require_replaceable(path: Path) -> None:
    """Raise an ``OSError`` now if :func:`write` could not write the file later."""
    if path.is_dir():
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not _is_special(path):
        _replacement(path)  # which makes a file and removes it
    elif not os.access(path, os.W_OK, effective_ids=True):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def replace(path: Path, text: str) -> None:
    """Replace a file by a text, or make the file. After an error the old file is still there.

    A symbolic link stays, and leads to the new file.
    """
    _replacement(path).write(text.encode())


def write(path: Path, contents: str | bytes) -> None:
    """Replace a regular file as :func:`replace` does; write to anything else, such as a pipe."""
    data = contents.encode() if isinstance(contents, str) else contents
    if not _is_special(path):
        _replacement(path).write(data)
        return
    try:
        path.write_bytes(data)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextmanager
def replacement(path: Path) -> Iterator[Path]:
    """Yield the path of a new file, which replaces a file at the end of the block.

    After an exception the old file is there. A pipe or device is yielded itself.
    """
    if _is_special(path):
        yield path
        return
    with _replacement(path) as descriptor:
        yield Path(f"/proc/self/fd/{descriptor}")


def _replacement(path: Path) -> Replacement:
    try:
        return Replacement(path)
    except OSError as error:  # as open() says it, for a message of one line
        code = error.errno or errno.EIO
        raise OSError(code, os.strerror(code), str(path)) from error


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file()
