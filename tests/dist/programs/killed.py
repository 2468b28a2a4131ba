"""A shared write that stops at a collective step, because a rank is killed there.

As a program, a rank kills itself. Arguments: the file, "none", a filter or "parts" (a file for each
rank), the rank, and the step.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from penstock.dist import mpi, partition
from penstock.dist.mpi.ranks import Ranks

WHOLE = np.arange(64 * 64, dtype="f4").reshape(64, 64)


def write(comm: Any, path: Path, compression: str, at_step: Callable[[], None]) -> None:
    """Write a file together, and call a function before each step."""
    agree = Ranks.agree

    def watched(self: Ranks, step: str, error: BaseException | None = None) -> None:
        at_step()
        agree(self, step, error)

    Ranks.agree = watched  # type: ignore[method-assign]
    try:
        has_parts = compression == "parts"
        plain = has_parts or compression == "none"
        keys = {} if plain else {"chunks": (8, 64), "compression": compression}
        layout = "file-per-rank" if has_parts else "shared"
        with mpi.File(path, comm, mode="w", timeout=20, layout=layout) as file:
            data = file.create("new", WHOLE.shape, "f4", **keys)
            part = partition(WHOLE.shape, data.chunks, comm.size)[comm.rank]
            data.write(WHOLE[part], part)
    finally:
        Ranks.agree = agree  # type: ignore[method-assign]


def look_at_each_step(comm: Any, folder: Path) -> None:
    """See that a rank killed at any step leaves the file of before; print the number of steps."""
    for compression in ("none", "gzip", "parts"):
        path = folder / f"{compression}.h5"
        if comm.rank == 0:
            path.write_bytes(b"before")
        comm.Barrier()
        found: list[bytes] = []
        write(
            comm, path, compression, lambda path=path, found=found: found.append(path.read_bytes())
        )
        # Before the last step, rank 0 has renamed the file, for all had written.
        assert found[:-1] == [b"before"] * (len(found) - 1)
        assert len(found) >= (8 if compression == "gzip" else 6), len(found)
        if comm.rank == 0:
            print(f"steps of {compression}: {len(found)}", flush=True)


def main() -> None:
    from mpi4py import MPI

    path, compression, victim, last = sys.argv[1:5]
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1
        if steps == int(last) and MPI.COMM_WORLD.rank == int(victim):
            os.kill(os.getpid(), signal.SIGKILL)

    write(MPI.COMM_WORLD, Path(path), compression, count)


if __name__ == "__main__":
    main()
