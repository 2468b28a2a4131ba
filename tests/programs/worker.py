"""A process that runs programs: it reads a line for each, and answers with a line."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from .program import Program, count_operations


def run(program: Program, folder: str | None = None) -> tuple[str | None, bool]:
    """Return the failure of a program or ``None``, and whether the process can run another."""
    from penstock.hdf5 import small

    from . import alone, parallel
    from .machine import Machine, remove
    from .model import WrongError

    place = Path(tempfile.mkdtemp(dir=folder))
    if in_c := {"hdf5": alone.run, "mpi": parallel.run}.get(program.interface):
        try:
            return in_c(program, place), True
        finally:
            shutil.rmtree(place)
    limit = small.LIMIT
    if program.settings.get("small"):
        small.LIMIT = 0
    machine = Machine(program, place)
    message = None
    try:
        machine.run(program.operations)
    except WrongError as error:
        message = str(error)
    finally:
        small.LIMIT = limit
        if message is not None:
            _clean_up(machine)
        remove(place)
    return message, message is None and not machine.tainted


def _clean_up(machine: Any) -> None:
    """Release everything after a failure, so that it cannot affect the next program."""
    for entry in machine.pending:
        _quietly(entry.transfer.wait)
    machine.pending.clear()
    for file in machine.files.values():
        _quietly(machine.interface.close, file)
    machine.files.clear()
    _quietly(machine.interface.end)
    gc.collect()


def _quietly(call: Any, *arguments: Any) -> None:
    with contextlib.suppress(Exception):
        call(*arguments)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what else is printed goes elsewhere
    faulthandler.enable()
    warnings.simplefilter("ignore")
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    for line in sys.stdin:
        program = Program.from_json(line)
        message, goes_on = run(program, folder)
        answers.write(json.dumps([message, count_operations(program.operations), goes_on]) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
