"""A child made by fork reads and writes datasets, although its parent has used the engine."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback

import h5py
import numpy as np
import pytest

import penstock as ps

pytestmark = [
    pytest.mark.usefixtures("nothing_is_small"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

NUMBERS = np.arange(200_000, dtype="f8").reshape(500, 400)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file["plain"] = NUMBERS
        file.create_dataset("zipped", data=NUMBERS, chunks=(50, 400), compression="gzip")
    return path


def in_child(function):
    """Run a function in a child made by fork, and fail if it fails or hangs there."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            function()
            status = 0
        except BaseException:
            traceback.print_exc(file=sys.stderr)
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def used(path):
    """A file that the parent has read by the engine's workers."""
    with ps.File(path) as file:
        for name in ("plain", "zipped"):
            np.testing.assert_array_equal(file[name].read(threads=2), NUMBERS)
        yield file


@pytest.mark.parametrize("name", ["plain", "zipped"])
def test_the_child_reads_a_file_of_its_parent(used, name):
    def read():
        dataset = used[name]
        np.testing.assert_array_equal(dataset[...], NUMBERS)
        np.testing.assert_array_equal(dataset[10:20, ::3], NUMBERS[10:20, ::3])
        np.testing.assert_array_equal(dataset.read(dtype="f4"), NUMBERS.astype("f4"))
        out = np.empty((400, 500)).T
        dataset.read(out=out)
        np.testing.assert_array_equal(out, NUMBERS)
        np.testing.assert_array_equal(dataset.read_async(np.s_[3]).wait(), NUMBERS[3])
        assert sum(slab.sum() for _, slab in dataset.blocks(100)) == NUMBERS.sum()
        assert "forked" in dataset.read_async(np.s_[:9]).report.note

    in_child(read)


def test_the_child_opens_a_file_of_its_own(used, path):
    def read():
        with ps.File(path) as file:
            np.testing.assert_array_equal(file["zipped"][...], NUMBERS)
            assert "forked" in ps.last_report().note
        np.testing.assert_array_equal(ps.read(f"{path}:plain"), NUMBERS)

    in_child(read)


def test_the_child_writes_a_file_of_its_own(used, tmp_path):
    def write():
        with ps.File(tmp_path / "child.h5", "w") as file:
            file.create_dataset("x", data=NUMBERS, chunks=(50, 400), compression="gzip")
            file["x"][3] = 1
            file["x"].write_async(np.ones((2, 400)), np.s_[4:6]).wait()

    in_child(write)
    with h5py.File(tmp_path / "child.h5") as file:
        assert (file["x"][3:6] == 1).all()
        np.testing.assert_array_equal(file["x"][6:], NUMBERS[6:])


def test_the_parent_goes_on(used):
    in_child(lambda: used["zipped"][...])
    np.testing.assert_array_equal(used["zipped"].read(threads=2), NUMBERS)
    assert "forked" not in ps.last_report().note


def test_a_child_of_a_parent_that_has_not_used_the_engine_has_one(path):
    code = f"""
import os, penstock as ps
from penstock.hdf5 import small
small.LIMIT = 0
file = ps.File({str(path)!r})
child = os.fork()
if child == 0:
    file["zipped"][...]
    os._exit(7 if ps.last_report().chunks == 10 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "7", done.stderr
