"""Ranks of torch.distributed: they get the same array, and transfer beside NCCL's kernels."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed: pip install torch"
)


def run(folder: Path, backend: str, device: str, size: int = 3) -> None:
    """Load the same array on each rank."""
    path = PROGRAMS / "replicated_torch.py"
    run_ranks([[path, folder, str(rank), str(size), backend, device] for rank in range(size)])


def run_ranks(programs: list[list[str | Path]]) -> None:
    """Run the program of each rank, which can import the package of the tests."""
    paths = [str(PROGRAMS.parents[2]), os.environ.get("PYTHONPATH")]
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", *program],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )
        for program in programs
    ]
    try:
        outputs = [process.communicate(timeout=120)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    for process, output in zip(started, outputs, strict=True):
        print(output)
        assert process.returncode == 0, output
        assert "done\n" in output


def gpus_for_nccl() -> int:
    """Return the number of GPUs, at least two."""
    import torch

    count = torch.cuda.device_count()
    if count < 2:
        pytest.skip(f"NCCL needs a GPU for each rank, and torch finds {count}")
    return int(count)


def test_ranks_of_gloo_get_the_same_array_in_host_memory(tmp_path):
    run(tmp_path, "gloo", "cpu")


@pytest.mark.gpu
def test_ranks_of_gloo_get_the_same_array_in_gpu_memory(tmp_path):
    run(tmp_path, "gloo", "cuda")


@pytest.mark.gpu
def test_ranks_of_nccl_get_the_same_array_in_gpu_memory(tmp_path):
    run(tmp_path, "nccl", "cuda", min(gpus_for_nccl(), 4))


@pytest.mark.gpu
def test_transfers_end_while_an_all_reduce_waits_for_the_other_rank(tmp_path):
    gpus_for_nccl()
    program = PROGRAMS / "late_all_reduce.py"
    run_ranks([[program, tmp_path, str(rank)] for rank in range(2)])
