"""What is kept of the sources of a virtual dataset is true of the file that is read."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

import penstock as ps

SHAPE = (200, 50)
SETTLED = 0.2
"""Seconds after which the times of a file on a local disk tell of every further change."""


def numbers(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 50 << seed, SHAPE, dtype="i8")


def fill(path: Path, seed: int, mode: str = "w") -> None:
    with h5py.File(path, mode, locking=False) as file:
        if mode == "w":
            file.create_dataset("y", data=numbers(seed), chunks=(1, 50), compression=1)
        else:
            file["y"][...] = numbers(seed)


@pytest.fixture
def virtual(tmp_path, nothing_is_small):
    fill(tmp_path / "s.h5", 1)
    layout = h5py.VirtualLayout(SHAPE, "i8")
    layout[...] = h5py.VirtualSource("s.h5", "y", SHAPE)
    path = tmp_path / "v.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.create_virtual_dataset("x", layout, fillvalue=-1)
    return path


def settle() -> None:
    time.sleep(SETTLED)


@pytest.mark.parametrize("locking", [True, False], ids=["locked", "unlocked"])
def test_a_source_that_is_written_between_two_reads_is_seen(virtual, locking):
    source = virtual.parent / "s.h5"
    settle()
    with ps.File(virtual, locking=locking) as file:
        for seed in (1, 2, 3):
            if seed > 1:
                fill(source, seed, "r+")
            np.testing.assert_array_equal(file["x"].read(), numbers(seed))
            settle()
            np.testing.assert_array_equal(file["x"].read(), numbers(seed))


def test_a_source_that_is_replaced_between_two_reads_is_seen(virtual):
    settle()
    with ps.File(virtual) as file:
        np.testing.assert_array_equal(file["x"].read(), numbers(1))
        fill(virtual.parent / "other.h5", 2)
        os.replace(virtual.parent / "other.h5", virtual.parent / "s.h5")
        np.testing.assert_array_equal(file["x"].read(), numbers(2))


def test_a_source_is_seen_however_quickly_it_is_written_again(virtual):
    with ps.File(virtual) as file:
        for round in range(60):
            fill(virtual.parent / "s.h5", round % 5 + 1, "w" if round % 3 == 0 else "r+")
            np.testing.assert_array_equal(file["x"].read(), numbers(round % 5 + 1))


def test_a_source_that_the_program_has_open_for_writing_is_seen_before_it_is_flushed(virtual):
    settle()
    with ps.File(virtual) as file:
        np.testing.assert_array_equal(file["x"].read(), numbers(1))
        with h5py.File(virtual.parent / "s.h5", "r+") as source:
            source["y"][...] = numbers(2)
            np.testing.assert_array_equal(file["x"].read(), numbers(2))
        np.testing.assert_array_equal(file["x"].read(), numbers(2))


def test_a_source_in_the_file_of_the_virtual_dataset_is_read(tmp_path, nothing_is_small):
    path = tmp_path / "one.h5"
    fill(path, 1)
    layout = h5py.VirtualLayout(SHAPE, "i8")
    layout[...] = h5py.VirtualSource(".", "y", SHAPE)
    with h5py.File(path, "r+", libver="latest") as file:
        file.create_virtual_dataset("x", layout)
    for seed in (1, 2):
        with ps.File(path) as file:
            for _ in range(3):
                np.testing.assert_array_equal(file["x"].read(), numbers(seed))
        fill(path, 2, "r+")


def test_a_mapping_of_no_elements_is_read_as_an_empty_array(tmp_path):
    layout = h5py.VirtualLayout((0,), "i4", maxshape=(None,))
    layout[()] = h5py.VirtualSource(".", "source", shape=(5,))[0:0]
    with h5py.File(tmp_path / "v.h5", "w", libver="latest") as file:
        file["source"] = np.arange(5, dtype="i4")
        file.create_virtual_dataset("x", layout)
    with ps.File(tmp_path / "v.h5") as file:
        read = [file["x"][()], file["x"].read_async().wait(), *file.read_many(["x"])]
    assert [(one.shape, one.dtype) for one in read] == [((0,), np.dtype("i4"))] * 3


READ = """
import sys, numpy as np, penstock as ps
from penstock.hdf5 import small
small.LIMIT = 0
with ps.File(sys.argv[1]) as file:
    np.save(sys.argv[2], file["x"].read())
print(ps.last_report().route, ps.last_report().note)
"""


def test_sources_are_read_by_their_names_where_proc_is_not_mounted(virtual):
    out = virtual.parent / "out.npy"
    hide = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    if subprocess.run([*hide, "true"], check=False, capture_output=True).returncode:
        pytest.skip("/proc cannot be hidden without rights")
    read = [sys.executable, "-c", READ, virtual, out]
    done = subprocess.run([*hide, *read], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["host"]
    np.testing.assert_array_equal(np.load(out), numbers(1))


@pytest.mark.parametrize("count", [4, 200_000])
@pytest.mark.parametrize("index", ["a", ("a", slice(0, 2)), ("a", "b")], ids=str)
def test_some_fields_of_a_virtual_dataset_are_not_written(tmp_path, count, index):
    records = np.ones(count, [("a", "i4"), ("b", "f8"), ("c", "i2")])
    layout = h5py.VirtualLayout((count,), records.dtype)
    layout[:] = h5py.VirtualSource(".", "x", (count,))
    with ps.File(tmp_path / "f.h5", "w") as file:
        file["x"] = records
        file.h5py.create_virtual_dataset("v", layout)
        with pytest.raises(ps.IncompatibleError, match=r"v is virtual: .* loses"):
            file["v"][index] = 7
        np.testing.assert_array_equal(file["x"][:], records)
        file["v"][:2] = np.zeros(2, records.dtype)
        np.testing.assert_array_equal(file["x"][:2], np.zeros(2, records.dtype))
