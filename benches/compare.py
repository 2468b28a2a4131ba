"""Compares two builds of Penstock on one machine: `python -m benches.compare NAME ...`.

The builds are in separate folders (`pip install --target`), and run alternately. Only Penstock's
own rows run. The ratio of a row is the median of the ratios of its turns, since the speed of a
machine changes more from turn to turn than within one. A row is worse if it is more than 3 % worse
in each turn. The exit status is 1 if a row is worse.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from penstock.bench.measure import DURATIONS, ONLY, OURS
from penstock.bench.tables import Table

_ALLOWED = 0.97


@dataclass
class Compared:
    """A row of a benchmark: its value in each turn of both builds."""

    unit: str
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """How many times better the new build is, in each turn."""
        pairs = zip(self.before, self.after, strict=False)
        return [b / a if self.unit in DURATIONS else a / b for b, a in pairs]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def is_worse(self) -> bool:
        return max(self.ratios) < _ALLOWED


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benches.compare", description=__doc__)
    add = parser.add_argument
    add("names", nargs="+", metavar="NAME", help="benchmarks, as of python -m benches")
    add("--before", type=Path, required=True, help="folder of the old build")
    add("--after", type=Path, required=True, help="folder of the new build")
    add("--turns", type=int, default=3, help="runs of each build, 3 by default")
    add("--dir", type=Path, required=True, help="folder for the benchmarks' files")
    add("--size", help="passed to the benchmarks")
    add("--json", type=Path, metavar="FILE", help="write the results to FILE")
    given = parser.parse_args()
    rows: dict[tuple[str, str], Compared] = {}
    for name in given.names:
        began = time.monotonic()
        seen = compare(name, given)
        print(f"### {name}\n\n{table(seen).as_markdown()}\n")
        print(f"{time.monotonic() - began:.0f} s\n", flush=True)
        rows |= {(name, what): row for what, row in seen.items()}
        if given.json:
            found = [[*key, vars(row)] for key, row in rows.items()]
            given.json.write_text(json.dumps(found, indent=1))
    worse = [f"{name}: {what}" for (name, what), row in rows.items() if row.is_worse]
    print(f"{len(rows)} rows, {len(worse)} worse" + "".join(f"\n  {row}" for row in worse))
    sys.exit(1 if worse or not rows else 0)


def compare(name: str, given: argparse.Namespace) -> dict[str, Compared]:
    """Measure both builds, and return the rows that both have."""
    rows: dict[str, Compared] = {}
    for turn in range(given.turns):
        builds = [("before", given.before), ("after", given.after)]
        # The order alternates, because each build runs with what the previous one has left behind.
        for build, folder in builds if turn % 2 == 0 else reversed(builds):
            for found in run(name, folder, given):
                what = ", ".join(filter(None, [found["group"], found["setting"]]))
                compared = rows.setdefault(what, Compared(found["unit"]))
                getattr(compared, build).append(found["value"])
    for path in given.dir.glob("hdf5-*"):
        path.unlink()
    for what, row in rows.items():
        if not (row.before and row.after):
            print(f"{name}: {what}: only one of the builds has it", file=sys.stderr)
    return {what: row for what, row in rows.items() if row.before and row.after}


def run(name: str, folder: Path, given: argparse.Namespace) -> list[dict[str, Any]]:
    search = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    with TemporaryDirectory() as results:
        file = Path(results, "result.json")
        command = [sys.executable, "-m", "benches", name]
        command += ["--dir", str(given.dir), "--json", str(file)]
        command += ["--size", given.size] if given.size else []
        environment = {**os.environ, "PYTHONPATH": search, ONLY: OURS}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            print(f"{name}, {folder}: {done.stderr.strip()[-300:]}", file=sys.stderr)
        rows = json.loads(file.read_text())["rows"] if file.exists() else []
    return [row for row in rows if row["value"] and row["name"].startswith(OURS)]


def table(rows: dict[str, Compared]) -> Table:
    made = Table("", ["What", "", "Before", "After", "After is"])
    for what, row in rows.items():
        verdict = f"{spread(row.ratios)}x" + (" **worse**" if row.is_worse else "")
        made.add(what, row.unit, spread(row.before), spread(row.after), verdict)
    return made


def spread(values: list[float]) -> str:
    """Return the median and, if there are several values, their range."""
    median, *ends = (
        f"{value:.3g}" for value in (statistics.median(values), min(values), max(values))
    )
    return f"{median} ({ends[0]}-{ends[1]})" if len(values) > 1 else median


if __name__ == "__main__":
    main()
