"""Ranks of tensor parallelism: each reads its slices of the same file."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.torch.processes import run_ranks

torch = pytest.importorskip("torch", reason="torch is not installed")

PROGRAM = (Path(__file__).parent / "parallel.py").read_text()


def run(weights: Path, device: str, size: int) -> None:
    outputs = run_ranks(PROGRAM, [str(weights.parent), str(size), device], size)
    assert outputs == ["done\n"] * size


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_read_their_slices_into_host_memory(size, weights):
    run(weights, "cpu", size)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [2, 4])
def test_ranks_read_their_slices_into_memory_of_their_gpus(size, weights):
    if torch.cuda.device_count() < size:
        pytest.skip(f"torch finds {torch.cuda.device_count()} GPUs, not {size}")
    if not torch.distributed.is_nccl_available():
        pytest.skip("this torch has no NCCL")
    run(weights, "cuda", size)
