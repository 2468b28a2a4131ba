"""Reads of cached datasets into host memory on two cores: no GPU and few threads to decode."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.bench import native
from penstock.bench.expected import Expected
from penstock.bench.files import DATASET
from penstock.bench.hdf5_files import ITEM, Values, array, compressed, create
from penstock.bench.measure import Contestant
from penstock.units import size_in_words

from .run import Run, benchmark, worst

_CORES = 2
_CHUNK = 256 << 10
_SMALL = (1 << 20, 64 << 10, 4 << 10)
_PER_RUN = 32 << 20
_MOST_DATASETS = 2000
"""The most small datasets that a run reads, one after the other."""
_LAYOUTS = ("contiguous", "chunked")


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
        pair = _by_name(file, [DATASET], gzip.expected)
        ours, theirs = run.race(pair, group="gzip, chunks of 256 KiB")
    text = "gzip to the host on 2 cores, against h5py"
    run.target(text, 1.8, ours.better_than(theirs))

    sizes = (run.size, *_SMALL)
    per_run = 1 << 20 if run.quick else _PER_RUN
    path = run.folder / f"hdf5-host-{run.size}.h5"
    fill = partial(_fill, sizes=sizes, per_run=per_run)
    create(path, 2 * (run.size + per_run * len(_SMALL)), fill)
    ratios = []

    def compare(pair: list[Contestant], group: str) -> None:
        ours, theirs = run.race(pair, group=group)
        ratios.append(ours.better_than(theirs))

    with ps.File(path) as file:
        for size in sizes:
            names, last = range(_datasets(size, per_run)), Expected(_values(size, per_run)[-1])
            for layout in _LAYOUTS:
                pair = _by_name(file, [f"{layout}/{size}/{name}" for name in names], last)
                compare(pair, f"{layout}, {size_in_words(size)}")
            if size in _SMALL:
                pair = _again(file, f"contiguous/{size}/{names[-1]}", last, len(names))
                compare(pair, f"contiguous, {size_in_words(size)}, again and again")
    text = "Uncompressed to the host on 2 cores, against h5py, at the worst"
    run.target(text, 1, worst(ratios))


def _datasets(size: int, per_run: int) -> int:
    return max(min(per_run // size, _MOST_DATASETS), 1)


def _values(size: int, per_run: int) -> Values:
    """Return an array with a row for each dataset of a size."""
    count = _datasets(size, per_run)
    return array((count, size // ITEM))


def _fill(file: Any, sizes: tuple[int, ...], per_run: int) -> None:
    for size in sizes:
        chunks = (min(size // 4, _CHUNK) // ITEM,)
        for number, values in enumerate(_values(size, per_run)):
            file.create_dataset(f"contiguous/{size}/{number}", data=values)
            file.create_dataset(f"chunked/{size}/{number}", data=values, chunks=chunks)


def _by_name(file: ps.File, names: list[str], last: Expected) -> list[Contestant]:
    """Have both look up and read all datasets of an open file, each into a new array.

    HDF5's chunk cache is freed with the dataset, so it helps neither.
    """
    plain = file.h5py

    def penstock() -> Any:
        for name in names:
            found = file[name].read()
        return found

    def h5py() -> Any:
        for name in names:
            found = plain[name][()]
        return found

    return _pair("file[name]", penstock, h5py, last, len(names))


def _again(file: ps.File, name: str, last: Expected, times: int) -> list[Contestant]:
    """Have both read one open dataset repeatedly: the cost of a call besides HDF5's own work."""
    dataset = file[name]
    plain = dataset.h5py

    def penstock() -> Any:
        for _ in range(times):
            found = dataset.read()
        return found

    def h5py() -> Any:
        for _ in range(times):
            found = plain[()]
        return found

    return _pair("dataset", penstock, h5py, last, times)


def _pair(
    what: str, penstock: Callable[[], Any], h5py: Callable[[], Any], last: Expected, times: int
) -> list[Contestant]:
    amount, check = last.values.nbytes * times, last.check
    return [
        Contestant("Penstock", f"{what}.read()", amount, penstock, check=check, detail=native.last),
        Contestant("h5py", f"{what}[()]", amount, h5py, check=check),
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
