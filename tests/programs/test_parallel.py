"""A few of the random programs of MPI ranks; PENSTOCK_TEST_MPI_PROGRAMS says how many."""

from __future__ import annotations

import os

import pytest

import penstock as ps

from .generate import generate
from .runner import default_processes, run_all

COUNT = int(os.environ.get("PENSTOCK_TEST_MPI_PROGRAMS", "50"))
SEED = int(os.environ.get("PENSTOCK_TEST_PROGRAMS_SEED", "1"))


@pytest.mark.timeout(600 + 20 * COUNT)
def test_ranks_do_what_they_do_by_hdf5_alone():
    device = "both" if ps.devices() else "host"
    programs = (generate("mpi", SEED, number, device) for number in range(COUNT))
    wrong = [
        f"python -m tests.programs {outcome.program.title}: {outcome.message}"
        for outcome in run_all(programs, default_processes(), timeout=300)
        if outcome.message is not None
    ]
    assert not wrong, "\n".join(wrong)
