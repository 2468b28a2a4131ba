"""The example loads a file by Penstock and by safetensors, with the same sums."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

EXAMPLE = Path(__file__).parents[3] / "examples" / "load_weights.py"


def test_a_file_is_loaded_by_both_libraries(tmp_path, monkeypatch, capsys) -> None:
    from penstock.torch import save_file

    path = tmp_path / "small.safetensors"
    save_file({"a": torch.arange(100.0), "b": torch.ones(3, 5)}, path)
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), str(path), "--device", "cpu"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    sums = re.findall(r"^(\w+) .* sum (\d+)$", capsys.readouterr().out, re.MULTILINE)
    assert [name for name, _ in sums] == ["Penstock", "safetensors"]
    assert sums[0][1] == sums[1][1]
