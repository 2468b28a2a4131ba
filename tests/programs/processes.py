"""Other processes: children of fork, and readers of a file during its writes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from . import values
from .interfaces.base import TransferRequest
from .model import Expected, WrongError
from .program import Operation
from .reader import reader
from .selection import Picked
from .values import Memory

if TYPE_CHECKING:
    from pathlib import Path

    from .machine import Machine


def fork(machine: Machine, operation: Operation) -> None:
    """A child that ends at once, or that writes and reads with a library of its own."""
    path = machine.folder / f"fork{machine.count}.bin"
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = _uses(path) if operation["uses"] else 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if status:
        raise WrongError(f"the child of fork ended with status {status}")


def _uses(path: Path) -> int:
    import penstock as ps

    values = np.arange(100_003, dtype=np.uint32)
    ps.save(path, values)
    found = np.zeros_like(values)
    ps.load(path, out=found)
    ps.drain()
    return 0 if np.array_equal(found, values) else 3


def swmr(machine: Machine, operation: Operation) -> None:
    """A dataset grows, and another process reads it after each flush."""
    interface = machine.interface
    path = machine.folder / f"swmr{machine.count}.h5"
    rows, columns = operation["rows"], operation["columns"]
    file = interface.open(path, "w", libver="latest")
    plain = interface.h5py(file)
    chunks = (max(1, rows // operation["pieces"]), columns)
    filters = {"compression": 1} if operation["filtered"] else {}
    plain.create_dataset(
        "x", (rows, columns), operation["dtype"], chunks=chunks, maxshape=(None, columns), **filters
    )
    plain.swmr_mode = True
    whole = np.zeros((0, columns), operation["dtype"])
    try:
        for step, seed in enumerate(operation["seeds"]):
            if step:
                plain["x"].resize((rows * (step + 1), columns))
            new = values.make(seed, (rows, columns), operation["dtype"])
            whole = np.concatenate([whole, new])
            last = slice(rows * step, rows * (step + 1), 1)
            picked = Picked(whole.shape, [last, slice(0, columns, 1)])
            memory = Memory.holding("c", new)
            request = TransferRequest(file, "x", picked, memory, waits=operation["waits"])
            interface.write(request).wait()
            plain["x"].flush()
            target = machine.folder / "found.npy"
            way = operation.get("way", "async") if interface.penstock else "h5py"
            found = reader().read(path, "x", target, way)
            Expected(whole).check(found, "x in another process")
    finally:
        reader().close(path)
        interface.close(file)
