"""The Python example in README.md runs as it is, and its C example compiles."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import penstock

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize("library", ["device", ""], ids=["penstock", "installed"])
def test_the_python_example_of_the_readme_runs(tmp_path, library):
    """With arrays of Penstock itself, and with those of the library that is installed."""
    (example,) = examples("python")
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=tmp_path,
        env=os.environ | {"PENSTOCK_ARRAYS": library},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    with h5py.File(tmp_path / "run.h5") as file:
        stored = file["rho"][()]
    assert np.array_equal(np.fromfile(tmp_path / "density.bin", "f4"), stored.ravel())
    assert "route host" in done.stdout


def test_the_c_example_of_the_readme_compiles():
    (example,) = examples("c")
    flags = (
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fsyntax-only",
        "-I",
        penstock.include_dir(),
    )
    command = ["cc", *map(str, flags), "-x", "c", "-"]
    done = subprocess.run(command, input=example, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def examples(language):
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)
