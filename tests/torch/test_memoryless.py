"""Tensors without elements in memory, in every function that takes tensors or makes them."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock.deepnvme import AsyncIOBuilder

torch = pytest.importorskip("torch", reason="torch is not installed")
fake_tensor = pytest.importorskip("torch._subclasses.fake_tensor")
functional = pytest.importorskip("torch._subclasses.functional_tensor")
dcp = pytest.importorskip("torch.distributed.checkpoint")
weights = pytest.importorskip("penstock.torch.safetensors")
checkpoint = pytest.importorskip("penstock.torch.checkpoint")

LENGTH = 10


class Wrapper(torch.Tensor):
    """A subclass whose elements are those of another tensor."""

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    @classmethod
    def __torch_dispatch__(cls, *_: Any) -> Any:
        return NotImplemented

    def __reduce_ex__(self, _: Any) -> Any:
        return Wrapper, (torch.ones(LENGTH),)


def _fake() -> Any:
    with fake_tensor.FakeTensorMode():
        return torch.ones(LENGTH)


def _functional() -> Any:
    with functional.FunctionalTensorMode():
        return functional.FunctionalTensor.to_functional(torch.ones(LENGTH))


def _freed() -> Any:
    made = torch.ones(LENGTH)
    made.untyped_storage().resize_(0)
    return made


def _quantized() -> Any:
    with warnings.catch_warnings(action="ignore"):
        return torch.quantize_per_tensor(torch.ones(LENGTH), 0.1, 0, torch.qint8)


def _nested() -> Any:
    with warnings.catch_warnings(action="ignore"):
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


TENSORS = {
    "fake": _fake,
    "functional": _functional,
    "wrapper": lambda: Wrapper(torch.ones(LENGTH)),
    "meta": lambda: torch.ones(LENGTH, device="meta"),
    "freed": _freed,
    "sparse": lambda: torch.eye(LENGTH).to_sparse(),
    "quantized": _quantized,
    "nested": _nested,
}

WAYS = {
    "save": lambda folder, x: ps.save(folder / "new", x),
    "load": lambda folder, x: ps.load(folder / "x", out=x),
    "load_async": lambda folder, x: ps.load_async(folder / "x", out=x),
    "load_many": lambda folder, x: ps.load_many(folder / "x", [(0, x)]),
    "read": lambda folder, x: ps.read(f"{folder}/x.h5:x", out=x),
    "read_async": lambda folder, x: ps.read_async(f"{folder}/x.h5:x", out=x),
    "read_many": lambda folder, x: ps.read_many([f"{folder}/x.h5:x"], out=[x]),
    "write": lambda folder, x: ps.write(f"{folder}/x.h5:x", x),
    "create": lambda folder, x: ps.File(folder / "new.h5", "w").create_dataset("x", data=x),
    "sync_pwrite": lambda folder, x: (
        AsyncIOBuilder().load().aio_handle().sync_pwrite(x, str(folder / "new"))
    ),
    "sync_pread": lambda folder, x: (
        AsyncIOBuilder().load().aio_handle().sync_pread(x, str(folder / "x"))
    ),
    "memory_kind": lambda _, x: ps.memory_kind(x),
    "save_file": lambda folder, x: weights.save_file({"x": x}, folder / "new"),
    "safetensors.save": lambda _, x: weights.save({"x": x}),
}


@pytest.mark.parametrize("kind", TENSORS)
@pytest.mark.parametrize("way", WAYS)
def test_a_tensor_without_elements_in_memory_is_refused(tmp_path: Any, way: str, kind: str) -> None:
    np.zeros(LENGTH, "f4").tofile(tmp_path / "x")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.zeros(LENGTH, "f4")
    with pytest.raises((ps.Error, ValueError, NotImplementedError)) as caught:
        WAYS[way](tmp_path, TENSORS[kind]())
    assert any(word in str(caught.value) for word in ("memory", "save", "data type")), caught.value
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("kind", ["fake", "freed"])
def test_a_checkpoint_of_a_tensor_without_memory_is_refused(tmp_path: Any, kind: str) -> None:
    with pytest.raises(ps.InvalidError, match="has no memory"):
        checkpoint.save({"x": TENSORS[kind]()}, tmp_path / "new")


@pytest.mark.parametrize("map_location", [None, "cpu", {"cpu": "cpu"}])
@pytest.mark.parametrize("weights_only", [True, False])
def test_a_checkpoint_is_loaded_as_fake_tensors_as_by_torch(
    tmp_path: Any, map_location: Any, weights_only: bool
) -> None:
    state = {"a": torch.arange(10.0), "b": [torch.ones(3, 4, dtype=torch.bfloat16)]}
    checkpoint.save(state, tmp_path / "x.pt")
    mode = fake_tensor.FakeTensorMode()
    keys = {"map_location": map_location, "weights_only": weights_only}
    with mode:
        found, expected = (
            load(tmp_path / "x.pt", **keys) for load in (checkpoint.load, torch.load)
        )
    for ours, theirs in ((found["a"], expected["a"]), (found["b"][0], expected["b"][0])):
        assert type(ours) is type(theirs) is fake_tensor.FakeTensor
        assert (ours.shape, ours.dtype, ours.device) == (theirs.shape, theirs.dtype, theirs.device)
    assert torch.equal(checkpoint.load(tmp_path / "x.pt")["a"], state["a"])


def test_types_are_the_same_if_the_first_load_is_within_fake_tensor_mode(tmp_path: Any) -> None:
    x = torch.ones(4, dtype=torch.bfloat16)
    weights.save_file({"x": x}, tmp_path / "x.safetensors")
    code = f"""
import penstock.torch.safetensors as weights, torch
from torch._subclasses.fake_tensor import FakeTensorMode
path = {str(tmp_path / "x.safetensors")!r}
with FakeTensorMode():
    try: weights.load_file(path)
    except weights.SafetensorError: pass
assert torch.equal(weights.load_file(path)["x"], torch.ones(4, dtype=torch.bfloat16))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


LOADS = {
    "load": lambda path: weights.load(path.read_bytes()),
    "load_file": weights.load_file,
    "load_file by pread": lambda path: weights.load_file(path, backend="pread"),
    "load_file into page-locked memory": lambda path: weights.load_file(path, pin=True),
    "load_file with copies": lambda path: weights.load_file(path, copy=True),
    "get_tensor": lambda path: weights.safe_open(path, "pt").get_tensor("x"),
    "get_slice": lambda path: weights.safe_open(path, "pt").get_slice("x")[1:],
}


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_weights_are_not_loaded_as_fake_tensors(tmp_path: Any, load: Any) -> None:
    weights.save_file({"x": torch.arange(10.0)}, tmp_path / "x.safetensors")
    with (
        fake_tensor.FakeTensorMode(),
        pytest.raises(weights.SafetensorError, match="FakeTensorMode is on"),
    ):
        load(tmp_path / "x.safetensors")


def test_tensors_with_memory_are_saved_and_filled_while_fake_tensors_are_made(
    tmp_path: Any,
) -> None:
    x, out = torch.arange(10.0), torch.zeros(10)
    with fake_tensor.FakeTensorMode():
        ps.save(tmp_path / "x", x)
        ps.load(tmp_path / "x", out=out)
        weights.save_file({"x": x}, tmp_path / "x.safetensors")
        checkpoint.save({"x": x}, tmp_path / "x.pt")
    assert torch.equal(out, x)
    assert torch.equal(weights.load_file(tmp_path / "x.safetensors")["x"], x)
    assert torch.equal(torch.load(tmp_path / "x.pt")["x"], x)
