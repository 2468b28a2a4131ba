"""Loaders of cells: anndata's backed mode, and annbatch."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ..cell_files import CellFile
from ..measure import Contestant, absent
from ..place import Place

_FETCHED = 16
"""Batches that annbatch has in memory, as its documentation proposes."""


def backed(data: CellFile, batch: int, block: int, place: Place) -> Contestant:
    """Return anndata's backed mode: one batch, whose rows are sorted, as it is quicker for them."""
    matrix: Any = import_module("anndata.io").sparse_dataset(h5py.File(data.path, "r")["X"])
    source = np.random.default_rng(2)

    def run() -> Any:
        rows = np.sort(_rows(source, data.count, batch, block))
        found = matrix[rows]
        _put(found, place)
        return found, rows

    def check(found: Any) -> None:
        data.check(*found)

    return Contestant("anndata backed", "one batch, sorted", batch, run, check=check)


def annbatch(data: CellFile, folder: Path, batch: int, block: int, place: Place) -> Contestant:
    """Return annbatch over a collection of its own, which it has made of the file."""
    setting = f"chunk size {block}, after conversion to Zarr"
    try:
        library: Any = import_module("annbatch")
        zarr: Any = import_module("zarr")
    except (ImportError, SyntaxError) as error:
        why = f"annbatch is not installed: {error}"
        if sys.version_info < (3, 12):
            why = "annbatch needs Python 3.12"
        return absent("annbatch", setting, why)
    try:
        import_module("zarrs")
        zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
    except ImportError:
        setting += ", without zarrs"
    path = folder / "cells.zarr"
    try:
        is_made = path.exists()
        collection = library.DatasetCollection(path)
        if not is_made:
            collection.add_adatas(adata_paths=[str(data.path)], shuffle=True)
        loader = library.Loader(
            batch_size=batch,
            chunk_size=block,
            preload_nchunks=min(_FETCHED, max(data.count // batch, 1)) * batch // block,
            shuffle=True,
            preload_to_gpu=place.is_gpu,
            to=None,
        ).use_collection(collection)
    except Exception as error:  # of any of the packages that it needs
        return absent("annbatch", setting, f"annbatch cannot be prepared: {error}")

    def run() -> int:
        count = sum(int(found["X"].shape[0]) for found in loader)
        if place.is_gpu:
            import_module("torch").cuda.synchronize()
        return count

    def check(found: object) -> None:
        assert found == data.count, f"{found} cells came, and not {data.count}"

    return Contestant("annbatch", setting, data.count, run, check=check)


def _rows(source: Any, count: int, batch: int, block: int) -> Any:
    starts = source.permutation(count // block)[: -(-batch // block)] * block
    return (starts[:, None] + np.arange(block)).reshape(-1)[:batch]


def _put(matrix: Any, place: Place) -> None:
    """Copy a matrix of SciPy to the GPU, if batches go there."""
    if place.is_gpu:
        torch: Any = import_module("torch")
        for part in (matrix.data, matrix.indices, matrix.indptr):
            torch.from_numpy(np.ascontiguousarray(part)).to(place.name)
