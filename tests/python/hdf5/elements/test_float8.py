"""Floats of 8 bits: what HDF5 can describe is converted as ml_dtypes converts it."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock.hdf5 import small
from penstock.hdf5.memory_types import special_type

ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")

KINDS = ("float8_e4m3", "float8_e4m3fn", "float8_e5m2")
NUMBERS = np.array([0, 1, -1.5, 224, 320, -448, 2**-9], "f4")
"""Each is one of the numbers of each type, or, above 240, of those that have as large ones."""


@pytest.fixture(params=["small", "any size"])
def path(request, tmp_path, monkeypatch):
    if request.param == "any size":
        monkeypatch.setattr(small, "LIMIT", 0)
    return tmp_path / "f.h5"


def kind(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name))


@pytest.mark.parametrize("name", KINDS)
def test_numbers_become_what_ml_dtypes_makes_of_them(path, name):
    with h5py.File(path, "w") as file:
        file["x"] = NUMBERS
    wanted = NUMBERS.astype(kind(name)).view("u1")
    for mode in ("r", "r+"):
        with ps.File(path, mode) as file:
            out = np.zeros(len(NUMBERS), kind(name))
            file["x"].read(out=out)
            np.testing.assert_array_equal(out.view("u1"), wanted)
            out = np.zeros(len(NUMBERS), kind(name))
            file.read_many(["x"], out=[out])
            np.testing.assert_array_equal(out.view("u1"), wanted)
            found = file["x"].read_async(dtype=kind(name)).wait()
            np.testing.assert_array_equal(found.view("u1"), wanted)


@pytest.mark.parametrize("name", KINDS)
def test_every_number_is_written_as_ml_dtypes_has_it(path, name):
    numbers = np.arange(256, dtype="u1").view(kind(name))
    with ps.File(path, "w") as file:
        made = file.create_dataset("x", (256,), "f4")
        made.write(numbers)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["x"][...], numbers.astype("f4"))


@pytest.mark.parametrize("name", KINDS)
def test_bytes_of_the_same_type_stay_as_they_are(path, name):
    numbers = np.arange(256, dtype="u1").view(kind(name))
    stored = special_type(name)
    with ps.File(path, "w") as file:
        h5py.h5d.create(file.h5py.id, b"x", stored, h5py.h5s.create_simple((256,)))
        file["x"].write(numbers)
        out = np.zeros(256, kind(name))
        file["x"].read(out=out)
        np.testing.assert_array_equal(out.view("u1"), numbers.view("u1"))
