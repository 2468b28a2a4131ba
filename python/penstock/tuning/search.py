"""Finds the best options in few measurements; independent of files and GPUs.

A measurement is a noisy rate, and costs time. Settings are compared in races: the remaining ones
are measured alternately, so that load affects all equally, and slower ones drop out. For each
way, a race between a few distant settings finds the start; from there the search varies one option
at a time, and at last all of them by one step. As long as time is left, it restarts from random
settings. The winner must then beat the default in paired measurements (a duel) by more than the
spread of both.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

Setting = tuple[tuple[str, str], ...]
"""Options and their values, sorted by option. The empty setting is the default."""

DEFAULT: Setting = ()


class RefusedError(Exception):
    """The setting cannot be measured; the text says why."""


@dataclass(frozen=True)
class Space:
    """The settings to search.

    A *way* is a set of options that belong together, such as route and mechanism. Each way has
    axes: options whose values are ordered.
    """

    ways: Sequence[tuple[Setting, Sequence[str]]]
    """The options of each way, and the names of its axes."""
    axes: dict[str, Sequence[str]]
    """The values of each axis, in order."""
    starts: Sequence[dict[str, str]]
    """Values of the axes at which the search starts."""


@dataclass
class Trial:
    """The measurements of one setting."""

    setting: Setting
    rates: list[float] = field(default_factory=list)
    rate: float = 0.0
    """The median; 0 if there are no measurements or the setting does not work."""
    failure: str = ""

    def add(self, rate: float) -> None:
        """Add a measurement."""
        self.rates.append(rate)
        self.rate = statistics.median(self.rates)

    def fail(self, why: str) -> None:
        """Record that the setting does not work."""
        self.failure = why
        self.rate = 0.0


@dataclass(frozen=True)
class Duel:
    """A comparison of a setting with the default, by paired measurements."""

    default: float
    tuned: float
    """The medians of the rates."""
    gain: float
    """The relative gain of the setting: the median over the pairs."""
    error: float
    """The standard error of the gain."""
    pairs: int


@dataclass(frozen=True)
class Outcome:
    """The result of a search."""

    best: Setting
    """The default, unless another setting is better by more than the spread."""
    duel: Duel | None
    trials: list[Trial]


@dataclass(frozen=True)
class _Point:
    """A point of the space: a way, and a value for each of its axes."""

    way: int
    values: tuple[tuple[str, str], ...]

    def moved(self, **changes: str) -> _Point:
        return _Point(self.way, tuple((k, changes.get(k, v)) for k, v in self.values))


LEAST_GAIN = 0.01
"""A smaller gain is treated as no gain."""
FINAL_SHARE, DUEL_SHARE = 0.3, 0.15
"""The shares of the time that are reserved for final and duel together, and for the duel alone."""
LEAST_PAIRS, MOST_PAIRS = 7, 49
_ROUNDS = 5
_FINALISTS, _FINAL_ROUNDS = 8, 15
_STRANGERS = 12
"""Random settings that race to be the start of a restart."""
_VAIN_STARTS = 6
"""Consecutive restarts without improvement after which the search ends."""
_USUAL_NOISE = 0.03


class Search:
    """One search, for the best setting of one kind of transfer.

    Args:
        space: The settings.
        measure: Returns the rate of a setting (greater is better), or raises
            :class:`RefusedError`.
        left: Returns the remaining seconds.
    """

    def __init__(
        self,
        space: Space,
        measure: Callable[[Setting], float],
        left: Callable[[], float],
    ) -> None:
        self._space = space
        self._measure = measure
        self._left = left
        self._trials: dict[Setting, Trial] = {}
        self._points: dict[Setting, _Point] = {}
        self._until = FINAL_SHARE * max(left(), 0.0)
        """Seconds that are reserved for later steps."""

    def run(self) -> Outcome:
        """Search until the time is over or nothing better is found."""
        self._sample(self._trials.setdefault(DEFAULT, Trial(DEFAULT)))
        best = self._best_of_ways()
        if best is not None:
            best = self._final(self._look_around(self._begin_anew(best)))
        duel = None
        if best is not None and self._setting(best) != DEFAULT:
            duel = self._duel(self._setting(best))
        won = best is not None and duel is not None and is_better(duel)
        chosen = self._setting(best) if won and best is not None else DEFAULT
        tried = [trial for trial in self._trials.values() if trial.rates or trial.failure]
        return Outcome(chosen, duel, tried)

    # -- points ------------------------------------------------------------------------------

    def _starts(self, number: int) -> list[_Point]:
        """Return the points at which the search of a way starts."""
        _, axes = self._space.ways[number]
        return [
            _Point(number, tuple((axis, start[axis]) for axis in axes))
            for start in self._space.starts
        ]

    def _everything(self) -> list[_Point]:
        return [
            _Point(number, tuple(zip(axes, values, strict=True)))
            for number, (_, axes) in enumerate(self._space.ways)
            for values in itertools.product(*(self._space.axes[axis] for axis in axes))
        ]

    def _setting(self, point: _Point) -> Setting:
        way, _ = self._space.ways[point.way]
        return tuple(sorted({**dict(way), **dict(point.values)}.items()))

    def _trial(self, point: _Point) -> Trial:
        setting = self._setting(point)
        self._points[setting] = point
        return self._trials.setdefault(setting, Trial(setting))

    def _rate(self, point: _Point) -> float:
        return self._trial(point).rate

    # -- steps -------------------------------------------------------------------------------

    def _best_of_ways(self) -> _Point | None:
        """Return the best point of all ways. The ways that look better are searched first."""
        begun = [self._race(self._starts(number)) for number in range(len(self._space.ways))]
        starts = sorted((p for p in begun if p is not None), key=self._rate, reverse=True)
        found: list[_Point] = []
        for number, start in enumerate(starts):
            until = self._until + (self._left() - self._until) * (1 - 1 / (len(starts) - number))
            found.append(self._climb(start, until))
        return self._race(found)

    def _begin_anew(self, best: _Point) -> _Point:
        """Restart from random points: single steps can end in a local optimum."""
        strangers = self._everything()
        random.Random(0).shuffle(strangers)
        vain = 0
        while vain < _VAIN_STARTS and strangers and self._has_time():
            start = self._race(strangers[:_STRANGERS], rounds=1)
            del strangers[:_STRANGERS]
            before = best
            if start is not None:
                best = self._race([best, self._climb(start, self._until)]) or best
            vain = vain + 1 if best == before else 0
        return best

    def _look_around(self, best: _Point) -> _Point:
        """Measure the neighbours of the best again: a first measurement may have been disturbed."""
        while self._has_time():
            before = best
            best = self._race([best, *self._neighbours(best)], least=3) or best
            if best == before:
                break
        return best

    def _final(self, best: _Point) -> _Point:
        """Measure the best points again and for longer: some of the rates were outliers."""
        self._until *= DUEL_SHARE / FINAL_SHARE
        ranked = sorted(self._trials.values(), key=lambda trial: trial.rate, reverse=True)
        known = [self._points[trial.setting] for trial in ranked if trial.setting in self._points]
        return self._race([best, *known[:_FINALISTS]], rounds=_FINAL_ROUNDS) or best

    def _climb(self, best: _Point, until: float) -> _Point:
        """Vary one option at a time until no value is better, then all options by one step."""
        while self._left() > until:
            before = best
            for axis, _ in best.values:
                values = self._space.axes[axis]
                best = self._race([best.moved(**{axis: value}) for value in values]) or best
            if best == before:
                best = self._race([best, *self._neighbours(best)]) or best
            if best == before:
                break
        return best

    def _neighbours(self, point: _Point) -> list[_Point]:
        """Return all points that are at most one step away on each axis."""
        steps = []
        for axis, value in point.values:
            values = self._space.axes[axis]
            at = values.index(value)
            steps.append([(axis, near) for near in values[max(at - 1, 0) : at + 2]])
        return [_Point(point.way, near) for near in itertools.product(*steps)]

    # -- races -------------------------------------------------------------------------------

    def _race(
        self, points: Iterable[_Point], rounds: int = _ROUNDS, least: int = 1
    ) -> _Point | None:
        """Return the fastest point; ``None`` if none can be measured.

        The race ends when the points differ by more than the noise, or after ``rounds`` rounds. No
        point drops out before round ``least``.
        """
        racing = list(dict.fromkeys(points))
        for number in range(rounds):
            for point in _turned(racing, number):
                if len(self._trial(point).rates) <= number and self._has_time():
                    self._sample(self._trial(point))
            racing = [p for p in racing if self._rate(p) > 0]
            if not racing:
                return None
            if number + 1 >= least:
                racing = self._still_racing(racing, number + 1)
            if len(racing) == 1 or not self._has_time():
                break
        # If several do not differ by more than the noise, take the one with the best median.
        return max(racing, key=self._rate)

    def _still_racing(self, racing: list[_Point], rounds: int) -> list[_Point]:
        leader = max(self._rate(point) for point in racing)
        # Both rates have errors: this is twice that of the difference of two means.
        margin = 2.0 * math.sqrt(2.0 / rounds) * self._noise()
        close = [p for p in racing if self._rate(p) >= leader * (1 - margin)]
        # After few rounds, more points would remain than the rates could ever separate.
        most = max(2, len(racing) // 2) if rounds > 1 else len(racing)
        return sorted(close, key=self._rate, reverse=True)[:most]

    def _noise(self) -> float:
        """Return the relative spread of one measurement, estimated over all settings."""
        squares = [
            (rate / trial.rate - 1) ** 2
            for trial in self._trials.values()
            if len(trial.rates) > 2 and trial.rate > 0
            for rate in trial.rates
        ]
        if len(squares) < 6:
            return _USUAL_NOISE
        # The median resists outliers. For a normal distribution, that of the squares is 0.455.
        return max(math.sqrt(statistics.median(squares) / 0.455), 0.002)

    def _sample(self, trial: Trial) -> None:
        if trial.failure:
            return
        try:
            trial.add(self._measure(trial.setting))
        except RefusedError as error:
            trial.fail(str(error))

    def _has_time(self) -> bool:
        return self._left() > self._until

    # -- the duel ----------------------------------------------------------------------------

    def _duel(self, setting: Setting) -> Duel | None:
        """Measure default and setting alternately until it is clear which is better."""
        default, tuned = self._trials[DEFAULT], self._trials[setting]
        ratios: list[float] = []
        pairs: list[tuple[float, float]] = []
        while len(pairs) < MOST_PAIRS and (self._left() > 0 or not pairs):
            order = (default, tuned) if len(pairs) % 2 == 0 else (tuned, default)
            for trial in order:
                self._sample(trial)
            if default.failure or tuned.failure:
                return None
            pairs.append((default.rates[-1], tuned.rates[-1]))
            ratios.append(math.log(pairs[-1][1] / pairs[-1][0]))
            duel = _judge(pairs, ratios, self._noise())
            if len(pairs) >= LEAST_PAIRS and _is_clear(duel):
                break
        return _judge(pairs, ratios, self._noise())


def is_better(duel: Duel) -> bool:
    """Whether the setting is better than the default by more than the spread."""
    return duel.pairs >= 3 and duel.gain > max(LEAST_GAIN, 2.5 * duel.error)


def _is_clear(duel: Duel) -> bool:
    return abs(duel.gain) > max(LEAST_GAIN, 3 * duel.error) or 3 * duel.error < LEAST_GAIN


def _judge(pairs: list[tuple[float, float]], ratios: list[float], noise: float) -> Duel:
    middle = statistics.median(ratios)
    deviation = statistics.median(abs(ratio - middle) for ratio in ratios)
    # 1.4826 turns it into the standard deviation of a normal distribution. A few pairs may agree by
    # chance, so the noise of all settings, for two measurements, is the lower bound.
    spread = max(1.4826 * deviation, math.sqrt(2) * noise)
    # A median has 1.2533 times the error of a mean.
    error = 1.2533 * spread / math.sqrt(len(ratios))
    return Duel(
        default=statistics.median(default for default, _ in pairs),
        tuned=statistics.median(tuned for _, tuned in pairs),
        gain=math.exp(middle) - 1,
        error=error,
        pairs=len(pairs),
    )


def _turned(points: list[_Point], number: int) -> list[_Point]:
    """Rotate the points, so that the same point is not always measured first."""
    first = number % max(len(points), 1)
    return points[first:] + points[:first]
