"""Checkpoints of tensors in GPU memory."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import penstock as ps

from .conftest import assert_same, blank, state_dict, tensors, torch

dcp = pytest.importorskip("torch.distributed.checkpoint")
checkpoint = pytest.importorskip("penstock.torch.checkpoint")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU"),
]


@pytest.fixture(autouse=True)
def _no_copies_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a tensor of a GPU is copied to the CPU by torch."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a tensor was copied to the CPU")

    monkeypatch.setattr(torch.Tensor, "cpu", refuse)
    monkeypatch.setattr(torch.UntypedStorage, "cpu", refuse)


def test_a_state_dict_is_saved_from_the_gpu_and_loaded_to_it(tmp_path: Path) -> None:
    checkpoint.save(state_dict("cuda"), tmp_path / "a.pt")
    assert_same(torch.load(tmp_path / "a.pt"), state_dict("cuda:0"))
    assert_same(checkpoint.load(tmp_path / "a.pt"), state_dict("cuda:0"))
    assert_same(checkpoint.load(tmp_path / "a.pt", "cpu"), state_dict("cpu"))


def test_a_state_dict_of_the_cpu_is_loaded_to_the_gpu(tmp_path: Path) -> None:
    torch.save(state_dict(), tmp_path / "a.pt")
    assert_same(checkpoint.load(tmp_path / "a.pt", "cuda"), state_dict("cuda:0"))


def test_a_distributed_checkpoint_is_saved_and_loaded(tmp_path: Path) -> None:
    dcp.save(state_dict("cuda"), storage_writer=checkpoint.PenstockWriter(tmp_path))
    for device in ("cuda", "cpu"):
        for reader in (checkpoint.PenstockReader, dcp.FileSystemReader):
            loaded = blank(state_dict(device))
            dcp.load(loaded, storage_reader=reader(tmp_path))
            assert_same(loaded, state_dict("cuda:0" if device == "cuda" else "cpu"))


def test_tensors_of_other_strides_and_types_are_filled(tmp_path: Path) -> None:
    saved = tensors("cuda")
    dcp.save(saved, storage_writer=checkpoint.PenstockWriter(tmp_path))
    loaded = {
        "matrix": torch.zeros(200, 300, device="cuda").t(),
        "transposed": torch.zeros(200, 300, dtype=torch.float64, device="cuda"),
        "rows": torch.zeros(2, 400, device="cuda")[:, ::2],
        "conjugate": torch.zeros(2, dtype=torch.complex64, device="cuda").conj(),
    }
    dcp.load(loaded, storage_reader=checkpoint.PenstockReader(tmp_path))
    for name, value in loaded.items():
        assert bool((value == saved[name]).all()), name


def test_tensors_that_are_converted_are_complete_for_any_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dcp.save({"one": torch.ones(1000)}, storage_writer=checkpoint.PenstockWriter(tmp_path))
    ranges = import_module("penstock.torch.checkpoint.blocks").Ranges
    move = ranges.move

    def move_and_work(*arguments: Any) -> None:
        move(*arguments)
        torch.cuda._sleep(200_000_000)  # work of this stream that the conversion follows

    monkeypatch.setattr(ranges, "move", move_and_work)
    loaded = {"one": torch.zeros(1000, dtype=torch.float64, device="cuda")}
    dcp.load(loaded, storage_reader=checkpoint.PenstockReader(tmp_path))
    assert torch.cuda.current_stream().query()
    assert bool((loaded["one"] == 1).all())


def test_safetensors_files_are_saved_and_loaded(tmp_path: Path) -> None:
    saved = tensors("cuda")
    writer = checkpoint.PenstockHuggingFaceWriter(path=str(tmp_path))
    dcp.save(saved, storage_writer=writer)
    loaded = blank(saved)
    dcp.load(loaded, storage_reader=checkpoint.PenstockHuggingFaceReader(path=str(tmp_path)))
    for name, value in loaded.items():
        assert bool((value == saved[name]).all()), name


def test_a_save_waits_for_the_work_of_the_current_stream(tmp_path: Path) -> None:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        one = torch.zeros(1 << 24, device="cuda")
        torch.cuda._sleep(200_000_000)
        one.fill_(3)
        checkpoint.save({"one": one}, tmp_path / "a.pt")
    assert bool((torch.load(tmp_path / "a.pt", map_location="cuda")["one"] == 3).all())


def test_an_async_save_has_the_values_of_its_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # torch stages on the CPU
    state = {"one": torch.ones(1 << 20, device="cuda")}
    future = dcp.async_save(state, storage_writer=checkpoint.PenstockWriter(tmp_path))
    state["one"].zero_()
    getattr(future, "upload_completion", future).result()
    loaded = {"one": torch.zeros(1 << 20, device="cuda")}
    dcp.load(loaded, storage_reader=checkpoint.PenstockReader(tmp_path))
    assert bool((loaded["one"] == 1).all())


def test_little_gpu_memory_is_used_beside_the_tensors(tmp_path: Path) -> None:
    state = {str(n): torch.ones(1 << 24, device="cuda") for n in range(8)}
    checkpoint.save(state, tmp_path / "a.pt")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    dcp.save(state, storage_writer=checkpoint.PenstockWriter(tmp_path / "c"))
    dcp.load(state, storage_reader=checkpoint.PenstockReader(tmp_path / "c"))
    assert torch.cuda.max_memory_allocated() - before < 1 << 20
    assert ps.devices()
