"""Access to a file as in IOR: open, transfers of one size, sync, close."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Protocol

from . import native
from .files import sync_file

APIS = ("PENSTOCK", "POSIX", "CUFILE")
OPENS = ("buffered", "direct")
_libc = ctypes.CDLL(None, use_errno=True)
for _name in ("pread", "pwrite"):
    _call = getattr(_libc, _name)
    _call.restype = ctypes.c_ssize_t
    _call.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64]


class Access(Protocol):
    """An open file."""

    @property
    def path(self) -> str:
        """The paths that have carried the bytes so far."""

    def move(self, address: int, nbytes: int, offset: int) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


def open_by(api: str, path: Path, access: str, opened: str) -> Access:
    """Open an existing file to read, or a file to write, which is made if it does not exist."""
    if api == "POSIX":
        return _Posix(path, access, opened)
    return _Engine(path, access, opened, "gds" if api == "CUFILE" else "auto")


class _Posix:
    def __init__(self, path: Path, access: str, opened: str) -> None:
        self.path = f"pread, {opened}" if access == "read" else f"pwrite, {opened}"
        self._call = _libc.pread if access == "read" else _libc.pwrite
        flags = os.O_RDONLY if access == "read" else os.O_WRONLY | os.O_CREAT
        flags |= os.O_DIRECT if opened == "direct" else 0
        self._descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)

    def move(self, address: int, nbytes: int, offset: int) -> None:
        done = 0
        while done < nbytes:
            count = self._call(self._descriptor, address + done, nbytes - done, offset + done)
            if count < 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
            if count == 0:
                raise OSError(errno.ENODATA, f"the file ends at offset {offset + done}")
            done += count

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class _Engine:
    """Penstock, by its own choice of a route or by cuFile."""

    def __init__(self, path: Path, access: str, opened: str, route: str) -> None:
        self._is_read = access == "read"
        flags = native.READ if self._is_read else native.CREATED
        direct = "yes" if opened == "direct" else "no"
        self._file = native.OpenFile(path, flags, route=route, direct=direct)
        self._path = path

    @property
    def path(self) -> str:
        return ", ".join(name.replace("_", ", ") for name in self._file.report.paths)

    def move(self, address: int, nbytes: int, offset: int) -> None:
        (self._file.read if self._is_read else self._file.write)(address, nbytes, offset)

    def sync(self) -> None:
        sync_file(self._path)

    def close(self) -> None:
        self._file.close()
