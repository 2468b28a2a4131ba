"""A grid of workers and blocks, to compare the defaults of staged reads with."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from .measure import Row
from .vfd import Way

GRID = tuple(itertools.product((8, 10, 12, 14, 16), (1, 2, 3, 4, 8)))
"""Threads, and MiB of a block."""
_GRID_NAME = "grid"


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
