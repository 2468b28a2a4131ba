"""Tensors whose memory no file can fill, or that a file cannot have as it is."""

from __future__ import annotations

import pytest

import penstock as ps

torch = pytest.importorskip("torch", reason="torch is not installed")

from penstock.torch import load_file, load_model, save_file, save_model  # noqa: E402
from penstock.torch.safetensors import save  # noqa: E402


class Model(torch.nn.Module):
    def __init__(self, tensor):
        super().__init__()
        self.register_buffer("a", tensor)


def short():
    tensor = torch.zeros(1000)
    tensor.untyped_storage().resize_(40)
    return tensor


def test_a_tensor_beyond_its_storage_is_refused(tmp_path):
    save_file({"a": torch.zeros(1000)}, tmp_path / "x")
    for call in (
        lambda: save_file({"a": short()}, tmp_path / "y"),
        lambda: save({"a": short()}),
        lambda: save_model(Model(short()), tmp_path / "y"),
        lambda: load_model(Model(short()), tmp_path / "x"),
    ):
        with pytest.raises(ps.InvalidError, match=r"'a'.* ends at byte 4000 of its storage"):
            call()
    assert not (tmp_path / "y").exists()


def test_a_tensor_of_a_compiler_is_refused(tmp_path):
    tensor = torch._to_functional_tensor(torch.zeros(4))
    for call in (save_file, lambda made, path: save_model(Model(made["a"]), path)):
        with pytest.raises(ps.InvalidError, match=r"'a'.* has no memory"):
            call({"a": tensor}, tmp_path / "y")


@pytest.mark.parametrize("kind", ["conjugate", "negative"])
def test_a_lazily_changed_buffer_is_loaded_and_saved_with_its_values(kind, tmp_path):
    values = torch.tensor([1 + 2j, 3 - 4j]) if kind == "conjugate" else torch.tensor([1.0, -2.0])
    save_file({"a": values}, tmp_path / "x")
    model = Model(values.conj() if kind == "conjugate" else torch._neg_view(values))
    assert not torch.equal(model.a, values)
    load_model(model, tmp_path / "x")
    found = load_file(tmp_path / "x")["a"]
    assert torch.equal(model.a, found)
    save_model(model, tmp_path / "y")
    assert torch.equal(load_file(tmp_path / "y")["a"], found)
