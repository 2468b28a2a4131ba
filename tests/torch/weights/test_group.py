"""The same weights on all ranks of a process group, each byte read once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

PROGRAM = Path(__file__).parent / "replicated.py"


def run(weights: Path, device: str, size: int = 2) -> None:
    command = [sys.executable, "-W", "ignore", PROGRAM, weights.parent]
    started = [
        subprocess.Popen(
            [*command, str(rank), str(size), device],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        outputs = [process.communicate(timeout=200)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    for process, output in zip(started, outputs, strict=True):
        assert process.returncode == 0, output
        assert "done\n" in output


def test_ranks_get_all_tensors_in_host_memory(weights):
    run(weights, "cpu", 3)


@pytest.mark.gpu
def test_ranks_get_all_tensors_in_gpu_memory(weights):
    import torch

    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU")
    run(weights, "cuda")
