"""The cost of a call that begins a write, and whether other calls of HDF5 wait for the write."""

from __future__ import annotations

import os
from ctypes import byref, c_int
from pathlib import Path

import penstock as ps
from penstock.bench import events
from penstock.bench.command import Found, Plan, main
from penstock.bench.files import require_space
from penstock.bench.libhdf5 import TRUNCATE, library, numbers
from penstock.bench.measure import Contestant, Row, race
from penstock.bench.result import Target
from penstock.units import size_in_words

_SUBMITTED = 64 << 20
_ROW = 8
"""Datasets that are written one after the other before any wait."""
_STEPS = 3
_GROUPS = 20
"""Groups, with an attribute each, that are made during a background write."""
_CALLS = _GROUPS * 5
_ROUNDS = 15


def measure(plan: Plan) -> Found:
    require_space(plan.folder, max(plan.size, _ROW * min(plan.size, _SUBMITTED)))
    events.prepare()
    rounds = plan.rounds if plan.quick else _ROUNDS
    path = plan.folder / "hdf5-submit.h5"
    rows: list[Row] = []
    targets: list[Target] = []

    nbytes = min(plan.size, _SUBMITTED)
    field = events.Field(nbytes)
    kinds = {
        "to one that has been written": (1, False),
        "to a new dataset": (1, True),
        f"to each of {_ROW} in a row": (_ROW, False),
    }
    for copy, wanted in (("auto", 2000.0), ("never", 50.0)):
        for what, (datasets, is_new) in kinds.items():
            how = "copied" if copy == "auto" else "in place"
            group = f"submit {size_in_words(nbytes)} {how}, {what}"
            ways = [events.penstock(f"copy={copy}"), *(events.peers() if copy == "auto" else [])]
            contestants = [_submit(way, path, field, datasets, is_new) for way in ways]
            found = race(contestants, "us", rounds=rounds, group=group)
            rows += found
            # There is no target for host memory: its copy depends on the number of cores.
            if copy == "never" or ps.devices():
                targets.append(Target(group, "us", wanted, found[0].value, at_most=True))

    field = events.Field(plan.size)
    contestants = [
        _metadata(way, path, field, writes)
        for way in (events.penstock("copy=never"), *events.peers())
        for writes in (True, False)
    ]
    contestants.append(_metadata(events.ALONE, path, field, False))
    found = race(contestants, "us", rounds=rounds, group=f"{_CALLS} calls on groups and attributes")
    rows += found
    delay = found[1].better_than(found[0])
    text = "Calls on groups and attributes while a write goes on, time against idle"
    targets.append(Target(text, "x", 1.25, delay, at_most=True))
    path.unlink(missing_ok=True)
    return Found(rows, targets, [])


class _File:
    """A file with datasets, and an event set."""

    def __init__(self, way: events.Way, path: Path, nbytes: int, datasets: int = 1) -> None:
        self.events = events.Events(way)
        self.nbytes = nbytes
        self._datasets: list[int] = []
        path.unlink(missing_ok=True)
        with events.access(way) as access:
            name = os.fsencode(path)
            self.id = events.later("H5Fcreate_async")(name, TRUNCATE, 0, access, self.events.id)
        for _ in range(datasets):
            self.add_dataset()
        self.events.wait()

    def add_dataset(self) -> None:
        hdf5 = library()
        space = hdf5.H5Screate_simple(1, numbers(self.nbytes), None)
        name = b"%d" % len(self._datasets)
        arguments = (self.id, name, hdf5.bytes, space, 0, 0, 0, self.events.id)
        self._datasets.append(events.later("H5Dcreate_async")(*arguments))
        hdf5.H5Sclose(space)

    def submit(self, address: int, datasets: int = 1) -> None:
        """Begin to write the last datasets."""
        write, elements = events.later("H5Dwrite_async"), library().bytes
        for dataset in self._datasets[-datasets:]:
            write(dataset, elements, 0, 0, 0, address, self.events.id)

    def close(self) -> None:
        for dataset in self._datasets:
            events.later("H5Dclose_async")(dataset, self.events.id)
        events.later("H5Fclose_async")(self.id, self.events.id)
        self.events.close()


def _submit(
    way: events.Way, path: Path, field: events.Field, datasets: int, is_new: bool
) -> Contestant:
    opened: list[_File] = []

    def before() -> None:
        opened[:] = [_File(way, path, field.nbytes, datasets)]
        # Like a program that writes step by step, whose first steps have filled all caches.
        for _ in range(_STEPS):
            opened[0].submit(field.for_writing(way), datasets)
            opened[0].events.wait()
        if is_new:
            opened[0].add_dataset()

    def run() -> None:
        opened[0].submit(field.for_writing(way), datasets)

    def after() -> None:
        opened[0].close()

    return Contestant(way.name, way.setting, datasets, run, before=before, after=after)


def _metadata(way: events.Way, path: Path, field: events.Field, writes: bool) -> Contestant:
    opened: list[_File] = []
    left: list[int] = []

    def before() -> None:
        opened[:] = [_File(way, path, field.nbytes)]
        if writes:
            opened[0].submit(field.for_writing(way))

    def run() -> None:
        _make_groups(opened[0].id)

    def after() -> None:
        left[:] = [opened[0].events.wait(0)]
        opened[0].close()

    def detail() -> str:
        return "" if not writes else "to the end" if left[0] else "the write ended before the calls"

    return Contestant(
        way.name,
        f"{way.setting or 'default'}, {'writing' if writes else 'idle'}",
        _CALLS,
        run,
        before=before,
        after=after,
        detail=detail,
    )


def _make_groups(file: int) -> None:
    hdf5 = library()
    value = c_int(7)
    space = hdf5.H5Screate_simple(1, numbers(1), None)
    for number in range(_GROUPS):
        group = hdf5.H5Gcreate2(file, b"group %d" % number, 0, 0, 0)
        attribute = hdf5.H5Acreate2(group, b"step", hdf5.integers, space, 0, 0)
        hdf5.H5Awrite(attribute, hdf5.integers, byref(value))
        hdf5.H5Aclose(attribute)
        hdf5.H5Gclose(group)
    hdf5.H5Sclose(space)


if __name__ == "__main__":
    main(
        "Calls that begin a write, and calls beside it",
        measure,
        size="1GiB",
        quick_size="16MiB",
        needs_gpu=False,
    )
