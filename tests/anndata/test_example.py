"""The example trains by Penstock and by anndata's backed mode, and shows both rates."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_on_cells.py"


def test_a_classifier_is_trained_on_cells_that_the_example_makes() -> None:
    command = [sys.executable, str(EXAMPLE), "--cells", "600", "--batch", "100"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    rates = re.findall(r"([\d,]+) cells/s, last loss [\d.]+", done.stdout)
    assert len(rates) == 2
    assert "penstock.anndata.Batches" in done.stdout
