"""Programs of several MPI processes, on the parallel HDF5 in the folder that
PENSTOCK_TEST_PARALLEL_HDF5 names, with the MPI whose mpicc and mpiexec are on the path."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).parent / "parallel").glob("*.c"))
STRICT = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-g"]
PROCESSES = 2


@pytest.mark.parametrize("memory", ["host", "device"])
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_behaviour(source, memory, parallel_hdf5, installed, tmp_path):
    program = tmp_path / source.stem
    lib = parallel_hdf5 / "lib"
    link = [f"-L{lib}", f"-Wl,-rpath,{lib}", "-lhdf5", "-ldl", "-rdynamic"]
    include = ["-isystem", parallel_hdf5 / "include"]
    compiled = ["mpicc", *STRICT, *include, source, *link, "-o", program]
    subprocess.run(compiled, check=True)
    environment = os.environ | {
        "HDF5_VOL_CONNECTOR": "penstock_async under_vol=0;under_info={}",
        "HDF5_PLUGIN_PATH": str(installed.plugin_dir),
        "PENSTOCK_TEST_MEMORY": memory,
    }
    done = subprocess.run(
        ["mpiexec", "-n", str(PROCESSES), program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    if "no CUDA device" in done.stdout:
        pytest.skip("no CUDA device")
    assert done.returncode == 0, done.stdout + done.stderr
