"""Files of the native library."""

from __future__ import annotations

import os
from pathlib import Path as FilePath
from typing import Any, TypeAlias

from penstock._native import NULL, CData, ffi, lib
from penstock.errors import InvalidError, check

Path: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"

READ: int = lib.PENSTOCK_READ
WRITE: int = lib.PENSTOCK_WRITE
CREATE: int = lib.PENSTOCK_CREATE
TRUNCATE: int = lib.PENSTOCK_TRUNCATE


def encode(path: Path) -> bytes:
    """Return a path as the bytes that system calls take."""
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise InvalidError(f"the path {os.fsdecode(encoded)!r} contains a null byte")
    return encoded


def path_of_new(path: Path) -> FilePath:
    """Return the path of a file to make. ``pathlib`` drops an end that only a folder has."""
    name = os.fsdecode(encode(path))
    if os.path.basename(name) in ("", ".", ".."):
        raise InvalidError(f"the path {name!r} does not end in the name of a file", path=name)
    return FilePath(name)


class NativeFile:
    """An open file. :meth:`close` closes it, as does the end of its last reference.

    Args:
        path: The file, or an open descriptor, which the caller closes.
        flags: :data:`READ`, :data:`WRITE` and so on; a descriptor must be open for them.
    """

    __slots__ = ("__weakref__", "_close", "_opened", "handle")

    handle: CData

    def __init__(self, path: Path | int, flags: int) -> None:
        # The native call stores the handle where its native destructor finds it, whatever
        # interrupts the rest. In a forked child, it closes nothing of its parent.
        self._opened = ffi.gc(ffi.new("penstock_file **"), lib.penstock_file_release)
        self._close = lib.penstock_close  # in a forked child, it closes nothing of its parent
        if isinstance(path, int):
            check(lib.penstock_open_descriptor(path, flags, NULL, self._opened))
        else:
            check(lib.penstock_open(encode(path), flags, NULL, self._opened))
        self.handle = self._opened[0]

    def size(self) -> int:
        """Return the length of the file in bytes."""
        size = ffi.new("uint64_t *")
        check(lib.penstock_file_size(self.handle, size))
        return int(size[0])

    def identity(self) -> tuple[int, int, int]:
        """Return inode, length and time of the last change (ns), which are the same everywhere."""
        inode, size, changed = ffi.new("uint64_t *"), ffi.new("uint64_t *"), ffi.new("int64_t *")
        check(lib.penstock_file_identity(self.handle, inode, size, changed))
        return int(inode[0]), int(size[0]), int(changed[0])

    def sync(self) -> None:
        """Flush data and size to the medium."""
        check(lib.penstock_sync(self.handle))

    def close(self) -> None:
        """Wait for the file's requests and close it. Closing again does nothing."""
        self._close(self._opened[0])  # rejects a handle that is already closed

    def __enter__(self) -> NativeFile:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
