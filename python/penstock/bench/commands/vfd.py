"""`penstock bench vfd` and `vfd-threads`: H5Dwrite and H5Dread of GPU memory (figures 3 to 6)."""

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
from ..options import (
    DIRECTIONS,
    Cache,
    Directions,
    Fsync,
    benchmark,
    caches,
    chosen,
    numbers,
    sizes,
)
from ..place import with_known_routes, without_cufile
from ..session import RefusedError, Session
from ..tables import Table, columns, of_rows
from ..vfd import Way

_SIZES = "64MiB,128MiB,256MiB,512MiB,1GiB,2GiB"
States = dict[str, Callable[[DataFile], None]]


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
    lengths, selected = sizes(sizes_), chosen(modes, vfd_bench.MODES, "mode")
    wanted, states = chosen(directions, DIRECTIONS, "direction"), caches(cache)
    ways = prepare(session, selected)
    session.settings |= {"modes": selected, "cache": cache, "fsync": fsync}
    ticks = [size_in_words(length) for length in lengths]
    for operation, direction, state, found in _by_size(
        session, ways, lengths, wanted, states, fsync
    ):
        rows = [row for of_size in found.values() for row in of_size]
        session.tables.append(of_rows(f"{operation}, {state}", rows, "Size"))
        series: dict[str, list[float | None]] = {}
        for row in rows:
            series.setdefault(row.name, []).append(row.value)
        name = {"write": "figure-3", "read": f"figure-4-{state}"}[direction]
        panels = [Panel("", ticks, series)]
        title = f"{operation}, {state}"
        session.figures.append(Figure(name, title, "I/O size", "Observed rate (GB/s)", panels))


@benchmark("vfd-threads", "The HDF5 driver by threads and block", iterations=3)
def vfd_threads(
    session: Session,
    threads: Annotated[str, typer.Option(help="Threads per call, as a list.")] = "1,2,4,8,16",
    blocks: Annotated[str, typer.Option(help="Block sizes, as a list.")] = "1MiB,2MiB,4MiB,8MiB",
    sizes_: Annotated[
        str, typer.Option("--sizes", help="Dataset sizes, as a list.")
    ] = "64MiB,256MiB,1GiB",
    mode: Annotated[str, typer.Option(help=f"One of {', '.join(vfd_bench.MODES)}.")] = "auto",
    directions: Directions = "write,read",
    cache: Cache = "warm",
    fsync: Fsync = True,
) -> None:
    """Write and read a dataset in GPU memory, by number of threads and block size.

    Each panel also shows HDF5's SEC2 driver, which splits nothing.
    """
    counts, pieces, lengths = numbers(threads, "threads"), sizes(blocks), sizes(sizes_)
    wanted, states = chosen(directions, DIRECTIONS, "direction"), caches(cache)
    selected, *others = chosen(mode, vfd_bench.MODES, "mode")
    if others:
        raise RefusedError(f"--mode {mode!r} names several: choose one")
    prepare(session, [])
    if selected == "gds" and (why := without_cufile()):
        raise RefusedError(f"cuFile does not start here: {why}")
    session.settings |= {"mode": selected, "cache": cache, "fsync": fsync}
    settings = [(count, piece) for count in counts for piece in pieces]
    texts = [f"mode={selected};threads={count};block={piece}" for count, piece in settings]
    ways = [Way("sec2", "mode=sec2", ("penstock", "mode=sec2"))]
    ways += [Way("Penstock", text, ("penstock", text)) for text in texts]
    group = "{size}, {direction}, {state}"
    raced = _by_size(session, ways, lengths, wanted, states, fsync, group)
    ticks = [size_in_words(length) for length in lengths]
    heading = columns("Size|Threads|Block|GB/s|worst|best|Against SEC2 (x)|Detail")
    for operation, direction, state, found in raced:
        title = f"{operation} by threads and block, {state}"
        table, best = Table(title, heading), (0.0, "")
        panels = {n: Panel(f"{n} thread{'s' * (n > 1)}", ticks, {}, {"SEC2": []}) for n in counts}
        for length, (sec2, *rows) in found.items():
            size = size_in_words(length)
            table.result(sec2, (size, "SEC2", ""), None)
            for panel in panels.values():
                panel.overlay["SEC2"].append(sec2.value)
            for (count, piece), row in zip(settings, rows, strict=True):
                block = size_in_words(piece)
                table.result(row, (size, str(count), block), row.better_than(sec2))
                panels[count].series.setdefault(f"block {block}", []).append(row.value)
                where = f"with {count} threads and blocks of {block}, {size}"
                best = max(best, (row.value or 0.0, where), key=lambda pair: pair[0])
        if best[0]:
            table.notes.append(f"Best: {best[0]:.2f} GB/s {best[1]}.")
        session.tables.append(table)
        name = {"write": "figure-5", "read": f"figure-6-{state}"}[direction]
        drawn = list(panels.values())
        session.figures.append(Figure(name, title, "I/O size", "Rate (GB/s)", drawn))


def _by_size(
    session: Session,
    ways: list[Way],
    lengths: list[int],
    directions: list[str],
    states: States,
    fsync: bool,
    group: str = "{size}, {state}",
) -> Iterator[tuple[str, str, str, dict[int, list[Row]]]]:
    """Race writes, and reads in each state of the cache.

    Yield the operation in words, its direction, its state, and the rows by size.
    """
    session.need_space(2 * max(lengths))
    buffer = gpu.Buffer(max(lengths))

    def raced(
        direction: str, state: str, make: Callable[[Way, int], Contestant]
    ) -> dict[int, list[Row]]:
        found = {}
        for length in lengths:
            words = group.format(size=size_in_words(length), direction=direction, state=state)
            found[length] = race(session, [make(way, length) for way in ways], words)
        return found

    def writing(way: Way, length: int) -> Contestant:
        path = session.own_folder / "written.h5"
        return vfd_bench.writing(way, path, length, buffer, fsync, session.runs)

    if "write" in directions:
        buffer.fill_with_noise()
        state = "on the medium" if fsync else "call returned"
        yield "H5Dwrite of GPU memory", "write", state, raced("write", state, writing)
    if "read" not in directions:
        return
    file = data_file(session.own_folder, max(lengths))
    for state, bring in states.items():

        def reading(way: Way, length: int, bring: Callable[[DataFile], None] = bring) -> Contestant:
            part = replace(file, nbytes=length)
            return vfd_bench.reading(way, file, part, buffer, partial(bring, part), session.runs)

        yield "H5Dread into GPU memory", "read", state, raced("read", state, reading)


def prepare(session: Session, modes: list[str]) -> list[Way]:
    """Choose this rank's GPU, and return the ways to measure."""
    found = ps.devices()
    if not found:
        raise RefusedError("there is no GPU: run this on a machine with one")
    gpu.use(session.ranks.rank % len(found))
    reports = session.own_folder / "reports"
    reports.mkdir()
    vfd_bench.prepare(reports)

    def is_selected(way: Way) -> bool:
        if way.driver is not None and way.driver[0] != "penstock":
            return session.wants("vfd-gds")
        return way.driver is None or way.setting.removeprefix("mode=") in modes

    ways = list(filter(is_selected, vfd_bench.ways()))
    if session.wants("vfd-gds") and len(ways) == len(modes) + 1:
        why = "PENSTOCK_BENCH_DRIVER and PENSTOCK_BENCH_DRIVER_PATH must name it"
        session.absent |= {"vfd-gds": why}
    return ways


def race(session: Session, entered: list[Contestant], group: str) -> list[Row]:
    return session.race(with_known_routes(entered, "gds"), group=group)
