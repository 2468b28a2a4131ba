"""The tuner's race on a simulated device, whose rates are a function of the settings."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from penstock.tuning.race import DEFAULT, Outcome, RefusedError, Setting, race
from penstock.tuning.rows import ROWS, Row, grid

LARGE_READ = Row("read", "large", "cache")


def settings(row: Row = LARGE_READ, *, on_gpu: bool = True) -> list[Setting]:
    return grid(row, on_gpu=on_gpu, cores=16, gds=True, uring=True, direct=True)


def by(rate: Callable[[Setting], float], *, noise: float = 0.0, budget: float = 6.0) -> Outcome:
    """Return what a race finds whose measurements take 20 ms and have noise."""
    chance, left = random.Random(7), [budget]

    def measure(setting: Setting) -> float:
        left[0] -= 0.02
        # A machine is disturbed now and then, and never made faster.
        disturbed = bool(noise) and chance.random() < 0.05
        return rate(setting) * math.exp(chance.gauss(0, noise)) * (0.7 if disturbed else 1.0)

    found = race(settings(), measure, lambda: left[0])
    assert left[0] > -0.06, "it goes on after its time is over"
    return found


def bowl(setting: Setting) -> float:
    """Return the rate of a device that is fastest with 8 threads and blocks of 1 MiB."""
    values = dict(setting) or {"route": "staged", "threads": "12", "block": "4MiB"}
    if values["route"] != "staged":
        return 20.0
    lost = abs(int(values["threads"]) - 8) / 20 + (0.0 if values["block"] == "1MiB" else 0.1)
    return 40.0 * (1 - lost)


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.03])
def test_the_best_setting_of_the_grid_is_found(noise: float) -> None:
    found = by(bowl, noise=noise)
    assert bowl(found.best) == max(map(bowl, settings())) == 40.0


@pytest.mark.parametrize("budget", [0.0, 0.1, 0.5, 2.0])
def test_what_is_found_is_never_worse_than_the_default_however_short_the_time(
    budget: float,
) -> None:
    assert bowl(by(bowl, noise=0.03, budget=budget).best) >= bowl(DEFAULT)


def test_a_setting_that_is_no_better_beyond_the_spread_does_not_replace_the_default() -> None:
    assert by(lambda _: 10.0, noise=0.05).best == DEFAULT


def test_a_gain_that_is_small_but_steady_replaces_the_default() -> None:
    found = by(lambda setting: 10.3 if dict(setting).get("threads") == "8" else 10.0)
    assert dict(found.best)["threads"] == "8"
    assert found.duel is not None
    assert found.duel.gain == pytest.approx(0.03, abs=1e-6)


def test_settings_that_do_not_work_are_left_out_and_say_why() -> None:
    def rate(setting: Setting) -> float:
        if dict(setting).get("route") == "mapped":
            raise RefusedError("no pages can be pinned here")
        return 10.0

    failed = [trial for trial in by(rate).trials if trial.failure]
    assert failed
    assert {trial.failure for trial in failed} == {"no pages can be pinned here"}
    assert all(dict(trial.setting)["route"] == "mapped" for trial in failed)


def test_where_nothing_works_the_default_stays() -> None:
    def rate(setting: Setting) -> float:
        raise RefusedError("not here")

    found = by(rate)
    assert found.best == DEFAULT
    assert found.duel is None


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_all_settings_of_a_row_are_options_of_penstock(row: Row, on_gpu: bool) -> None:
    from penstock._options import resolve

    found = settings(row, on_gpu=on_gpu)
    assert len(set(found)) == len(found) <= 60
    for setting in found:
        resolve(dict(setting))
        if row.place == "cache":
            assert "direct" not in dict(setting)
        if row.operation == "write":
            assert dict(setting).get("route") != "mapped"
