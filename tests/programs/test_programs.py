"""A few of the random programs, through each door; PENSTOCK_TEST_PROGRAMS says how many in all."""

from __future__ import annotations

import os

import pytest

import penstock as ps

from .generate import generate
from .runner import default_processes, run_all

COUNT = int(os.environ.get("PENSTOCK_TEST_PROGRAMS", "300"))
SEED = int(os.environ.get("PENSTOCK_TEST_PROGRAMS_SEED", "1"))
# Files and requests meet in these; what HDF5 does alone, in h5py, shows that the model is right.
SHARES = {
    "h5py": 0.08,
    "python": 0.29,
    "c": 0.18,
    "connector": 0.15,
    "driver": 0.1,
    "two": 0.15,
    "hdf5": 0.05,
}


@pytest.mark.timeout(300 + COUNT)
@pytest.mark.parametrize("door", SHARES)
def test_programs_do_what_the_model_does(door):
    device = "both" if ps.devices() else "host"
    count = max(int(COUNT * SHARES[door]), 1)
    programs = (generate(door, SEED, number, device) for number in range(count))
    wrong = [
        f"python -m tests.programs {outcome.program.title}: {outcome.message}"
        for outcome in run_all(programs, default_processes())
        if outcome.message is not None
    ]
    assert not wrong, "\n".join(wrong)
