"""`penstock bench plotfile`: plot files between steps, with and without HDF5's event sets."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.units import size_in_words

from .. import events, parallel, ranks
from ..figures import Figure, Panel
from ..measure import Contestant, Row, absent
from ..options import SIZE, benchmark, numbers
from ..place import choose
from ..plotfiles import MEASURED, Series, contestant
from ..session import RefusedError, Session
from ..tables import Table
from .plotfile_shared import measure_shared

_WORKLOADS = {1: "NyX-like, single level", 3: "Castro-like, 3 levels"}


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
    if shared:
        parallel.choose(hdf5)
        measure_shared(session, nbytes, compute, steps, numbers(levels, "levels"), block)
        return
    if hdf5 or mpiexec:
        raise RefusedError("--hdf5 and --mpiexec are for --shared")
    compute = 1.0 if compute is None else compute
    if nbytes < max(numbers(levels, "levels")):
        raise RefusedError(f"{nbytes} bytes are less than one for each level")
    session.need_space(steps * nbytes)
    session.settings |= {"bytes": nbytes, "compute": compute, "steps": steps}
    choose("auto", session.ranks)
    events.prepare()
    table = Table(
        f"{steps} plot files of {size_in_words(nbytes)} a rank, {compute:g} s computed between, "
        f"{session.ranks.size} rank(s), not synced",
        [
            "workload",
            "levels",
            "contestant",
            "mode",
            *MEASURED,
        ],
    )
    panels = []
    for count in numbers(levels, "levels"):
        workload = _WORKLOADS.get(count, f"{count} levels")
        fields = [events.Field(nbytes // count) for _ in range(count)]
        all_series: list[Series] = []
        entered: list[Contestant] = []
        for way in (events.penstock(), events.ALONE, *_peers(session)):
            series = Series(way, session.own_folder / "plotfiles", fields, steps, compute)
            all_series.append(series)
            entered.append(contestant(series))
        if session.wants("vol-async") and not events.peers():
            why = "PENSTOCK_BENCH_CONNECTOR and PENSTOCK_BENCH_CONNECTOR_PATH must name it"
            entered.append(absent("vol-async", "event set", why))
        rows = session.race(entered, "s", group=workload)
        rates = {}
        for row, series in zip(rows, all_series, strict=True):
            rates[row.name] = _add(session, table, row, series, (workload, count), steps, compute)
        observed: list[float | None] = list(rates.values())
        panels.append(Panel(workload, list(rates), {"observed rate": observed}))
    session.tables.append(table)
    figure = Figure("plotfile", "Observed write rate", "", "Observed rate (GB/s)", panels)
    session.figures.append(figure)


def _peers(session: Session) -> list[events.Way]:
    return events.peers() if session.wants("vol-async") else []


def _add(
    session: Session,
    table: Table,
    row: Row,
    series: Series,
    what: tuple[str, int],
    steps: int,
    compute: float,
) -> float | None:
    """Add a row to the table, and return the observed rate."""
    if row.median is None:
        table.add(*what, row.name, f"failed: {row.error}", *[None] * 8)
        return None
    total = series.nbytes * session.ranks.size / 1e9
    computed = compute * (steps - 1)
    raw = max(session.ranks.gather(statistics.median(series.in_calls[-len(row.seconds) :])))
    observed = total / max(row.median - computed, 1e-9)
    mode = "async" if series.way.has_events else "sync"
    times = (row.median, max(row.seconds), min(row.seconds))
    table.add(*what, row.name, mode, total, computed, raw, total / raw, *times, observed)
    return observed
