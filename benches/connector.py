"""The HDF5 connector: the cost of calls that begin a write, and writes between steps."""

from __future__ import annotations

import os
from ctypes import byref, c_int
from dataclasses import replace
from pathlib import Path

import numpy as np

import penstock as ps
from penstock.bench import events, plotfiles
from penstock.bench.files import require_space
from penstock.bench.libhdf5 import TRUNCATE, library, numbers
from penstock.bench.measure import Contestant, Row
from penstock.bench.plotfiles import Part, Series
from penstock.bench.ranks import Ranks
from penstock.units import size_in_words

from .run import Run, benchmark

_SUBMITTED = 64 << 20
_ROW = 8
"""Datasets that are written one after the other before any wait."""
_STEPS = 3
_GROUPS = 20
"""Groups, with an attribute each, that are made during a background write."""
_CALLS = _GROUPS * 5
_ROUNDS = 15
_FILES = 5
"""Plot files of a run."""


@benchmark("Plot files between steps", size="1GiB", quick_size="12MiB", needs_gpu=False)
def async_plotfile(run: Run) -> None:
    """Write plot files between the steps of a computation, which continues meanwhile."""
    require_space(run.folder, _FILES * run.size)
    events.prepare()
    compute = 0.05 if run.quick else 1.0
    for levels in (1, 3):
        parts = plotfiles.levels(levels, run.size, Ranks())
        parts = [replace(part, on_gpu=bool(ps.devices())) for part in parts]
        what = f"{_FILES} steps of {size_in_words(run.size)}, {levels} level{'s' * (levels > 1)}"

        def race(seconds: float, parts: list[Part] = parts, what: str = what) -> list[Row]:
            folder = run.folder / "hdf5-plotfiles"
            entered = [
                Series(way, folder, parts, _FILES, seconds).contestant(way.setting or setting)
                for way, setting in (
                    (events.penstock(), "event set"),
                    (events.ALONE, "no event set"),
                    *((way, "event set") for way in events.peers()),
                )
            ]
            group = f"{what}, {f'{seconds:g} s' if seconds else 'nothing'} computed between"
            return run.race(entered, "s", group=group, rounds=3)

        (ours, alone, *_), (bare, *_) = race(compute), race(0.0)
        over = _over_bound(ours, bare, compute)
        text = f"{what}, time over the longer of computing and writing"
        run.target(text, 1.05, over, at_most=True)
        run.target(f"{what}, against HDF5 alone", 1, ours.better_than(alone))


def _over_bound(ours: Row, bare: Row, compute: float) -> float | None:
    """Divide the time by its bound: the longer part of each step, plus the last write."""
    if ours.median is None or bare.median is None:
        return None
    write = bare.median / _FILES
    return ours.median / ((_FILES - 1) * max(compute, write) + write)


@benchmark(
    "Calls that begin a write, and calls beside it",
    size="1GiB",
    quick_size="16MiB",
    needs_gpu=False,
)
def async_submit(run: Run) -> None:
    require_space(run.folder, max(run.size, _ROW * min(run.size, _SUBMITTED)))
    events.prepare()
    path = run.folder / "hdf5-submit.h5"
    nbytes = min(run.size, _SUBMITTED)
    field = _field(nbytes)
    kinds = {
        "to one that has been written": (1, False),
        "to a new dataset": (1, True),
        f"to each of {_ROW} in a row": (_ROW, False),
    }
    for copy, how, wanted in (("auto", "copied", 2000.0), ("never", "in place", 50.0)):
        for what, (datasets, is_new) in kinds.items():
            group = f"submit {size_in_words(nbytes)} {how}, {what}"
            ways = [events.penstock(f"copy={copy}"), *(events.peers() if copy == "auto" else [])]
            entered = [_submit(way, path, field, datasets, is_new) for way in ways]
            ours, *_ = run.race(entered, "us", group=group, rounds=_ROUNDS)
            # There is no target for host memory: its copy depends on the number of cores.
            if copy == "never" or ps.devices():
                run.target(group, wanted, ours.value, "us", at_most=True)

    field = _field(run.size)
    entered = [
        _metadata(way, path, field, writes)
        for way in (events.penstock("copy=never"), *events.peers())
        for writes in (True, False)
    ]
    entered.append(_metadata(events.ALONE, path, field, False))
    group = f"{_CALLS} calls on groups and attributes"
    writing, idle, *_ = run.race(entered, "us", group=group, rounds=_ROUNDS)
    text = "Calls on groups and attributes while a write goes on, time against idle"
    run.target(text, 1.25, idle.better_than(writing), at_most=True)
    path.unlink(missing_ok=True)


def _field(nbytes: int) -> events.Field:
    noise = np.random.default_rng(2).integers(0, 256, nbytes, np.uint8)
    return events.Field(noise, bool(ps.devices()))


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

    return Contestant(way.name, way.setting, datasets, run, before, after=after)


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

    setting = f"{way.setting or 'default'}, {'writing' if writes else 'idle'}"
    return Contestant(way.name, setting, _CALLS, run, before, after=after, detail=detail)


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
