"""The driver: h5py opens files by it; H5Dread and H5Dwrite use any memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from . import hdf5
from .base import Interface, ManyRequest, ReadRequest, Transfer, TransferRequest


class Driver(Interface):
    settles = frozenset({"plain", "close", "flush", "resize", "delete"})
    device = True
    once_a_call = True

    def open(
        self, path: Path, mode: str, *, opening: dict[str, Any] | None = None, **arguments: Any
    ) -> Any:
        options = self.settings.get("driver", {}) | (opening or {}).get("options", {})
        return h5py.File(path, mode, driver="penstock", **options, **arguments)

    def takes_device(self, kind: dict[str, Any], dtype: Any) -> bool:
        """Whether HDF5 itself does not touch the memory: see docs/how-to/hdf5-driver.md."""
        stored = kind.get("dtype")
        return bool(
            kind.get("seed") is not None
            and not self.settings.get("file", {}).get("page_buffer")
            and not kind.get("maxshape")
            and kind["layout"] != "external"
            and np.dtype(stored) == np.dtype(dtype)
            and np.dtype(stored).isnative
        )

    def read(self, request: ReadRequest) -> Transfer:
        with hdf5.described(request) as arguments:
            hdf5.check(hdf5.library.H5Dread(*arguments))
        return Transfer()

    def read_many(self, request: ManyRequest) -> list[Any]:
        hdf5.read_many(request, in_background=False)
        return [None] * len(request.parts)

    def write(self, request: TransferRequest) -> Transfer:
        with hdf5.described(request) as arguments:
            hdf5.check(hdf5.library.H5Dwrite(*arguments))
        return Transfer()
