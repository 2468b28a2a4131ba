"""The datasets of a read of many: open ones, or paths from a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from penstock._native import NULL, CData, ffi, lib
from penstock.errors import IncompatibleError, InvalidError, check


class Opened:
    """Open datasets."""

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

    def explain(self) -> None:
        """Raise h5py's error for a missing object, if the library failed because of one."""


class Named:
    """Paths from a group, an ``h5py.Group``."""

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

    def explain(self) -> None:
        for number in range(len(self._paths)):
            self.dataset(number)


Origin: TypeAlias = Opened | Named
"""Where datasets come from."""


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
