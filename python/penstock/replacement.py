"""New files that the caller writes, and that replace others as ``penstock.save`` does."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from penstock._native import ffi, lib
from penstock.errors import Error, check
from penstock.files import encode


class Replacement:
    """A new file, which the end of a ``with`` block puts in place.

    After an exception in the block, the new file is removed and the old one is still there. An
    error about the new file then names ``path``. The block gets a descriptor that is open for
    reading and writing until its end.

    Args:
        path: The file to replace, or to make. A symbolic link stays, and leads to the new file.
        durable: Whether the new file then survives a power failure.

    Raises:
        Error: There is no such folder, or what is there is no regular file or may not be written.
    """

    __slots__ = ("_descriptor", "_durable", "_new", "_path")

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self._path, self._durable = str(path), durable
        # The native call stores the handle where its native destructor finds it, whatever
        # interrupts the rest. In a forked child, it removes nothing of its parent.
        self._new = ffi.gc(ffi.new("penstock_replacement **"), lib.penstock_replacement_release)
        descriptor = ffi.new("int *")
        check(lib.penstock_replacement_begin(encode(path), self._new, descriptor))
        self._descriptor: int = descriptor[0]

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            if error is None:
                check(lib.penstock_replacement_publish(self._new[0], self._durable))
            elif isinstance(error, Error):
                if error.path == self._shown():
                    raise error.of_file(self._path) from None
            elif isinstance(error, OSError) and error.filename is None:
                error.filename = self._path
        finally:
            lib.penstock_replacement_release(self._new)

    def write(self, data: bytes) -> None:
        """Put a file with these contents in place."""
        with self as descriptor, open(descriptor, "wb", closefd=False) as file:
            file.write(data)

    def _shown(self) -> str:
        """Return the name that errors have for the file of the descriptor."""
        with suppress(OSError):
            return os.readlink(f"/proc/self/fd/{self._descriptor}")
        return f"descriptor {self._descriptor}"
