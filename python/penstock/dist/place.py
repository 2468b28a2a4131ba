"""Names for new files that several processes write under a temporary name, or for folders of them.

The native library resolves the path, checks that the process may replace the file, and sets the
rights of the new one, as it does for ``penstock.save``.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from pathlib import Path

from penstock._native import CData, ffi, lib
from penstock.errors import Error, check
from penstock.files import encode

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


def _path_of(folder: int, file: Path) -> Path:
    """Return the path of the open folder in which a file is."""
    try:
        return Path(os.readlink(f"/proc/self/fd/{folder}"))
    except FileNotFoundError:  # there is no /proc
        return Path(os.path.realpath(file)).parent


def _close(descriptor: CData) -> None:
    if descriptor[0] >= 0:
        os.close(descriptor[0])
