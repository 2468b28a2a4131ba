"""Atomic replacement of text files: readers see the old contents or the new ones."""

from __future__ import annotations

import errno
import os
import secrets
import tempfile
from pathlib import Path


def require_replaceable(path: Path) -> None:
    """Raise an ``OSError`` now if :func:`write` could not write the file later."""
    if path.is_dir():
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not os.access(path, os.W_OK):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    if not _is_special(path):
        with tempfile.TemporaryFile(dir=path.resolve().parent):
            pass


def replace(path: Path, text: str) -> None:
    """Replace a file by a text, or make the file. After an error the old file is still there.

    A symbolic link stays, and leads to the new file.
    """
    path = path.resolve()
    # The random name is unique among processes, also those on other machines.
    hidden = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    with open(hidden, "x", encoding="utf-8") as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            os.replace(hidden, path)
        except BaseException:
            hidden.unlink(missing_ok=True)
            raise


def write(path: Path, text: str) -> None:
    """Replace a regular file as :func:`replace` does; write to anything else, such as a pipe."""
    if _is_special(path):
        path.write_text(text, encoding="utf-8")
    else:
        replace(path, text)


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file()
