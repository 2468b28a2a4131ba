"""`penstock bench scaling`: 1 to N GPUs at once, one rank for each (figures 7 and 8)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

import penstock as ps
from penstock.units import size_in_words

from .. import gpu, shared
from .. import vfd as vfd_bench
from ..figures import Figure, Panel
from ..files import DataFile, data_file
from ..measure import Contestant, Row, nothing
from ..options import SIZE, Cache, benchmark, caches, chosen
from ..session import Session
from ..tables import Table, columns
from ..vfd import Way
from .vfd import States, prepare, race

_KINDS = ("write", "shared-write", "read", "shared-read", "replicated")
GRID = tuple(itertools.product((8, 10, 12, 14, 16), (1, 2, 3, 4, 8)))
"""Threads, and MiB of a block, to compare the defaults of staged reads with."""

Maker = Callable[[int], Contestant]
"""Makes a contestant for a number of active ranks. All ranks call it in turn."""


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
    ways = [Way("Penstock", options or "default options", ("penstock", text))]
    ways += [Way("sec2", "mode=sec2", ("penstock", "mode=sec2")), *others]
    session.settings |= {"grid": grid, "bytes": size, "options": options}
    session.settings |= {"cache": cache, "fsync": fsync}
    buffer = gpu.Buffer(size)
    devices = min(len(ps.devices()), ranks.size)
    # If ranks share a GPU, the result does not show scaling over GPUs.
    each = "GPUs" if devices == ranks.size else "Ranks"
    heading = "Contestant|Setting|GB/s together|worst|best|Share of N x one|Penstock is (x)|Detail"
    title = f"{ranks.size} rank(s) on {devices} GPU(s), {size_in_words(size)} each"
    table = Table(title, columns(f"What|{each}|{heading}"))
    for kind in asked:
        read = [*ways, *explicit()] if grid and kind in ("read", "shared-read") else ways
        for what, makers in _plans(session, kind, buffer, read, options, states, fsync):
            counts = range(1, ranks.size + 1)
            few = sorted({1, ranks.size})
            _race(session, table, what, makers, few if kind == "replicated" else counts)
    session.tables.append(table)


def explicit() -> list[Way]:
    """Return a way for each setting of the grid."""
    return [
        Way(
            f"grid {threads} x {mib} MiB",
            "two slots a worker",
            ("penstock", f"mode=auto;route=staged;slots=2;threads={threads};block={mib}MiB"),
        )
        for threads, mib in GRID
    ]


def compared(rows: Sequence[Row], where: str) -> str:
    """Say how near the default, which is the first row, came to the best of the grid."""
    measured = [row for row in rows if row.name.startswith("grid ") and row.value]
    default = rows[0].value
    if not measured or not default:
        return ""
    best = max(measured, key=lambda row: row.value or 0.0)
    assert best.value is not None
    return (
        f"{where}: {default:.1f} GB/s by default, {default / best.value:.3f} of the best of the "
        f"grid, {best.name.removeprefix('grid ')} with {best.value:.1f}."
    )


def _plans(
    session: Session,
    kind: str,
    buffer: gpu.Buffer,
    ways: list[Way],
    options: str,
    states: States,
    fsync: bool,
) -> Iterator[tuple[str, list[Maker]]]:
    """Yield measurements, each with its contestants."""
    ranks, size = session.ranks, buffer.nbytes

    def of_ways(make: Callable[[Way], Contestant]) -> list[Maker]:
        return [lambda _, way=way: make(way) for way in ways]  # type: ignore[misc]

    if kind in ("write", "shared-write"):
        buffer.fill_with_noise()
        end = "on the medium" if fsync else "call returned"
        if kind == "write":
            path = session.own_folder / "written.h5"
            write = partial(vfd_bench.writing, path=path, nbytes=size, buffer=buffer, sync=fsync)
            yield f"write, a file each, {end}", of_ways(partial(write, runs=session.runs))
        else:
            file, part = _shared(session, "shared-written", size)
            made = shared.writers(ranks, file, part, buffer, options, fsync)
            yield f"write, one shared file, {end}", [lambda _, it=it: it() for it in made]  # type: ignore[misc]
        return
    for state, bring in states.items():
        if kind == "replicated":
            file = _of_all(session, "replicated", size)
            bring_all = partial(bring, file)
            each = shared.readers(ranks, session.folder, file, buffer, options, bring_all)
            makers: list[Maker] = [lambda n, it=it: it(n == 1) for it in each]  # type: ignore[misc]
            yield f"read, all of one file each, {state}", makers
            continue
        if kind == "shared-read":
            file, part = _shared(session, "shared", size)
        else:
            file = data_file(session.own_folder, size)
            part = replace(file, nbytes=size)
        owner = "one shared file" if kind == "shared-read" else "a file each"
        read = partial(vfd_bench.reading, file=file, part=part, buffer=buffer, runs=session.runs)
        yield f"read, {owner}, {state}", of_ways(partial(read, prepare=partial(bring, part)))


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


def _race(
    session: Session, table: Table, what: str, makers: list[Maker], counts: Sequence[int]
) -> None:
    """Measure with one rank at work, with two, and so on; the others wait."""
    ranks = session.ranks
    series: dict[str, list[float | None]] = {}
    alone: dict[str, Row] = {}
    for count in counts:
        entered = [make(count) for make in makers]
        if ranks.rank >= count:
            idle = [Contestant(c.name, c.setting, 0, nothing) for c in entered]
            entered = [c if c.absent else it for c, it in zip(entered, idle, strict=True)]
        where = f"{what}, {count} of {ranks.size}"
        rows = race(session, entered, where)
        session.words += filter(None, [compared(rows, where)])
        for row in rows:
            series.setdefault(row.name, []).append(row.value)
            one = alone.setdefault(row.name, row).value
            share = row.value / (count * one) if row.value and one else None
            known = (what, count, row.name, row.setting)
            table.result(row, known, share, rows[0].beats(row))
    name = "figure-7" if what.startswith("write") else "figure-8"
    words, each = what.replace(", ", "-").replace(" ", "-"), table.columns[1]
    panel = Panel("", list(map(str, counts)), series)
    title = f"{each} at once: {what}"
    session.figures.append(
        Figure(f"{name}-{words}", title, each, "Rate of all (GB/s)", [panel], "lines")
    )
