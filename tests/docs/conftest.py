"""Counts the examples of the manual that were executed."""

from __future__ import annotations

from collections import Counter

import pytest

EXECUTED = pytest.StashKey[int]()
SKIPPED = pytest.StashKey[Counter[str]]()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if EXECUTED not in config.stash:
        return
    skipped = config.stash[SKIPPED]
    reasons = "".join(f"; {count} not: {reason}" for reason, count in sorted(skipped.items()))
    terminalreporter.line(f"manual: {config.stash[EXECUTED]} examples executed{reasons}")
