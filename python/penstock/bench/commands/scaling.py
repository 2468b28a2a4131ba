"""`penstock bench scaling`: 1 to N GPUs at once, one rank for each (figures 7 and 8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

import penstock as ps
from penstock.units import size_in_words

from .. import gpu
from .. import vfd as ways_of
from ..figures import Figure, Panel
from ..files import DataFile, data_file
from ..measure import Contestant, Row, nothing
from ..options import SIZE, Cache, benchmark, caches, chosen
from ..session import Session
from ..tables import Table
from .vfd import prepare, race

_KINDS = ("write", "read", "shared-read")


@benchmark("scaling", "Several GPUs at once, a rank each", iterations=3)
def scaling(
    session: Session,
    size: Annotated[int, typer.Option("--size", help="Bytes per rank.", **SIZE)] = 2 << 30,
    options: Annotated[
        str, typer.Option(help="Options of Penstock's driver; its defaults if empty.")
    ] = "",
    kinds: Annotated[
        str, typer.Option(help=f"A list of {', '.join(_KINDS)}.")
    ] = "write,read,shared-read",
    cache: Cache = "warm",
    fsync: Annotated[
        bool, typer.Option("--fsync/--no-fsync", help="Time writes until they are on the medium.")
    ] = True,
) -> None:
    """Have 1, 2, ... all ranks move GPU memory at once, and report their common rate.

    Start it by mpirun or with --n_rank. Ranks are assigned to GPUs round-robin. Each has its own
    file; with shared-read, each reads its own part of one file. HDF5 without MPI has no shared
    writes.
    """
    asked = chosen(kinds, _KINDS, "kind")
    states = caches(cache)
    others = [way for way in prepare(session, []) if way.driver]
    ranks = session.ranks
    session.need_space(3 * size)
    text = ";".join(filter(None, ["mode=auto", options]))
    ways = [
        ways_of.Way("Penstock", options or "default options", ("penstock", text)),
        ways_of.Way("sec2", "mode=sec2", ("penstock", "mode=sec2")),
    ]
    ways += others
    session.settings |= {"bytes": size, "options": options, "cache": cache, "fsync": fsync}
    buffer = gpu.Buffer(size)
    devices = min(len(ps.devices()), ranks.size)
    # If ranks share a GPU, the result does not show scaling over GPUs.
    each = "GPUs" if devices == ranks.size else "Ranks"
    table = Table(
        f"{ranks.size} rank(s) on {devices} GPU(s), {size_in_words(size)} each",
        [
            "What",
            each,
            "Contestant",
            "Setting",
            "GB/s together",
            "worst",
            "best",
            "Share of N x one",
            "Penstock is (x)",
            "Detail",
        ],
    )
    for kind in asked:
        plans: list[tuple[str, Callable[[ways_of.Way], Contestant]]] = []
        if kind == "write":
            buffer.fill_with_noise()
            path = session.own_folder / "written.h5"
            what = f"write, a file each, {'on the medium' if fsync else 'call returned'}"
            plans.append((what, partial(_writing, path=path, buffer=buffer, fsync=fsync)))
        else:
            file, part = _files(session, kind, size)
            for state, brought in states.items():
                owner = "one shared file" if kind == "shared-read" else "a file each"
                before = partial(brought, part)
                plans.append(
                    (
                        f"read, {owner}, {state}",
                        partial(_reading, file=file, part=part, buffer=buffer, before=before),
                    )
                )
        for what, make in plans:
            _race(session, table, what, ways, make)
    session.tables.append(table)


def _writing(way: ways_of.Way, *, path: Path, buffer: gpu.Buffer, fsync: bool) -> Contestant:
    return ways_of.writing(way, path, buffer.nbytes, buffer, fsync)


def _reading(
    way: ways_of.Way,
    *,
    file: DataFile,
    part: DataFile,
    buffer: gpu.Buffer,
    before: Callable[[], None],
) -> Contestant:
    return ways_of.reading(way, file, part, buffer, before)


def _files(session: Session, kind: str, size: int) -> tuple[DataFile, DataFile]:
    """Return the file, and the part of it that this rank reads."""
    ranks = session.ranks
    if kind == "read":
        file = data_file(session.own_folder, size)
        return file, replace(file, nbytes=size)
    shared = session.folder / "shared"
    if ranks.is_first:
        data_file(shared, size * ranks.size)
    ranks.barrier()
    file = data_file(shared, size * ranks.size)
    offset = file.offset + ranks.rank * size
    return file, DataFile(file.path, offset, size)


def _race(
    session: Session,
    table: Table,
    what: str,
    ways: list[ways_of.Way],
    make: Callable[[ways_of.Way], Contestant],
) -> None:
    """Measure with one rank at work, with two, and so on; the others wait."""
    ranks = session.ranks
    counts = list(range(1, ranks.size + 1))
    series: dict[str, list[float | None]] = {way.name: [] for way in ways}
    alone: dict[str, Row] = {}
    for count in counts:
        entered = [
            make(way) if ranks.rank < count else _idle(way.name, way.setting) for way in ways
        ]
        rows = race(session, entered, f"{what}, {count} of {ranks.size}")
        for row in rows:
            series[row.name].append(row.value)
            alone.setdefault(row.name, row)
            first = (what, count, row.name, row.setting)
            if row.value is None or row.spread is None:
                table.add(*first, *[None] * 5, f"failed: {row.error}")
                continue
            one = alone[row.name].value
            share = row.value / (count * one) if one else None
            ratio = None if row is rows[0] else rows[0].better_than(row)
            table.add(*first, row.value, *row.spread, share, ratio, row.detail)
    name = "figure-7" if what.startswith("write") else "figure-8"
    words = what.replace(", ", "-").replace(" ", "-")
    session.figures.append(
        Figure(
            f"{name}-{words}",
            f"{table.columns[1]} at once: {what}",
            table.columns[1],
            "Rate of all (GB/s)",
            [Panel("", list(map(str, counts)), series)],
            "lines",
        )
    )


def _idle(name: str, setting: str) -> Contestant:
    return Contestant(name, setting, 0, nothing)
