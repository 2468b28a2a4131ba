"""Daily work beside what people use, one line a case: the losses come first and fail the benchmark.

Both sides of a case do the same by turns, in one process, with files in the page cache. A case is
lost if Penstock has less than its floor of the peer's speed, by the clock and by CPU time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import penstock as ps
from penstock.bench.measure import Contestant, Row, WrongBytesError
from penstock.bench.tables import Table

from .daily_cases import GROUPS, Case, Groups
from .daily_gpu_cases import GPU_GROUPS
from .run import Run, benchmark

_ROUNDS = 11
_SECONDS = 3e-3
"""About the time of a run, which is as many calls as that takes."""
_MOST_CALLS = 2000


@benchmark("Daily work", size="1MiB", quick_size="1MiB", needs_gpu=False)
def daily(run: Run) -> None:
    _sweep(run, GROUPS)


@benchmark("Daily work on a GPU", size="1MiB", quick_size="1MiB")
def daily_gpu(run: Run) -> None:
    _sweep(run, GPU_GROUPS)


def _sweep(run: Run, groups: Groups) -> None:
    results: list[_Result] = []
    for group, cases in groups.items():
        with ExitStack() as files:
            for case in cases(run.folder, files):
                results.append(_race(run, group, case))
    results.sort(key=lambda one: one.share)
    table = Table("Daily work, the losses first", list(_COLUMNS))
    for one in results:
        table.add(*one.cells())
    lost = [one.ours.group for one in results if one.share < one.floor]
    run.lost += [] if run.quick else lost
    table.notes.append(f"{len(results)} cases, {len(lost)} below their floors")
    run.session.tables.append(table)


_COLUMNS = ("Group", "What", "Penstock, us", "Peer, us", "Peer", "By the clock", "By CPU", "Floor")


class _Result(NamedTuple):
    """What a case has shown."""

    ours: Row
    peer: Row
    wall: float
    """How many times as fast as the peer, by the clock."""
    cpu: float
    floor: float

    @property
    def share(self) -> float:
        return max(self.wall, self.cpu)

    def cells(self) -> tuple[Any, ...]:
        group, _, what = self.ours.group.partition(": ")
        times = (self.ours.value, self.peer.value)
        return (group, what, *times, self.peer.name, self.wall, self.cpu, self.floor)


@dataclass
class _Timed:
    """Calls of one side, with the CPU time of each run."""

    call: Callable[[], Any]
    calls: int
    cpu: list[float] = field(default_factory=list)

    def run(self) -> Any:
        began, call = time.process_time(), self.call
        for _ in range(self.calls - 1):
            call()
        found = call()
        self.cpu.append(time.process_time() - began)
        return found


def _race(run: Run, group: str, case: Case) -> _Result:
    expected = case.peer()
    calls = 1 if run.quick else _calls(case.ours)
    sides = [_Timed(case.ours, calls), _Timed(case.peer, calls)]

    def check(found: object) -> None:
        if not is_equal(found, expected):
            raise WrongBytesError(f"{case.what}: {found!r}, and not {expected!r}")

    contestants = [
        Contestant(name, "", calls, side.run, check=check)
        for name, side in zip(("Penstock", case.name), sides, strict=True)
    ]
    rows = run.race(contestants, "us", group=f"{group}: {case.what}", rounds=_ROUNDS)
    ours, peer = rows
    wall = ours.better_than(peer) or 0.0
    cpu = median(sides[1].cpu) / max(median(sides[0].cpu), 1e-9)
    return _Result(ours, peer, wall, cpu, case.floor)


def _calls(call: Callable[[], Any]) -> int:
    call()
    began = time.perf_counter()
    call()
    taken = time.perf_counter() - began
    return int(min(max(_SECONDS / max(taken, 1e-9), 1), _MOST_CALLS))


def is_equal(found: Any, expected: Any) -> bool:
    """Whether two results are the same values; one that is ``None`` is not compared."""
    if expected is None:
        return True
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and is_equal([*found.values()], [*expected.values()])
    found, expected = _on_host(found), _on_host(expected)
    if isinstance(expected, (list, tuple)):
        return all(map(is_equal, found, expected)) and len(found) == len(expected)
    if not isinstance(expected, np.ndarray):
        return bool(found == expected)
    if expected.dtype.hasobject:
        return bool(_listed(found) == _listed(expected))
    return found.shape == expected.shape and bool(np.all(found == expected))


def _on_host(array: Any) -> Any:
    if isinstance(array, ps.DeviceArray):
        return array.numpy()
    return array.cpu().numpy() if hasattr(array, "detach") else array  # a tensor of torch


def _listed(values: Any) -> Any:
    if isinstance(values, (np.ndarray, list)):
        return [_listed(value) for value in values]
    return values.tolist() if isinstance(values, np.generic) else values
