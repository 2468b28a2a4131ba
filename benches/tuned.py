"""A tuned profile beside the defaults and the best of an exhaustive sweep, row by row.

    penstock tune /data
    python -m benches.tuned /data --device 0

The sweep measures every combination of the tuner's values, or every second value of each option
where a transfer goes to the medium. The fastest few then race against the profile's options and
the defaults: all are measured by turns. A profile's options are set explicitly.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.tuning import files, profiles
from penstock.tuning.measure import AbsentError, Workers
from penstock.tuning.rows import MIB, ROWS, Row, space, text
from penstock.tuning.search import DEFAULT, RefusedError, Setting, Space

FINALISTS = 4
"""Settings of the sweep that race."""


def grid(found: Space, row: Row) -> Iterator[Setting]:
    """Return all combinations of the sweep."""
    step = 2 if row.place == "storage" else 1
    for way, axes in found.ways:
        values = [found.axes[axis][::step] for axis in axes]
        for chosen in itertools.product(*values):
            yield tuple(sorted((*way, *zip(axes, chosen, strict=True))))


def swept(
    measure: Callable[[Setting], float], settings: list[Setting], seconds: float
) -> tuple[list[Setting], int]:
    """Return the settings by falling rate, and how many were measured before the time was over."""
    end = time.monotonic() + seconds
    rates: dict[Setting, float] = {}
    for setting in settings:
        if time.monotonic() > end:
            break
        try:
            rates[setting] = max(measure(setting) for _ in range(2))
        except RefusedError:
            continue
    return sorted(rates, key=lambda setting: -rates[setting]), len(rates)


def raced(
    measure: Callable[[Setting], float], settings: list[Setting], rounds: int
) -> dict[Setting, float]:
    """Return the median rate of each setting, measured by turns."""
    rates: dict[Setting, list[float]] = {setting: [] for setting in settings}
    for number in range(rounds):
        for setting in settings if number % 2 else settings[::-1]:
            rates[setting].append(measure(setting))
    return {setting: statistics.median(found) for setting, found in rates.items()}


def parsed(options: str) -> Setting:
    """Return the options of a profile as a setting."""
    pairs = [entry.partition("=") for entry in options.split(";") if entry]
    return tuple(sorted((key, value) for key, _, value in pairs))


def profile(folder: Path, device: int) -> dict[Row, Setting]:
    """Return the settings of the profile in force; the defaults for rows that it leaves alone."""
    contents = profiles.Store.of(folder).slot(device).contents() or {}
    rows = {Row(r["operation"], r["size"], r["place"]): r for r in contents.get("rows", [])}
    return {row: parsed(rows[row]["options"]) if row in rows else DEFAULT for row in ROWS}


def compared(
    row: Row, tuned: Setting, workers: Workers, facts: dict[str, Any], given: argparse.Namespace
) -> dict[str, Any]:
    """Return the rates of one row."""
    choices = space(
        row,
        on_gpu=given.device >= 0,
        cores=facts["cpu"]["cores"],
        gds=False,
        uring=facts["io_uring"]["available"],
        direct=facts["file_system"]["direct_io"],
    )

    def measure(setting: Setting) -> float:
        return workers.run(row, setting, given.amount * MIB).rate

    settings = list(grid(choices, row))
    best, count = swept(measure, settings, given.seconds)
    racing = list(dict.fromkeys([DEFAULT, tuned, *best[:FINALISTS]]))
    rates = raced(measure, racing, given.rounds)
    winner = max(rates, key=lambda setting: rates[setting])
    return {
        "row": row.name,
        "default": rates[DEFAULT] / 1e9,
        "tuned": rates[tuned] / 1e9,
        "options": text(tuned),
        "best": rates[winner] / 1e9,
        "best_options": text(winner),
        "swept": count,
        "settings": len(settings),
    }


def main() -> None:
    """Print a table of all rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a folder of the file system that was tuned")
    parser.add_argument("--device", type=int, default=-1, help="CUDA ordinal; -1 is host memory")
    parser.add_argument("--amount", type=int, default=256, help="MiB of a large transfer")
    parser.add_argument("--seconds", type=float, default=30, help="longest sweep of a row")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each race")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE")
    given = parser.parse_args()
    facts = ps.describe(given.folder)
    tuned = profile(given.folder, given.device)
    nbytes = given.amount * MIB
    files.require_space(given.folder, nbytes)
    path = given.folder / "penstock-swept.bin"
    path.unlink(missing_ok=True)
    found = []
    print("| Row | Default, GB/s | Tuned / default | Tuned / best | Tuned options | Best | Swept |")
    print("|---|---:|---:|---:|---|---|---:|")
    try:
        files.make(path, nbytes)
        with Workers([(path, given.device)], nbytes) as workers:
            for row in ROWS:
                try:
                    result = compared(row, tuned[row], workers, facts, given)
                except AbsentError:
                    continue
                found.append(result)
                print(
                    f"| {result['row']} | {result['default']:.2f} "
                    f"| {result['tuned'] / result['default']:.3f} "
                    f"| {result['tuned'] / result['best']:.3f} "
                    f"| {result['options'] or 'default'} | {result['best_options'] or 'default'} "
                    f"| {result['swept']} of {result['settings']} |",
                    flush=True,
                )
    finally:
        path.unlink(missing_ok=True)
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
