"""PENSTOCK_TEST_PROGRAMS random programs, divided among the interfaces."""

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
@pytest.mark.parametrize("interface", SHARES)
def test_programs_do_what_the_model_does(interface):
    device = "both" if ps.devices() else "host"
    count = max(int(COUNT * SHARES[interface]), 1)
    programs = (generate(interface, SEED, number, device) for number in range(count))
    wrong = [
        f"python -m tests.programs {outcome.program.title}: {outcome.message}"
        for outcome in run_all(programs, default_processes())
        if outcome.message is not None
    ]
    assert not wrong, "\n".join(wrong)
