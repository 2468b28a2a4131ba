"""The Python examples in README.md run as they stand, one after the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize("library", ["device", ""], ids=["penstock", "installed"])
def test_examples_of_the_readme_run(tmp_path, library):
    """With arrays of Penstock itself, and with those of the library that is installed."""
    examples = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(examples) == 3
    done = subprocess.run(
        [sys.executable, "-c", "".join(examples)],
        cwd=tmp_path,
        env=os.environ | {"PENSTOCK_ARRAYS": library},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    with h5py.File(tmp_path / "run.h5") as file:
        assert np.array_equal(file["fields/copy"], file["fields/density"])
    assert "route host" in done.stdout
    assert (tmp_path / "density.bin").stat().st_size == 512 * 512 * 4
