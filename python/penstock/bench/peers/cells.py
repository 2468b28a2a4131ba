"""Loaders of cells: anndata's backed mode, scDataset over it, and annbatch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ..cell_files import CellFile
from ..measure import Contestant, absent
from ..place import Place

_FETCHED = 16
"""Batches that scDataset and annbatch have in memory, as their documentation proposes."""
_FEW = 4
"""The same where cells come one by one, and a read takes many seconds."""


def backed(data: CellFile, batch: int, block: int, place: Place) -> Contestant:
    """Return anndata's backed mode: one batch, whose rows are sorted, as it is quicker for them."""
    matrix = _backed(data)
    source = np.random.default_rng(2)

    def run() -> Any:
        rows = np.sort(_rows(source, data.count, batch, block))
        found = matrix[rows]
        _put(found, place)
        return found, rows

    def check(found: Any) -> None:
        data.check(*found)

    return Contestant("anndata backed", "one batch, sorted", batch, run, check=check)


def scdataset(data: CellFile, batch: int, block: int, place: Place) -> Contestant:
    """Return scDataset over anndata's backed mode, for one fetch."""
    fetched = min(_FETCHED if block > 1 else _FEW, max(data.count // batch, 1))
    setting = f"block {block}, fetch factor {fetched}"
    try:
        library: Any = import_module("scdataset")
    except ImportError as error:
        return absent("scDataset", setting, f"scDataset is not installed: {error}")
    dataset = library.scDataset(
        _Backed(data),
        library.BlockShuffling(block_size=block),
        batch_size=batch,
        fetch_factor=fetched,
    )
    return _few("scDataset", setting, dataset, fetched, batch, place)


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
        _synchronize(place)
        return count

    return Contestant("annbatch", setting, data.count, run, check=_counted(data.count))


class _Backed:
    """The rows of anndata's backed mode, as a collection."""

    def __init__(self, data: CellFile) -> None:
        self._matrix = _backed(data)
        self._count = data.count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, rows: Any) -> Any:
        return self._matrix[np.asarray(rows)]


def _backed(data: CellFile) -> Any:
    return import_module("anndata.io").sparse_dataset(h5py.File(data.path, "r")["X"])


def _rows(source: Any, count: int, batch: int, block: int) -> Any:
    starts = source.permutation(count // block)[: -(-batch // block)] * block
    return (starts[:, None] + np.arange(block)).reshape(-1)[:batch]


def _few(name: str, setting: str, dataset: Any, count: int, batch: int, place: Place) -> Contestant:
    """Return the first batches of an epoch, of a loader that is too slow for all."""

    def run() -> int:
        cells = 0
        taken: Iterator[Any] = islice(iter(dataset), count)
        for found in taken:
            _put(found, place)
            cells += found.shape[0]
        return cells

    return Contestant(name, setting, count * batch, run, check=_counted(count * batch))


def _counted(count: int) -> Callable[[object], None]:
    def check(found: object) -> None:
        assert found == count, f"{found} cells came, and not {count}"

    return check


def _put(matrix: Any, place: Place) -> None:
    """Copy a matrix of SciPy to the GPU, if batches go there."""
    if place.is_gpu:
        torch: Any = import_module("torch")
        for part in (matrix.data, matrix.indices, matrix.indptr):
            torch.from_numpy(np.ascontiguousarray(part)).to(place.name)


def _synchronize(place: Place) -> None:
    if place.is_gpu:
        import_module("torch").cuda.synchronize()
