"""Plot files between the steps of a computation, which continues while they are written.

As in h5bench, the computation is emulated by sleeping, and comes between the steps. The last write
of a run has no computation to overlap with.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import h5py

import penstock as ps

from . import events, verify
from .libhdf5 import TRUNCATE, library, numbers
from .measure import Contestant

MEASURED = (
    "total size (GB)",
    "total compute time (s)",
    "raw time (s)",
    "raw rate (GB/s)",
    "elapsed time (s)",
    "slowest (s)",
    "fastest (s)",
    "observed rate (GB/s)",
)
"""The columns that all tables of plot files have."""


@dataclass
class Series:
    """The plot files of a run, and the times of the runs."""

    way: events.Way
    folder: Path
    fields: list[events.Field]
    """The contents of each file: one field per level of refinement."""
    steps: int
    compute: float
    """Seconds between two files."""
    in_calls: list[float] = field(default_factory=list)
    """Seconds in calls of HDF5 in each run, including waits."""

    @property
    def nbytes(self) -> int:
        return self.steps * sum(each.nbytes for each in self.fields)


def contestant(series: Series, amount: float = 1) -> Contestant:
    """Return a contestant that writes the files, with the emulated computation between them."""
    way, folder, fields = series.way, series.folder, series.fields
    kind = "GPU" if ps.devices() else "host"

    def before() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        # This contestant must not wait for the write-back of others.
        os.sync()

    def run() -> None:
        spent = 0.0
        found = events.Events(way)
        with events.access(way) as access:
            for step in range(series.steps):
                if step:
                    time.sleep(series.compute)
                begin = time.perf_counter()
                found.wait()
                _write(way, folder / f"plt{step:05}.h5", fields, access, found.id)
                spent += time.perf_counter() - begin
        begin = time.perf_counter()
        found.close()
        series.in_calls.append(spent + time.perf_counter() - begin)

    def check(_: object) -> None:
        for step in (0, series.steps - 1):
            path = folder / f"plt{step:05}.h5"
            for level, each in enumerate(fields):
                with h5py.File(path) as file:
                    offset = file[f"level_{level}/data:datatype=0"].id.get_offset()
                verify.checker(path, verify.windows(each.nbytes, offset), each.address)(None)

    return Contestant(
        way.name,
        way.setting or ("event set" if way.has_events else "no event set"),
        amount,
        run,
        before=before,
        check=check,
        after=partial(shutil.rmtree, folder),
        detail=lambda: f"{series.in_calls[-1]:.3f} s in calls, {kind} memory",
    )


def _write(
    way: events.Way, path: Path, fields: list[events.Field], access: int, event_set: int
) -> None:
    hdf5, later = library(), events.later
    file = later("H5Fcreate_async")(os.fsencode(path), TRUNCATE, 0, access, event_set)
    for level, each in enumerate(fields):
        name = f"level_{level}".encode()
        group = later("H5Gcreate_async")(file, name, 0, 0, 0, event_set)
        space = hdf5.H5Screate_simple(1, numbers(each.nbytes), None)
        dataset = later("H5Dcreate_async")(
            group, b"data:datatype=0", hdf5.bytes, space, 0, 0, 0, event_set
        )
        address = each.for_writing(way)
        later("H5Dwrite_async")(dataset, hdf5.bytes, 0, 0, 0, address, event_set)
        later("H5Dclose_async")(dataset, event_set)
        later("H5Gclose_async")(group, event_set)
        hdf5.H5Sclose(space)
    later("H5Fclose_async")(file, event_set)
