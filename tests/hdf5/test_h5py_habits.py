"""h5py's own tests, with Penstock's File, Group and Dataset in place of h5py's."""

from __future__ import annotations

from tests.hdf5.h5py_suite.outcomes import outcomes

PLUGIN = "tests.hdf5.h5py_suite.shim"

LISTS = "lists of indices may have any order and repeat indices"

EXPECTED = {
    "test_dataset.TestRepr::test_repr_anonymous": "the representation names Penstock",
    "test_dataset.TestRepr::test_repr_basic": "the representation names Penstock",
    "test_dataset.TestRepr::test_repr_closed": "the representation names Penstock",
    "test_dataset.TestReadDirectly::test_not_c_contiguous": "arrays may have any strides",
    "test_dataset.TestWriteDirectly::test_not_c_contiguous": "arrays may have any strides",
    "test_dataset_getitem.Test1DFloat::test_indexlist_monotonic_negative": LISTS,
    "test_dataset_getitem.Test1DFloat::test_indexlist_nonmonotonic": LISTS,
    "test_dataset_getitem.Test1DFloat::test_indexlist_repeated": LISTS,
    "test_file2.TestDealloc::test_autoclose": "an object keeps the File that it came from",
}
"""Tests that fail with Penstock's classes alone, with the reason."""


def test_what_passes_with_h5py_passes_with_penstock_but_for_named_reasons(
    passes_with_h5py, tmp_path
):
    passed_with, failed_with = outcomes(tmp_path / "penstock", "-p", PLUGIN)
    assert failed_with & passes_with_h5py <= EXPECTED.keys()
    assert passes_with_h5py - passed_with <= EXPECTED.keys()
    assert len(passed_with & passes_with_h5py) >= len(passes_with_h5py) - len(EXPECTED)
