"""The driver's cost in calls that do not concern a GPU, against HDF5's own driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_float
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from penstock.bench import vfd
from penstock.bench.command import Found, Plan, main
from penstock.bench.libhdf5 import READ_ONLY, TRUNCATE, library, numbers
from penstock.bench.measure import Contestant, Row, race
from penstock.bench.result import Target

_GROUPS, _ATTRIBUTES = 100, 100
_SIDE, _CHUNK = 1024, 128
_PASSES = 10
"""Passes over the dataset per run: one pass takes only a millisecond or two."""
_ROUNDS = 15
_DRIVERS = (("Penstock", ("penstock", "")), ("sec2", None))

Driver = tuple[str, str] | None


def measure(plan: Plan) -> Found:
    vfd.prepare(with_gpu=False)
    attributes, chunks = plan.folder / "hdf5-attributes.h5", plan.folder / "hdf5-rows.h5"
    array = np.arange(_SIDE * _SIDE, dtype=np.float32)
    calls = _GROUPS * _ATTRIBUTES
    work: list[tuple[str, float, Callable[[Driver], None]]] = [
        ("10,000 attributes written", calls, partial(_write_attributes, attributes)),
        ("10,000 attributes read", calls, partial(_read_attributes, attributes)),
        ("64 chunks of 128 x 128 written", _PASSES, partial(_write_chunks, chunks, array)),
        ("64 chunks of 128 x 128 read", _PASSES, partial(_read_chunks, chunks, array)),
    ]
    rows: list[Row] = []
    targets: list[Target] = []
    for group, amount, run in work:
        contestants = [
            Contestant(name, "host memory", amount, partial(run, driver))
            for name, driver in _DRIVERS
        ]
        rounds = plan.rounds if plan.quick else _ROUNDS
        ours, theirs = race(contestants, "us", rounds=rounds, group=group)
        rows += [ours, theirs]
        times = theirs.better_than(ours)
        targets.append(Target(f"{group}, time against sec2", "x", 1.05, times, at_most=True))
    for path in (attributes, chunks):
        path.unlink(missing_ok=True)
    return Found(rows, targets, [])


@contextmanager
def open_file(path: Path, driver: Driver, *, new: bool) -> Iterator[int]:
    """Open or create a file by a driver, HDF5's own if it is `None`."""
    hdf5 = library()
    with hdf5.access(driver) as access:
        name = bytes(path)
        file = (
            hdf5.H5Fcreate(name, TRUNCATE, 0, access)
            if new
            else hdf5.H5Fopen(name, READ_ONLY, access)
        )
    try:
        yield file
    finally:
        hdf5.H5Fclose(file)


def _write_attributes(path: Path, driver: Driver) -> None:
    hdf5 = library()
    value = c_float(1.5)
    space = hdf5.H5Screate_simple(1, numbers(1), None)
    with open_file(path, driver, new=True) as file:
        for number in range(_GROUPS):
            group = hdf5.H5Gcreate2(file, b"group %d" % number, 0, 0, 0)
            for index in range(_ATTRIBUTES):
                name = b"attribute %d" % index
                attribute = hdf5.H5Acreate2(group, name, hdf5.floats, space, 0, 0)
                hdf5.H5Awrite(attribute, hdf5.floats, byref(value))
                hdf5.H5Aclose(attribute)
            hdf5.H5Gclose(group)
    hdf5.H5Sclose(space)


def _read_attributes(path: Path, driver: Driver) -> None:
    hdf5 = library()
    value = c_float()
    with open_file(path, driver, new=False) as file:
        for number in range(_GROUPS):
            group = hdf5.H5Gopen2(file, b"group %d" % number, 0)
            for index in range(_ATTRIBUTES):
                attribute = hdf5.H5Aopen(group, b"attribute %d" % index, 0)
                hdf5.H5Aread(attribute, hdf5.floats, byref(value))
                hdf5.H5Aclose(attribute)
            hdf5.H5Gclose(group)
    if value.value != 1.5:
        raise AssertionError("wrong value")


def _write_chunks(path: Path, array: np.ndarray[Any, Any], driver: Driver) -> None:
    hdf5 = library()
    space = hdf5.H5Screate_simple(2, numbers(_SIDE, _SIDE), None)
    made = hdf5.H5Pcreate(hdf5.dataset_create)
    hdf5.H5Pset_chunk(made, 2, numbers(_CHUNK, _CHUNK))
    with open_file(path, driver, new=True) as file:
        dataset = hdf5.H5Dcreate2(file, b"x", hdf5.floats, space, 0, made, 0)
        for _ in range(_PASSES):
            hdf5.H5Dwrite(dataset, hdf5.floats, 0, 0, 0, array.ctypes.data)
        hdf5.H5Dclose(dataset)
    hdf5.H5Pclose(made)
    hdf5.H5Sclose(space)


def _read_chunks(path: Path, array: np.ndarray[Any, Any], driver: Driver) -> None:
    hdf5 = library()
    into = np.empty_like(array)
    with open_file(path, driver, new=False) as file:
        dataset = hdf5.H5Dopen2(file, b"x", 0)
        for _ in range(_PASSES):
            hdf5.H5Dread(dataset, hdf5.floats, 0, 0, 0, into.ctypes.data)
        hdf5.H5Dclose(dataset)
    if not np.array_equal(into, array):
        raise AssertionError("wrong values")


if __name__ == "__main__":
    main(
        "Small calls through the driver",
        measure,
        size="4MiB",
        quick_size="4MiB",
        needs_gpu=False,
    )
