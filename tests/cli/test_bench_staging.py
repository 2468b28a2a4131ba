"""What `penstock bench scaling` says about the staging controllers."""

from __future__ import annotations

import pytest

from penstock.bench import staging
from penstock.bench.measure import Row

MIB = 1 << 20


def row(name: str, rate: float) -> Row:
    return Row(name, "", "", 1e9, "GB/s", seconds=[1 / rate])


def window(moved: int, threads: int, mib: int) -> dict[str, float]:
    return {"moved": moved, "threads": threads, "block": mib * MIB, "rate": 1e9}


def test_the_default_is_compared_with_the_best_of_the_grid():
    rows = [row("Penstock", 45.0), row("grid 8 x 2 MiB", 40.0), row("grid 12 x 4 MiB", 50.0)]
    said = staging.compared(rows, "read, 1 of 2")
    assert said == (
        "read, 1 of 2: 45.0 GB/s by default, 0.900 of the best of the grid, 12 x 4 MiB with 50.0."
    )
    assert staging.compared(rows[:1], "read") == ""


def test_the_grid_names_each_setting_in_the_options_of_its_way():
    ways = staging.grid()
    assert len({way.name for way in ways}) == len(staging.GRID) == 25
    assert all("threads=" in way.driver[1] and "block=" in way.driver[1] for way in ways)


def test_figures_show_footprint_and_workers_of_each_rank():
    first = [window(96 * MIB, 10, 4), window(300 * MIB, 12, 2)]
    ranks = [[{"windows": first}], [{"windows": first[:1]}, {"windows": []}]]
    footprint, workers = staging.figures(ranks)
    assert footprint.panels[0].series == {"rank 0": [80.0, 48.0], "rank 1": [80.0, None]}
    assert workers.panels[0].series["rank 0"] == [10, 12]


@pytest.mark.parametrize("ranks", [[], [[]], [[{"windows": []}]]])
def test_there_is_no_figure_without_measurements(ranks):
    assert staging.figures(ranks) == []
