"""Each program in programs/ shows one behaviour of the C API, given by its name."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = sorted((HERE / "programs").glob("*.c"))
HDF5_PROGRAMS = sorted((HERE / "hdf5").glob("*.c"))
C99 = ["-std=c99", "-D_POSIX_C_SOURCE=200809L"]
STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-O1"]
SKIPPED = 77


def run_program(program: Path, folder: Path, **environment: str) -> None:
    done = subprocess.run(
        [program],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
    )
    if done.returncode == SKIPPED:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == ""
    assert done.stderr == ""


@pytest.mark.parametrize("source", PROGRAMS, ids=lambda source: source.stem)
def test_c_program(source, installed, tmp_path):
    program = installed.compile_once(source, *C99, *STRICT)
    run_program(program, tmp_path, **installed.environment)


@pytest.mark.parametrize("source", HDF5_PROGRAMS, ids=lambda source: source.stem)
def test_c_program_with_hdf5(source, installed, tmp_path):
    program = installed.compile_once(source, *C99, *STRICT, "-ldl")
    hdf5 = str(hdf5_library())
    run_program(program, tmp_path, PENSTOCK_TEST_HDF5=hdf5, **installed.environment)


def hdf5_library() -> Path:
    """The HDF5 that h5py's wheel brings, or the one that it is linked with."""
    pytest.importorskip("h5py")
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = Path(line.split(maxsplit=5)[-1])
        if path.name.startswith("libhdf5") and not path.name.startswith("libhdf5_hl"):
            return path
    pytest.skip("h5py has its HDF5 built in")


def test_header_compiles_as_cxx(installed, tmp_path):
    program = installed.compile(
        "c++", tmp_path / "program", "-std=c++17", *STRICT, HERE / "header_compiles_as_cxx.cpp"
    )
    run_program(program, tmp_path, **installed.environment)
