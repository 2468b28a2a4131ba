"""Cached reads from 64 KiB to 1 GiB: from which size each contestant's fixed cost is negligible."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.bench import gpu, native, verify
from penstock.bench.command import Found, Plan, main
from penstock.bench.files import DataFile, data_file, warm
from penstock.bench.measure import Contestant, Row, race, shortlist
from penstock.bench.peers import kvikio
from penstock.bench.peers.kvikio import Setting
from penstock.bench.result import Target
from penstock.units import size_in_words

_SMALLEST = 64 << 10
_STEP = 4
_PER_RUN = 16 << 20
"""Bytes of a timed series of small reads."""


def measure(plan: Plan) -> Found:
    file = data_file(plan.folder, max(plan.size, _PER_RUN))
    warm(file)
    buffer = gpu.Buffer(plan.size)
    found = Found([], [], [])
    ratios = []
    size = _SMALLEST
    while size <= plan.size:
        rows = _measure_size(file, buffer, size, plan, found)
        best = max((row for row in rows if row.name == "KvikIO"), key=lambda row: row.value or 0)
        ratios.append(rows[0].better_than(best))
        size *= _STEP
    lowest = None if None in ratios else min(ratio for ratio in ratios if ratio is not None)
    text = "Cached reads of 64 KiB to 1 GiB, against KvikIO, at the worst size"
    found.targets.append(Target(text, "x", 1, lowest))
    return found


def _measure_size(
    file: DataFile, buffer: gpu.Buffer, size: int, plan: Plan, found: Found
) -> list[Row]:
    group = size_in_words(size)
    places = range(0, max(_PER_RUN, size), size)
    theirs, screening = _best_kvikio(file, buffer, size, places, plan, group)
    contestants = [
        _penstock(file, buffer, size, places),
        *theirs,
        _numpy(file, size, places),
    ]
    rows = race(contestants, "GB/s", rounds=plan.rounds, group=group)
    found.rows += rows
    found.screening += screening
    return rows


def _penstock(file: DataFile, buffer: gpu.Buffer, size: int, places: range) -> Contestant:
    opened = native.OpenFile(file.path)

    def run() -> None:
        for place in places:
            opened.read(buffer.address, size, file.offset + place)

    return _contestant(
        "Penstock", "default options", file, buffer, size, places, run, opened.describe
    )


def _best_kvikio(
    file: DataFile, buffer: gpu.Buffer, size: int, places: range, plan: Plan, group: str
) -> tuple[list[Contestant], list[Row]]:
    reader = kvikio.Reader(file, buffer)

    def run() -> None:
        for place in places:
            reader.read(size, place)

    def contestant(setting: Setting) -> Contestant:
        made = _contestant("KvikIO", str(setting), file, buffer, size, places, run)
        made.before = reader.prepare(setting)
        return made

    threads = (4,) if plan.quick else (1, 4, 8, 16)
    # Tasks of 4 MiB split a medium size among few threads only, so smaller ones are tried as well.
    tasks = (None,) if size <= 1 << 20 else (None, 1 << 20)
    settings = [Setting(count, task_size=task) for task in tasks for count in threads]
    return shortlist([contestant(setting) for setting in settings], "GB/s", group=group)


def _numpy(file: DataFile, size: int, places: range) -> Contestant:
    def run() -> object:
        last = None
        for place in places:
            host = np.fromfile(file.path, np.uint8, size, offset=file.offset + place)
            last = gpu.to_gpu(host)
        return last

    setting = f"then {gpu.COPIED_BY}"
    at = file.offset + places[-1]
    check = verify.checker(file.path, verify.windows(size, at))
    return Contestant("np.fromfile", setting, size * len(places), run, check=check)


def _contestant(
    name: str,
    setting: str,
    file: DataFile,
    buffer: gpu.Buffer,
    size: int,
    places: range,
    run: Callable[[], None],
    detail: Callable[[], str] = lambda: "",
) -> Contestant:
    """Return a contestant whose reads share one destination; the last one is checked."""
    expected = verify.windows(size, file.offset + places[-1])
    return Contestant(
        name,
        setting,
        size * len(places),
        run,
        poison=verify.poisoner(buffer.address, expected),
        check=verify.checker(file.path, expected, buffer.address),
        detail=detail,
    )


if __name__ == "__main__":
    main("Cached reads by size", measure, size="1GiB", quick_size="1MiB")
