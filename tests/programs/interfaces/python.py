"""The Python interface: penstock.File with its datasets, and penstock.read on those of h5py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import penstock as ps
from penstock.hdf5.dataset import Dataset
from penstock.hdf5.file import Group

from ..selection import Picked
from .base import (
    Array,
    CancelledError,
    Interface,
    ManyRequest,
    ReadRequest,
    Transfer,
    TransferRequest,
)


class Submitted(Transfer):
    def __init__(self, request: ps.Request[Any]) -> None:
        self._request: ps.Request[Any] | None = request

    def wait(self) -> Any:
        assert self._request is not None
        try:
            return self._request.wait()
        except ps.CancelledError as error:
            raise CancelledError from error

    def done(self) -> bool:
        return self._request is None or self._request.done()

    def cancel(self) -> None:
        if self._request is not None:
            self._request.cancel()

    def drop(self) -> None:
        self._request = None


class Python(Interface):
    settles = frozenset(
        {"close"}
        | ({"flush"} if hasattr(ps.File, "flush") else set())
        | ({"resize"} if hasattr(Dataset, "resize") else set())
        | ({"delete"} if hasattr(Group, "__delitem__") else set())
    )
    new_arrays = True
    broadcasts = True
    lists = "any"
    strided = True
    objects = True
    device = True
    cancels = True
    maps = True
    interrupts = True
    close_raises = True
    copies = True

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._kept: dict[tuple[int, str], tuple[Any, Dataset]] = {}
        """Datasets that were read before, with their files, by the file's ``id`` and the name."""
        self._closed: list[Dataset] = []

    def open(
        self, path: Path, mode: str, *, opening: dict[str, Any] | None = None, **arguments: Any
    ) -> Any:
        made = opening or {}
        if made.get("driver"):
            arguments |= {"driver": "penstock"} | ({} if made["connector"] else made["options"])
        if made.get("connector"):
            arguments["connector"] = "penstock_async"
            arguments["connector_options"] = made["options"]
        return ps.File(path, mode, **arguments)

    def let_go(self, file: Any) -> None:
        gone = [key for key, (of, _) in self._kept.items() if of is file]
        self._closed = [self._kept.pop(key)[1] for key in gone]

    def forget(self, name: str) -> None:
        self._kept = {key: found for key, found in self._kept.items() if key[1] != name}

    def read_closed(self) -> None:
        for dataset in self._closed:
            try:
                found = dataset[...]
            except Exception:
                continue
            raise AssertionError(f"a dataset of a closed file was read: {found!r}")

    def _dataset(self, file: Any, name: str, way: str) -> Dataset:
        if way == "plain":
            found: Dataset = file[name]
            return found
        return self._kept.setdefault((id(file), name), (file, file[name]))[1]

    def h5py(self, file: Any) -> h5py.File:
        return file.h5py

    def flush(self, file: Any) -> None:
        (file if "flush" in self.settles else file.h5py).flush()

    def resize(self, file: Any, name: str, shape: tuple[int, ...]) -> None:
        (file if "resize" in self.settles else file.h5py)[name].resize(shape)

    def delete(self, file: Any, name: str) -> None:
        del (file if "delete" in self.settles else file.h5py)[name]

    def copy(self, file: Any, name: str, to: str) -> None:
        file.copy(name, to)

    def create(self, file: Any, name: str, values: Array | None, **arguments: Any) -> None:
        file.create(name, data=values, **arguments)

    def read(self, request: ReadRequest) -> Transfer:
        picked, memory, dtype, way = request.picked, request.memory, request.dtype, request.way
        arguments: dict[str, Any] = dict(request.options)
        if memory is not None:
            arguments["out"] = memory.array
        elif dtype is not None:
            arguments["dtype"] = dtype
        dataset = self._dataset(request.file, request.name, way)
        if memory is None and dtype is not None and dtype.names:
            return Transfer(self._fields(dataset, picked, dtype, way))
        if request.waits and way == "index" and not arguments:
            return Transfer(dataset[picked.argument])
        if request.waits:
            return Transfer(dataset.read(picked.argument, **arguments))
        if way != "plain":
            return Submitted(dataset.read_async(picked.argument, **arguments))
        return Submitted(ps.read_async(dataset.h5py, picked.argument, **arguments))

    @staticmethod
    def _fields(dataset: Dataset, picked: Picked, dtype: Any, way: str) -> Array:
        """Read members of records: all at once, or each by its name."""
        index = picked.argument if isinstance(picked.argument, tuple) else (picked.argument,)
        if way == "plain":
            found = dataset.fields(list(dtype.names))[picked.argument]
            return np.asarray(found)
        made = np.empty(picked.shape, dtype)
        for name in dtype.names:
            made[name] = dataset[(name, *index)]
        return made

    def read_many(self, request: ManyRequest) -> list[Any]:
        file, parts = request.file, request.parts
        arguments: dict[str, Any] = dict(request.options)
        if request.memories:
            arguments["out"] = [memory.array for memory in request.memories]
        elif request.dtype is not None:
            arguments["dtype"] = request.dtype
        if request.by_name:
            named = [(name, picked.argument) for name, picked, _ in parts]
            return list(file.read_many(named, **arguments))
        opened = [(self._dataset(file, name, "kept"), picked.argument) for name, picked, _ in parts]
        return list(ps.read_many(opened, **arguments))

    def write(self, request: TransferRequest) -> Transfer:
        dataset = request.file[request.name]
        argument, array = request.picked.argument, request.given_memory.array
        if request.waits:
            ps.write(dataset.h5py, array, argument, **request.options)
            return Transfer()
        return Submitted(dataset.write_async(array, argument, **request.options))

    def blocks(self, file: Any, name: str, rows: int, leave: int) -> Iterator[tuple[Any, Any]]:
        """Yield the slabs; with ``leave``, only the first ``leave`` of them."""
        made = file[name].blocks(rows)
        for number, found in enumerate(made):
            yield found
            if leave and number + 1 == leave:
                made.close()
                break
