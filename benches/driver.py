"""The HDF5 driver: H5Dread and H5Dwrite of GPU memory, and its cost in calls without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_float
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from penstock.bench import gpu
from penstock.bench import vfd as ways_of
from penstock.bench.files import data_file, drop, require_space, warm
from penstock.bench.libhdf5 import READ_ONLY, TRUNCATE, library, numbers
from penstock.bench.measure import ROUNDS, Contestant, Row
from penstock.bench.place import with_known_routes
from penstock.units import size_in_words

from .run import Run, benchmark

_SIZES = (64 << 20, 256 << 20, 1 << 30, 4 << 30)
_LARGE = 4 << 30
_GROUPS, _ATTRIBUTES = 100, 100
_PASSES = 10
"""Passes over the dataset per run: one pass takes only a millisecond or two."""

Driver = tuple[str, str] | None
_DRIVERS: dict[str, Driver] = {"Penstock": ("penstock", ""), "sec2": None}


def _lengths(run: Run) -> list[int]:
    return [size for size in _SIZES if size <= run.size] or [run.size]


def _race(run: Run, entered: list[Contestant], what: str, group: str, nbytes: int) -> list[Row]:
    """Race with fewer rounds for a large size, because long runs vary less."""
    rounds = 3 if nbytes >= _LARGE else ROUNDS
    rows = run.race(with_known_routes(entered, "gds"), group=group, rounds=rounds)
    others = [row for row in rows[1:] if row.value]
    best = max(others, key=lambda row: row.value or 0, default=rows[0])
    text = f"{what} of {group}, share of the best way"
    run.target(text, 0.97, rows[0].better_than(best), "")
    return rows


@benchmark("H5Dread into GPU memory", size="4GiB", quick_size="16MiB")
def vfd(run: Run) -> None:
    file = data_file(run.folder, _lengths(run)[-1])
    buffer = gpu.Buffer(file.nbytes)
    ways_of.prepare()
    # Cached reads come first, so that the file is dropped and read again only by cold reads.
    for state, prepare, wanted in (("cached", warm, 10), ("cold", drop, 2)):
        for nbytes in _lengths(run):
            part = replace(file, nbytes=nbytes)
            group = f"{size_in_words(nbytes)}, {state}"
            before = partial(prepare, part)
            entered = [ways_of.reading(way, file, part, buffer, before) for way in ways_of.ways()]
            rows = _race(run, entered, "H5Dread", group, nbytes)
            sec2 = next(row for row in rows if row.name == "sec2")
            run.target(f"H5Dread of {group}, against sec2", wanted, rows[0].better_than(sec2))


@benchmark("H5Dwrite of GPU memory", size="4GiB", quick_size="16MiB")
def vfd_write(run: Run) -> None:
    _write_until(run, "call returned", sync=False)


@benchmark("H5Dwrite of GPU memory, durable", size="4GiB", quick_size="16MiB")
def vfd_durable(run: Run) -> None:
    _write_until(run, "on the medium", sync=True)


def _write_until(run: Run, state: str, *, sync: bool) -> None:
    largest = _lengths(run)[-1]
    require_space(run.folder, largest)
    buffer = gpu.Buffer(largest)
    buffer.fill_with_noise()
    ways_of.prepare()
    path = run.folder / "hdf5-vfd-written.h5"
    for nbytes in _lengths(run):
        entered = [ways_of.writing(way, path, nbytes, buffer, sync) for way in ways_of.ways()]
        _race(run, entered, "H5Dwrite", f"{size_in_words(nbytes)}, {state}", nbytes)


def _of_drivers(act: Callable[[Driver], None], amount: float) -> list[Contestant]:
    return [
        Contestant(name, "host memory", amount, partial(act, driver))
        for name, driver in _DRIVERS.items()
    ]


@dataclass(frozen=True)
class _Pieces:
    """Hyperslabs of a dataset of integers of `shape`, one for each call."""

    name: str
    shape: tuple[int, int]
    starts: list[tuple[int, int]]
    count: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    chunk: tuple[int, int] | None = None

    def call(self, select: Any, space: int, move: Any, arguments: tuple[int, ...]) -> None:
        stride, count = numbers(*self.stride), numbers(*self.count)
        starts = [numbers(*start) for start in self.starts]
        for start in starts:
            select(space, 0, start, stride, count, None)
            move(*arguments)

    def call_nothing(self) -> None:
        """Call functions that do nothing: Python takes longer for a call than HDF5."""
        hdf5 = library()
        self.call(hdf5.idle("H5Sselect_hyperslab"), 0, hdf5.idle("H5Dwrite"), (0,) * 6)


@benchmark("Small calls through the driver", size="4MiB", quick_size="4MiB", needs_gpu=False)
def vfd_attributes(run: Run) -> None:
    ways_of.prepare(with_gpu=False)
    attributes, chunks = run.folder / "hdf5-attributes.h5", run.folder / "hdf5-rows.h5"
    # Of several passes, because one takes only a millisecond or two.
    whole = _Pieces("", (1024, 1024), [(0, 0)] * _PASSES, (1024, 1024), chunk=(128, 128))
    for what, amount, act in (
        ("10,000 attributes", _GROUPS * _ATTRIBUTES, partial(_attributes, attributes)),
        ("64 chunks of 128 x 128", _PASSES, partial(_move, chunks, whole)),
    ):
        for verb in ("written", "read"):
            group = f"{what} {verb}"
            entered = _of_drivers(partial(act, write=verb == "written"), amount)
            ours, theirs = run.race(entered, "us", group=group, rounds=15)
            times = theirs.better_than(ours)
            run.target(f"{group}, time against sec2", 1.05, times, at_most=True)
    for path in (attributes, chunks):
        path.unlink(missing_ok=True)


@benchmark("Small pieces through the driver", size="32MiB", quick_size="2MiB", needs_gpu=False)
def vfd_small(run: Run) -> None:
    """Move contiguous data in host memory, of which HDF5's own driver sieves reads."""
    ways_of.prepare(with_gpu=False)
    path = run.folder / "hdf5-small.h5"
    # In the sizes of what programs do: few calls suffice, the pieces are many.
    rows, points = (2_000, 50_000) if run.quick else (30_000, 1_000_000)
    tall, few = (500 if run.quick else 2_000), rows // 10
    first = [(row, 0) for row in range(rows)]
    columns, spread = [(0, column) for column in range(3)], [(0, 512 * at) for at in range(8)]
    second = f"every second of {2 * points:,} integers"
    for pieces in (
        _Pieces(f"{rows:,} rows of 8 B", (rows, 2), first, (1, 2)),
        _Pieces(f"{rows:,} rows of 8 B, 8 B between", (rows, 4), first, (1, 2)),
        _Pieces(f"{few:,} rows of 4 KiB", (few, 1024), first[:few], (1, 1024)),
        _Pieces(f"{points:,} x 3, one column a call", (points, 3), columns, (points, 1)),
        _Pieces(second, (1, 2 * points), [(0, 0)], (1, points), (1, 2)),
        _Pieces(f"8 columns of {tall:,} x 4,096", (tall, 4096), spread, (tall, 1)),
    ):
        for verb in ("written", "read"):
            count, group = len(pieces.starts), f"{pieces.name}, {verb}"
            act = partial(_move, path, pieces, write=verb == "written")
            alone = Contestant("ctypes", "", count, pieces.call_nothing)
            raced = run.race([*_of_drivers(act, count), alone], "us", group=group, rounds=9)
            ours, theirs, calls = raced
            for row in (ours, theirs):
                # What is left of a short run may be less than the noise, and even negative.
                row.seconds = [max(seconds - (calls.median or 0), 1e-9) for seconds in row.seconds]
            run.keep([ours, theirs], raced)
            times = theirs.better_than(ours)
            run.target(f"{group}, time against sec2", 1.1, times, at_most=True)
    path.unlink(missing_ok=True)


@contextmanager
def _open(path: Path, driver: Driver, *, new: bool) -> Iterator[int]:
    """Open or create a file by a driver, HDF5's own if it is `None`."""
    hdf5, name = library(), bytes(path)
    with hdf5.access(driver) as access:
        if new:
            file = hdf5.H5Fcreate(name, TRUNCATE, 0, access)
        else:
            file = hdf5.H5Fopen(name, READ_ONLY, access)
    try:
        yield file
    finally:
        hdf5.H5Fclose(file)


def _attributes(path: Path, driver: Driver, *, write: bool) -> None:
    hdf5 = library()
    value = c_float(1.5 if write else 0)
    space = hdf5.H5Screate_simple(1, numbers(1), None)
    with _open(path, driver, new=write) as file:
        for number in range(_GROUPS):
            name = b"group %d" % number
            group = hdf5.H5Gcreate2(file, name, 0, 0, 0) if write else hdf5.H5Gopen2(file, name, 0)
            for index in range(_ATTRIBUTES):
                name = b"attribute %d" % index
                if write:
                    attribute = hdf5.H5Acreate2(group, name, hdf5.floats, space, 0, 0)
                    hdf5.H5Awrite(attribute, hdf5.floats, byref(value))
                else:
                    attribute = hdf5.H5Aopen(group, name, 0)
                    hdf5.H5Aread(attribute, hdf5.floats, byref(value))
                hdf5.H5Aclose(attribute)
            hdf5.H5Gclose(group)
    hdf5.H5Sclose(space)
    if value.value != 1.5:
        raise AssertionError("wrong value")


def _move(path: Path, pieces: _Pieces, driver: Driver, *, write: bool) -> None:
    """Write all pieces, or read and check what was written before."""
    hdf5 = library()
    elements = pieces.count[0] * pieces.count[1]
    values = np.arange(1, elements + 1, dtype=np.int32)
    held = values if write else np.zeros_like(values)
    space = hdf5.H5Screate_simple(2, numbers(*pieces.shape), None)
    memory = hdf5.H5Screate_simple(1, numbers(elements), None)
    creation = hdf5.H5Pcreate(hdf5.dataset_create)
    if pieces.chunk:
        hdf5.H5Pset_chunk(creation, 2, numbers(*pieces.chunk))
    with _open(path, driver, new=write) as file:
        if write:
            dataset = hdf5.H5Dcreate2(file, b"x", hdf5.integers, space, 0, creation, 0)
        else:
            dataset = hdf5.H5Dopen2(file, b"x", 0)
        move = hdf5.H5Dwrite if write else hdf5.H5Dread
        # Chunks are moved whole: HDF5 takes long to match their rows to memory of one dimension.
        spaces = (0, 0) if pieces.chunk else (memory, space)
        arguments = (dataset, hdf5.integers, *spaces, 0, held.ctypes.data)
        pieces.call(hdf5.H5Sselect_hyperslab, space, move, arguments)
        hdf5.H5Dclose(dataset)
    hdf5.H5Pclose(creation)
    hdf5.H5Sclose(memory)
    hdf5.H5Sclose(space)
    if not write and not np.array_equal(held, values):
        raise AssertionError("wrong values")
