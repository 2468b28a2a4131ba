"""Files of the native library."""

from __future__ import annotations

import os
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, TypeAlias

from penstock._core import File
from penstock._native import CData, ffi, lib
from penstock.errors import InvalidError, check
from penstock.native_calls import library

if TYPE_CHECKING:
    from typing_extensions import Self

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


class NativeFile(File):
    """An open file. :meth:`close` closes it, as does the end of its last reference.

    In a forked child, nothing closes the files of its parent.

    Args:
        path: The file, or an open descriptor, which the caller closes.
        flags: :data:`READ`, :data:`WRITE` and so on; a descriptor must be open for them.
    """

    __slots__ = ()

    def __new__(cls, path: Path | int, flags: int) -> Self:
        """Open the file."""
        return super().__new__(cls, library(), path, flags)

    @property
    def handle(self) -> CData:
        """The ``penstock_file *``."""
        return ffi.cast("penstock_file *", self.number)

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
