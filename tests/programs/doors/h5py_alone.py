"""h5py without Penstock: whether the programs and their model are right themselves."""

from __future__ import annotations

from typing import Any

from ..selection import Picked
from ..values import Memory
from .base import Door, Transfer


class H5pyAlone(Door):
    penstock = False
    settles = frozenset({"plain", "close", "flush", "resize", "delete"})
    new_arrays = True
    broadcasts = True
    strided = True
    objects = True

    def read(
        self,
        file: Any,
        name: str,
        picked: Picked,
        memory: Memory | None,
        options: dict[str, Any],
        *,
        waits: bool,
        dtype: Any,
        way: str,
    ) -> Transfer:
        dataset = file[name]
        if dtype is not None:
            dataset = dataset.fields(list(dtype.names)) if dtype.names else dataset.astype(dtype)
        value = dataset[picked.argument]
        if memory is None:
            return Transfer(value)
        memory.array[...] = value
        return Transfer(memory.array)

    def write(
        self,
        file: Any,
        name: str,
        picked: Picked,
        memory: Memory,
        options: dict[str, Any],
        *,
        waits: bool,
    ) -> Transfer:
        file[name][picked.argument] = memory.array
        return Transfer()
