"""Shortens a failing program to the shortest one that still fails."""

from __future__ import annotations

import copy
import time
from typing import Any

from .program import Operation, Program
from .runner import Outcome, Worker


def shrink(outcome: Outcome, seconds: float = 20, tries: int = 8) -> Outcome:
    """Return the shortest failing program; each is tried several times, for races."""
    end = time.monotonic() + seconds
    with Worker(None, timeout=30) as worker:

        def wrong(program: Program) -> Outcome | None:
            for _ in range(tries):
                if time.monotonic() > end:
                    return None
                found = worker.run(program)
                if found.message is not None:
                    return found
            return None

        best = wrong(outcome.program)
        if best is None:
            return outcome
        step = max(len(best.program.operations) // 2, 1)
        while step:
            place = 0
            while place < len(best.program.operations):
                kept = best.program.operations[:place] + best.program.operations[place + step :]
                found = wrong(best.program.with_operations(kept))
                if found is None:
                    place += step
                else:
                    best = found
            step //= 2
        for place in range(len(best.program.operations)):
            for simpler in _simpler(best.program.operations[place]):
                operations = list(best.program.operations)
                operations[place] = simpler
                found = wrong(best.program.with_operations(operations))
                if found is not None:
                    best = found
        return best


def _simpler(operation: Operation) -> list[Operation]:
    """Return simpler forms of an operation."""
    plain: dict[str, Any] = {
        "dtype": None,
        "via": "main",
        "memory": "c",
        "repeat": "no",
        "options": {},
        "filters": [],
        "fields": None,
        "fill_time": "ifset",
        "fill_is": "defined",
        "flush": True,
        "maxshape": None,
        "alloc": "late",
        "new": False,
        "select": None,
    }
    found = []
    for key, value in plain.items():
        if (
            key in operation
            and operation[key] != value
            and not (operation["do"] == "create" and key == "dtype")
        ):
            made = copy.deepcopy(operation)
            made[key] = value
            found.append(made)
    if operation["do"] == "create":
        made = copy.deepcopy(operation)
        made["shape"] = [max(1, length // 4) for length in operation["shape"]]
        if "chunks" in made:
            made["chunks"] = [max(1, length // 4) for length in operation["chunks"]]
        found.append(made)
    return found
