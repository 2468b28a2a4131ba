"""Writes of GPU memory to a new dataset, compressed and uncompressed, without fsync."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import penstock as ps
from penstock.bench import gpu, native
from penstock.bench.files import DATASET
from penstock.bench.hdf5_files import ITEM, Values, array
from penstock.bench.measure import Contestant
from penstock.units import size_in_words

from .run import Run, benchmark

_CHUNKS = {"chunks": ((1 << 20) // ITEM,)}
_GZIP = {"compression": "gzip", "compression_opts": 4, "shuffle": True}


@benchmark("GPU memory to a new dataset", size="1GiB", quick_size="8MiB")
def hdf5_write(run: Run) -> None:
    values = array((run.size // ITEM,))
    data = gpu.to_gpu(values)
    # h5py encodes chunks one by one, so it writes only a share of the data.
    few = gpu.to_gpu(values[: values.size // 16])
    path = run.folder / "hdf5-written.h5"

    def made(name: str, setting: str, run: Callable[[], None], values: Values) -> Contestant:
        # Each run writes a new file, and pages of the last one must not still be written back.
        remove, check = partial(path.unlink, missing_ok=True), partial(_check, path, values)
        keys = {"check": check, "after": remove}
        return Contestant(name, setting, values.nbytes, run, remove, **keys)

    def ours(filters: dict[str, Any], **options: Any) -> Contestant:
        def write() -> None:
            with ps.options(durable=False, **options), ps.File(path, "w") as file:
                file.create(DATASET, data=data, **filters)

        setting = ", ".join(f"{key}={value}" for key, value in options.items())
        one = made("Penstock", setting or "default options", write, values)
        one.detail = native.last
        return one

    def theirs(filters: dict[str, Any], source: Any) -> Contestant:
        def write() -> None:
            with h5py.File(path, "w") as file:
                file.create_dataset(DATASET, data=gpu.to_host(source), **filters)

        count = source.shape[0]
        setting = f"{gpu.COPIED_BY}; {size_in_words(count * ITEM)}"
        return made("h5py", setting, write, values[:count])

    gzip: dict[str, Any] = {**_CHUNKS, **_GZIP}
    sides = [ours(gzip, decode=side) for side in ("cpu", "gpu")]
    rows = run.race([ours(gzip), *sides, theirs(gzip, few)], group="gzip, chunks of 1 MiB")
    text = "gzip from the GPU to a new file, against h5py"
    run.target(text, 20, rows[0].better_than(rows[-1]))
    for group, layout in (("chunks of 1 MiB", _CHUNKS), ("contiguous", {})):
        run.race([ours(layout), theirs(layout, data)], group=group)


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
