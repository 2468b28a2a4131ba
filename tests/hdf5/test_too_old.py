"""An HDF5 older than 1.14 cannot use Penstock, and one line says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOO_OLD = "too old: Penstock needs HDF5 1.14 or 2.x"

# Opens HDF5 as Python's packages do: after the program has started.
OPENS_HDF5 = """
import ctypes, os, pathlib
library = pathlib.Path(os.environ["OLD_HDF5"])
for pattern in ("libaec*", "libsz*"):
    for needed in library.parent.glob(pattern):
        ctypes.CDLL(str(needed))
ctypes.CDLL(str(library)).H5open()
"""


@pytest.fixture(scope="module")
def old_hdf5() -> Path:
    """HDF5 1.12.2, from a wheel of h5py 3.8 for whichever Python."""
    folder = ROOT / "target" / "hdf5-1.12.2"
    if not folder.exists():
        partial = folder.with_name(f"{folder.name}.{os.getpid()}")
        options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--target", partial]
        options += ["--implementation", "cp", "--python-version", "3.11"]
        install = [sys.executable, "-m", "pip", "install", *options, "h5py==3.8.0"]
        subprocess.run(install, check=True, timeout=300)
        partial.rename(folder)
    [library] = folder.glob("h5py.libs/libhdf5-*")
    return library


@pytest.fixture
def shown_by(installed, old_hdf5):
    """Return a function that runs a command and returns what it writes on standard error."""

    def run(*command: str | Path) -> str:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("HDF5_")}
        environment = inherited | installed.environment | {"OLD_HDF5": str(old_hdf5)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stderr

    return run


PENSTOCK_RUN = (sys.executable, "-m", "penstock_command", "run")


def test_the_errors_of_hdf5_say_that_it_is_too_old_for_the_connector(shown_by):
    shown = shown_by(*PENSTOCK_RUN, "--async", sys.executable, "-c", OPENS_HDF5)
    [line] = [line for line in shown.splitlines() if TOO_OLD in line]
    assert "HDF5 1.12.2" in line


@pytest.mark.parametrize("options", [[], ["--async"]], ids=["driver", "connector"])
def test_one_line_names_a_program_that_is_linked_with_it(shown_by, old_hdf5, tmp_path, options):
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text("int H5open(void); int main(void) { return H5open() < 0; }\n")
    where = [f"-L{old_hdf5.parent}", f"-Wl,-rpath,{old_hdf5.parent},--disable-new-dtags"]
    subprocess.run(["cc", source, "-o", program, *where, f"-l:{old_hdf5.name}"], check=True)
    [line] = shown_by(*PENSTOCK_RUN, *options, program).splitlines()
    assert str(program) in line
    assert f"HDF5 1.12.2 ({old_hdf5})" in line
    assert TOO_OLD in line
