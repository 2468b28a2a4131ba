"""The installed package works: one test for each of its native parts.

`scripts/try-wheels` runs this file outside the tree, in chroots and with other page sizes. So it
uses nothing of the tree, and no package but pytest and those that Penstock requires.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import penstock as ps

FIELD = np.random.default_rng(7).integers(0, 1000, (300, 500)).astype("int32")
FILTERS = [
    {},
    {"chunks": (64, 64)},
    {"chunks": (64, 64), "compression": "gzip", "shuffle": True},
    {"chunks": (64, 64), "compression": "lzf", "fletcher32": True},
    {"chunks": (64, 64), "scaleoffset": 0},
]
PENSTOCK = [sys.executable, "-m", "penstock_command"]


def run(*command: str | Path) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def dataset(tmp_path):
    path = tmp_path / "field.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("field", data=FIELD, chunks=(64, 64), compression="gzip")
    return path


@pytest.mark.parametrize("filters", FILTERS, ids=lambda filters: "-".join(filters) or "contiguous")
def test_a_dataset_that_h5py_wrote_is_read(tmp_path, filters):
    with h5py.File(tmp_path / "field.h5", "w") as file:
        file.create_dataset("field", data=FIELD, **filters)
    with ps.File(tmp_path / "field.h5") as file:
        dataset = file["field"]
        assert np.array_equal(dataset.read(), FIELD)
        part = dataset.read(np.s_[3:290:7, 10:499], dtype="float64")
        assert np.array_equal(part, FIELD[3:290:7, 10:499])
        assert np.array_equal(dataset.read_async().wait(), FIELD)


@pytest.mark.parametrize("filters", FILTERS, ids=lambda filters: "-".join(filters) or "contiguous")
def test_h5py_reads_a_dataset_that_penstock_wrote(tmp_path, filters):
    with ps.File(tmp_path / "field.h5", "w") as file:
        file.create_dataset("field", data=FIELD, **filters)
    with h5py.File(tmp_path / "field.h5") as file:
        assert np.array_equal(file["field"][...], FIELD)


@pytest.mark.parametrize("io", ["threads", "auto"])
@pytest.mark.parametrize("direct", ["no", "auto"])
def test_bytes_around_each_end_of_a_page_are_read(tmp_path, io, direct):
    page = resource.getpagesize()
    noise = np.random.default_rng(1).integers(0, 256, 5 * page + 123, np.uint8)
    ps.save(tmp_path / "noise.bin", noise)
    for offset in (0, 1, 511, page - 1, page, page + 1, 2 * page + 4095):
        for length in (1, 4096, page - 1, page, page + 1, 2 * page):
            with ps.options(io=io, direct=direct, block="4KiB"):
                found = ps.load(tmp_path / "noise.bin", offset=offset, shape=length)
            assert np.array_equal(found, noise[offset : offset + length]), (offset, length)


def test_page_locked_memory_is_filled(tmp_path):
    ps.save(tmp_path / "field.bin", FIELD)
    found = ps.load(tmp_path / "field.bin", dtype="int32", shape=FIELD.shape, pin=True)
    assert np.array_equal(found, FIELD)


def test_the_library_has_the_page_size_of_the_system():
    assert ps.describe()["memory"]["page_size"] == os.sysconf("SC_PAGE_SIZE")


def test_an_unchanged_program_of_h5py_runs_on_the_driver(dataset, tmp_path):
    report = tmp_path / "report.json"
    code = "import sys, h5py; print(h5py.File(sys.argv[1])['field'][...].sum())"
    total = run(*PENSTOCK, "run", "--report-to", report, "--", sys.executable, "-c", code, dataset)
    assert int(total) == FIELD.sum()
    assert str(dataset) in report.read_text()


def test_an_unchanged_program_of_h5py_runs_on_the_connector(dataset):
    code = "import sys, h5py; print(h5py.File(sys.argv[1])['field'][...].sum())"
    total = run(*PENSTOCK, "run", "--async", "--", sys.executable, "-c", code, dataset)
    assert int(total) == FIELD.sum()


def test_build_systems_find_their_files():
    assert (ps.include_dir() / "penstock.h").is_file()
    assert (ps.cmake_dir() / "penstock-config.cmake").is_file()
    assert (ps.plugin_dir() / "libhdf5_vfd_penstock.so").is_file()
    assert ps.library().is_file()


def test_verify_finds_no_difference(dataset):
    assert json.loads(run(*PENSTOCK, "verify", "--json", dataset))


def test_report_shows_the_machine(tmp_path):
    found = json.loads(run(*PENSTOCK, "report", tmp_path, "--json"))
    assert found["checks"]
