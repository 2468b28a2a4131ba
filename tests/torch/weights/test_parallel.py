"""Ranks of tensor parallelism: each reads its slices of the same file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.torch.processes import run_ranks

from penstock.torch.safetensors.header import Entry
from penstock.torch.safetensors.layout import Part
from penstock.torch.safetensors.tensor_parallel import _Run, _Space, runs_of

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


@given(st.lists(st.integers(1, 3), max_size=12))
def test_pieces_become_runs_at_regular_distances(gaps):
    starts = np.cumsum([8, *(10 * gap for gap in gaps)]).astype(np.uint64)
    end = int(starts[-1]) + 10
    space = _Space([Entry("t", "U8", (end - 8,), 8, end)])
    part = Part("t", "U8", (len(starts), 10), 8, 8 + 10 * len(starts), starts)
    found, target = [], 5
    for run in runs_of(part, space, 5):
        assert run.target == target
        found += [run.place + row * run.step for row in range(run.rows)]
        target += run.rows * run.length
    assert found == (starts.astype(int) - 8).tolist()


@given(st.data())
def test_windows_divide_pieces_at_regular_distances(data):
    length, rows = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    step = length + data.draw(st.integers(0, 9))
    run = _Run(data.draw(st.integers(0, 9)), step, length, rows, 3)
    window = data.draw(st.integers(1, 40))
    source = np.arange(run.end + window, dtype=np.int64)
    found = np.full(rows * length + 6, -1)
    for begin in range(0, run.end, window):
        for part in run.within(begin, begin + window):
            assert begin <= part.place
            assert part.end <= begin + window
            pieces = part.place + part.step * np.arange(part.rows)[:, None]
            places = (pieces + np.arange(part.length)).ravel()
            target = found[part.target :][: len(places)]
            assert (target == -1).all()
            target[:] = source[places]
    wanted = (run.place + step * np.arange(rows)[:, None] + np.arange(length)).ravel()
    assert found.tolist() == [-1] * 3 + wanted.tolist() + [-1] * 3


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_exchange_the_columns_of_their_plans_in_host_memory(size, tmp_path):
    outputs = run_ranks(PLANS, [str(tmp_path), str(size), "cpu"], size)
    assert outputs == ["done\n"] * size


@pytest.mark.gpu
def test_ranks_exchange_the_columns_of_their_plans_in_gpu_memory(tmp_path):
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU")
    outputs = run_ranks(PLANS, [str(tmp_path), "2", "cuda"], 2)
    assert outputs == ["done\n"] * 2
