"""Writes of GPU memory to a new dataset, compressed and uncompressed, without fsync."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import penstock as ps
from penstock.bench import gpu, native
from penstock.bench.command import Found, Plan, main
from penstock.bench.files import DATASET
from penstock.bench.hdf5_files import ITEM, Values, array
from penstock.bench.measure import Contestant, race
from penstock.bench.result import Target
from penstock.units import size_in_words

_CHUNK = 1 << 20
_H5PY_SHARE = 16
"""h5py encodes chunks one by one, so it writes only this fraction of the data."""
_GZIP = {"compression": "gzip", "compression_opts": 4, "shuffle": True}


def measure(plan: Plan) -> Found:
    values = array((plan.size // ITEM,))
    data = gpu.to_gpu(values)
    few = gpu.to_gpu(values[: values.size // _H5PY_SHARE])
    path = plan.folder / "hdf5-written.h5"
    chunks: dict[str, Any] = {"chunks": (_CHUNK // ITEM,)}
    found = Found([], [], [])
    for group, filters, peer_data in (
        ("gzip, chunks of 1 MiB", chunks | _GZIP, few),
        ("chunks of 1 MiB", chunks, data),
        ("contiguous", {}, data),
    ):
        ours = [_penstock(path, data, values, "default options", filters)]
        if filters.get("compression"):
            ours += [
                _penstock(path, data, values, f"decode={who}", filters, decode=who)
                for who in ("cpu", "gpu")
            ]
        contestants = [*ours, _h5py(path, peer_data, values, filters)]
        found.rows += race(contestants, "GB/s", rounds=plan.rounds, group=group)
    gzip = [row for row in found.rows if row.group.startswith("gzip")]
    text = "gzip from the GPU to a new file, against h5py"
    found.targets.append(Target(text, "x", 20, gzip[0].better_than(gzip[-1])))
    return found


def _penstock(
    path: Path, data: Any, values: Values, setting: str, filters: dict[str, Any], **options: Any
) -> Contestant:
    def run() -> None:
        with ps.options(durable=False, **options), ps.File(path, "w") as file:
            file.create(DATASET, data=data, **filters)

    return _contestant("Penstock", setting, path, values, run, native.last)


def _h5py(path: Path, data: Any, values: Values, filters: dict[str, Any]) -> Contestant:
    def run() -> None:
        with h5py.File(path, "w") as file:
            file.create_dataset(DATASET, data=gpu.to_host(data), **filters)

    count = data.shape[0]
    setting = f"{gpu.COPIED_BY}; {size_in_words(count * ITEM)}"
    return _contestant("h5py", setting, path, values[:count], run, str)


def _contestant(
    name: str, setting: str, path: Path, values: Values, run: Any, detail: Any
) -> Contestant:
    # Each run writes a new file, and pages of the last one must not still be written back.
    remove = partial(path.unlink, missing_ok=True)
    return Contestant(
        name,
        setting,
        values.nbytes,
        run,
        before=remove,
        check=partial(_check, path, values),
        after=remove,
        detail=detail,
    )


def _check(path: Path, values: Values, _: object) -> None:
    """Compare slabs spread over the dataset, by h5py, which would take too long for all of it."""
    length = min(1 << 20, values.size)
    with h5py.File(path, "r") as file:
        dataset = file[DATASET]
        if dataset.shape != values.shape or dataset.dtype != values.dtype:
            raise AssertionError(f"the dataset is {dataset}")
        for start in np.linspace(0, values.size - length, 9).astype(int):
            if not np.array_equal(dataset[start : start + length], values[start : start + length]):
                raise AssertionError(f"wrong values near element {start}")


if __name__ == "__main__":
    main("GPU memory to a new dataset", measure, size="1GiB", quick_size="8MiB")
