"""Finds the best of a few settings; independent of files and GPUs.

A measurement is a noisy rate, and costs time. The settings are measured in rounds, alternately, so
that load affects all equally; the slower half drops out after each. The last one must then beat the
default in paired measurements (a duel) by more than their spread.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

Setting = tuple[tuple[str, str], ...]
"""Options and their values, sorted by option. The empty setting is the default."""
DEFAULT: Setting = ()
LEAST_GAIN = 0.01
"""A smaller gain is treated as no gain."""
DUEL_SHARE = 0.3
"""The share of the time that is reserved for the duel."""
LEAST_PAIRS, MOST_PAIRS = 7, 49
_LEAST_NOISE = 0.01
"""The least relative spread of a pair that counts: a few pairs may agree by chance."""


class RefusedError(Exception):
    """The setting cannot be measured; the text says why."""


@dataclass
class Trial:
    """The measurements of one setting."""

    setting: Setting
    rates: list[float] = field(default_factory=list)
    failure: str = ""
    """Why the setting does not work."""

    @property
    def rate(self) -> float:
        """The median; 0 if there are no measurements or the setting does not work."""
        return statistics.median(self.rates) if self.rates and not self.failure else 0.0

    def sample(self, measure: Callable[[Setting], float]) -> None:
        if not self.failure:
            try:
                self.rates.append(measure(self.setting))
            except RefusedError as error:
                self.failure = str(error)


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

    @property
    def is_won(self) -> bool:
        """Whether the setting is better than the default by more than the spread."""
        return self.pairs >= LEAST_PAIRS and self.gain > max(LEAST_GAIN, 2.5 * self.error)

    @property
    def is_clear(self) -> bool:
        """Whether further pairs would not change the outcome."""
        least = LEAST_GAIN
        return abs(self.gain) > max(least, 3 * self.error) or 3 * self.error < least


@dataclass(frozen=True)
class Outcome:
    """The result of a race."""

    best: Setting
    """The default, unless another setting is better by more than the spread."""
    duel: Duel | None
    trials: list[Trial]


def race(
    settings: Iterable[Setting], measure: Callable[[Setting], float], left: Callable[[], float]
) -> Outcome:
    """Return the best setting.

    Args:
        settings: Those to compare with the default.
        measure: Returns the rate of a setting (greater is better), or raises
            :class:`RefusedError`.
        left: Returns the remaining seconds.
    """
    until = DUEL_SHARE * max(left(), 0.0)
    default = Trial(DEFAULT)
    default.sample(measure)
    trials = racing = [Trial(setting) for setting in settings]
    rounds = 0
    while racing and left() > until and not (len(racing) == 1 and rounds > 1):
        # The same setting is not always measured first.
        first = rounds % len(racing)
        for trial in racing[first:] + racing[:first]:
            if left() > until:
                trial.sample(measure)
        rounds += 1
        working = sorted((trial for trial in racing if trial.rate), key=lambda it: -it.rate)
        racing = working[: max(len(working) // 2, 1)]
    duel = _duel(default, racing[0], measure, left) if racing and racing[0].rate else None
    best = racing[0].setting if duel and duel.is_won else DEFAULT
    tried = [trial for trial in (default, *trials) if trial.rates or trial.failure]
    return Outcome(best, duel, tried)


def _duel(
    default: Trial, tuned: Trial, measure: Callable[[Setting], float], left: Callable[[], float]
) -> Duel | None:
    """Measure default and setting alternately until it is clear which is better."""
    pairs: list[tuple[float, float]] = []
    while True:
        for trial in (default, tuned) if len(pairs) % 2 == 0 else (tuned, default):
            trial.sample(measure)
        if default.failure or tuned.failure:
            return None
        pairs.append((default.rates[-1], tuned.rates[-1]))
        ratios = [math.log(mine / its) for its, mine in pairs]
        middle = statistics.median(ratios)
        deviation = statistics.median(abs(ratio - middle) for ratio in ratios)
        # 1.4826 turns it into the standard deviation of a normal distribution. A median has 1.2533
        # times the error of a mean.
        error = 1.2533 * max(1.4826 * deviation, _LEAST_NOISE) / math.sqrt(len(pairs))
        usual, ours = (statistics.median(rates) for rates in zip(*pairs, strict=True))
        duel = Duel(usual, ours, math.exp(middle) - 1, error, len(pairs))
        is_known = len(pairs) >= LEAST_PAIRS and duel.is_clear
        if is_known or len(pairs) == MOST_PAIRS or left() <= 0:
            return duel
