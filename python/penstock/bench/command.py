"""The command line that all benchmarks share."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir

import typer

import penstock as ps
from penstock.units import parse_size

from . import figures, machine
from .figures import Figure
from .measure import ROUNDS, Row
from .result import Result, Target, markdown, targets_table


@dataclass(frozen=True)
class Plan:
    """How much a benchmark does."""

    folder: Path
    size: int
    rounds: int
    quick: bool


@dataclass
class Found:
    """The results of a benchmark."""

    rows: list[Row]
    targets: list[Target]
    screening: list[Row]
    figures: list[Figure] = field(default_factory=list)


def main(
    title: str,
    measure: Callable[[Plan], Found],
    *,
    size: str,
    quick_size: str,
    needs_gpu: bool = True,
    has_figure: bool = False,
) -> None:
    """Parse the arguments, measure, print, save and, if the benchmark ``has_figure``, draw.

    The exit status says whether Penstock worked: failures of peers and missed targets are
    results.
    """
    benchmark = Path(sys.argv[0]).stem
    parser = argparse.ArgumentParser(prog=f"python -m benches.{benchmark}", description=title)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to FILE")
    parser.add_argument("--size", type=_size, help=f"bytes to move, {size} by default")
    parser.add_argument("--quick", action="store_true", help="only check that it runs")
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path(gettempdir()) / "penstock-bench",
        help="folder for the files, on the file system to measure; kept for the next benchmark",
    )
    if has_figure:
        parser.add_argument(
            "--plot", type=_drawable, metavar="PATH", help="draw the figure: .png, .svg or .pdf"
        )
    given = parser.parse_args()
    os.environ["PENSTOCK_PROFILE"] = "off"  # compare defaults, not tuned options
    if needs_gpu and not ps.devices():
        parser.exit(2, "There is no GPU: run this on one, or under scripts/standin-gpu.\n")
    given.dir.mkdir(parents=True, exist_ok=True)
    plan = Plan(
        folder=given.dir,
        size=given.size or _size(quick_size if given.quick else size),
        rounds=1 if given.quick else ROUNDS,
        quick=given.quick,
    )
    found = measure(plan)
    result = Result(
        benchmark,
        title,
        found.rows,
        found.targets,
        machine.environment(plan.folder),
        found.screening,
        plan.quick,
        found.figures,
    )
    if given.json:
        result.save(given.json)
    if has_figure and given.plot:
        figures.draw(found.figures, given.plot, machine.in_words(result.environment))
    seen = result.as_json()
    print(markdown(seen))
    if found.targets:
        print("\n".join(targets_table([seen])) + "\n")
    broken = [row for row in found.rows if row.name.startswith("Penstock") and row.error]
    for row in broken:
        print(f"{row.name}, {row.setting}: {row.error}", file=sys.stderr)
    sys.exit(1 if broken else 0)


def _drawable(text: str) -> Path:
    path = Path(text)
    if path.suffix not in figures.FORMATS:
        raise argparse.ArgumentTypeError(f"{path} must end in one of {', '.join(figures.FORMATS)}")
    if why := figures.missing():
        raise argparse.ArgumentTypeError(why)
    return path


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except typer.BadParameter as error:
        raise argparse.ArgumentTypeError(str(error)) from None
