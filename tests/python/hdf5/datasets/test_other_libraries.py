"""Arrays of libraries of which the native module knows nothing."""

from __future__ import annotations

from array import array

import h5py
import numpy as np
import pytest

import penstock as ps


@pytest.fixture
def path(tmp_path):
    values = np.arange(1024, dtype="f4")
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["x"] = values
        file.create_dataset("c", data=values, chunks=(256,), compression="gzip")
    return tmp_path / "f.h5"


def memmap(folder):
    return np.memmap(folder / "out", "f4", "w+", shape=(1024,))


def recarray(_):
    return np.zeros(1024, "f4").view(np.recarray)


def view_of_memory(_):
    return memoryview(np.zeros(1024, "f4"))


def array_of_python(_):
    return array("f", bytes(4096))


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("name", ["x", "c"])
@pytest.mark.parametrize("make", [memmap, recarray, view_of_memory, array_of_python])
def test_any_memory_with_a_buffer_is_filled(tmp_path, path, mode, name, make):
    with ps.File(path, mode) as file:
        for read in (file[name].read, lambda **k: file[name].read_async(**k).wait()):
            out = make(tmp_path)
            assert read(out=out) is out
            np.testing.assert_array_equal(np.asarray(out), np.arange(1024))


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_new_array_of_jax_is_filled_with_a_stream_too(path, mode):
    pytest.importorskip("jax")
    with ps.File(path, mode) as file:
        for keys in ({}, {"stream": 1}, {"threads": 1}):
            found = file["x"].read(like="jax", **keys)
            np.testing.assert_array_equal(np.asarray(found), np.arange(1024))
