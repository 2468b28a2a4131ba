"""Every example of the manual runs, and prints what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.docs.conftest import EXECUTED, SKIPPED
from tests.docs.run_page import blocks, fits, run
from tests.mpi_launch import ANY, Mpi, missing

import penstock as ps

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Their blocks are parts of programs, which other tests run.
EXCERPTS = {"anndata", "async", "deepnvme", "hdf5-driver", "scaling", "tuning", "xarray"}
PAGES = [
    page
    for page in sorted(
        [
            *DOCS.glob("index.md"),
            *DOCS.glob("tutorial/*.md"),
            *DOCS.glob("how-to/*.md"),
            *DOCS.glob("explanation/*.md"),
        ]
    )
    if page.stem not in EXCERPTS
    and any(block.language in ("python", "sh") for block in blocks(page))
]
# Dask takes seconds to import: tests/dist, which has it, runs this page.
ELSEWHERE = {"dask"}
USES_GPU = re.compile(r"ps\.devices\(\)|needs: gpu|penstock_device_count")
HDF5 = ROOT / "target" / "hdf5" / "1.14.4"


def cases():
    for page in PAGES:
        marks = [pytest.mark.either] if USES_GPU.search(page.read_text()) else []
        if page.stem == "mpi":
            marks = []  # tests/dist has ranks with GPUs
        if page.stem == "index":
            marks = [pytest.mark.gpu]
        yield pytest.param(page, marks=marks, id=page.relative_to(DOCS).as_posix())


@pytest.fixture(scope="session")
def mpirun(tmp_path_factory):
    """A folder with an mpirun of the MPI of the Python wheels, if there is one."""
    folder = tmp_path_factory.mktemp("mpirun")
    if missing(ANY) is None:
        mpi = Mpi(ANY)
        *launcher, _, _, _ = mpi.command()
        own = {k: v for k, v in mpi.environment.items() if os.environ.get(k) != v}
        words = ["env", *(f"{name}={value}" for name, value in own.items()), *launcher]
        script = folder / "mpirun"
        script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        script.chmod(0o755)
    return folder


@pytest.mark.parametrize("page", list(cases()))
def test_the_examples_of_a_page_run(page, mpirun, tmp_path, monkeypatch, pytestconfig):
    monkeypatch.setenv("PATH", f"{mpirun}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    if HDF5.is_dir():
        monkeypatch.setenv("HDF5_ROOT", str(HDF5))
        monkeypatch.setenv("PKG_CONFIG_PATH", str(HDF5 / "lib" / "pkgconfig"))
        monkeypatch.setenv("LD_LIBRARY_PATH", str(HDF5 / "lib"))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    if page.stem == "index":
        with ps.File("run.h5", "w") as file:
            file["rho"] = np.ones((100, 100))
    executed, skipped = run(page)
    stash = pytestconfig.stash
    stash[EXECUTED] = stash.get(EXECUTED, 0) + executed
    stash.setdefault(SKIPPED, Counter()).update(skipped)


def test_output_fits_if_only_times_and_ellipses_differ():
    shown = "4,000,000 bytes in 2.09 ms (1.91 GB/s), route ...\nend\n"
    assert fits(shown, "4,000,000 bytes in 13 s (0.1 GB/s), route host\nend\n")
    assert not fits(shown, "4,000,001 bytes in 13 s (0.1 GB/s), route host\nend\n")
    assert not fits(shown, "4,000,000 bytes in 13 s (0.1 GB/s), route host\n")
