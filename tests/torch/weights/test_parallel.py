"""Ranks of tensor parallelism: each reads its slices of the same file."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.torch.processes import run_ranks

torch = pytest.importorskip("torch", reason="torch is not installed")

PROGRAM = (Path(__file__).parent / "parallel.py").read_text()
PLANS = (Path(__file__).parent / "plans.py").read_text()


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


@pytest.mark.parametrize("size", [2, 3])
def test_each_rank_loads_its_plan_into_host_memory(size, tmp_path):
    outputs = run_ranks(PLANS, [str(tmp_path), str(size), "cpu"], size)
    assert outputs == ["done\n"] * size


@pytest.mark.gpu
def test_each_rank_loads_its_plan_into_gpu_memory(tmp_path):
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU")
    outputs = run_ranks(PLANS, [str(tmp_path), "2", "cuda"], 2)
    assert outputs == ["done\n"] * 2
