"""The files of a data set: what they have in common, and those that are open."""

from __future__ import annotations

import errno
import os
import resource
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from penstock.dtypes import element_type
from penstock.errors import (
    Error,
    IncompatibleError,
    InvalidError,
    IOFailure,
    NotFoundError,
    PermissionDeniedError,
)
from penstock.hdf5.cf import Decoding, decoding_of
from penstock.hdf5.dataset import Dataset
from penstock.hdf5.file import File
from penstock.hdf5.library import creation_property
from penstock.hdf5.source import split, why_no_dataset
from penstock.placement import torch_dtype

Shape = tuple[int, ...]

A = TypeVar("A")

_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class Field(NamedTuple):
    """A dataset of each file, or of a group in it."""

    name: str
    """The key in a batch."""
    path: str
    stored: np.dtype[Any]
    """The type of the numbers."""
    rest: Shape
    """The lengths of the dimensions after the first, those of array elements included."""
    dtype: Any
    """torch's data type in a batch."""
    is_as_read: bool
    """Whether a new array of NumPy has elements of that type, in an order that torch takes."""
    chunk: int | None
    """The length of a chunk in the first dimension."""


class Version(NamedTuple):
    """What differs if a file was replaced or written.

    The number of the device is left out: that of a network file system changes when it is mounted
    again, and differs between machines.
    """

    inode: int
    length: int
    modified: int
    """In nanoseconds."""


class Source(NamedTuple):
    """A file, or a group in it."""

    path: str
    group: str
    shapes: tuple[Shape, ...]
    """The shape of each dataset, array elements excluded."""
    fields: tuple[Field, ...]
    version: Version | None = None
    """What the file was before the first opening; ``None`` if it is not opened again."""

    def __str__(self) -> str:
        return f"{self.path}:{self.group}" if self.group else self.path


def named(names: str | Iterable[str] | Mapping[str, str]) -> dict[str, str]:
    """Return the paths of datasets by their keys in a batch."""
    if isinstance(names, str):
        names = [names]
    found = dict(names) if isinstance(names, Mapping) else {name: name for name in names}
    if not found:
        raise InvalidError("names is empty", remedy="name at least one dataset")
    for key, path in found.items():
        if not isinstance(key, str) or not isinstance(path, str):
            raise IncompatibleError(
                f"{path!r} is not the name of a dataset",
                remedy="give names, or a dictionary of keys and names",
            )
    return found


def described(
    paths: Any, names: Mapping[str, str], dtype: Any, torch: Any, cf: bool | Decoding = False
) -> list[Source]:
    """Return what each of the files has.

    Raises:
        InvalidError, IncompatibleError: A dataset has no samples, or no numbers.
        KeyError, OSError: As :func:`opened_dataset` and :func:`opened_file`.
    """
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    found: list[Source] = []
    for path in paths:
        name, group = _split(path)
        version = version_of(name)
        with opened_file(name) as file:
            datasets = [opened_dataset(file, group, path) for path in names.values()]
            fields = [
                _field(name, key, dataset, dtype, torch, cf)
                for key, dataset in zip(names, datasets, strict=True)
            ]
            shapes = tuple(map(_shape, datasets))
            found.append(Source(name, group, shapes, tuple(fields), version))
    if not found:
        raise InvalidError("no file is given", remedy="give the path of one or of several")
    return found


def version_of(path: str) -> Version | None:
    """Return what a file is now. Call this before the file is opened for the first time."""
    try:
        status = os.stat(path)
    except OSError:
        return None  # opening the file raises the error
    return Version(status.st_ino, status.st_size, status.st_mtime_ns)


def opened_again(path: str, version: Version | None) -> File:
    """Open a file again.

    Raises:
        InvalidError: The file is not what it was. What is known of it, such as shapes or index
            pointers, would be applied to other data.
        OSError: As :func:`opened_file`.
    """
    file = opened_file(path)
    if version is not None and version_of(path) != version:
        file.close()
        raise InvalidError(
            f"{path} was replaced or changed after the data set was made",
            path=path,
            remedy="make the data set again",
        )
    return file


def opened_file(path: str) -> File:
    """Open a file for reading.

    Raises:
        OSError: The file is not there, is cut off or is not HDF5, or no descriptor is left.
            The error names the file.
    """
    try:
        return File(path)
    except Error:
        raise
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise NotFoundError(f"there is no file {path}", path=path) from error
        if isinstance(error, PermissionError):
            raise PermissionDeniedError(f"{path} may not be read", path=path) from error
        remedy = "copy or write the file again if it is cut off, or leave it out of paths"
        if error.errno in _OUT_OF_DESCRIPTORS:
            remedy = "close files, or raise the limit of open files (ulimit -n)"
        raise IOFailure(
            f"{path} cannot be opened: {error}", path=path, errno=error.errno, remedy=remedy
        ) from error


def opened_dataset(file: File, group: str, path: str) -> Any:
    """Return a dataset of a file.

    Raises:
        KeyError: There is none of this name; the error lists the names beside it.
    """
    import h5py

    full = f"{group}/{path}" if group and not path.startswith("/") else path
    try:
        found = file.h5py[full]
    except (KeyError, ValueError):
        found = None
    if not isinstance(found, h5py.Dataset):
        why = why_no_dataset(file.h5py, full)
        raise KeyError(f"{why}; {_beside(file.h5py, full)}")
    return found


def _beside(file: Any, path: str) -> str:
    """Say which datasets a file has where one is missing."""
    import h5py

    places = (file.get(path), file.get(path.rpartition("/")[0] or "/"), file)
    place = next(place for place in places if isinstance(place, h5py.Group))
    names = [name for name in place if isinstance(place.get(name), h5py.Dataset)]
    listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"datasets in {place.name}: {listed or 'none'}"


def _split(path: Any) -> tuple[str, str]:
    text = os.fsdecode(path)
    file, group = split(text)
    return os.path.abspath(text if group is None else file), (group or "").strip("/")


def _shape(dataset: Any) -> Shape:
    return dataset.shape or ()


def _field(path: str, key: str, dataset: Any, dtype: Any, torch: Any, cf: bool | Decoding) -> Field:
    where = f"dataset {dataset.name} of {path}"
    check_samples(path, dataset, "name datasets whose first dimension counts the samples")
    wanted = dtype.get(key) if isinstance(dtype, Mapping) else dtype
    how = cf if isinstance(cf, Decoding) else decoding_of(dataset) if cf else None
    if how is not None:
        if wanted is not None:
            raise InvalidError(
                f"{where} is decoded to {how.dtype}, and another dtype is given",
                path=path,
                remedy="give cf or dtype, not both; dtype may be a dictionary for other datasets",
            )
        wanted = how.dtype
    remedy = "leave it out of names, or give a dtype that torch has, such as torch.float32"
    stored, inner, kind = numbers(path, dataset, torch, remedy, wanted)
    chunks = creation_property(dataset, "chunks")
    chunk = None if chunks is None else int(chunks[0])
    element = element_type(stored if how is None else how.dtype)
    is_as_read = not element.is_extended and str(kind) == f"torch.{element.name}"
    is_as_read &= how is not None or stored.isnative
    rest = dataset.shape[1:] + inner
    return Field(key, dataset.name, stored, rest, kind, is_as_read, chunk)


def check_samples(path: str, dataset: Any, remedy: str) -> None:
    """Raise an error if a dataset has no dimensions."""
    if not dataset.shape:
        raise InvalidError(
            f"dataset {dataset.name} of {path} has no dimensions, so it has no samples",
            path=path,
            remedy=remedy,
        )


def numbers(
    path: str, dataset: Any, torch: Any, remedy: str, wanted: Any = None
) -> tuple[np.dtype[Any], Shape, Any]:
    """Return the type of a dataset's numbers, the shape of its array elements, and torch's type.

    ``wanted`` is the type to which the numbers are converted, if they are.

    Raises:
        IncompatibleError: There are no elements, they are not numbers, or torch lacks the type.
    """
    stored, inner = dataset.dtype.subdtype or (dataset.dtype, ())
    try:
        if dataset.shape is None:
            raise IncompatibleError("its dataspace is null: it has no elements")
        if stored.kind not in "biufc" and not element_type(stored).is_extended:
            raise IncompatibleError(f"elements of type {stored} are not numbers")
        kind = torch_dtype(torch, element_type(wanted or stored.newbyteorder("=")))
    except Error as error:
        message = f"dataset {dataset.name} of {path}: {error.cause}"
        raise IncompatibleError(message, path=path, remedy=remedy) from None
    return stored, inner, kind


def check_same(
    source: Source, shapes: Sequence[Shape], first: Source, known: Sequence[Shape]
) -> None:
    """Raise an error if the samples of a file are other than those of the first one.

    Args:
        source: The file.
        shapes: The shape of a sample of each field.
        first: The first file.
        known: The shapes there.
    """
    for mine, theirs, shape, wanted in zip(source.fields, first.fields, shapes, known, strict=True):
        for what, has, had in (("type", mine.dtype, theirs.dtype), ("shape", shape, wanted)):
            if has != had:
                raise IncompatibleError(
                    f"samples of dataset {mine.path} of {source.path} have {what} {has}, and those "
                    f"of {first.path} have {had}",
                    path=source.path,
                    remedy="give dtype, to which all are converted"
                    if what == "type"
                    else "make a data set for each shape",
                )


class User(Protocol):
    """Reads that were started, which keep their files open."""

    @property
    def is_pending(self) -> bool: ...

    def settle(self) -> None:
        """Wait for the reads, and release the files. This raises none of their errors."""


class _Open:
    """An open file."""

    def __init__(self, file: File, datasets: list[Dataset]) -> None:
        self.file = file
        self.datasets = datasets
        self._users: list[weakref.ref[User]] = []

    def add(self, user: User | None) -> None:
        if user is not None:
            self._users = [*map(weakref.ref, self.users()), weakref.ref(user)]

    def users(self) -> list[User]:
        """Return the users whose reads are pending."""
        return [user for one in self._users if (user := one()) is not None and user.is_pending]


class OpenFiles:
    """Files that are open for reading, of which those not used for longest are closed.

    A file stays open while reads of it are pending. If all files are in use, one more is opened
    after the oldest reads. A file has two descriptors: that of HDF5 and that of its reads.

    A pickled object, or one in a forked child that had the files of its parent, opens them again.
    """

    def __init__(self) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = max(soft // 8, 8) if soft > 0 else 1024
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[str, str], _Open] = OrderedDict()

    def groups(self, ranges: Sequence[A]) -> Iterator[Sequence[A]]:
        """Divide what is read of a file each into groups whose files may be open together."""
        length = self._most // 2
        for begin in range(0, len(ranges), length):
            yield ranges[begin : begin + length]

    def datasets(
        self, source: Source, names: Iterable[str], user: User | None = None
    ) -> list[Dataset]:
        """Return the dataset of each name of a file.

        ``user`` is what keeps them in use as long as it is pending.
        """
        key = source.path, source.group
        with self._lock:
            if key in self._open:
                self._open.move_to_end(key)
            else:
                while len(self._open) >= self._most:
                    self._close_one()
                self._open[key] = self._opened(source, names)
            self._open[key].add(user)
            return self._open[key].datasets

    def _opened(self, source: Source, names: Iterable[str]) -> _Open:
        with ExitStack() as failed:
            file = failed.enter_context(self._opened_file(source))
            found = [opened_dataset(file, source.group, name) for name in names]
            for dataset, shape in zip(found, source.shapes, strict=True):
                _check_unchanged(source, dataset, shape)
            failed.pop_all()
        return _Open(file, [Dataset(dataset, file) for dataset in found])

    def _opened_file(self, source: Source) -> File:
        while True:
            try:
                return opened_again(source.path, source.version)
            except IOFailure as error:
                if error.errno not in _OUT_OF_DESCRIPTORS or not self._open:
                    raise
            self._close_one()

    def _close_one(self) -> None:
        """Close the file not used for longest, of those without pending reads if there are any.

        HDF5 closes it after the last of its objects.
        """
        oldest = next(iter(self._open))
        key = next((key for key, one in self._open.items() if not one.users()), oldest)
        for user in self._open.pop(key).users():
            user.settle()

    def close(self) -> None:
        """Close all files. The next use opens them again."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].file.close()

    def __reduce__(self) -> Any:
        return OpenFiles, ()


def _check_unchanged(source: Source, dataset: Any, shape: Shape) -> None:
    if _shape(dataset) != shape:
        raise InvalidError(
            f"dataset {dataset.name} of {source.path} has shape {dataset.shape} now, and had "
            f"{shape} when the data set was made",
            path=source.path,
            remedy="make the data set again",
        )
