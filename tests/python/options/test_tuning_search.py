"""The tuner's search on a simulated device, whose rates are a function of the settings."""

from __future__ import annotations

import itertools
import math
import os
import random

import pytest

from penstock.tuning.rows import ROWS, Row, space
from penstock.tuning.search import DEFAULT, Outcome, RefusedError, Search, Setting, Space

LARGE_READ = Row("read", "large", "cache")
COLD_READ = Row("read", "large", "storage")
SIZES = {"KiB": 1 / 1024, "MiB": 1.0}


def mebibytes(text: str) -> float:
    return float(text[:-3]) * SIZES[text[-3:]]


class Simulated:
    """A device with a link, a processor that copies, and a cache that the slots may outgrow.

    Where the best settings lie depends on the seed; each measurement has noise, and takes time.
    """

    def __init__(self, seed: int, *, noise: float, seconds: float, budget: float) -> None:
        chance = random.Random(seed)
        self.link = chance.uniform(20, 60)
        self.copy = chance.uniform(3, 9)  # GB/s of a thread
        self.crowd = chance.uniform(0.002, 0.03)  # what each further thread costs all
        self.cache = chance.choice([24, 48, 96, 200])  # MiB in which slots are fast
        self.call = chance.uniform(0.02, 0.3)  # MiB that could be moved during one call
        self.mapped = chance.uniform(0.5, 1.1) * self.link
        self.default = {"route": "staged", "threads": "8", "block": "8MiB", "slots": "2"}
        self.noise = noise
        self.seconds = seconds
        self.left = budget
        self.count = 0
        self._chance = chance

    def rate(self, setting: Setting) -> float:
        """Without noise."""
        values = dict(setting) or self.default
        threads, block = int(values["threads"]), mebibytes(values["block"])
        if values.get("route") == "mapped":
            return self.mapped * min(1.0, 0.6 + 0.1 * threads) * block / (block + 8 * self.call)
        slots = int(values.get("slots", "2"))
        depth = 1 if values.get("io") != "uring" else math.log2(int(values["queue_depth"])) / 4
        copied = (
            threads * self.copy * depth * block / (block + self.call) / (1 + self.crowd * threads)
        )
        copied *= 1.0 if slots > 2 or block > 1 else 0.9
        outgrown = max(threads * slots * block / self.cache, 1.0)
        return 1 / (1 / copied**4 + (outgrown**0.3 / self.link) ** 4) ** 0.25

    def measure(self, setting: Setting) -> float:
        self.left -= self.seconds
        self.count += 1
        noise = self._chance.gauss(0, self.noise)
        # A machine is disturbed now and then, and never made faster.
        disturbed = self._chance.random() < 0.05
        return self.rate(setting) * math.exp(noise) * (0.7 if disturbed else 1.0)


def settings(there: Space) -> list[Setting]:
    """All of a space."""
    found = []
    for way, axes in there.ways:
        for values in itertools.product(*(there.axes[axis] for axis in axes)):
            found.append(
                tuple(sorted({**dict(way), **dict(zip(axes, values, strict=True))}.items()))
            )
    return found


def gpu_space(row: Row = LARGE_READ) -> Space:
    return space(row, on_gpu=True, cores=16, gds=False, uring=True, direct=True)


def search(device: Simulated, there: Space | None = None) -> Outcome:
    return Search(there or gpu_space(), device.measure, lambda: device.left).run()


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.03])
def test_the_best_settings_of_a_known_device_are_found_within_three_percent(noise):
    there = gpu_space()
    everything = [DEFAULT, *settings(there)]
    for seed in range(int(os.environ.get("PENSTOCK_CASES", 20))):
        device = Simulated(seed, noise=noise, seconds=0.02, budget=15.0)
        found = search(device, there)
        best = max(map(device.rate, everything))
        assert device.rate(found.best) >= 0.97 * best, (seed, found.best, device.count)


def test_far_fewer_settings_are_measured_than_there_are():
    device = Simulated(3, noise=0.01, seconds=0.02, budget=60.0)
    there = gpu_space(COLD_READ)
    found = search(device, there)
    assert len(found.trials) < len(settings(there)) / 2
    assert device.left > 30  # it ends when it finds nothing better


def test_the_search_ends_when_its_time_is_over():
    for budget in (0.0, 0.1, 0.5, 2.0):
        device = Simulated(1, noise=0.02, seconds=0.05, budget=budget)
        search(device)
        assert device.left > -3 * device.seconds


def test_what_is_found_is_never_worse_than_the_default_however_short_the_time():
    for seed, budget in itertools.product(range(40), (0.0, 0.2, 1.0)):
        device = Simulated(seed, noise=0.03, seconds=0.05, budget=budget)
        found = search(device)
        assert device.rate(found.best) >= 0.99 * device.rate(DEFAULT), (seed, budget)


def test_a_setting_that_is_no_better_beyond_the_spread_does_not_replace_the_default():
    chance = random.Random(7)
    kept = 0
    for _ in range(40):
        left = [6.0]

        def measure(setting: Setting, left: list[float] = left) -> float:
            left[0] -= 0.02
            return 10 * math.exp(chance.gauss(0, 0.05))

        kept += Search(gpu_space(), measure, lambda left=left: left[0]).run().best == DEFAULT
    assert kept >= 36


def test_a_gain_that_is_small_but_steady_replaces_the_default():
    def measure(setting: Setting) -> float:
        return 10.3 if dict(setting).get("threads") == "4" else 10.0

    left = iter(range(10_000, 0, -1))
    found = Search(gpu_space(), measure, lambda: next(left) / 100).run()
    assert dict(found.best)["threads"] == "4"
    assert found.duel is not None
    assert found.duel.gain == pytest.approx(0.03, abs=1e-6)


def test_settings_that_do_not_work_are_left_out_and_say_why():
    def measure(setting: Setting) -> float:
        if dict(setting).get("route") == "mapped":
            raise RefusedError("no pages can be pinned here")
        return 10.0

    left = iter(range(10_000, 0, -1))
    found = Search(gpu_space(), measure, lambda: next(left) / 100).run()
    failed = [trial for trial in found.trials if trial.failure]
    assert failed
    assert {trial.failure for trial in failed} == {"no pages can be pinned here"}
    assert all(dict(trial.setting)["route"] == "mapped" for trial in failed)


def test_where_nothing_works_the_default_stays():
    def measure(setting: Setting) -> float:
        raise RefusedError("not here")

    left = iter(range(10_000, 0, -1))
    found = Search(gpu_space(), measure, lambda: next(left) / 100).run()
    assert found.best == DEFAULT
    assert found.duel is None


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_all_settings_of_a_row_are_options_of_penstock(row, on_gpu):
    from penstock._options import resolve

    there = space(row, on_gpu=on_gpu, cores=16, gds=True, uring=True, direct=True)
    found = settings(there)
    assert len(set(found)) == len(found)
    for setting in found:
        resolve(dict(setting))
        if row.place == "cache":
            assert "direct" not in dict(setting)
        if row.operation == "write":
            assert dict(setting).get("route") != "mapped"
    for start in there.starts:
        assert all(start[axis] in there.axes[axis] for _, axes in there.ways for axis in axes)
