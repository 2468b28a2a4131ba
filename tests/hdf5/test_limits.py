"""What docs/how-to/hdf5-driver.md says cannot work with a pointer to GPU memory does not."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

import penstock

HERE = Path(__file__).parent
CASES = [
    "read_as_another_type",
    "write_of_another_type",
    "read_in_another_byte_order",
    "missing_chunks",
    "fill",
    "page_buffer",
    "attribute",
]


@pytest.mark.skipif(not penstock.devices(), reason="without a GPU there is no such pointer")
@pytest.mark.parametrize("case", CASES)
def test_hdf5_itself_touches_device_memory(hdf5, installed, tmp_path, case):
    program = hdf5.compile(HERE / "limits.c")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("HDF5_")}
    driver = {"HDF5_DRIVER": "penstock", "HDF5_PLUGIN_PATH": str(installed.plugin_dir)}
    done = subprocess.run(
        [program, case], cwd=tmp_path, capture_output=True, text=True, env=inherited | driver
    )
    assert done.returncode == -signal.SIGSEGV, done.stdout + done.stderr
