"""h5py's own tests, with Penstock's File, Group and Dataset in place of h5py's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

PLUGIN = "tests.hdf5.h5py_suite.shim"
ROOT = Path(__file__).parents[2]
MOST = 800
"""h5py 3.16 has about 880 tests that pass; fewer than this, and something else is wrong."""

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
    "test_vds.test_highlevel_vds.TestPercivalHighLevel::test_percival_source_from_dataset": (
        "h5py.VirtualSource takes h5py's datasets only: dataset.h5py"
    ),
    "test_vds.test_highlevel_vds.VDSUnlimitedTestCase::test_unlimited_axis": (
        "h5py.VirtualSource takes h5py's datasets only: dataset.h5py"
    ),
}
"""Tests that fail with Penstock's classes alone, with the reason."""


def outcomes(folder: Path, *options: str) -> tuple[set[str], set[str]]:
    """The names of the tests that passed and of those that failed."""
    folder.mkdir()
    results = folder / "results.xml"
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--pyargs", "h5py", "-q", "-p", "no:cacheprovider"),
            *(f"--junitxml={results}", *options),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": ":".join(paths)},
    )
    assert results.exists(), done.stdout + done.stderr
    passed, failed = set(), set()
    for case in ElementTree.parse(results).iter("testcase"):
        module = case.get("classname", "").removeprefix("h5py.tests.")
        name = f"{module.removeprefix('tests.')}::{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            failed.add(name)
        elif case.find("skipped") is None:
            passed.add(name)
    return passed, failed


@pytest.mark.host
def test_what_passes_with_h5py_passes_with_penstock_but_for_named_reasons(tmp_path):
    passed, _ = outcomes(tmp_path / "h5py")
    passed_with, failed_with = outcomes(tmp_path / "penstock", "-p", PLUGIN)
    assert len(passed) > MOST
    assert failed_with & passed <= EXPECTED.keys()
    assert passed - passed_with <= EXPECTED.keys()
    assert len(passed_with & passed) >= len(passed) - len(EXPECTED)
