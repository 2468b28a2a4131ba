"""The forms in which datasets are given to a function: open ones, names, paths from a group."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from penstock._native import NULL, CData, ffi, lib
from penstock.errors import IncompatibleError, InvalidError, NotFoundError, check
from penstock.hdf5.library import creation_properties, open_readonly

F = TypeVar("F", bound=Callable[..., Any])


def takes_name(mode: str) -> Callable[[F], F]:
    """Let a function of a dataset take a name, whose file it opens with ``mode`` for the call."""

    def decorate(function: F) -> F:
        @wraps(function)
        def call(dataset: Any, *arguments: Any, **options: Any) -> Any:
            if isinstance(dataset, str):
                with opened(dataset, mode) as find:
                    return function(find(), *arguments, **options)
            return function(dataset, *arguments, **options)

        return cast("F", call)

    return decorate


@contextmanager
def named(text: str, mode: str) -> Iterator[Any]:
    """Open the ``h5py.Dataset`` that ``"file.h5:name"`` names, and close its file afterwards.

    Raises:
        NotFoundError, InvalidError, KeyError, OSError: As :func:`opened` and what it yields.
    """
    with opened(text, mode) as find:
        yield find()


@contextmanager
def opened(text: str, mode: str) -> Iterator[Callable[[], Any]]:
    """Open the file of ``"file.h5:name"``, and close it afterwards.

    Yields a function that returns the ``h5py.Dataset``. h5py closes a file in half the time if no
    object of it is left then, so the caller should keep none.

    Raises:
        NotFoundError: There is no such file.
        InvalidError: The text has no name of a dataset, or, by the function, the name is not that
            of a dataset.
        KeyError: By the function: the file has no object of this name.
        OSError: What h5py raises for a file that it cannot open.
    """
    import h5py

    path, name = split(text)
    if name is None:
        if not path.exists():
            file = text.rpartition(":")[0] or text
            raise NotFoundError(f"there is no file {file}", path=file)
        raise InvalidError(f"{text} is a file without a dataset", remedy='name one: "file.h5:name"')
    with h5py.File(path, mode) as file:

        def find() -> Any:
            identifier = open_readonly(file, name) if mode == "r" else None
            is_known = isinstance(identifier, h5py.h5d.DatasetID)
            found = h5py.Dataset(identifier, readonly=True) if is_known else file[name]
            if not isinstance(found, h5py.Dataset):
                raise InvalidError(f"{name} in {path} is not a dataset", path=str(path))
            return found

        yield find


def files_of(dataset: Any) -> list[Path]:
    """Return the paths of files with the data of an ``h5py.Dataset``.

    HDF5 looks for a relative name in the working folder and beside the file: both are returned.
    """
    file = Path(dataset.file.filename)
    with creation_properties(dataset) as known:
        names = [name for name, _, _ in known.external or ()]
        if known.is_virtual:
            names += [source.file_name for source in known.virtual_sources()]
    others = [Path(os.fsdecode(name)) for name in names if name != "."]
    return [file, *others, *(file.parent / path for path in others)]


def why_no_dataset(file: Any, name: str) -> str:
    """Say why a name of an open ``h5py.File`` is not that of a dataset."""
    import h5py

    found, path = file["/"], ""
    for part in filter(None, name.split("/")):
        if not isinstance(found, h5py.Group):
            return f"{path} of {file.filename} is not a group"
        path, link = f"{path}/{part}", found.get(part, getlink=True)
        if link is None:
            return f"{file.filename} has no object {path}"
        try:
            found = found[part]
        except (KeyError, OSError, RuntimeError) as error:
            return f"{path} of {file.filename} {_broken(link, error)}"
    where = f"{path or '/'} of {file.filename}"
    if isinstance(found, h5py.Group):
        return f"{where} is a group: name a dataset in it"
    return f"{where} is not a dataset"


def _broken(link: Any, error: Exception) -> str:
    """Say what is wrong with a link that cannot be followed."""
    import h5py

    if isinstance(link, h5py.ExternalLink):
        return f"is a link to {link.path} in {link.filename}, which cannot be opened: {error}"
    if not isinstance(link, h5py.SoftLink):
        return f"cannot be opened: {error}"
    if isinstance(error, KeyError):
        return f"is a link to {link.path}, which does not exist"
    return f"is a link to {link.path}, which cannot be followed: {error}"


def split(text: str) -> tuple[Path, str | None]:
    """Split "file:dataset", both of which may contain colons.

    The file is the longest part that is one; the dataset is ``None`` if the text has none.
    """
    if os.path.exists(text):
        return Path(text), None
    parts = text.split(":")
    for count in range(len(parts) - 1, 0, -1):
        path = ":".join(parts[:count])
        if os.path.isfile(path):
            return Path(path), ":".join(parts[count:])
    return Path(text), None


class Opened:
    """Open datasets, those of a read of many."""

    def __init__(self, datasets: Sequence[Any]) -> None:
        self._datasets = datasets

    def describe(self, shapes: CData, opened: CData) -> None:
        """Have the library describe the datasets, under the lock of HDF5."""
        ids = np.array([dataset.id.id for dataset in self._datasets], np.int64)
        pointer = ffi.from_buffer("penstock_hid[]", ids)
        check(lib.penstock_datasets_open(0, NULL, pointer, len(ids), shapes, opened))

    def dataset(self, number: int) -> Any:
        """Return one as an ``h5py.Dataset``."""
        return self._datasets[number]

    def only(self) -> Any | None:
        """Return the dataset if all are the same object."""
        return self._datasets[0] if len(set(map(id, self._datasets))) == 1 else None

    def explain(self) -> None:
        """Raise h5py's error for a missing object, if the library failed because of one."""


class Named:
    """Paths from a group, an ``h5py.Group``, to the datasets of a read of many."""

    def __init__(self, group: Any, paths: Sequence[Any]) -> None:
        self._group = group
        self._paths = paths
        encoded = [_encoded(path, number) for number, path in enumerate(paths)]
        self._text = b"\0".join(encoded) + b"\0"
        lengths = np.fromiter(map(len, encoded), np.uint64, len(encoded))
        self._starts = np.cumsum(lengths + np.uint64(1)) - lengths - np.uint64(1)

    def describe(self, shapes: CData, opened: CData) -> None:
        text = ffi.from_buffer("char[]", self._text)
        places = self._starts + np.uint64(int(ffi.cast("uintptr_t", text)))
        names = ffi.cast("const char *const *", ffi.from_buffer("uint64_t[]", places))
        count, place = len(self._paths), self._group.id.id
        check(lib.penstock_datasets_open(place, names, NULL, count, shapes, opened))

    def dataset(self, number: int) -> Any:
        import h5py

        path = self._paths[number]
        found = self._group[path]
        if not isinstance(found, h5py.Dataset):
            raise InvalidError(f"{path!r} in {self._group.name} is not a dataset")
        return found

    def only(self) -> Any | None:
        """Return the dataset if all paths are the same."""
        return self.dataset(0) if len(set(self._paths)) == 1 else None

    def explain(self) -> None:
        for number in range(len(self._paths)):
            self.dataset(number)


Origin: TypeAlias = Opened | Named
"""Where the datasets of a read of many come from."""


def _encoded(path: Any, number: int) -> bytes:
    if isinstance(path, str):
        path = path.encode("utf-8", "surrogateescape")
    if not isinstance(path, bytes):
        raise IncompatibleError(
            f"piece {number}: {path!r} is not the name of a dataset",
            remedy="give a path within the group, or a pair (path, selection)",
        )
    if b"\0" in path:
        raise InvalidError(f"piece {number}: the name {path!r} contains a null byte")
    return path
