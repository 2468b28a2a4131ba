"""Plot files between the steps of a computation, which goes on while they are written.

As h5bench writes: the computation is emulated by sleeping, and comes between the steps. The first
and the last write of a run have nothing to hide behind but each other's waiting.
"""

from __future__ import annotations

import os
import shutil
import time
from functools import partial
from pathlib import Path

import h5py

import penstock as ps
from penstock.bench import events, verify
from penstock.bench.command import Found, Plan, main, size_in_words
from penstock.bench.files import require_space
from penstock.bench.libhdf5 import TRUNCATE, library, numbers
from penstock.bench.measure import Contestant, Row, race
from penstock.bench.result import Target

_STEPS = 5
_LEVELS = (1, 3)
_ROUNDS = 3


def measure(plan: Plan) -> Found:
    require_space(plan.folder, _STEPS * plan.size)
    events.prepare()
    compute = 0.05 if plan.quick else 1.0
    rows: list[Row] = []
    targets: list[Target] = []
    for levels in _LEVELS:
        fields = [events.Field(plan.size // levels) for _ in range(levels)]
        what = f"{_STEPS} steps of {size_in_words(plan.size)}, {levels} level{'s' * (levels > 1)}"
        found = {}
        for seconds in (compute, 0.0):
            contestants = [
                _contestant(way, plan.folder / "hdf5-plotfiles", fields, seconds)
                for way in (events.penstock(), events.ALONE, *events.peers())
            ]
            group = f"{what}, {f'{seconds:g} s' if seconds else 'nothing'} computed between"
            rounds = min(plan.rounds, _ROUNDS)
            found[seconds] = race(contestants, "s", rounds=rounds, group=group)
            rows += found[seconds]
        (ours, alone, *_), (bare, *_) = found[compute], found[0.0]
        targets.append(
            Target(
                f"{what}, time over the longer of computing and writing",
                "x",
                1.05,
                _over_bound(ours, bare, compute),
                at_most=True,
            )
        )
        against = ours.better_than(alone)
        targets.append(Target(f"{what}, against HDF5 alone", "x", 1, against))
    return Found(rows, targets, [])


def _over_bound(ours: Row, bare: Row, compute: float) -> float | None:
    """Of each step the longer part, and the last write, which nothing is left to hide."""
    if ours.median is None or bare.median is None:
        return None
    write = bare.median / _STEPS
    return ours.median / ((_STEPS - 1) * max(compute, write) + write)


def _contestant(
    way: events.Way, folder: Path, fields: list[events.Field], compute: float
) -> Contestant:
    spent: list[float] = []

    def before() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        # What others have left to be written back is not this one's to wait for.
        os.sync()

    def run() -> None:
        spent[:] = [0.0]
        found = events.Events(way)
        with events.access(way) as access:
            for step in range(_STEPS):
                if step:
                    time.sleep(compute)
                begin = time.perf_counter()
                found.wait()
                _write(way, folder / f"plt{step:05}.h5", fields, access, found.id)
                spent[0] += time.perf_counter() - begin
        begin = time.perf_counter()
        found.close()
        spent[0] += time.perf_counter() - begin

    def check(_: object) -> None:
        for step in (0, _STEPS - 1):
            path = folder / f"plt{step:05}.h5"
            for level, field in enumerate(fields):
                with h5py.File(path) as file:
                    offset = file[f"level_{level}/data:datatype=0"].id.get_offset()
                verify.checker(path, verify.windows(field.nbytes, offset), field.address)(None)

    return Contestant(
        way.name,
        way.setting or ("event set" if way.has_events else "no event set"),
        1,
        run,
        before=before,
        check=check,
        after=partial(shutil.rmtree, folder),
        detail=lambda: f"{spent[0]:.3f} s in calls, {'GPU' if ps.devices() else 'host'} memory",
    )


def _write(
    way: events.Way, path: Path, fields: list[events.Field], access: int, event_set: int
) -> None:
    hdf5, later = library(), events.later
    file = later("H5Fcreate_async")(os.fsencode(path), TRUNCATE, 0, access, event_set)
    for level, field in enumerate(fields):
        name = f"level_{level}".encode()
        group = later("H5Gcreate_async")(file, name, 0, 0, 0, event_set)
        space = hdf5.H5Screate_simple(1, numbers(field.nbytes), None)
        dataset = later("H5Dcreate_async")(
            group, b"data:datatype=0", hdf5.bytes, space, 0, 0, 0, event_set
        )
        address = field.for_writing(way)
        later("H5Dwrite_async")(dataset, hdf5.bytes, 0, 0, 0, address, event_set)
        later("H5Dclose_async")(dataset, event_set)
        later("H5Gclose_async")(group, event_set)
        hdf5.H5Sclose(space)
    later("H5Fclose_async")(file, event_set)


if __name__ == "__main__":
    main(
        "Plot files between steps",
        measure,
        size="1GiB",
        quick_size="12MiB",
        needs_gpu=False,
    )
