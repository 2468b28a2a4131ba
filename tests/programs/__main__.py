"""python -m tests.programs: see the package."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from . import __doc__ as about
from .generate import RARE, generate
from .interfaces import NAMES
from .program import Program
from .runner import Outcome, default_processes, run_all
from .shrink import shrink


def main() -> int:
    arguments = _parser().parse_args()
    if arguments.device is None:
        arguments.device = "both" if _has_device() else "host"
    elif arguments.device != "host" and not _has_device():
        raise SystemExit("no GPU: run on one, or under scripts/standin-gpu")
    wrong: list[Outcome] = []
    programs = operations = 0
    for outcome in run_all(_programs(arguments), arguments.processes, arguments.timeout):
        programs += 1
        operations += outcome.operations
        if outcome.message is None:
            continue
        wrong.append(outcome)
        shortened = outcome
        if len(wrong) <= arguments.shrink:
            shortened = shrink(outcome, arguments.shrink_seconds)
        print(_described(outcome, shortened), flush=True)
        if len(wrong) >= arguments.stop_after:
            break
    seeds = " ".join(f"{o.program.seed}:{o.program.number}" for o in wrong) or "none"
    interface = "the file's" if arguments.program else arguments.interface
    print(
        f"interface {interface}, device {arguments.device}: "
        f"{programs} programs, {operations} operations, "
        f"{len(wrong)} wrong; seed:number of the wrong ones: {seeds}"
    )
    return 1 if wrong else 0


def _programs(arguments: argparse.Namespace) -> Iterator[Program]:
    if arguments.program:
        found = Program.from_listing(arguments.program.read_text())
        yield from (found for _ in range(arguments.repeat))
        return
    numbers = range(arguments.first, arguments.first + arguments.count)
    if arguments.only is not None:
        numbers = range(arguments.only, arguments.only + 1)
    without = frozenset(arguments.without)
    end = time.monotonic() + arguments.seconds
    for number in numbers:
        if time.monotonic() > end:
            return
        made = generate(arguments.interface, arguments.seed, number, arguments.device, without)
        yield from (made for _ in range(arguments.repeat))


def _described(outcome: Outcome, shortened: Outcome) -> str:
    program = outcome.program
    lines = [f"WRONG {program.title}: {outcome.message}"]
    if shortened is not outcome:
        lines += [
            f"  shortened: {shortened.message}",
            "  --program with these lines runs it again:",
        ]
        lines += [f"    {line}" for line in shortened.program.listing().splitlines()]
    return "\n".join(lines)


def _has_device() -> bool:
    import penstock as ps

    return bool(ps.devices())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m tests.programs", description=about, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        *("--interface", "--door"), choices=NAMES, default="python", help="default: python"
    )
    parser.add_argument("--count", type=int, default=1000, help="how many programs; 1000")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="no program starts later; no limit"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first program; 0")
    parser.add_argument("--only", type=int, help="the number of the only program")
    parser.add_argument("--program", type=Path, help="a file with a program, as it is printed")
    parser.add_argument("--repeat", type=int, default=1, help="how often each program is run; 1")
    parser.add_argument(
        "--device", choices=("host", "gpu", "both"), help="both where there is a GPU, else host"
    )
    parser.add_argument("--processes", type=int, default=default_processes())
    parser.add_argument("--timeout", type=float, default=60, help="seconds a program; 60")
    parser.add_argument("--shrink", type=int, default=3, help="how many are shortened; 3")
    parser.add_argument("--shrink-seconds", type=float, default=20, help="time for each; 20")
    parser.add_argument(
        "--stop-after", type=int, default=200, help="stop after this many wrong programs; 200"
    )
    parser.add_argument(
        "--without", action="append", default=[], choices=RARE, help="kinds to leave out"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
