"""The grid of `penstock bench scaling`."""

from __future__ import annotations

from penstock.bench.commands import scaling
from penstock.bench.measure import Row


def row(name: str, rate: float) -> Row:
    return Row(name, "", "", 1e9, "GB/s", seconds=[1 / rate])


def test_the_default_is_compared_with_the_best_of_the_grid():
    rows = [row("Penstock", 45.0), row("grid 8 x 2 MiB", 40.0), row("grid 12 x 4 MiB", 50.0)]
    said = scaling.compared(rows, "read, 1 of 2")
    assert said == (
        "read, 1 of 2: 45.0 GB/s by default, 0.900 of the best of the grid, 12 x 4 MiB with 50.0."
    )
    assert scaling.compared(rows[:1], "read") == ""


def test_the_grid_names_each_setting_in_the_options_of_its_way():
    ways = scaling.explicit()
    assert len({way.name for way in ways}) == len(scaling.GRID) == 25
    assert all("threads=" in way.driver[1] and "block=" in way.driver[1] for way in ways)
