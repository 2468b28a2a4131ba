"""The examples of many ranks and workers run, and do what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import pytest
from tests.docs.run_page import run
from tests.mpi_launch import ANY

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.mark.gpu
@pytest.mark.parametrize("mpi", [ANY], indirect=True)
def test_ranks_write_one_compressed_file(mpi, tmp_path):
    path = tmp_path / "shared.h5"
    output = mpi.run(EXAMPLES / "mpi_shared_write.py", path)
    assert "4 ranks wrote 24.6 MB as" in output
    assert "h5py reads the same elements" in output
    with h5py.File(path) as file:
        assert file["rho"].compression == "gzip"


@pytest.mark.parametrize("mpi", [ANY], indirect=True)
def test_ranks_leave_an_existing_file(mpi, tmp_path):
    path = tmp_path / "mine.h5"
    path.write_bytes(b"mine")
    done = mpi.finish(mpi.start(EXAMPLES / "mpi_shared_write.py", path), 120)
    assert done.status != 0
    assert f"{path} exists" in done.output
    assert path.read_bytes() == b"mine"


def test_dask_reads_on_two_processes(tmp_path):
    pytest.importorskip("distributed", reason="distributed is not installed")
    done = subprocess.run(
        [sys.executable, EXAMPLES / "dask_read.py"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "noise: (2000, 64, 32) of float32" in done.stdout
    assert "min 0.000, mean 0.500, max 1.000" in done.stdout
    assert "noise.h5.mean.h5: (64, 32) of float32" in done.stdout


def test_the_page_on_dask_runs(tmp_path, monkeypatch):
    pytest.importorskip("dask.array", reason="dask is not installed")
    monkeypatch.chdir(tmp_path)
    executed, _ = run(ROOT / "docs" / "how-to" / "dask.md")
    assert executed == 1
