"""Selects the tests that run, and their combinations of parameters.

A test with several parameters has a case for each combination of their values. If
PENSTOCK_TEST_CASES is "each", as in `make test`, only enough cases run to include each value:
max(n, m) cases for n and m values, instead of n m; and tests marked `long` do not run. If it is
"all" or not set, all run.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import pytest

Value = tuple[str, str]
"""A parameter and one of its values."""


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect long tests, and the cases that bring no new value."""
    if os.environ.get("PENSTOCK_TEST_CASES") != "each":
        return
    cases: defaultdict[tuple[object, ...], list[pytest.Function]] = defaultdict(list)
    left_out = {item for item in items if "long" in item.keywords}
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and item not in left_out:
            cases[item.path, item.cls, item.originalname].append(item)
    left_out |= {item for group in cases.values() for item in _without_new_values(group)}
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def _without_new_values(cases: Sequence[pytest.Function]) -> Iterable[pytest.Function]:
    values = {
        case: [(name, repr(value)) for name, value in case.callspec.params.items()]
        for case in cases
    }
    chosen = choose([*values.values()])
    return (case for place, case in enumerate(cases) if place not in chosen)


def choose(cases: Sequence[Sequence[Value]]) -> set[int]:
    """Return the places of cases that together have each value.

    Each step chooses the case with the most new values. Among equals it chooses the one whose other
    values were chosen least, so that the values of short parameters take turns.
    """
    used: Counter[Value] = Counter()
    chosen: set[int] = set()

    def gain(place: int) -> tuple[int, int]:
        case = cases[place]
        return sum(value not in used for value in case), -sum(used[value] for value in case)

    while left := [place for place in range(len(cases)) if place not in chosen]:
        best = max(left, key=gain)
        if gain(best)[0] == 0:
            break
        chosen.add(best)
        used.update(cases[best])
    return chosen
