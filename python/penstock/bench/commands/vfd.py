"""`penstock bench vfd`: H5Dwrite and H5Dread of GPU memory by size and mode (figures 3 and 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

import penstock as ps
from penstock.units import size_in_words

from .. import gpu
from .. import vfd as vfd_bench
from ..figures import Figure, Panel
from ..files import DataFile, data_file
from ..measure import Contestant, Row
from ..options import DIRECTIONS, Cache, Directions, Fsync, benchmark, caches, chosen, sizes
from ..place import with_known_routes
from ..session import RefusedError, Session
from ..tables import of_rows

_SIZES = "64MiB,128MiB,256MiB,512MiB,1GiB,2GiB"


@benchmark("vfd", "GPU memory through the HDF5 driver by size and mode")
def vfd(
    session: Session,
    sizes_: Annotated[str, typer.Option("--sizes", help="Dataset sizes, as a list.")] = _SIZES,
    modes: Annotated[str, typer.Option(help=f"A list of {', '.join(vfd_bench.MODES)}.")] = ",".join(
        vfd_bench.MODES
    ),
    directions: Directions = "write,read",
    cache: Cache = "both",
    fsync: Fsync = True,
) -> None:
    """Write and read a dataset in GPU memory, by each mode of the driver and by HDF5 alone.

    Writes go to a new file. Before each read, the file is brought into the cache or dropped from
    it.
    """
    lengths = sizes(sizes_)
    selected = chosen(modes, vfd_bench.MODES, "mode")
    wanted = chosen(directions, DIRECTIONS, "direction")
    states = caches(cache)
    ways = prepare(session, selected)
    session.need_space(2 * max(lengths))
    session.settings |= {"modes": selected, "cache": cache, "fsync": fsync}
    for operation, direction, state, found in by_size(
        session, ways, lengths, wanted, states, fsync
    ):
        rows = [row for of_size in found.values() for row in of_size]
        session.tables.append(of_rows(f"{operation}, {state}", rows, "Size"))
        series: dict[str, list[float | None]] = {}
        for row in rows:
            series.setdefault(row.name, []).append(row.value)
        name = {"write": "figure-3", "read": f"figure-4-{state}"}[direction]
        panel = Panel("", [size_in_words(length) for length in lengths], series)
        session.figures.append(
            Figure(name, f"{operation}, {state}", "I/O size", "Observed rate (GB/s)", [panel])
        )


def by_size(
    session: Session,
    ways: list[vfd_bench.Way],
    lengths: list[int],
    directions: list[str],
    states: dict[str, Callable[[DataFile], None]],
    fsync: bool,
    group: str = "{size}, {state}",
) -> Iterator[tuple[str, str, str, dict[int, list[Row]]]]:
    """Race writes, and reads in each state of the cache.

    Yield the operation in words, its direction, its state, and the rows by size.
    """
    buffer = gpu.Buffer(max(lengths))

    def raced(
        direction: str, state: str, make: Callable[[vfd_bench.Way, int], Contestant]
    ) -> dict[int, list[Row]]:
        found = {}
        for length in lengths:
            words = group.format(size=size_in_words(length), direction=direction, state=state)
            found[length] = race(session, [make(way, length) for way in ways], words)
        return found

    def writing(way: vfd_bench.Way, length: int) -> Contestant:
        path = session.own_folder / "written.h5"
        return vfd_bench.writing(way, path, length, buffer, fsync, session.runs)

    if "write" in directions:
        buffer.fill_with_noise()
        state = "on the medium" if fsync else "call returned"
        yield "H5Dwrite of GPU memory", "write", state, raced("write", state, writing)
    if "read" not in directions:
        return
    file = data_file(session.own_folder, max(lengths))
    for state, prepare in states.items():

        def reading(
            way: vfd_bench.Way, length: int, prepare: Callable[[DataFile], None] = prepare
        ) -> Contestant:
            part = replace(file, nbytes=length)
            before = partial(prepare, part)
            return vfd_bench.reading(way, file, part, buffer, before, session.runs)

        yield "H5Dread into GPU memory", "read", state, raced("read", state, reading)


def prepare(session: Session, modes: list[str]) -> list[vfd_bench.Way]:
    """Choose this rank's GPU, and return the ways to measure."""
    found = ps.devices()
    if not found:
        raise RefusedError("there is no GPU: run this on a machine with one")
    gpu.use(session.ranks.rank % len(found))
    reports = session.own_folder / "reports"
    reports.mkdir()
    vfd_bench.prepare(reports)
    ways = [way for way in vfd_bench.ways() if _is_selected(session, way, modes)]
    if session.wants("vfd-gds") and len(ways) == len(modes) + 1:
        why = "PENSTOCK_BENCH_DRIVER and PENSTOCK_BENCH_DRIVER_PATH must name it"
        session.absent |= {"vfd-gds": why}
    return ways


def _is_selected(session: Session, way: vfd_bench.Way, modes: list[str]) -> bool:
    if way.driver is None:
        return True
    if way.driver[0] == "penstock":
        return way.setting.removeprefix("mode=") in modes
    return session.wants("vfd-gds")


def race(session: Session, entered: list[Contestant], group: str) -> list[Row]:
    return session.race(with_known_routes(entered, "gds"), group=group)
