"""`penstock bench vfd`: H5Dwrite and H5Dread of GPU memory by size and mode (figures 3 and 4)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

import penstock as ps
from penstock.units import size_in_words

from .. import gpu
from .. import vfd as ways_of
from ..figures import Figure, Panel
from ..files import data_file
from ..measure import Contestant, Row
from ..options import Cache, benchmark, caches, chosen, sizes
from ..place import with_known_routes
from ..session import RefusedError, Session
from ..tables import of_rows

_DIRECTIONS = ("write", "read")
_SIZES = "64MiB,128MiB,256MiB,512MiB,1GiB,2GiB"


@benchmark("vfd", "GPU memory through the HDF5 driver by size and mode")
def vfd(
    session: Session,
    sizes_: Annotated[str, typer.Option("--sizes", help="Dataset sizes, as a list.")] = _SIZES,
    modes: Annotated[str, typer.Option(help=f"A list of {', '.join(ways_of.MODES)}.")] = ",".join(
        ways_of.MODES
    ),
    directions: Annotated[str, typer.Option(help="write, read or both, as a list.")] = "write,read",
    cache: Cache = "both",
    fsync: Annotated[
        bool, typer.Option("--fsync/--no-fsync", help="Time writes until they are on the medium.")
    ] = True,
) -> None:
    """Write and read a dataset in GPU memory, by each mode of the driver and by HDF5 alone.

    Writes go to a new file. Before each read, the file is brought into the cache or dropped from
    it.
    """
    lengths = sizes(sizes_)
    asked = chosen(modes, ways_of.MODES, "mode")
    wanted = chosen(directions, _DIRECTIONS, "direction")
    states = caches(cache)
    ways = prepare(session, asked)
    session.need_space(2 * max(lengths))
    session.settings |= {"modes": asked, "cache": cache, "fsync": fsync}
    buffer = gpu.Buffer(max(lengths))
    ticks = [size_in_words(length) for length in lengths]
    if "write" in wanted:
        buffer.fill_with_noise()
        path = session.own_folder / "written.h5"
        state = "on the medium" if fsync else "call returned"
        rows: list[Row] = []
        for length in lengths:
            entered = [
                ways_of.writing(way, path, length, buffer, fsync, session.runs) for way in ways
            ]
            rows += race(session, entered, f"{size_in_words(length)}, {state}")
        finish(session, f"H5Dwrite of GPU memory, {state}", "figure-3", rows, ticks)
    if "read" in wanted:
        file = data_file(session.own_folder, max(lengths))
        for state, brought in states.items():
            rows = []
            for length in lengths:
                part = replace(file, nbytes=length)
                before = partial(brought, part)
                entered = [
                    ways_of.reading(way, file, part, buffer, before, session.runs) for way in ways
                ]
                rows += race(session, entered, f"{size_in_words(length)}, {state}")
            finish(session, f"H5Dread into GPU memory, {state}", f"figure-4-{state}", rows, ticks)


def prepare(session: Session, modes: list[str]) -> list[ways_of.Way]:
    """Choose this rank's GPU, and return the ways to measure."""
    found = ps.devices()
    if not found:
        raise RefusedError("there is no GPU: run this on a machine with one")
    gpu.use(session.ranks.rank % len(found))
    reports = session.own_folder / "reports"
    reports.mkdir()
    ways_of.prepare(reports)
    ways = [way for way in ways_of.ways() if _is_asked(session, way, modes)]
    if session.wants("vfd-gds") and len(ways) == len(modes) + 1:
        why = "PENSTOCK_BENCH_DRIVER and PENSTOCK_BENCH_DRIVER_PATH name it"
        session.absent |= {"vfd-gds": why}
    return ways


def _is_asked(session: Session, way: ways_of.Way, modes: list[str]) -> bool:
    if way.driver is None:
        return True
    if way.driver[0] == "penstock":
        return way.setting.removeprefix("mode=") in modes
    return session.wants("vfd-gds")


def race(session: Session, entered: list[Contestant], group: str) -> list[Row]:
    return session.race(with_known_routes(entered, "gds"), group=group)


def finish(session: Session, title: str, name: str, rows: list[Row], ticks: list[str]) -> None:
    session.tables.append(of_rows(title, rows, "Size"))
    series: dict[str, list[float | None]] = {}
    for row in rows:
        series.setdefault(row.name, []).append(row.value)
    panel = Panel("", ticks, series)
    session.figures.append(Figure(name, title, "I/O size", "Observed rate (GB/s)", [panel]))
