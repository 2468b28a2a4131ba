"""2,000 reads at random places of a cached file into GPU memory, as one vectored request."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from penstock.bench import gpu, native, verify
from penstock.bench.command import Found, Plan, main
from penstock.bench.files import DataFile, data_file, warm
from penstock.bench.measure import Contestant, Row, race, shortlist
from penstock.bench.peers import kvikio
from penstock.bench.peers.kvikio import Setting
from penstock.bench.result import Target
from penstock.bench.verify import Place
from penstock.units import size_in_words

_COUNT = 2000
_CHECKED = 64 << 20
_WANTED = {4 << 10: 3.0, 64 << 10: 2.0, 1 << 20: 1.5}


def measure(plan: Plan) -> Found:
    file = data_file(plan.folder, plan.size)
    warm(file)
    count = 50 if plan.quick else _COUNT
    buffer = gpu.Buffer(count * max(_WANTED))
    found = Found([], [], [])
    for length, wanted in _WANTED.items():
        _measure_length(file, buffer, count, length, wanted, plan, found)
    return found


def _measure_length(
    file: DataFile,
    buffer: gpu.Buffer,
    count: int,
    length: int,
    wanted: float,
    plan: Plan,
    found: Found,
) -> None:
    starts = np.random.default_rng(length).integers(0, file.nbytes // length, count) * length
    places = [
        Place(index * length, file.offset + int(start), length)
        for index, start in enumerate(starts)
    ]
    group = size_in_words(length)
    theirs, screening = _best_kvikio(file, buffer, places, plan, group)
    rows = race(
        [
            _penstock(file, buffer, places, "default options"),
            _penstock(file, buffer, places, "threads=16", threads=16),
            *theirs,
        ],
        "kIOPS",
        rounds=plan.rounds,
        group=group,
    )
    best = max(rows[2:], key=lambda row: row.value or 0)
    found.rows += rows
    found.screening += screening
    found.targets.append(
        Target(f"Random {group} reads, against KvikIO", "x", wanted, rows[0].better_than(best))
    )


def _penstock(
    file: DataFile, buffer: gpu.Buffer, places: list[Place], setting: str, **options: Any
) -> Contestant:
    opened = native.OpenFile(file.path, **options)
    checked = _sample(places)
    ranges = native.ranges([(p.in_file, p.length, buffer.address + p.in_memory) for p in places])
    return Contestant(
        "Penstock",
        setting,
        len(places),
        partial(opened.read_ranges, ranges),
        poison=verify.poisoner(buffer.address, checked),
        check=verify.checker(file.path, checked, buffer.address),
        detail=lambda: f"{opened.describe()}; {opened.report.copies} copies",
    )


def _best_kvikio(
    file: DataFile, buffer: gpu.Buffer, places: list[Place], plan: Plan, group: str
) -> tuple[list[Contestant], list[Row]]:
    """Return KvikIO with a future per read, as it has no vectored call.

    It is tried with and without its shortcut, which serves reads below ``gds_threshold`` (16 KiB by
    default) on the calling thread.
    """
    reader = kvikio.Reader(file, buffer)
    checked = _sample(places)
    pieces = [(p.in_file, p.length, buffer.part(p.length, p.in_memory)) for p in places]

    def contestant(setting: Setting) -> Contestant:
        return Contestant(
            "KvikIO",
            str(setting),
            len(places),
            partial(reader.read_many, pieces),
            before=reader.prepare(setting),
            poison=verify.poisoner(buffer.address, checked),
            check=verify.checker(file.path, checked, buffer.address),
        )

    threads = (4,) if plan.quick else (1, 4, 8, 16)
    settings = [
        Setting(count, gds_threshold=threshold) for threshold in (None, 1) for count in threads
    ]
    made = [contestant(setting) for setting in settings]
    return shortlist(made, "kIOPS", keep=2, group=group)


def _sample(places: list[Place]) -> list[Place]:
    """Return as many of the reads, evenly spread, as can be checked quickly."""
    return places[:: max(1, len(places) * places[0].length // _CHECKED)]


if __name__ == "__main__":
    main("Random reads of a cached file", measure, size="8GiB", quick_size="16MiB")
