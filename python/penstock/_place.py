"""New files that are written under a temporary name, and replace others as a whole.

The native library resolves the path, checks that the process may replace the file, and sets the
rights of the new one, as it does for ``penstock.save``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import weakref
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from penstock._native import CData, ffi, lib
from penstock.errors import Error, check
from penstock.files import encode

_DESCRIPTORS = "/proc/self/fd"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Place:
    """A name in a folder, where a file is or will be. The folder stays open.

    Args:
        path: A path to the file. Symbolic links are followed as the kernel allows.

    Raises:
        Error: There is no such folder, or what is there is no regular file or may not be written.
    """

    def __init__(self, path: Path) -> None:
        folder, name = ffi.new("int *", -1), ffi.new("char **")
        weakref.finalize(self, _close, folder)
        check(lib.penstock_place_find(encode(path), folder, name))
        self._folder: int = folder[0]
        try:
            self.name = os.fsdecode(ffi.string(name[0]))
        finally:
            lib.penstock_string_free(name[0])
        # For messages, HDF5 and other processes, which do not have the descriptor of the folder.
        self.path = _path_of(self._folder, path) / self.name

    def exists(self) -> bool:
        """Whether a file is there now."""
        with contextlib.suppress(FileNotFoundError):
            os.stat(self.name, dir_fd=self._folder, follow_symlinks=False)
            return True
        return False

    def create(self, name: str) -> int:
        """Make a file beside the place that only its owner can open; return its descriptor."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            return os.open(name, flags, 0o600, dir_fd=self._folder)
        except OSError as error:
            error.filename = str(self.path.with_name(name))
            raise

    def open(self, name: str) -> int:
        """Return a descriptor of a file beside the place that was created."""
        return os.open(name, os.O_RDWR | os.O_NOFOLLOW, dir_fd=self._folder)

    def create_folder(self, name: str) -> int:
        """Make a folder as :meth:`create` makes a file."""
        os.mkdir(name, 0o700, dir_fd=self._folder)
        return os.open(name, _FOLDER, dir_fd=self._folder)

    def take_rights(self, descriptor: int) -> None:
        """Give a new file or folder the rights of the file that it replaces."""
        name = os.fsencode(self.name)
        try:
            check(lib.penstock_place_take_rights(descriptor, self._folder, name))
        except Error as error:
            raise error.about(str(self.path)) from None

    def rename(self, name: str, other: str | None = None) -> None:
        """Rename a file beside the place: to another name, or to the place itself."""
        folder = self._folder
        os.replace(name, other or self.name, src_dir_fd=folder, dst_dir_fd=folder)

    def link(self, name: str) -> None:
        """Link a file to the place as its second name; FileExistsError if a file is there."""
        os.link(name, self.name, src_dir_fd=self._folder, dst_dir_fd=self._folder)

    def remove(self, name: str) -> None:
        """Remove a file beside the place."""
        os.unlink(name, dir_fd=self._folder)

    def sync(self) -> None:
        """Flush the names in the folder to the medium.

        If the folder may be written but not read, flush all file systems.
        """
        try:
            descriptor = os.open(".", _FOLDER, dir_fd=self._folder)
        except OSError:
            os.sync()
            return
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def replace(self, data: bytes) -> None:
        """Put a file with these contents in place. After an error, the old file is still there."""
        with self.replacement() as descriptor, open(descriptor, "wb", closefd=False) as file:
            file.write(data)

    @contextlib.contextmanager
    def replacement(self, *, durable: bool = True) -> Iterator[int]:
        """Yield the descriptor of a new file, which is put in place at the end of the block.

        With ``durable``, it is on the medium before it is put in place. After an exception, the old
        file is still there. An exception of a signal handler at the very beginning of the block
        leaves the new file until Python frees the block.
        """
        hidden = _hidden()
        shown = str(self.path.with_name(hidden))
        try:
            unnamed = self._create_unnamed()
            if unnamed is not None:
                shown = os.readlink(f"{_DESCRIPTORS}/{unnamed}")
            descriptor = self._create_locked(hidden) if unnamed is None else unnamed
            try:
                yield descriptor
                self._complete(descriptor, durable=durable)
                if unnamed is not None:
                    _lock(unnamed)
                    os.link(f"{_DESCRIPTORS}/{unnamed}", hidden, dst_dir_fd=self._folder)
                os.close(os.dup(descriptor))  # NFS may report here that the disk is full
                self.rename(hidden)  # before the lock ends
            finally:
                os.close(descriptor)
        except BaseException as error:
            self._give_up(hidden, error)
            if isinstance(error, Error) and error.path == shown:
                raise error.of_file(str(self.path)) from None
            raise

    def _create_unnamed(self) -> int | None:
        """Make a file that a killed process does not leave; ``None`` if that is impossible."""
        if os.path.isdir(_DESCRIPTORS):
            with contextlib.suppress(OSError):  # not all file systems have such files
                return os.open(".", os.O_RDWR | os.O_TMPFILE, 0o600, dir_fd=self._folder)
        return None

    def _create_locked(self, name: str) -> int:
        while True:
            descriptor = self.create(name)
            _lock(descriptor)
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
                if os.path.samestat(found, os.fstat(descriptor)):
                    return descriptor
            os.close(descriptor)  # another process removed the file before it was locked

    def _complete(self, descriptor: int, *, durable: bool = True) -> None:
        self.take_rights(descriptor)
        if durable:
            os.fsync(descriptor)

    def _give_up(self, hidden: str, error: BaseException) -> None:
        """Remove a new file. An ``OSError`` without a path gets that of the place."""
        self._discard(hidden)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(self.path)

    def try_to_create(self) -> None:
        """Raise an error if :meth:`replace` could make no file."""
        hidden = _hidden()
        try:
            os.close(self.create(hidden))
            self.remove(hidden)
        except BaseException:  # of a signal handler, also one that interrupts the removal
            self._discard(hidden)
            raise

    def _discard(self, name: str) -> None:
        with contextlib.suppress(OSError):
            self.remove(name)


def _hidden() -> str:
    """Return a name of which the library removes files of dead processes: those without a lock."""
    return f".penstock-{_boot()}-{os.getpid()}-{secrets.randbits(63)}"


@cache
def _boot() -> str:
    """Return 16 digits that no other machine has, and no other boot of this one."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().replace("-", "")[:16]
    return "0" * 16


def _lock(descriptor: int) -> None:
    with contextlib.suppress(OSError):  # not all file systems have locks
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _path_of(folder: int, file: Path) -> Path:
    """Return the path of the open folder in which a file is."""
    try:
        return Path(os.readlink(f"{_DESCRIPTORS}/{folder}"))
    except FileNotFoundError:  # there is no /proc
        return Path(os.path.realpath(file)).parent


def _close(descriptor: CData) -> None:
    if descriptor[0] >= 0:
        os.close(descriptor[0])
