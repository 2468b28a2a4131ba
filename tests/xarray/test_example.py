"""The example, on the host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

for _name in ("xarray", "netCDF4"):
    pytest.importorskip(_name, reason=f"{_name} is not installed")

EXAMPLE = Path(__file__).parents[2] / "examples" / "xarray_gpu.py"


def test_the_means_by_season_are_those_of_the_netcdf4_engine():
    done = subprocess.run(
        [sys.executable, EXAMPLE, "--device", "cpu"], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert "{'season': 4, 'lat': 91, 'lon': 180}, and differ by at most 0." in done.stdout
