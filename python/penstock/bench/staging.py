"""What the staging controllers of all ranks chose, and the grid to compare it with."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import penstock as ps

from .figures import Figure, Panel
from .measure import Row
from .ranks import Ranks
from .vfd import Way

MIB = 1 << 20
GRID = tuple(itertools.product((8, 10, 12, 14, 16), (1, 2, 3, 4, 8)))
"""Threads, and MiB of a block."""
_GRID_NAME = "grid"
_MOST_TICKS = 40


def grid() -> list[Way]:
    """Return a way for each setting of the grid."""
    return [
        Way(
            f"{_GRID_NAME} {threads} x {mib} MiB",
            "two slots a worker",
            ("penstock", f"mode=auto;route=staged;slots=2;threads={threads};block={mib}MiB"),
        )
        for threads, mib in GRID
    ]


def compared(rows: Sequence[Row], where: str) -> str:
    """Say how near the default, which is the first row, came to the best of the grid."""
    measured = [row for row in rows if row.name.startswith(f"{_GRID_NAME} ") and row.value]
    default = rows[0].value
    if not measured or not default:
        return ""
    best = max(measured, key=lambda row: row.value or 0.0)
    assert best.value is not None
    name = best.name.removeprefix(f"{_GRID_NAME} ")
    return (
        f"{where}: {default:.1f} GB/s by default, {default / best.value:.3f} of the best of the "
        f"grid, {name} with {best.value:.1f}."
    )


def of_all(ranks: Ranks) -> list[list[dict[str, Any]]]:
    """Return the controllers of each rank, with their windows. All ranks call it."""
    return ranks.gather(ps.describe()["staging"])


def figures(of_ranks: Sequence[Sequence[dict[str, Any]]]) -> list[Figure]:
    """Return figures of footprint and workers over the bytes that a rank has read."""
    longest: list[list[dict[str, Any]]] = [
        max((found["windows"] for found in controllers), key=len, default=[])
        for controllers in of_ranks
    ]
    count = max(map(len, longest), default=0)
    if count == 0:
        return []
    # Trials come first, so early windows are shown one by one.
    shown = [at for at in range(count) if at < _MOST_TICKS // 2 or at % (count // 20 + 1) == 0]
    leading = max(longest, key=len)
    ticks = [f"{leading[at]['moved'] / (1 << 30):.2g}" for at in shown]

    def series(value: Any) -> dict[str, list[float | None]]:
        return {
            f"rank {rank}": [value(windows[at]) if at < len(windows) else None for at in shown]
            for rank, windows in enumerate(longest)
        }

    def figure(name: str, title: str, y: str, value: Any) -> Figure:
        return Figure(
            name, title, "GiB read by a rank", y, [Panel("", ticks, series(value))], "lines"
        )

    return [
        figure(
            "staging-footprint",
            "Bytes of slots in use, two a worker",
            "MiB",
            lambda window: 2 * window["threads"] * window["block"] / MIB,
        ),
        figure("staging-workers", "Workers", "Workers", lambda window: window["threads"]),
    ]
