"""Types that NumPy takes for equal, and conversions that are kept for a dataset."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

import penstock as ps


@pytest.fixture
def path(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["text"] = np.array([b"a", b"bc"], "S10")
        file["pair"] = np.array([(1, 2.0), (3, 4.0)], [("a", "i4"), ("b", "f8")])
        file["numbers"] = np.arange(12, dtype="f4")
        layout = h5py.VirtualLayout((12,), "f4")
        layout[:] = h5py.VirtualSource(".", "numbers", (12,))
        file.create_virtual_dataset("virtual", layout)
        file["flags"] = np.ones(6, bool)
    return tmp_path / "f.h5"


def test_the_metadata_of_a_type_are_those_that_each_read_asks_for(path):
    utf8 = h5py.string_dtype("utf-8", 12)
    with ps.File(path) as file:
        for _ in range(2):
            for wanted in (np.dtype("S12"), utf8):
                found = file["text"].read(dtype=wanted).dtype
                info = h5py.check_string_dtype(found)
                assert info == h5py.check_string_dtype(wanted)


def test_a_type_that_is_no_key_is_one_for_many_datasets(path):
    wanted = [("a", "i4"), ("b", "f8")]
    with ps.File(path) as file:
        found = ps.read_many([file["pair"], file["pair"]], dtype=wanted)
        for one in found:
            assert one.tolist() == [(1, 2.0), (3, 4.0)]


def test_a_field_that_was_read_is_no_type(path):
    with ps.File(path) as file:
        assert file["pair"].read("a").tolist() == [1, 3]
        with pytest.raises((TypeError, ps.Error)):
            file["pair"].read(dtype=("a",))


@pytest.mark.parametrize("kind", ["f8", "i4", "i1", ">f4"])
def test_numbers_of_another_type_are_converted_for_a_virtual_dataset(path, kind):
    with ps.File(path, "r+") as file:
        file["virtual"].write(np.arange(100, 112).astype(kind))
        file["virtual"][2:4] = np.array([7, 8], kind)
    with h5py.File(path) as file:
        assert file["numbers"][()].tolist() == [100, 101, 7, 8, *range(104, 112)]


def test_text_for_a_virtual_dataset_of_numbers_is_refused(path):
    with ps.File(path, "r+") as file, pytest.raises(ps.IncompatibleError, match="sources"):
        file["virtual"].write(np.zeros(12, "S4"))


@pytest.mark.parametrize("kind", ["f8", "f4", bool])
@pytest.mark.parametrize("name", ["flags", "numbers"])
def test_an_array_without_elements_is_refused_for_elements(path, name, kind):
    with ps.File(path, "r+") as file:
        before = file[name][()]
        for selection in (2, np.s_[1:4]):
            with pytest.raises((TypeError, ValueError)):
                file[name].write(np.zeros((0, 3), kind), selection)
        file[name].write(np.zeros(0, kind), np.s_[1:1])
        assert file[name][()].tolist() == before.tolist()


def test_memory_of_structures_without_fields_is_refused(path):
    with ps.File(path) as file:
        with pytest.raises(ps.IncompatibleError, match="without fields"):
            file["pair"].read(out=memoryview(np.zeros(2, "V4")))
        with pytest.raises(ps.IncompatibleError, match="without fields"):
            file["pair"].read(dtype=np.dtype({"names": [], "formats": [], "itemsize": 4}))
