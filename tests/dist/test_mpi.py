"""Files that the ranks of an MPI program read and write together.

Ranks take longest to start. So four of them do all that can be done one after the other
(``programs/together.py``), and a test sees whether its part was done.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from tests.mpi_launch import ANY

PROGRAMS = Path(__file__).parent / "programs"
ABSENT = {"openmpi": 0, "mpich": 2}
"""The rank that does not come to a step: the one that calls all others, or another."""
# What a GPU changes is the same for each MPI library.
PLACES = [
    pytest.param("openmpi", "cpu"),
    pytest.param("mpich", "cpu"),
    pytest.param(ANY, "cuda", marks=pytest.mark.gpu),
]
anywhere = pytest.mark.parametrize(("mpi", "device"), PLACES, indirect=["mpi"])


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """What four ranks have printed, by MPI library and device."""
    outputs = {}

    def output(mpi, device):
        if (mpi.name, device) not in outputs:
            folder = tmp_path_factory.mktemp(f"{mpi.name}-{device}")
            process = mpi.start(PROGRAMS / "together.py", folder, device, ABSENT[mpi.name])
            outputs[mpi.name, device] = mpi.finish(process, timeout=240).output
        return outputs[mpi.name, device]

    return output


def was_done(what, output):
    assert f"done: {what}\n" in output, output


@anywhere
@pytest.mark.parametrize("group", ["shapes", "types", "filters"])
def test_what_ranks_write_is_what_h5py_reads(mpi, together, group, device):
    was_done(group, together(mpi, device))


@anywhere
def test_ranks_write_files_of_their_own_that_h5py_reads_as_one(mpi, together, device):
    was_done("files of their own", together(mpi, device))


@anywhere
def test_ranks_read_what_h5py_has_written(mpi, together, device):
    was_done("reading", together(mpi, device))


@anywhere
def test_each_rank_gets_the_array_of_which_all_have_read_a_share(mpi, together, device):
    was_done("replicated", together(mpi, device))


def test_any_number_of_ranks_will_do(mpi, together):
    was_done("three ranks and one", together(mpi, "cpu"))
    was_done("replicated on three ranks and one", together(mpi, "cpu"))


def test_an_error_on_one_rank_is_one_on_all_and_names_it(mpi, together):
    was_done("errors", together(mpi, "cpu"))


def test_ten_million_chunks_are_described_to_all_ranks_in_seconds_and_kept_once(mpi, together):
    was_done("ten million chunks", together(mpi, "cpu"))


def test_a_replicated_load_that_fails_on_one_rank_fails_on_all(mpi, together):
    was_done("errors of replicated loads", together(mpi, "cpu"))


def test_until_the_last_step_the_file_is_that_of_before(mpi, together):
    was_done("each step", together(mpi, "cpu"))


def test_a_rank_that_does_not_come_is_named_within_the_stated_time(mpi, together):
    was_done(f"rank {ABSENT[mpi.name]} is absent", together(mpi, "cpu"))


def steps_of_kills(mpi, kind, steps):
    """At which steps a rank is killed: at all in a long run."""
    if "PENSTOCK_CASES" in os.environ:
        return range(1, steps + 1)
    # Open MPI takes seconds to end what is left.
    if mpi.name == "openmpi":
        return (steps // 2, steps)
    return (2, steps // 2 + 1, steps - 1, steps) if kind == "gzip" else (steps - 1, steps)


@pytest.mark.parametrize(
    ("mpi", "kind"), [("openmpi", "gzip"), ("mpich", "gzip"), ("mpich", "parts")], indirect=["mpi"]
)
def test_a_killed_rank_ends_all_and_leaves_the_file_of_before(mpi, together, tmp_path, kind):
    steps = int(re.search(rf"steps of {kind}: (\d+)", together(mpi, "cpu"))[1])
    path = tmp_path / "shared.h5"
    with h5py.File(path, "w") as file:
        file["old"] = np.arange(100)
    before = path.read_bytes()
    for step in steps_of_kills(mpi, kind, steps):
        words = (path, kind, step % 2, step)
        done = mpi.finish(mpi.start(PROGRAMS / "killed.py", *words, ranks=2), timeout=60)
        assert done.status != 0, done.output
        if step < steps:
            assert path.read_bytes() == before, f"step {step}"
    # Before the last step all had written, so that the new file is there, and whole.
    with h5py.File(path) as file:
        assert (file["new"][()] == np.arange(64 * 64).reshape(64, 64)).all()
