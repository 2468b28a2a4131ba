"""Ranks of torch.distributed that get the same array."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "replicated_torch.py"
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed: pip install torch"
)


def run(folder: Path, backend: str, device: str, size: int = 3) -> None:
    """Run the program on each rank."""
    started = [
        subprocess.Popen(
            [
                sys.executable,
                "-W",
                "ignore",
                PROGRAM,
                folder,
                *map(str, (rank, size)),
                backend,
                device,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        outputs = [process.communicate(timeout=120)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    for process, output in zip(started, outputs, strict=True):
        assert process.returncode == 0, output
        assert "done\n" in output


def test_ranks_of_gloo_get_the_same_array_in_host_memory(tmp_path):
    run(tmp_path, "gloo", "cpu")


@pytest.mark.gpu
def test_ranks_of_gloo_get_the_same_array_in_gpu_memory(tmp_path):
    run(tmp_path, "gloo", "cuda")


@pytest.mark.gpu
def test_ranks_of_nccl_get_the_same_array_in_gpu_memory(tmp_path):
    import torch

    count = torch.cuda.device_count()
    if count < 2:
        pytest.skip(f"NCCL needs a GPU for each rank, and torch finds {count}")
    run(tmp_path, "nccl", "cuda", min(count, 4))
