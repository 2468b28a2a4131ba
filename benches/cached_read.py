"""Reads of a cached file into GPU memory: Penstock, KvikIO, NumPy with torch, h5py with torch."""

from __future__ import annotations

from functools import partial
from typing import Any

import h5py
import numpy as np

import penstock as ps
from penstock.bench import gpu, native, verify
from penstock.bench.command import Found, Plan, main
from penstock.bench.files import DATASET, DataFile, data_file, warm
from penstock.bench.measure import Contestant, Row, race, shortlist
from penstock.bench.peers import kvikio
from penstock.bench.peers.kvikio import Setting
from penstock.bench.result import Target
from penstock.units import size_in_words

# NumPy and h5py copy by one thread, whose rate does not depend on the length, so they read less.
_SERIAL_SHARE = 4


def measure(plan: Plan) -> Found:
    file = data_file(plan.folder, plan.size)
    warm(file)
    buffer = gpu.Buffer(plan.size)
    theirs, screening = _kvikio(file, buffer, plan)
    contestants = [
        gpu.link(buffer, file.nbytes),
        _penstock(file, buffer, "default options"),
        _penstock(file, buffer, "threads=1", threads=1),
        *theirs,
        _numpy(file),
        _h5py(file),
    ]
    rows = race(contestants, "GB/s", rounds=plan.rounds)
    link, default, one_thread, *peers = rows
    kvikio_best = max((r for r in peers if r.name == "KvikIO"), key=lambda r: r.value or 0)
    targets = [
        Target(
            "Cached read, default options, share of the link", "", 0.95, default.better_than(link)
        ),
        Target(
            "Cached read, default options, against KvikIO", "x", 1, default.better_than(kvikio_best)
        ),
        Target("Cached read with one thread", "GB/s", 30, one_thread.value),
    ]
    return Found(rows, targets, screening)


def _penstock(file: DataFile, buffer: gpu.Buffer, setting: str, **options: Any) -> Contestant:
    out = buffer.view(file.nbytes)
    poison, check = verify.reading(file, file.nbytes, buffer.address)

    def run() -> None:
        ps.load(file.path, offset=file.offset, out=out, **options)

    return Contestant(
        "Penstock", setting, file.nbytes, run, poison=poison, check=check, detail=native.last
    )


def _kvikio(file: DataFile, buffer: gpu.Buffer, plan: Plan) -> tuple[list[Contestant], list[Row]]:
    """Return KvikIO with one thread, and with its best setting of threads and task size."""
    reader = kvikio.Reader(file, buffer)
    poison, check = verify.reading(file, file.nbytes, buffer.address)

    def contestant(setting: Setting) -> Contestant:
        return Contestant(
            "KvikIO",
            str(setting),
            file.nbytes,
            partial(reader.read, file.nbytes),
            before=reader.prepare(setting),
            poison=poison,
            check=check,
        )

    single = contestant(Setting(1))
    threads = kvikio.THREADS[1:3] if plan.quick else kvikio.THREADS[1:]
    settings = [Setting(count, task_size=size) for size in (None, 16 << 20) for count in threads]
    best, screening = shortlist([contestant(setting) for setting in settings], "GB/s")
    return [single, *best], screening


def _numpy(file: DataFile) -> Contestant:
    nbytes = file.nbytes // _SERIAL_SHARE

    def run() -> object:
        return gpu.to_gpu(np.fromfile(file.path, np.uint8, nbytes, offset=file.offset))

    return Contestant(
        "np.fromfile",
        f"then {gpu.COPIED_BY}; {size_in_words(nbytes)}",
        nbytes,
        run,
        check=verify.checker(file.path, verify.windows(nbytes, file.offset)),
    )


def _h5py(file: DataFile) -> Contestant:
    nbytes = file.nbytes // _SERIAL_SHARE

    def run() -> object:
        with h5py.File(file.path, "r") as opened:
            return gpu.to_gpu(opened[DATASET][:nbytes])

    return Contestant(
        "h5py",
        f"contiguous dataset, then {gpu.COPIED_BY}; {size_in_words(nbytes)}",
        nbytes,
        run,
        check=verify.checker(file.path, verify.windows(nbytes, file.offset)),
    )


if __name__ == "__main__":
    main("Cached file to the GPU", measure, size="8GiB", quick_size="16MiB")
