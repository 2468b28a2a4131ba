"""`penstock bench scaling`: 1 to N GPUs at once, one rank for each (figures 7 and 8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

import penstock as ps
from penstock.units import size_in_words

from .. import gpu, shared, staging
from .. import vfd as vfd_bench
from ..figures import Figure, Panel
from ..files import DataFile, data_file
from ..measure import Contestant, Row, nothing
from ..options import SIZE, Cache, benchmark, caches, chosen
from ..session import Session
from ..tables import Table
from .vfd import prepare, race

_KINDS = ("write", "shared-write", "read", "shared-read", "replicated")


@dataclass(frozen=True)
class _Plan:
    """One measurement, repeated for each number of active ranks."""

    what: str
    makers: Sequence[Callable[[int], Contestant]]
    """Each makes a contestant for a number of active ranks. All ranks call them in turn."""
    counts: Sequence[int]


@benchmark("scaling", "Several GPUs at once, a rank each", iterations=3)
def scaling(
    session: Session,
    size: Annotated[int, typer.Option("--size", help="Bytes per rank.", **SIZE)] = 2 << 30,
    options: Annotated[
        str, typer.Option(help="Options of Penstock's driver; its defaults if empty.")
    ] = "",
    kinds: Annotated[str, typer.Option(help=f"A list of {', '.join(_KINDS)}.")] = ",".join(_KINDS),
    cache: Cache = "warm",
    grid: Annotated[
        bool,
        typer.Option(
            "--grid", help="For reads, also measure a grid of thread counts and block sizes."
        ),
    ] = False,
    fsync: Annotated[
        bool, typer.Option("--fsync/--no-fsync", help="Time writes until they are on the medium.")
    ] = True,
) -> None:
    """Have 1, 2, ... all ranks move GPU memory at once, and report their aggregate rate.

    Start it by mpirun or with --n_rank. Ranks are assigned to GPUs round-robin. With write and
    read, each has its own file; with shared-write and shared-read, its own part of one file. HDF5
    without MPI has no shared writes: Penstock writes without HDF5. With replicated, each gets all
    of one file.

    With --grid, each explicit setting is measured in turn with the rest.
    """
    asked = chosen(kinds, _KINDS, "kind")
    shared.keys_of(options)  # refused before any file is made
    states = caches(cache)
    others = [way for way in prepare(session, []) if way.driver]
    ranks = session.ranks
    session.need_space(len(asked) * size)
    text = ";".join(filter(None, ["mode=auto", options]))
    ways = [
        vfd_bench.Way("Penstock", options or "default options", ("penstock", text)),
        vfd_bench.Way("sec2", "mode=sec2", ("penstock", "mode=sec2")),
    ]
    ways += others
    explicit = staging.grid() if grid else []
    session.settings |= {
        "grid": grid,
        "bytes": size,
        "options": options,
        "cache": cache,
        "fsync": fsync,
    }
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
        read = [*ways, *explicit] if kind in ("read", "shared-read") else ways
        for plan in _plans(session, kind, buffer, read, options, states, fsync):
            _race(session, table, plan)
    session.tables.append(table)


def _plans(
    session: Session,
    kind: str,
    buffer: gpu.Buffer,
    ways: list[vfd_bench.Way],
    options: str,
    states: dict[str, Callable[[DataFile], None]],
    fsync: bool,
) -> list[_Plan]:
    ranks, size = session.ranks, buffer.nbytes
    counts = range(1, ranks.size + 1)

    def of_ways(make: Callable[[vfd_bench.Way], Contestant]) -> list[Callable[[int], Contestant]]:
        return [lambda count, way=way: make(way) for way in ways]  # type: ignore[misc]

    if kind in ("write", "shared-write"):
        buffer.fill_with_noise()
        end = "on the medium" if fsync else "call returned"
        if kind == "write":
            path = session.own_folder / "written.h5"
            make = partial(_writing, path=path, buffer=buffer, fsync=fsync, runs=session.runs)
            return [_Plan(f"write, a file each, {end}", of_ways(make), counts)]
        file, part = _shared(session, "shared-written", size)
        made = shared.writers(ranks, file, part, buffer, options, fsync)
        makers = [lambda count, make=make: make() for make in made]
        return [_Plan(f"write, one shared file, {end}", makers, counts)]
    plans = []
    for state, brought in states.items():
        if kind == "replicated":
            file = _of_all(session, "replicated", size)
            before = partial(brought, file)
            each = shared.readers(ranks, session.folder, file, buffer, options, before)
            makers = [lambda count, make=make: make(count == 1) for make in each]
            few = sorted({1, ranks.size})
            plans.append(_Plan(f"read, all of one file each, {state}", makers, few))
            continue
        if kind == "shared-read":
            file, part = _shared(session, "shared", size)
        else:
            file = data_file(session.own_folder, size)
            part = replace(file, nbytes=size)
        owner = "one shared file" if kind == "shared-read" else "a file each"
        make = partial(
            _reading,
            file=file,
            part=part,
            buffer=buffer,
            before=partial(brought, part),
            runs=session.runs,
        )
        plans.append(_Plan(f"read, {owner}, {state}", of_ways(make), counts))
    return plans


def _writing(
    way: vfd_bench.Way, *, path: Path, buffer: gpu.Buffer, fsync: bool, runs: int
) -> Contestant:
    return vfd_bench.writing(way, path, buffer.nbytes, buffer, fsync, runs)


def _reading(
    way: vfd_bench.Way,
    *,
    file: DataFile,
    part: DataFile,
    buffer: gpu.Buffer,
    before: Callable[[], None],
    runs: int,
) -> Contestant:
    return vfd_bench.reading(way, file, part, buffer, before, runs)


def _of_all(session: Session, name: str, nbytes: int) -> DataFile:
    """Return a file in the folder of all ranks. The first rank makes it."""
    folder = session.folder / name
    if session.ranks.is_first:
        data_file(folder, nbytes)
    session.ranks.barrier()
    return data_file(folder, nbytes)


def _shared(session: Session, name: str, size: int) -> tuple[DataFile, DataFile]:
    """Return a file of all ranks, and the part of it that is this rank's."""
    ranks = session.ranks
    file = _of_all(session, name, size * ranks.size)
    return file, DataFile(file.path, file.offset + ranks.rank * size, size)


def _race(session: Session, table: Table, plan: _Plan) -> None:
    """Measure with one rank at work, with two, and so on; the others wait."""
    ranks, what = session.ranks, plan.what
    series: dict[str, list[float | None]] = {}
    alone: dict[str, Row] = {}
    for count in plan.counts:
        entered = [make(count) for make in plan.makers]
        if ranks.rank >= count:
            entered = [c if c.absent else _idle(c.name, c.setting) for c in entered]
        rows = race(session, entered, f"{what}, {count} of {ranks.size}")
        if sentence := staging.compared(rows, f"{what}, {count} of {ranks.size}"):
            session.words.append(sentence)
        for row in rows:
            series.setdefault(row.name, []).append(row.value)
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
            [Panel("", list(map(str, plan.counts)), series)],
            "lines",
        )
    )


def _idle(name: str, setting: str) -> Contestant:
    return Contestant(name, setting, 0, nothing)
