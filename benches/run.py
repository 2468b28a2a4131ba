"""A benchmark of this folder: a session of ``penstock bench`` that has targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.bench.measure import ROUNDS, Contestant, Row, shortlist
from penstock.bench.session import RefusedError, Session
from penstock.bench.tables import Table, in_words, of_rows
from penstock.units import parse_size

TARGETS = ["Target", "Wanted", "Measured", "Met"]
"""The columns of the table of targets."""


@dataclass
class Run:
    """One run of one benchmark."""

    session: Session
    size: int
    """The bytes to move."""
    quick: bool
    """Whether sizes and counts are small, only to check that the benchmark runs."""
    tried: list[Row] = field(default_factory=list)
    """The rows that are not in the table, such as those of settings that were not the best."""
    lost: list[str] = field(default_factory=list)
    """The cases that fail the benchmark, since Penstock is too slow there."""
    targets: Table = field(default_factory=lambda: Table("Targets", list(TARGETS)))

    @property
    def folder(self) -> Path:
        return self.session.folder

    def race(
        self, contestants: Iterable[Contestant], unit: str = "GB/s", *, group="", rounds=ROUNDS
    ) -> list[Row]:
        """Time contestants alternately; their rows go into the table."""
        iterations = 1 if self.quick else rounds
        return self.session.race(contestants, unit, group=group, iterations=iterations)

    def keep(self, rows: list[Row], raced: list[Row]) -> None:
        """Replace the rows of the last race in the table."""
        self.session.rows[len(self.session.rows) - len(raced) :] = rows
        self.tried += [row for row in raced if row not in rows]

    def best(self, contestants: list[Contestant], unit: str = "GB/s", **how: Any) -> list[Any]:
        """Return the fastest settings of one peer, after a single run of each."""
        best, rows = shortlist(contestants, unit, **how)
        self.tried += rows
        return best

    def target(
        self,
        text: str,
        wanted: float,
        measured: float | None,
        unit: str = "x",
        *,
        at_most: bool = False,
    ) -> None:
        """Add a target, and whether it is met: unknown if one side of a comparison failed."""
        suffix = unit if unit in ("", "x") else f" {unit}"
        bound = "at most" if at_most else "at least"
        shown, met = "failed", "not compared"
        if measured is not None:
            shown = f"{in_words(float(measured))}{suffix}"
            is_met = measured <= wanted if at_most else measured >= wanted
            met = "yes" if is_met else "**no**"
        self.targets.add(text, f"{bound} {wanted:g}{suffix}", shown, met)


@dataclass(frozen=True)
class Benchmark:
    title: str
    size: str
    quick_size: str
    needs_gpu: bool
    measure: Callable[[Run], None]

    def run(self, session: Session, size: int | None, quick: bool) -> list[str]:
        """Run the benchmark; return the cases in which Penstock is too slow."""
        if self.needs_gpu and not ps.devices():
            raise RefusedError("there is no GPU: run this on one, or under scripts/standin-gpu")
        usual = parse_size(self.quick_size if quick else self.size)
        run = Run(session, usual if size is None else size, quick)
        self.measure(run)
        session.settings |= {"size": run.size, "quick": quick}
        session.settings["tried"] = [row.as_json() for row in run.tried]
        session.tables = session.tables or [of_rows(self.title, session.rows)]
        if quick:
            session.tables[0].notes.append("Small sizes: these figures say nothing about speed.")
        session.tables += [run.targets] if run.targets.rows else []
        return run.lost


BENCHMARKS: dict[str, Benchmark] = {}
"""The benchmarks of the modules that are imported, by name."""


def benchmark(
    title: str, *, size: str, quick_size: str, needs_gpu: bool = True
) -> Callable[[Callable[[Run], None]], Callable[[Run], None]]:
    """Register a function as the benchmark of its name, with its usual and its quick size."""

    def registered(measure: Callable[[Run], None]) -> Callable[[Run], None]:
        made = Benchmark(title, size, quick_size, needs_gpu, measure)
        BENCHMARKS[measure.__name__] = made
        return measure

    return registered


def fastest(rows: list[Row], name: str) -> Row:
    """Return the best row of a contestant that takes part with several settings."""
    return max((row for row in rows if row.name == name), key=lambda row: row.value or 0)


def worst(ratios: Iterable[float | None]) -> float | None:
    """Return the least ratio; ``None`` if one side of a comparison failed."""
    found = list(ratios)
    return None if None in found else min(found, default=None)
