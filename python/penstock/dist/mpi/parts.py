"""A folder with a file for each rank, which hold the sources of virtual datasets.

The folder has a name that was never used before, so nothing that is there is overwritten. While it
is written, the name begins with a dot and ends in ``.unfinished``.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import weakref
from pathlib import Path
from typing import Any

import penstock
from penstock import arrays
from penstock._options import OptionKeys
from penstock.dist.place import Place
from penstock.dist.storage import SUFFIX, shortened
from penstock.dist.transfers import Ranges, lengths, made_from
from penstock.errors import InvalidError
from penstock.hdf5.dropped import write_out
from penstock.hdf5.library import is_virtual
from penstock.streams import stream_handle

_FOLDER = re.compile(r"(.+)\.[0-9a-f]{16}\.parts")


class Folder:
    """The folder beside a file, on rank 0.

    Args:
        path: The file, whose datasets lead to the folder in the end.
    """

    def __init__(self, path: Path) -> None:
        self._place = Place(path)
        self.name = f"{_stem(self._place.path)}.{secrets.token_hex(8)}.parts"
        """The name in the end."""
        self.path = self._place.path.with_name(f".{self.name}{SUFFIX}")
        # Before the folder is made: a signal handler may raise between any two steps.
        self._discard = weakref.finalize(self, _remove, self.path, os.getpid())
        self._descriptor = self._place.create_folder(self.path.name)
        weakref.finalize(self, os.close, self._descriptor)

    def finish(self, durable: bool) -> None:
        """Give the folder its name, and the rights of the file that is replaced."""
        self._take_rights(durable)
        if durable:
            os.fsync(self._descriptor)
        self._place.rename(self.path.name, self.name)
        self._discard.detach()
        # It is useless until the main file has its name, too.
        last = self.path.with_name(self.name)
        self._discard = weakref.finalize(self, _remove, last, os.getpid())

    def _take_rights(self, durable: bool) -> None:
        # Otherwise the files of the ranks have those of new files already.
        replaces = self._place.exists()
        for name in _files(self._descriptor) if replaces else []:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self._descriptor)
            try:
                self._place.take_rights(file)
                if durable:
                    os.fsync(file)
            finally:
                os.close(file)
        self._place.take_rights(self._descriptor)

    def keep(self) -> None:
        """Keep the folder: the main file has its name."""
        self._discard.detach()

    def discard(self) -> None:
        """Remove the folder."""
        self._discard()


def _stem(path: Path) -> str:
    """Return the start of the names of a file's folders: its own name, shortened to fit."""
    return shortened(path.name, len(f"..{'0' * 16}.parts{SUFFIX}"))


class Part:
    """The file of one rank, which is made by its first write.

    Args:
        folder: The folder, as rank 0 has named it.
        rank: The rank.
        settings: Arguments of ``h5py.File``.
    """

    def __init__(self, folder: str, rank: int, settings: dict[str, Any]) -> None:
        self._folder = folder
        self._rank = rank
        self._path = os.path.join(folder, file_of(rank))
        self._settings = settings
        self._file: Any = None

    @property
    def has_folder(self) -> bool:
        """Whether this host sees the folder."""
        return os.path.isdir(self._folder)

    def write(
        self,
        name: str,
        ranges: Ranges,
        array: Any,
        arguments: dict[str, Any],
        stream: Any,
        options: OptionKeys,
    ) -> None:
        """Write an array to a new dataset of its own, with arguments of ``create_dataset``."""
        view = arrays.find(array, stream_handle(stream))
        if view is None:
            array = made_from(name, array, arguments["dtype"])
        shape, found = lengths(ranges), array.shape if view is None else view.shape
        if found != shape:
            raise InvalidError(f"the array has shape {found}, and the slab has shape {shape}")
        chunks = arguments.get("chunks")
        if chunks is not None:
            chunks = tuple(map(min, chunks, shape))
        if self._file is None:
            # Each dataset is written once. After HDF5 (2.0.0) could not write a chunk of its cache,
            # it crashes.
            settings = {**self._settings, "rdcc_nbytes": 0}
            self._file = penstock.File(self._path, "x", **settings)
        made = self._file.create_dataset(name, **{**arguments, "shape": shape, "chunks": chunks})
        made.write(array, stream=stream, **options)
        write_out(made.h5py)

    def close(self, durable: bool) -> None:
        """Close the file, if there is one."""
        if self._file is None:
            return
        self._file.close()
        self._file = None
        if durable:
            descriptor = os.open(self._path, os.O_RDWR)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def discard(self) -> None:
        """Remove the file, and the folder with the last one."""
        if self._file is not None:
            # HDF5 would write to a file that is gone; errors of those writes do not matter.
            with contextlib.suppress(Exception):
                self._file.close()
            self._file = None
        _remove(self._folder, os.getpid(), file_of(self._rank))


def file_of(rank: int) -> str:
    """Return the name of a rank's file in the folder."""
    return f"{rank}.h5"


def folders_of(path: Path) -> list[Path]:
    """Return the folders of a file to which its virtual datasets lead, if it is there."""
    import h5py

    found: set[str] = set()
    names: set[str] = set()
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        folders = (entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        matches = [_FOLDER.fullmatch(name) for name in folders]
        names = {match[0] for match in matches if match and match[1] == _stem(path)}
    if not names:
        return []

    def look(_: str, member: Any) -> None:
        if isinstance(member, h5py.Dataset) and is_virtual(member):
            for source in member.virtual_sources():
                found.add(os.path.dirname(source.file_name.replace("%%", "%")))

    # A file that cannot be read has no folders.
    with contextlib.suppress(Exception), h5py.File(path, "r") as file:
        file.visititems(look)
    return [path.with_name(name) for name in sorted(found & names)]


def remove(folder: Path) -> None:
    """Remove a folder of ranks' files, and nothing else that may be in it."""
    _remove(folder, os.getpid())


def _remove(folder: Path | str, process: int, name: str | None = None) -> None:
    """Remove one file of a folder or all, and the folder if it is empty then."""
    if os.getpid() != process:  # a forked child that ends
        return
    with contextlib.suppress(OSError):
        # Through a link, the files of another folder would be removed.
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            for one in _files(descriptor) if name is None else [name]:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(one, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        os.rmdir(folder)


def _files(folder: int) -> list[str]:
    """Return the names of the files of ranks in an open folder."""
    return [name for name in os.listdir(folder) if re.fullmatch(r"\d+\.h5", name)]
