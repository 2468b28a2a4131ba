"""Libraries that are made for h5py's objects, with those of Penstock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import penstock as ps


@pytest.mark.parametrize("imports", ["penstock as ps, anndata", "anndata, penstock as ps"])
def test_anndata_reads_elements_of_groups_and_datasets(tmp_path: Path, imports: str) -> None:
    pytest.importorskip("anndata", reason="reads the elements")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        group = file.create_group("names")
        group.attrs.update({"encoding-type": "dict", "encoding-version": "0.1.0"})
        values = group.create_dataset("values", data=np.arange(5))
        values.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    code = (
        f"import {imports}; file = ps.File({str(tmp_path / 'x.h5')!r});"
        "print(anndata.io.read_elem(file['names/values']), anndata.io.read_elem(file['names']))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[0 1 2 3 4] {'values': array([0, 1, 2, 3, 4])}\n"


def test_h5netcdf_reads_a_file(tmp_path: Path) -> None:
    h5netcdf = pytest.importorskip("h5netcdf", reason="opens the file")
    with h5netcdf.File(tmp_path / "x.nc", "w") as made:
        made.dimensions = {"x": 3}
        made.create_variable("v", ("x",), data=np.arange(3))
    with ps.File(tmp_path / "x.nc") as file:
        for given in (file, file.h5py):
            with h5netcdf.File(given, "r") as opened:
                assert opened["v"][:].tolist() == [0, 1, 2]


def test_dask_reads_blocks_of_a_dataset(tmp_path: Path) -> None:
    array = pytest.importorskip("dask.array", reason="reads the elements")
    values = np.arange(60.0).reshape(6, 10)
    with ps.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", data=values, chunks=(2, 5))
        taken = array.from_array(dataset, chunks=dataset.chunks)
        assert taken.npartitions == 6
        np.testing.assert_array_equal(taken.compute(), values)


def test_a_virtual_dataset_takes_datasets_as_sources(tmp_path: Path) -> None:
    with ps.File(tmp_path / "x.h5", "w") as file:
        source = file.create_dataset("x", data=np.arange(5))
        layout = h5py.VirtualLayout((5,), source.dtype)
        layout[:] = h5py.VirtualSource(source)
        assert file.create_virtual_dataset("v", layout)[:].tolist() == [0, 1, 2, 3, 4]
