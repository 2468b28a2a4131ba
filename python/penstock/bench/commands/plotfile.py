"""`penstock bench plotfile`: plot files between steps, with and without HDF5's event sets."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import penstock as ps
from penstock.units import size_in_words

from .. import events, parallel, plotfiles, ranks
from ..figures import Figure, Panel
from ..measure import Row, absent, no_check, race
from ..options import SIZE, benchmark, numbers
from ..place import choose
from ..plotfiles import ITEM, Part, Series
from ..session import RefusedError, Session
from ..tables import Table, columns

_MEASURED = (
    "total size (GB)|total compute time (s)|raw time (s)|raw rate (GB/s)|elapsed time (s)|"
    "slowest (s)|fastest (s)|observed rate (GB/s)"
)
_ALONE = columns(f"workload|levels|contestant|mode|{_MEASURED}")
_SHARED = columns(
    f"layout|contestant|memory|{_MEASURED}|bound (s)|elapsed / bound|submit (us)|"
    "longest submit (us)"
)
_DETAILS = tuple(_SHARED[at] for at in (3, 4, 5, 8, 9))
_NOTE = (
    "Raw: the time in calls of HDF5, with waits and with copies of GPU memory to the host. Bound: "
    "the longer of computing and writing for each step but the last, and the last write. Submit: "
    "the time of an H5Dwrite, median and longest."
)
_WORKLOADS = {1: "NyX-like, single level", 3: "Castro-like, 3 levels"}
_WAYS = (
    (replace(events.ALONE, name="HDF5 alone, independent"), False),
    (replace(events.ALONE, name="HDF5 alone, collective"), True),
    (replace(events.penstock(), name="Penstock, synchronous", has_events=False), True),
    (replace(events.penstock(), name="Penstock, asynchronous"), True),
    (replace(events.penstock("copy=never"), name="Penstock, asynchronous in place"), True),
)


def _start(count: int, given: dict[str, Any]) -> int:
    if given["shared"]:
        return parallel.start(count, given["hdf5"], given["mpiexec"])
    return ranks.start(count)


@benchmark("plotfile", "Plot files between the steps of a computation", iterations=3, start=_start)
def plotfile(
    session: Session,
    nbytes: Annotated[
        int, typer.Option("--bytes", help="Bytes of each rank's plot file.", **SIZE)
    ] = 1 << 30,
    compute: Annotated[
        float | None,
        typer.Option(
            help="Seconds of computation between two files; emulated by sleeping. By default, 1; "
            "with --shared, as long as writing takes.",
            min=0,
            max=86_400,
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Plot files per run.", min=2)] = 5,
    levels: Annotated[
        str, typer.Option(help="Levels of refinement, one dataset each, as a list.")
    ] = "1,3",
    shared: Annotated[
        bool, typer.Option("--shared", help="All ranks write one file a step, by MPI-IO.")
    ] = False,
    block: Annotated[
        bool,
        typer.Option(help="With --shared, also divide an array of three dimensions into blocks."),
    ] = True,
    hdf5: Annotated[
        Path | None,
        typer.Option(
            help="With --shared, the prefix of an HDF5 that is built with MPI; by default, the "
            "library that PENSTOCK_BENCH_HDF5 names.",
            metavar="PATH",
        ),
    ] = None,
    mpiexec: Annotated[
        str,
        typer.Option(
            help="With --shared and --n_rank, the launcher and its options; by default, mpiexec of "
            "that HDF5's MPI.",
            metavar="COMMAND",
        ),
    ] = "",
) -> None:
    """Have each rank write its own plot files, or all ranks one, and compute between them.

    The raw rate counts the seconds in calls of HDF5, including waits; the observed rate is that of
    h5bench, bytes / (elapsed - compute x (steps - 1)).
    """
    counts = numbers(levels, "levels")
    if shared:
        parallel.choose(hdf5)
        if session.ranks.size < 2:
            raise RefusedError(
                "one rank shares no file: give --n_rank, or start the ranks by mpirun"
            )
        session.name = "plotfile --shared"
    elif hdf5 or mpiexec:
        raise RefusedError("--hdf5 and --mpiexec are for --shared")
    if nbytes < ITEM * max(counts):
        raise RefusedError(f"{nbytes} bytes are less than one element for each level")
    if shared:
        parallel.check_mpi()
    elif compute is None:
        compute = 1.0
    session.need_space(steps * nbytes)
    session.settings |= {"bytes": nbytes, "compute": compute, "steps": steps}
    choose("auto", session.ranks)
    events.prepare()
    size, count = size_in_words(nbytes), session.ranks.size
    if shared:
        title = f"{size} a rank, each written by all {count} ranks, not synced"
        table = Table(f"{steps} plot files of {title}", _SHARED, notes=[_NOTE], details=_DETAILS)
        panels = list(_of_all(session, table, nbytes, steps, compute, counts, block))
    else:
        title = f"{size} a rank, {compute:g} s computed between, {count} rank(s), not synced"
        table = Table(f"{steps} plot files of {title}", _ALONE)
        panels = list(_of_each(session, table, nbytes, steps, compute or 0.0, counts))
    session.tables.append(table)
    figure = Figure("plotfile", "Observed write rate", "", "Observed rate (GB/s)", panels)
    session.figures.append(figure)


def _of_each(
    session: Session, table: Table, nbytes: int, steps: int, compute: float, counts: list[int]
) -> Iterator[Panel]:
    """Have each rank write files of its own, for each number of levels."""
    folder, on_gpu = session.own_folder / "plotfiles", bool(ps.devices())
    for count in counts:
        parts = [replace(p, on_gpu=on_gpu) for p in plotfiles.levels(count, nbytes, ranks.Ranks())]
        ways = (events.penstock(), events.ALONE, *_peers(session))
        found = [Series(way, folder, parts, steps, compute) for way in ways]
        workload = _WORKLOADS.get(count, f"{count} levels")
        modes = ["async" if way.has_events else "sync" for way in ways]
        names = [way.name for way in ways]
        known = [(workload, count, *both) for both in zip(names, modes, strict=True)]
        observed = _race(session, table, workload, found, known)
        yield Panel(workload, names, {"observed rate": observed})


def _of_all(
    session: Session,
    table: Table,
    nbytes: int,
    steps: int,
    compute: float | None,
    counts: list[int],
    has_block: bool,
) -> Iterator[Panel]:
    """Have all ranks write one file a step, in each layout."""
    ways = [*_WAYS, *((way, True) for way in _peers(session))]
    folder = session.folder / "plotfiles"
    layouts = {
        f"AMReX, {count} level{'s' * (count > 1)}": plotfiles.levels(count, nbytes, session.ranks)
        for count in counts
    }
    if has_block:
        layouts["3-D blocks"] = plotfiles.block(nbytes, session.ranks)
    for layout, on_host in layouts.items():
        places: list[list[Part]] = [on_host]
        places += [[replace(part, on_gpu=True) for part in on_host]] if ps.devices() else []
        found = [
            Series(way, folder, parts, steps, compute or 0.0, session.ranks, is_collective)
            for parts in places
            for way, is_collective in ways
        ]
        if compute is None:
            pause = _time_to_write(session, found)
            for series in found:
                series.compute = pause
        panel = Panel(layout, list(dict.fromkeys(series.way.name for series in found)), {})
        known = [(layout, series.way.name, series.memory) for series in found]
        rates = _race(session, table, layout, found, known)
        for series, observed in zip(found, rates, strict=True):
            panel.series.setdefault(series.memory, []).append(observed)
        yield panel


def _peers(session: Session) -> list[events.Way]:
    return events.peers() if session.wants("vol-async") else []


def _race(
    session: Session,
    table: Table,
    group: str,
    found: list[Series],
    known: Sequence[tuple[str | int, ...]],
) -> list[float | None]:
    """Add a row for each series to the table, and return the observed rates."""
    is_shared = found[0].ranks.size > 1
    entered = []
    for series in found:
        usual = "event set" if series.way.has_events else "no event set"
        setting = series.memory if is_shared else series.way.setting or usual
        entered.append(series.contestant(setting, series.nbytes if is_shared else 1))
    if session.wants("vol-async") and not events.peers():
        why = "PENSTOCK_BENCH_CONNECTOR and PENSTOCK_BENCH_CONNECTOR_PATH must name it"
        entered.append(absent("vol-async", "event set", why))
    rows = session.race(entered, "s", group=group)
    rates: list[float | None] = []
    for row, series, first in zip(rows, found, known, strict=True):
        if row.median is None:
            left = len(table.columns) - len(first) - 1
            table.add(*first, f"failed: {row.error}", *[None] * left)
            rates.append(None)
            continue
        cells = _measured(session, row, series)
        table.add(*first, *(cells if is_shared else cells[:8]))
        rates.append(cells[7])
    return rates


def _measured(session: Session, row: Row, series: Series) -> list[float]:
    assert row.median is not None
    runs = len(row.seconds)
    total, computed = series.nbytes * session.ranks.size / 1e9, series.compute * (series.steps - 1)
    raw = _slowest(session, series.in_calls[-runs:])
    last = _slowest(session, series.last[-runs:])
    bound = max(series.compute, last) * (series.steps - 1) + last
    submits = [seconds for each in series.submits[-runs:] for seconds in each]
    usual = max(session.ranks.gather(statistics.median(submits)))
    longest = max(session.ranks.gather(max(submits)))
    observed = total / max(row.median - computed, 1e-9)
    seconds = (row.median, max(row.seconds), min(row.seconds))
    rest = (bound, row.median / bound, usual * 1e6, longest * 1e6)
    return [total, computed, raw, total / raw, *seconds, observed, *rest]


def _slowest(session: Session, runs: list[float]) -> float:
    """Return the median of the slowest rank's time in each run."""
    slowest: list[float] = list(map(max, zip(*session.ranks.gather(runs), strict=True)))
    return statistics.median(slowest)


def _time_to_write(session: Session, found: list[Series]) -> float:
    """Return the seconds in which Penstock's connector writes a step, while nothing is computed."""
    series = next(each for each in found if each.way.has_events)
    timed = series.contestant("")
    timed.verify = no_check  # the race does that
    (row,) = race([timed], "s", rounds=1, ranks=session.ranks)
    if row.median is None:
        raise RefusedError(f"--compute is needed, since {row.name} cannot be timed: {row.error}")
    return row.median / series.steps
