"""`penstock bench checkpoint`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from .conftest import torch

assert torch  # without it, the benchmark refuses to run


def test_the_benchmark_measures_each_kind_of_checkpoint(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    program = "from penstock.cli import main; main()"
    words = ["bench", "checkpoint", "--size", "100kB", "--tensors", "3", "--device", "cpu"]
    words += ["--cache", "warm", "-i", "1", "--no-warm-up", "--dir", str(tmp_path)]
    command = [sys.executable, "-c", program, *words, "--json", str(results)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(results.read_text())["rows"]
    groups = {row["group"] for row in rows if row["name"] == "Penstock"}
    assert groups == {"save", "load dcp, warm", "load huggingface, warm", "load a file, warm"}
    assert not [row for row in rows if row["error"]]
    assert sorted(tmp_path.iterdir()) == [results]
