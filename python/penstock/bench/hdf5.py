"""Penstock's facade and h5py as contestants that read HDF5 datasets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import penstock as ps
from penstock.units import size_in_words

from . import gpu, native
from .files import DATASET
from .hdf5_files import Dataset
from .measure import Contestant
from .verify import Expected


def penstock(
    path: Path,
    expected: Expected,
    setting: str,
    selection: Any = (),
    *,
    name: str = DATASET,
    out: Any = None,
    opened: bool = False,
    group: str = "",
    **options: Any,
) -> Contestant:
    """Return a contestant that reads into ``out``, or into a GPU array made beforehand.

    It opens the file in each run, as h5py does, unless the file is to be ``opened`` beforehand.
    """
    target = gpu.empty(expected.values.shape, str(expected.values.dtype)) if out is None else out
    kept: list[ps.File] = []

    def before() -> None:
        # Not earlier: HDF5 would share the open file and its caches with the other contestants.
        if opened:
            kept.append(ps.File(path))
            kept[0][name].h5py.id.get_num_chunks()  # brings the index into HDF5's cache

    def after() -> None:
        if kept:
            kept.pop().close()

    def run() -> Any:
        if kept:
            return kept[0][name].read(selection, out=target, **options)
        with ps.File(path) as file:
            return file[name].read(selection, out=target, **options)

    poison = partial(expected.poison, target)
    made = Contestant("Penstock", setting, expected.values.nbytes, run, before, poison, after=after)
    made.check, made.detail, made.group = expected.check, native.last, group
    return made


def by_decoder(
    data: Dataset,
    first: str = "",
    *,
    out: Any = None,
    group: str = "",
    sides: Sequence[str] = ("cpu", "gpu"),
) -> list[Contestant]:
    """Return Penstock as it decides, whose setting is ``first``, and with each decoder."""
    ways: dict[str, Any] = {first: {}} | {f"decode={side}": {"decode": side} for side in sides}
    return [
        penstock(data.path, data.expected, setting, out=out, group=group, **options)
        for setting, options in ways.items()
    ]


def h5py_to_gpu(
    path: Path,
    expected: Expected,
    setting: str,
    selection: Any = (),
    *,
    name: str = DATASET,
    group: str = "",
    peer: str = "h5py",
) -> Contestant:
    """Return a contestant without Penstock: ``dataset[selection]``, then torch's ``.cuda()``."""

    def run() -> Any:
        with h5py.File(path, "r") as file:
            return gpu.to_gpu(file[name][selection])

    setting = f"{setting}, then {gpu.COPIED_BY}" if setting else f"then {gpu.COPIED_BY}"
    return Contestant(peer, setting, expected.values.nbytes, run, check=expected.check, group=group)


def h5py_part(data: Dataset, share: int, *, group: str = "", peer: str = "h5py") -> Contestant:
    """Return h5py with a part of a dataset: it decodes chunks one by one, at the same rate."""
    count = max(data.chunks // share, 1) * data.chunk
    setting = size_in_words(count * 4)
    expected = data.expected.part(count)
    return h5py_to_gpu(data.path, expected, setting, np.s_[:count], group=group, peer=peer)
