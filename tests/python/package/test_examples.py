"""The Python examples run, and do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np

_EXAMPLE = Path(__file__).parents[3] / "examples" / "random_batches.py"


def _run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(_EXAMPLE), "--quick", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def _rates(output: str) -> dict[str, list[float]]:
    """Return the numbers of each line of the table."""
    lines = re.findall(r"^(\S+) +([\d,]+) +([\d,]+) +([\d,]+)$", output, re.MULTILINE)
    return {name: [float(rate.replace(",", "")) for rate in rates] for name, *rates in lines}


def test_random_batches_are_taken_of_a_file_that_it_makes_and_removes(tmp_path: Path) -> None:
    done = _run("--dir", tmp_path)
    assert done.returncode == 0, done.stderr
    rates = _rates(done.stdout)
    assert list(rates) == ["raw", "gzip", "lzf"]
    assert all(rate > 0 for found in rates.values() for rate in found)
    assert not list(tmp_path.iterdir())


def test_random_batches_are_taken_of_a_dataset_that_is_given(tmp_path: Path) -> None:
    path = tmp_path / "data.h5"
    values = np.arange(70.0).reshape(7, 10)
    values[3] = np.nan
    with h5py.File(path, "w") as file:
        file["group/rows"] = values
    done = _run(f"{path}:group/rows")
    assert done.returncode == 0, done.stderr
    assert list(_rates(done.stdout)) == ["group/rows"]


def test_random_batches_ask_for_the_dataset_of_a_file(tmp_path: Path) -> None:
    done = _run(tmp_path / "data.h5")
    assert done.returncode == 2
    assert "names no dataset: write FILE:DATASET" in done.stderr
