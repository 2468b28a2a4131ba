"""Small writes by HDF5, with an event set and in implicit mode: with the connector, and without.

The loops are those of ``small_calls.c``, which the C compiler ``cc`` compiles first.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable
from ctypes import byref, c_int, c_int64, c_uint64, c_void_p
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import numpy as np

from penstock.bench import events
from penstock.bench.files import require_space
from penstock.bench.libhdf5 import TRUNCATE, library, numbers
from penstock.bench.measure import Contestant
from penstock.units import size_in_words

from .run import Run, benchmark

_SOURCE = Path(__file__).with_name("small_calls.c")
_SMALL = 64
_CHUNK = 16
"""Writes in a chunk."""
_ROWS = ((8, 300_000), (512, 100_000), (4 << 10, 20_000), (64 << 10, 4_000), (1 << 20, 256))
"""Bytes and number of the plain writes in implicit mode."""


class _Rows(ctypes.Structure):
    """``struct rows`` of small_calls.c."""

    _fields_ = [
        *[(name, c_int64) for name in ("dataset", "type", "memory", "file")],
        *[(name, c_uint64) for name in ("count", "length")],
        ("source", c_void_p),
        ("element", c_uint64),
    ]


@dataclass(frozen=True)
class _Work:
    """Writes of the same size, one after the other."""

    loop: str
    functions: tuple[str, ...]
    """The functions of HDF5 that the loop calls."""
    count: int
    nbytes: int
    chunked: bool = False


@benchmark(
    "Small writes by the connector, and by HDF5 alone",
    size="256MiB",
    quick_size="1MiB",
    needs_gpu=False,
)
def async_small(run: Run) -> None:
    events.prepare()
    with TemporaryDirectory() as folder:
        made = Path(folder, "small_calls.so")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", made, _SOURCE], check=True)
        _measure(run, ctypes.CDLL(str(made)))


def _measure(run: Run, loops: ctypes.CDLL) -> None:
    few = 100 if run.quick else 1
    path = run.folder / "hdf5-small.h5"
    sizes = [(nbytes, max(count // few, 2)) for nbytes, count in _ROWS]
    require_space(run.folder, max(nbytes * count for nbytes, count in sizes))
    choose, write = "H5Sselect_hyperslab", "H5Dwrite_async"
    five, twenty = 5_000 // few, 20_000 // few
    rows_later = partial(_Work, "transfer_rows_async", (choose, write), five, _SMALL)
    datasets = ("H5Dcreate2", write, "H5Dclose_async")
    made = _Work("write_datasets", datasets, twenty, _SMALL)
    groups = [
        (f"{five:,} of 64 B, contiguous", rows_later(), "", 2.0),
        (f"{five:,} of 64 B, chunked", rows_later(chunked=True), "", 2.0),
        (f"{twenty:,} datasets of 64 B made, written, closed", made, "", 2.0),
    ]
    for nbytes, count in sizes:
        work = _Work("transfer_rows", (choose, "H5Dwrite"), count, nbytes)
        text = f"{count:,} plain writes of {size_in_words(nbytes)}"
        groups.append((text, work, "implicit=1", 1.2))
    for group, work, options, wanted in groups:
        alone = events.Way("HDF5 alone", "", has_events=not options)
        ours = events.Way("Penstock", options, events.penstock(options).connector, not options)
        entered = [_contestant(way, loops, path, work) for way in (ours, alone)]
        first, second = run.race(entered, "us", group=group, rounds=9)
        text = f"{group}, time against HDF5 alone"
        run.target(text, wanted, second.better_than(first), at_most=True)
    path.unlink(missing_ok=True)


def _contestant(way: events.Way, loops: ctypes.CDLL, path: Path, work: _Work) -> Contestant:
    """From the first call to the end of the file's close."""
    data = np.random.default_rng(3).integers(0, 256, work.count * work.nbytes, np.uint8)
    opened: list[Callable[[], None]] = []

    def before() -> None:
        opened[:] = [_prepared(way, loops, path, work, data)]

    def check(_: object) -> None:
        if work.loop != "write_datasets":
            with h5py.File(path, "r") as file:
                assert np.array_equal(file["x"][...], data)

    setting = way.setting or ("event set" if way.has_events else "plain")
    return Contestant(way.name, setting, work.count, lambda: opened[0](), before, check=check)


def _prepared(
    way: events.Way, loops: ctypes.CDLL, path: Path, work: _Work, data: np.ndarray[Any, Any]
) -> Callable[[], None]:
    hdf5 = library()
    path.unlink(missing_ok=True)
    with events.access(way) as access:
        file = hdf5.H5Fcreate(os.fsencode(path), TRUNCATE, 0, access)
    memory = hdf5.H5Screate_simple(1, numbers(work.nbytes), None)
    space = hdf5.H5Screate_simple(1, numbers(work.nbytes * work.count), None)
    creation = hdf5.H5Pcreate(hdf5.dataset_create)
    if work.chunked:
        hdf5.H5Pset_chunk(creation, 1, numbers(work.nbytes * _CHUNK))
    has_one = work.loop != "write_datasets"
    dataset = hdf5.H5Dcreate2(file, b"x", hdf5.bytes, space, 0, creation, 0) if has_one else 0
    pointers = [hdf5.pointer(name) for name in work.functions]
    given = [] if has_one else [c_int64(file)]
    rows = _Rows(dataset, hdf5.bytes, memory, space, work.count, work.nbytes, data.ctypes.data, 1)
    later = events.Events(way)
    ids = [c_int64(later.id)] if way.has_events else []

    def run() -> None:
        loop = getattr(loops, work.loop)
        loop.restype = c_int
        if loop(*pointers, *given, byref(rows), *ids) < 0:
            raise RuntimeError("a call of HDF5 failed")
        later.close()
        if has_one:
            hdf5.H5Dclose(dataset)
        hdf5.H5Fclose(file)
        for identifier in (memory, space):
            hdf5.H5Sclose(identifier)
        hdf5.H5Pclose(creation)

    return run
