"""One rank comes too late to a step: the errors of the other ranks, and its own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.dist import mpi
from penstock.dist.mpi.ranks import GRACES

TIMEOUT = 3.0


def run(comm: Any, folder: Path, absent: int) -> None:
    """Leave a rank out. MPI has steps afterwards that never end, so that it cannot be finalised."""
    path = folder / "shared.h5"
    if comm.rank == 0:
        path.write_bytes(b"before")
    comm.Barrier()
    file = mpi.File(path, comm, mode="w", timeout=TIMEOUT)
    data = file.create("new", (comm.size,), "f4")
    if comm.rank != absent:
        began = time.monotonic()
        with pytest.raises(mpi.RankError, match=f"rank {absent}") as caught, file:
            data.write(np.ones(1), np.s_[comm.rank : comm.rank + 1])
        took = time.monotonic() - began
        assert caught.value.rank == absent
        assert took < TIMEOUT + GRACES * 0.5 + 2, took
        assert path.read_bytes() == b"before"
    # The other communicator works still, and by it the one that is absent waits for the others.
    comm.Barrier()
    if comm.rank == absent:
        words = f"rank {absent} did not come" if absent else "not complete within"
        began = time.monotonic()
        with pytest.raises(mpi.RankError, match=words), file:
            data.write(np.ones(1), np.s_[comm.rank : comm.rank + 1])
        assert time.monotonic() - began < 2
    # Without a duplicate of the communicator, no rank can be named.
    other = comm.Dup()
    if comm.rank != absent:
        with pytest.raises(mpi.RankError, match=r"not all ranks have come.* cannot be used again"):
            mpi.File(path, other, timeout=TIMEOUT)
    comm.Barrier()
