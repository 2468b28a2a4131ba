"""Filters of plugins: those that only HDF5 has, and those that only the library has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock.hdf5.library import explain

hdf5plugin = pytest.importorskip("hdf5plugin", reason="brings the filters that h5py has not")

LENGTHS = {"small": 1000, "large": 100_000}


@pytest.fixture(params=LENGTHS)
def values(request) -> np.ndarray:
    return (np.arange(LENGTHS[request.param]) % 1000).astype("i4")


def stored(path: Path, values: np.ndarray, **filters: object) -> Path:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values, chunks=(len(values) // 4,), **filters)
    return path


@pytest.mark.parametrize(
    "filters",
    [
        hdf5plugin.Blosc(cname="snappy"),
        hdf5plugin.Blosc2(cname="lz4", filters=hdf5plugin.Blosc2.TRUNC_PREC),
        hdf5plugin.BZip2(),
    ],
    ids=["snappy", "truncated", "bzip2"],
)
def test_hdf5_decodes_and_encodes_what_only_a_plugin_can(tmp_path, values, filters):
    path = stored(tmp_path / "f.h5", values, **filters)
    with ps.File(path, "r+") as file:
        np.testing.assert_array_equal(file["x"][...], values)
        np.testing.assert_array_equal(file["x"].read_async().wait(), values)
        file["x"][5:-5] = values[10:]
        file["x"].write_async(values[:7], np.s_[:7]).wait()
    values[5:-5] = values[10:].copy()
    values[:7] = np.arange(7)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["x"][...], values)


_WITHOUT_PLUGINS = """
import sys
import numpy as np
import penstock as ps
from penstock.hdf5.library import explain

with ps.File(sys.argv[1], "r+") as file:
    dataset = file["x"]
    {}
"""


def without_plugins(path: Path, program: str) -> str:
    # netCDF4 names its folder of plugins there when it is imported.
    environment = {key: value for key, value in os.environ.items() if key != "HDF5_PLUGIN_PATH"}
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_PLUGINS.format(program), path],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stderr + done.stdout


_READS = """
    for read in (
        lambda: dataset[...],
        lambda: dataset[3],
        lambda: dataset.read_async().wait(),
        lambda: ps.read_many([dataset]),
    ):
        try:
            read()
        except OSError as error:
            print(error)
"""


@pytest.mark.parametrize(
    ("filters", "number"),
    [(hdf5plugin.Blosc(cname="snappy"), 32001), (hdf5plugin.BZip2(), 307)],
    ids=["snappy", "bzip2"],
)
def test_a_missing_plugin_is_named(tmp_path, values, filters, number):
    path = stored(tmp_path / "f.h5", values, **filters)
    failures = without_plugins(path, _READS).splitlines()
    assert len(failures) == 4
    for failure in failures:
        assert f"HDF5 lacks filter {number}" in failure
        assert "install hdf5plugin and import it" in failure
        assert "damaged" not in failure


def test_the_library_decodes_without_plugins_at_every_size(tmp_path, values):
    path = stored(tmp_path / "f.h5", values, **hdf5plugin.Blosc(cname="zstd"))
    program = (
        "print(dataset[...].sum(), dataset[3], dataset[[5, 1]], dataset.astype('f4')[2], "
        "dataset.read(np.s_[:4], out=np.zeros(4, 'i4')), next(iter(dataset)))"
    )
    expected = f"{values.sum()} 3 [5 1] 2.0 [0 1 2 3] 0"
    assert without_plugins(path, program).strip() == expected


def test_the_library_encodes_without_plugins_at_every_size(tmp_path, values):
    path = stored(tmp_path / "f.h5", values, **hdf5plugin.Zstd())
    assert without_plugins(path, "dataset[3:5] = 7") == ""
    values[3:5] = 7
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["x"][...], values)


def test_an_error_of_a_dataset_without_known_filters_stays_as_it_is(tmp_path):
    with h5py.File(tmp_path / "f.h5", "w") as file:
        dataset = file.create_dataset("x", (5,), "f4")
    explain(dataset, OSError("cannot read"))
