"""The same weights on all ranks of a process group, each byte read once."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.torch.processes import run_ranks

pytest.importorskip("torch", reason="torch is not installed")

PROGRAM = (Path(__file__).parent / "replicated.py").read_text()


def run(weights: Path, device: str, size: int = 2) -> None:
    outputs = run_ranks(PROGRAM, [str(weights.parent), str(size), device], size)
    assert outputs == ["done\n"] * size


def test_ranks_get_all_tensors_in_host_memory(weights):
    run(weights, "cpu", 3)


@pytest.mark.gpu
def test_ranks_get_all_tensors_in_gpu_memory(weights):
    import torch

    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU")
    run(weights, "cuda")
