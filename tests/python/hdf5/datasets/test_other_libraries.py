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


def test_h5netcdf_says_to_give_the_file_of_h5py(tmp_path: Path) -> None:
    h5netcdf = pytest.importorskip("h5netcdf", reason="opens the file")
    with h5netcdf.File(tmp_path / "x.nc", "w") as made:
        made.dimensions = {"x": 3}
        made.create_variable("v", ("x",), data=np.arange(3))
    with ps.File(tmp_path / "x.nc") as file:
        with pytest.raises(ps.IncompatibleError, match=r"give file\.h5py"):
            h5netcdf.File(file, "r")
        with h5netcdf.File(file.h5py, "r") as opened:
            assert opened["v"][:].tolist() == [0, 1, 2]
