"""The driver: h5py's files by it, and H5Dread and H5Dwrite with any memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ..selection import Picked
from ..values import Memory
from . import hdf5
from .base import Door, Transfer


class Driver(Door):
    settles = frozenset({"plain", "close", "flush", "resize", "delete"})
    device = True
    once_a_call = True

    def open(self, path: Path, mode: str, **arguments: Any) -> Any:
        options = self.settings.get("driver", {})
        return h5py.File(path, mode, driver="penstock", **options, **arguments)

    def takes_device(self, kind: dict[str, Any], dtype: Any) -> bool:
        """Where HDF5 itself does not touch the memory: see docs/hdf5-driver.md."""
        stored = kind.get("dtype")
        return bool(
            kind.get("seed") is not None
            and not self.settings.get("file", {}).get("page_buffer")
            and not kind.get("maxshape")
            and kind["layout"] != "external"
            and np.dtype(stored) == np.dtype(dtype)
            and np.dtype(stored).isnative
        )

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
        assert memory is not None
        with hdf5.described(file, name, picked, memory) as arguments:
            hdf5.check(hdf5.library.H5Dread(*arguments))
        return Transfer()

    def read_many(
        self,
        file: Any,
        parts: list[tuple[str, Picked, Memory | None]],
        options: dict[str, Any],
        *,
        by_name: bool,
        dtype: Any,
    ) -> list[Any]:
        hdf5.read_many(file, parts, in_background=False)
        return [None] * len(parts)

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
        with hdf5.described(file, name, picked, memory) as arguments:
            hdf5.check(hdf5.library.H5Dwrite(*arguments))
        return Transfer()
