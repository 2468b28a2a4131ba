"""`penstock report` on the machine that runs the tests."""

from __future__ import annotations

import os

import h5py
import pytest


@pytest.fixture(scope="module")
def facts(penstock, tmp_path_factory):
    return penstock.json("report", tmp_path_factory.mktemp("folder"))


def test_cores_and_page_size_are_those_of_the_system(facts):
    assert 1 <= facts["cpu"]["cores"] <= (os.cpu_count() or 1)
    assert facts["memory"]["page_size"] == os.sysconf("SC_PAGE_SIZE")


def test_file_system_of_the_path_is_described(facts, tmp_path_factory):
    system = facts["file_system"]
    assert system["path"].startswith(str(tmp_path_factory.getbasetemp()))
    assert int(system["magic"], 16) > 0
    assert system["type"]
    if system["direct_io"] and system["offset_alignment"] is not None:
        alignment = system["offset_alignment"]
        assert alignment > 0
        assert alignment & (alignment - 1) == 0


def test_no_path_means_no_file_system(penstock):
    assert penstock.json("report")["file_system"] is None


def test_h5py_and_its_hdf5_are_named(facts):
    assert facts["python"]["h5py"] == h5py.version.version
    assert facts["python"]["hdf5"] == h5py.version.hdf5_version


def test_what_is_missing_comes_with_a_reason(facts):
    for library in ("cuda", "cufile", "io_uring"):
        assert facts[library]["available"] or facts[library]["reason"]
    assert (
        not facts["cufile"]["available"] or facts["cufile"]["starts"] or facts["cufile"]["reason"]
    )


def test_table_says_what_each_fact_means(penstock, tmp_path):
    shown = penstock("report", tmp_path).stdout
    for what in ("CPU", "io_uring", "CUDA driver", "cuFile", "File system", "Direct I/O", "h5py"):
        assert what in shown
    assert "What this means" in shown


def test_path_that_is_not_there_yet_is_described_by_the_folder_above_it(penstock, tmp_path):
    here = penstock.json("report", tmp_path)["file_system"]
    found = penstock.json("report", tmp_path / "absent" / "file")["file_system"]
    assert (found["type"], found["magic"]) == (here["type"], here["magic"])
    assert "absent" in found["reason"]
