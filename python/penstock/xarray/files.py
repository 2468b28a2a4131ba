"""Open files, which xarray's file managers share, close and open again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from h5py import h5o, h5s

from penstock.errors import IncompatibleError, InvalidError
from penstock.hdf5.dataset import Dataset
from penstock.hdf5.file import File
from penstock.xarray.attributes import type_of
from penstock.xarray.group import Group, Numbering

_CLASSIC = b"CDF"


class OpenFile:
    """An open HDF5 file, and what has been found in it.

    Args:
        source: A path, or a file object of Python.
        mode: ``"r"``, which xarray's file managers give.
        phony_dims: How dimensions without a name are numbered: ``"access"`` in the order in which
            groups are opened, ``"sort"`` in that of all groups of the file.
    """

    def __init__(self, source: Any, *, mode: str = "r", phony_dims: str = "access") -> None:
        self._file = _opened(source, mode)
        self._datasets: dict[str, Dataset] = {}
        self._groups: dict[str, Group] = {}
        self._were_read: set[str] = set()
        self._kept: dict[str, np.ndarray[Any, Any]] = {}
        """Elements of datasets of which only parts were read."""
        is_sorted = phony_dims == "sort"
        self._numbering = Numbering(self._file.h5py, is_sorted=is_sorted)
        if is_sorted:
            list(self.paths_below("/"))

    @property
    def name(self) -> str:
        """The path by which the file was opened."""
        return self._file.filename

    def dataset(self, path: str, shape: tuple[int, ...], stored: np.dtype[Any]) -> Dataset:
        """Return an open dataset that has at least this shape, and elements of this type.

        The file may have been changed or replaced since the variable was described.

        Raises:
            InvalidError: The dataset is smaller, or has other elements.
        """
        found = self._datasets.get(path)
        if found is None:
            try:
                found = self._file[path]
                now, dtype = found.shape, found.dtype
            except (AttributeError, KeyError, TypeError) as error:  # also of a group, or a type
                raise self._changed(path, shape, stored, "another object, or none") from error
            is_same = now is not None and len(now) == len(shape) and dtype == stored
            if not is_same or any(have < want for have, want in zip(now or (), shape, strict=True)):
                raise self._changed(path, shape, stored, f"{dtype} of shape {now}")
            self._datasets[path] = found
        return found

    def _changed(
        self, path: str, shape: tuple[int, ...], stored: np.dtype[Any], now: str
    ) -> InvalidError:
        return InvalidError(
            f"{path} of {self.name} was {stored} of shape {shape} when the file was opened, and is "
            f"now {now}",
            path=self.name,
            cause="the file was changed or replaced",
            remedy="open it again",
        )

    def first_read(
        self, path: str, shape: tuple[int, ...], stored: np.dtype[Any], *, is_whole: bool
    ) -> np.ndarray[Any, Any] | None:
        """Return all elements of a dataset by HDF5, the first time; ``None`` after that.

        ``None``, too, if the dataset no longer has this shape and type, or HDF5 fails. Most
        coordinates are read once. To prepare faster reads of them would take longer. xarray reads
        the first and the last time before all times: if only a part is needed, which the caller
        copies, the elements are kept until all are.
        """
        if path in self._kept:
            return self._kept.pop(path, None) if is_whole else self._kept.get(path)
        if path in self._were_read:
            return None
        self._were_read.add(path)
        try:
            identifier = h5o.open(self._file.id, path.encode("utf-8", "surrogateescape"))
            if identifier.shape != shape or type_of(identifier.get_type()) != stored:
                return None
        except (AttributeError, KeyError, TypeError):  # the usual way has an error for it
            return None
        values = np.zeros(shape, stored.newbyteorder("="))
        try:
            identifier.read(h5s.create_simple(shape), h5s.ALL, values)
        except OSError:  # it names neither file nor dataset, as the error of the usual way does
            return None
        if not is_whole:
            self._kept[path] = values
        return values

    def group(self, path: str) -> Group:
        """Return a group, by its path from the root.

        Raises:
            OSError: There is no such group.
        """
        parts = [part for part in path.split("/") if part]
        found = self._found("/", None)
        for part in parts:
            if part not in found.groups:
                raise OSError(f"group not found: {part} of {path} in {self.name}")
            found = self._found(found.child_path(part), found)
        return found

    def paths_below(self, path: str) -> Iterator[str]:
        """Return the paths of a group and of all below it, each before those below it."""
        group = self.group(path)
        yield group.path
        for name in group.groups:
            yield from self.paths_below(group.child_path(name))

    def _found(self, path: str, parent: Group | None) -> Group:
        found = self._groups.get(path)
        if found is None:
            found = self._groups[path] = Group(self._file.h5py, path, parent, self._numbering)
        return found

    def close(self) -> None:
        """Wait for pending reads, and close the file with all datasets."""
        self._datasets.clear()
        self._groups.clear()
        self._kept.clear()
        self._file.close()


def _opened(source: Any, mode: str) -> File:
    try:
        return File(source, mode)
    except OSError as error:
        if _magic(source).startswith(_CLASSIC):
            raise IncompatibleError(
                f"{source} is a netCDF-3 file, and Penstock reads HDF5 files",
                path=str(source),
                remedy='open it with engine="scipy" or engine="netcdf4"',
            ) from error
        raise


def _magic(source: Any) -> bytes:
    if not isinstance(source, (str, bytes, os.PathLike)):
        source.seek(0)
        return bytes(source.read(len(_CLASSIC)))
    try:
        with open(source, "rb") as file:
            return file.read(len(_CLASSIC))
    except OSError:
        return b""
