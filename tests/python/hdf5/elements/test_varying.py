"""Lists of variable length of numbers in either byte order."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

import penstock as ps

TYPES = (">i2", "<i2", ">u4", ">f8", "<f8", ">c8")


def lists(dtype, *all_values):
    made = np.empty(len(all_values), object)
    made[:] = [np.array(values, dtype) for values in all_values]
    return made


def plain(found):
    return [plain(one) for one in found] if found.dtype.hasobject else found.tolist()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lists.h5"


@pytest.mark.parametrize("dtype", TYPES)
def test_lists_have_the_numbers_of_the_file(dtype, path):
    with ps.File(path, "w") as file:
        made = file.create_dataset("v", (4,), h5py.vlen_dtype(np.dtype(dtype)))
        made[:3] = lists(dtype, [1], [2, 3], [])
    wanted = [[1], [2, 3], [], []]
    assert plain(ps.read(f"{path}:v")) == wanted
    assert plain(ps.read_async(f"{path}:v").wait()) == wanted
    with ps.File(path) as file:
        assert plain(file["v"][...]) == wanted
        assert plain(file["v"][1]) == [2, 3]
        assert plain(file["v"][[2, 1, 1]]) == [[], [2, 3], [2, 3]]


@pytest.mark.parametrize("dtype", TYPES)
def test_lists_in_lists_fields_and_scalars_have_the_numbers_of_the_file(dtype, path):
    one = h5py.vlen_dtype(np.dtype(dtype))
    with ps.File(path, "w") as file:
        file.create_dataset("nested", (2,), h5py.vlen_dtype(one))[0] = lists(dtype, [1, 2], [3])
        fields = file.create_dataset("fields", (1,), np.dtype([("a", dtype), ("v", one)]))
        fields[0] = (7, np.array([1, 2], dtype))
        file.create_dataset("scalar", (), one)[()] = np.array([4, 5], dtype)
    with ps.File(path) as file:
        assert plain(file["nested"][...]) == [[[1, 2], [3]], []]
        assert plain(file["nested"][0]) == [[1, 2], [3]]
        assert plain(file["fields"][...]["v"]) == [[1, 2]]
        assert plain(file["fields"]["v"]) == [[1, 2]]
        assert file["fields"][0]["v"].tolist() == [1, 2]
        assert file["fields"][0]["a"] == 7
        assert file["scalar"][()].tolist() == [4, 5]
