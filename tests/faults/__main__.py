"""``python -m tests.faults --count 20000 --seed 1``: loads and saves with a fault in one call."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.faults.case import Case
from tests.faults.machine import BrokenPromiseError, Machine, cases, shrunk

MOST = 60  # faults of one scenario


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="cases (default 1000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", help="where files are made (default: the system's)")
    parser.add_argument("--case", help="one case, as a failure prints it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        machine = Machine(Path(folder).resolve())
        try:
            if arguments.case is not None:
                print(machine.run(Case.of(arguments.case)))
                return 0
            return many(machine, arguments.count, arguments.seed)
        finally:
            machine.close()


def many(machine: Machine, count: int, seed: int) -> int:
    done, number, wrong, met = 0, 0, 0, 0
    while done < count:
        case = None
        try:
            for case in cases(machine, seed, number, MOST)[: count - done]:
                done += 1
                met += bool(machine.run(case)["hit"])
        except BrokenPromiseError as failed:
            wrong += 1
            print(f"seed {seed}, scenario {number}: {failed}")
            if case is not None:
                simplest, message = shrunk(machine, case)
                print(f"  found as {case.text()}")
                print(f"  simplest: {message}")
                print(f"  python -m tests.faults --case '{simplest.text()}'", flush=True)
            else:
                print("  without a fault", flush=True)
                done += 1
        number += 1
    print(f"seed {seed}: {done} cases of {number} scenarios, {met} met their fault, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
