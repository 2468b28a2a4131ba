"""The example trains by Penstock and by torch's loader, and shows both rates."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

EXAMPLE = Path(__file__).parents[3] / "examples" / "train_from_hdf5.py"


def test_a_network_is_trained_from_a_file_that_the_example_makes() -> None:
    words = ["--samples", "48", "--batch", "16", "--workers", "0"]
    command = [sys.executable, str(EXAMPLE), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    rates = re.findall(r"([\d,]+) samples/s, last loss [\d.]+", done.stdout)
    assert len(rates) == 2
    assert "penstock.torch.Batches" in done.stdout
