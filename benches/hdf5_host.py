"""Reads of cached datasets into host memory on two cores: no GPU and few threads to decode."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps
from penstock.bench.files import DATASET
from penstock.bench.hdf5_files import ITEM, Values, array, compressed, create
from penstock.bench.measure import Contestant
from penstock.units import size_in_words

from .beside import contestant
from .run import Run, benchmark, worst

_CORES = 2
_CHUNK = 256 << 10
_SMALL = (1 << 20, 64 << 10, 4 << 10)
_PER_RUN = 32 << 20
_MOST_DATASETS = 2000
"""The most small datasets that a run reads, one after the other."""


@benchmark(
    "Datasets to host memory on two cores", size="512MiB", quick_size="4MiB", needs_gpu=False
)
def hdf5_host(run: Run) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > _CORES:
        # Start again, because libraries have already counted the cores and started threads.
        os.sched_setaffinity(0, _two_cores(cores))
        os.execv(sys.executable, [sys.executable, "-m", "benches", *sys.argv[1:]])
    gzip = compressed(run.folder, run.size, _CHUNK, "gzip")
    with ps.File(gzip.path) as file:
        pair = _by_name(file, [DATASET], gzip.expected.values)
        ours, theirs = run.race(pair, group="gzip, chunks of 256 KiB")
    text = "gzip to the host on 2 cores, against h5py"
    run.target(text, 1.8, ours.better_than(theirs))

    sizes = (run.size, *_SMALL)
    per_run = 1 << 20 if run.quick else _PER_RUN
    values = {size: _values(size, per_run) for size in sizes}
    path = run.folder / f"hdf5-host-{run.size}.h5"

    def fill(file: Any) -> None:
        for size, arrays in values.items():
            chunks = (min(size // 4, _CHUNK) // ITEM,)
            for number, data in enumerate(arrays):
                file.create_dataset(f"contiguous/{size}/{number}", data=data)
                file.create_dataset(f"chunked/{size}/{number}", data=data, chunks=chunks)

    create(path, 2 * (run.size + per_run * len(_SMALL)), fill)
    ratios = []
    with ps.File(path) as file:
        for size, arrays in values.items():
            names = [f"{size}/{number}" for number in range(len(arrays))]
            pairs = {
                layout: _by_name(file, [f"{layout}/{name}" for name in names], arrays[-1])
                for layout in ("contiguous", "chunked")
            }
            last = file[f"contiguous/{names[-1]}"]
            if size in _SMALL:
                pairs["again and again"] = _again(last, arrays[-1], len(names))
            for layout, pair in pairs.items():
                group = f"{layout}, {size_in_words(size)}"
                if layout == "again and again":
                    group = f"contiguous, {size_in_words(size)}, {layout}"
                ours, theirs = run.race(pair, group=group)
                ratios.append(ours.better_than(theirs))
    text = "Uncompressed to the host on 2 cores, against h5py, at the worst"
    run.target(text, 1, worst(ratios))


def _values(size: int, per_run: int) -> Values:
    """Return an array with a row for each dataset of a size."""
    count = max(min(per_run // size, _MOST_DATASETS), 1)
    return array((count, size // ITEM))


def _by_name(file: ps.File, names: list[str], last: np.ndarray) -> list[Contestant]:
    """Have both look up and read all datasets of an open file, each into a new array.

    HDF5's chunk cache is freed with the dataset, so it helps neither.
    """
    plain = file.h5py
    ways = {".read()": lambda name: file[name].read(), "[()]": lambda name: plain[name][()]}
    return _pair("file[name]", ways, names, last)


def _again(dataset: Any, last: np.ndarray, times: int) -> list[Contestant]:
    """Have both read one open dataset repeatedly: the cost of a call besides HDF5's own work."""
    plain = dataset.h5py
    ways = {".read()": lambda _: dataset.read(), "[()]": lambda _: plain[()]}
    return _pair("dataset", ways, range(times), last)


def _pair(
    what: str, ways: dict[str, Callable[[Any], Any]], calls: Sequence[Any], last: np.ndarray
) -> list[Contestant]:
    def run(read: Callable[[Any], Any]) -> Any:
        for call in calls:
            found = read(call)
        return found

    return [
        contestant(
            name, f"{what}{how}", last, last.nbytes * len(calls), lambda read=read: run(read)
        )
        for name, (how, read) in zip(("Penstock", "h5py"), ways.items(), strict=True)
    ]


def _two_cores(cores: list[int]) -> list[int]:
    """Return two that are not hardware threads of one core, as far as sysfs shows it."""
    siblings = Path(f"/sys/devices/system/cpu/cpu{cores[0]}/topology/thread_siblings_list")
    shared = {cores[0]}
    with suppress(OSError, ValueError):
        for part in siblings.read_text().strip().split(","):
            first, _, last = part.partition("-")
            shared |= set(range(int(first), int(last or first) + 1))
    others = [core for core in cores if core not in shared]
    return [cores[0], *(others or cores[1:])][:_CORES]
