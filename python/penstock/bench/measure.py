"""Alternating measurements of contestants, so that load affects all equally."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from penstock.signals import raise_overlooked_signal

from .ranks import RankFailedError, Ranks

ROUNDS = 5
OURS = "Penstock"
"""The prefix of the names of Penstock's own contestants."""
OUR_MODES = ("sec2", "direct", "sec2+pinned", "direct+pinned", "posix-mt", "gds")
"""The driver modes that imitate other drivers, by their names as contestants."""
ONLY = "PENSTOCK_BENCH_ONLY"
"""The environment variable with a prefix: only contestants with this prefix run."""
LEFT_OUT = "left out"
"""The error of a contestant that does not run because of :data:`ONLY`."""
_RATES = {"GB/s": 1e9, "kIOPS": 1e3}
"""What units of rates count in a second, if it is not one."""
DURATIONS = {"us": 1e6, "s": 1.0}
"""The units in which less is better, with their number in a second."""


_ALONE = Ranks()


def nothing() -> None:
    pass


def then(*steps: Callable[[], object]) -> Callable[[], None]:
    """Return a function that calls all of these in order."""

    def run() -> None:
        for step in steps:
            step()

    return run


def no_check(_: object) -> None:
    pass


class WrongBytesError(AssertionError):
    """A transfer delivered wrong bytes."""


@dataclass(eq=False)
class Contestant:
    """One way to do a piece of work."""

    name: str
    setting: str
    amount: float
    """The bytes, operations or calls of one run, from which the row's value is computed."""
    run: Callable[[], object]
    """The timed part. Its result is freed outside the timing."""
    before: Callable[[], None] = nothing
    """Untimed, before each run: drops a cache or sets a thread count."""
    poison: Callable[[], None] = nothing
    """Untimed, before the first run: overwrites the destination, so that missing bytes show."""
    check: Callable[[object], None] = no_check
    """Untimed, after the first run, with its result: raises an error if a byte is wrong."""
    verify: Callable[[object], None] = no_check
    """Like ``check``, but after each run."""
    after: Callable[[], None] = nothing
    """Untimed, after each run."""
    detail: Callable[[], str] = str
    """Describes the last run, for the table."""
    group: str = ""
    """The group of rows that it belongs to, if a race has several."""
    absent: str = ""
    """Why it cannot run here; empty if it can."""


def absent(name: str, setting: str, why: str) -> Contestant:
    """Return the substitute for a peer that cannot run here: its row says why."""

    def run() -> None:
        raise RuntimeError(why)

    return Contestant(name, setting, 0, run, absent=why)


@dataclass
class Row:
    """The measurements of one contestant."""

    name: str
    setting: str
    group: str
    amount: float
    unit: str
    seconds: list[float] = field(default_factory=list)
    detail: str = ""
    error: str = ""
    is_wrong: bool = False
    """Whether the error is wrong bytes."""

    @property
    def full_name(self) -> str:
        return f"{self.name}, {self.setting}" if self.setting else self.name

    @property
    def median(self) -> float | None:
        return statistics.median(self.seconds) if self.seconds and not self.error else None

    @property
    def value(self) -> float | None:
        """The median in the row's unit."""
        return None if self.median is None else self._in_unit(self.median)

    @property
    def spread(self) -> tuple[float, float] | None:
        """The worst and the best run, in the row's unit."""
        if self.median is None:
            return None
        return self._in_unit(max(self.seconds)), self._in_unit(min(self.seconds))

    def _in_unit(self, seconds: float) -> float:
        if self.unit in DURATIONS:
            return seconds / self.amount * DURATIONS[self.unit]
        return self.amount / seconds / _RATES.get(self.unit, 1.0)

    def better_than(self, other: Row) -> float | None:
        """Return how many times better this row is than another one."""
        mine, theirs = self.value, other.value
        if not mine or not theirs:
            return None
        return theirs / mine if self.unit in DURATIONS else mine / theirs

    def beats(self, other: Row) -> float | None:
        """Return how many times better this row is than another one; ``None`` for itself."""
        return None if other is self else self.better_than(other)

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "value": self.value}


def race(
    contestants: Iterable[Contestant],
    unit: str,
    *,
    rounds: int = ROUNDS,
    group: str = "",
    warm_up: bool = True,
    ranks: Ranks = _ALONE,
    step: Callable[[], object] = nothing,
) -> list[Row]:
    """Warm up each contestant, then time them alternately; the first run of each is checked.

    Each round begins with the next contestant. The row of a contestant that fails has its error;
    the others continue. Ranks begin each run together. Its time is that of the slowest rank, and
    the amounts of all ranks are added up.
    """
    pairs = [(c, Row(c.name, c.setting, c.group or group, c.amount, unit)) for c in contestants]
    for contestant, row in pairs:
        if not contestant.name.startswith(os.environ.get(ONLY, "")):
            row.error = LEFT_OUT
    begin = 0 if warm_up else 1
    for number in range(begin, rounds + 1):
        first = max(number - 1, 0) % max(len(pairs), 1)
        for contestant, row in pairs[first:] + pairs[:first]:
            step()
            if row.error:
                continue
            run = _together(ranks, partial(_once, contestant, ranks, checked=number == begin))
            row.error, row.is_wrong = run.error, run.is_wrong
            if number and not run.error:
                row.seconds.append(run.seconds)
                row.detail = contestant.detail()
    for _, row in pairs:
        row.amount = sum(ranks.gather(row.amount))
    return [row for _, row in pairs]


@dataclass(frozen=True)
class _Run:
    seconds: float = 0.0
    error: str = ""
    is_wrong: bool = False


def _together(ranks: Ranks, once: Callable[[], float]) -> _Run:
    """Return the slowest run of all ranks, or a failure; wrong bytes come first."""
    try:
        run = _Run(once())
        raise_overlooked_signal()
    except RankFailedError:
        raise
    except Exception as error:
        raise_overlooked_signal()
        text = f"{type(error).__name__}: {error}".split("\n")[0][:300]
        run = _Run(error=text, is_wrong=isinstance(error, WrongBytesError))
    runs: list[_Run] = ranks.gather(run)
    return max(runs, key=lambda run: (run.is_wrong, bool(run.error), run.seconds))


def shortlist(
    contestants: list[Contestant],
    unit: str,
    *,
    keep: int = 1,
    group: str = "",
    warm_up: bool = True,
) -> tuple[list[Contestant], list[Row]]:
    """Return the fastest settings of one peer, and the rows of a single timed run of each.

    If the disk takes nearly all of the time, the run needs no warm-up. The settings found must
    still run against the others, because the best of many single runs overstates the rate. If all
    fail, the first is returned, so that its failure becomes a row.
    """
    rows = race(contestants, unit, rounds=1, group=group, warm_up=warm_up)
    ranked = sorted(
        (row.median / row.amount, index) for index, row in enumerate(rows) if row.median is not None
    )
    best = [contestants[index] for _, index in ranked[:keep]]
    return best or contestants[:1], rows


def _once(contestant: Contestant, ranks: Ranks, *, checked: bool) -> float:
    failed = None
    try:
        contestant.before()
        if checked:
            # Last, because some peers read in their preparation.
            contestant.poison()
    except Exception as error:
        raise_overlooked_signal()
        failed = error
    # All ranks gather here, even those whose preparation failed.
    ready = ranks.gather(failed is None)
    if failed:
        raise failed
    if not all(ready):
        raise RuntimeError("another rank could not be prepared")
    collecting = gc.isenabled()
    gc.disable()
    try:
        start = time.perf_counter()
        result = contestant.run()
        seconds = time.perf_counter() - start
    finally:
        if collecting:
            gc.enable()
    if checked:
        contestant.check(result)
    contestant.verify(result)
    del result
    contestant.after()
    return seconds
