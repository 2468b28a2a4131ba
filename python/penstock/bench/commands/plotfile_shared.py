"""The part of `penstock bench plotfile` in which all ranks write one file a step, by MPI-IO."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace

import penstock as ps
from penstock.units import size_in_words

from .. import events, parallel, shared_plotfiles
from ..figures import Figure, Panel
from ..measure import Row, absent, no_check, race
from ..place import choose
from ..plotfiles import MEASURED
from ..session import RefusedError, Session
from ..shared_plotfiles import ITEM, Part, SharedSeries
from ..tables import Table

_COLUMNS = (
    "layout",
    "contestant",
    "memory",
    *MEASURED,
    "bound (s)",
    "elapsed / bound",
    "submit (us)",
    "longest submit (us)",
)
_DETAILS = (
    "total size (GB)",
    "total compute time (s)",
    "raw time (s)",
    "slowest (s)",
    "fastest (s)",
)
_NOTE = (
    "Raw: the time in calls of HDF5, with waits and with copies of GPU memory to the host. Bound: "
    "the longer of computing and writing for each step but the last, and the last write. Submit: "
    "the time of an H5Dwrite, median and longest."
)
_WAYS = (
    (replace(events.ALONE, name="HDF5 alone, independent"), False),
    (replace(events.ALONE, name="HDF5 alone, collective"), True),
    (replace(events.penstock(), name="Penstock, synchronous", has_events=False), True),
    (replace(events.penstock(), name="Penstock, asynchronous"), True),
    (replace(events.penstock("copy=never"), name="Penstock, asynchronous in place"), True),
)


def measure_shared(
    session: Session,
    nbytes: int,
    compute: float | None,
    steps: int,
    levels: list[int],
    has_block: bool,
) -> None:
    """Have all ranks write one file a step."""
    if session.ranks.size < 2:
        raise RefusedError("one rank shares no file: give --n_rank, or start the ranks by mpirun")
    if nbytes < ITEM * max(levels):
        raise RefusedError(f"{nbytes} bytes are less than one element for each level")
    parallel.check_mpi()
    session.name = "plotfile --shared"
    session.need_space(steps * nbytes)
    session.settings |= {"bytes": nbytes, "steps": steps}
    choose("auto", session.ranks)
    events.prepare()
    table = Table(
        f"{steps} plot files of {size_in_words(nbytes)} a rank, each written by all "
        f"{session.ranks.size} ranks, not synced",
        list(_COLUMNS),
        notes=[_NOTE],
        details=_DETAILS,
    )
    panels = []
    for name, parts in _layouts(session, nbytes, levels, has_block):
        panels.append(_measure_layout(session, table, name, parts, steps, compute))
    session.tables.append(table)
    figure = Figure("plotfile", "Observed write rate", "", "Observed rate (GB/s)", panels)
    session.figures.append(figure)


def _layouts(
    session: Session, nbytes: int, levels: list[int], has_block: bool
) -> Iterator[tuple[str, list[Part]]]:
    for count in levels:
        plural = "" if count == 1 else "s"
        yield f"AMReX, {count} level{plural}", shared_plotfiles.levels(count, nbytes, session.ranks)
    if has_block:
        yield "3-D blocks", shared_plotfiles.block(nbytes, session.ranks)


def _measure_layout(
    session: Session,
    table: Table,
    layout: str,
    parts: list[Part],
    steps: int,
    compute: float | None,
) -> Panel:
    folder = session.folder / "plotfiles"
    ways = list(_WAYS)
    if session.wants("vol-async"):
        ways += [(way, True) for way in events.peers()]
    places = [False, True] if ps.devices() else [False]
    all_series = [
        SharedSeries(way, is_collective, on_gpu, folder, parts, steps, 0.0, session.ranks)
        for on_gpu in places
        for way, is_collective in ways
    ]
    pause = _time_to_write(session, all_series) if compute is None else compute
    for series in all_series:
        series.compute = pause
    entered = [series.contestant() for series in all_series]
    if session.wants("vol-async") and not events.peers():
        why = "PENSTOCK_BENCH_CONNECTOR and PENSTOCK_BENCH_CONNECTOR_PATH must name it"
        entered.append(absent("vol-async", "event set", why))
    rows = session.race(entered, "s", group=layout)
    panel = Panel(layout, list(dict.fromkeys(row.name for row in rows)), {})
    for row, series in zip(rows, all_series, strict=True):
        observed = _add(session, table, row, series)
        panel.series.setdefault(series.memory, []).append(observed)
    return panel


def _time_to_write(session: Session, all_series: list[SharedSeries]) -> float:
    """Return the seconds in which Penstock's connector writes a step, while nothing is computed."""
    series = next(each for each in all_series if each.way.has_events)
    timed = series.contestant()
    timed.verify = no_check  # the race does that
    (row,) = race([timed], "s", rounds=1, ranks=session.ranks)
    if row.median is None:
        raise RefusedError(f"--compute is needed, since {row.name} cannot be timed: {row.error}")
    return row.median / series.steps


def _add(session: Session, table: Table, row: Row, series: SharedSeries) -> float | None:
    """Add a row to the table, and return the observed rate."""
    known = [row.group, row.name, series.memory]
    if row.median is None:
        left = len(_COLUMNS) - len(known) - 1
        table.add(*known, f"failed: {row.error}", *[None] * left)
        return None
    runs = len(row.seconds)
    total, computed = row.amount / 1e9, series.compute * (series.steps - 1)
    raw = _slowest(session, series.in_calls[-runs:])
    last = _slowest(session, series.last[-runs:])
    bound = max(series.compute, last) * (series.steps - 1) + last
    submits = [seconds for each in series.submits[-runs:] for seconds in each]
    usual = max(session.ranks.gather(statistics.median(submits)))
    longest = max(session.ranks.gather(max(submits)))
    observed = total / max(row.median - computed, 1e-9)
    table.add(
        *known,
        *(total, computed, raw, total / raw, row.median, max(row.seconds), min(row.seconds)),
        *(observed, bound, row.median / bound, usual * 1e6, longest * 1e6),
    )
    return observed


def _slowest(session: Session, runs: list[float]) -> float:
    """Return the median of the slowest rank's time in each run."""
    slowest: list[float] = list(map(max, zip(*session.ranks.gather(runs), strict=True)))
    return statistics.median(slowest)
