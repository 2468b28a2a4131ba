"""`penstock bench weights` with ranks."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="torch is not installed")


def test_ranks_are_measured_together_and_one_of_them_alone(tmp_path):
    results = tmp_path / "results.json"
    words = ["bench", "weights", "--size", "1MiB", "--tensors", "4", "--small", "0"]
    words += ["--device", "cpu", "--n-rank", "2", "-i", "1", "--no-warm-up"]
    command = [sys.executable, "-m", "penstock_command", *words, "--json", str(results)]
    done = subprocess.run(
        [*command, "--dir", str(tmp_path)], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(results.read_text())["rows"]
    assert not [row for row in rows if row["error"]]
    # Of the file, the header's bytes are few.
    copies = {r["setting"]: round(r["amount"] / 2**20) for r in rows if r["name"] == "Penstock"}
    assert copies == {
        "group=": 2,
        "each rank by itself": 2,
        "one rank alone, all tensors": 1,
        "rows of each tensor": 1,
        "columns of each tensor": 1,
    }
