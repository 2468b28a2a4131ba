"""Saves: the bytes of the format, whole files or none, tensors that share memory."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from tests.torch.processes import start

torch = pytest.importorskip("torch", reason="torch is not installed")

import penstock as ps  # noqa: E402
from penstock.torch import (  # noqa: E402
    SafetensorError,
    load_file,
    load_model,
    safe_open,
    save_file,
    save_model,
)
from penstock.torch.safetensors import save  # noqa: E402

from .conftest import assert_equal  # noqa: E402


def test_the_bytes_are_those_of_safetensors(weights, tensors):
    reference = pytest.importorskip("safetensors.torch")
    wanted = reference.save(tensors, {"format": "pt"})
    assert weights.read_bytes() == wanted
    assert save(tensors, {"format": "pt"}) == wanted


def test_no_tensors_are_a_file(tmp_path):
    save_file({}, tmp_path / "x")
    assert load_file(tmp_path / "x") == {}


def test_a_durable_save_is_the_same(tmp_path, weights, tensors):
    save_file(tensors, tmp_path / "x", {"format": "pt"}, durable=True)
    assert (tmp_path / "x").read_bytes() == weights.read_bytes()


def test_a_new_file_has_the_rights_of_the_old_one(weights):
    os.chmod(weights, 0o640)
    save_file({"x": torch.zeros(1)}, weights)
    assert weights.stat().st_mode & 0o777 == 0o640
    assert os.listdir(weights.parent) == [weights.name]


def test_after_a_failure_the_old_file_is_still_there(weights, tmp_path):
    before = weights.read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
    try:
        with pytest.raises(SafetensorError, match="Error while serializing") as caught:
            save_file({"x": torch.zeros(100_000)}, weights)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, ignored)
    error = caught.value
    assert isinstance(error, OSError)
    assert (error.path, error.errno) == (str(weights), errno.EFBIG)
    assert error.offset == 4096
    assert error.length > 0
    assert error.cause.startswith("cannot write: File too large")
    assert "ulimit -f" in error.remedy
    assert error.remedy in str(error)
    assert weights.read_bytes() == before
    assert os.listdir(tmp_path) == [weights.name]


def test_a_process_that_is_killed_leaves_the_old_file(weights):
    before = weights.read_bytes()
    program = (
        "import sys, torch; from penstock.torch import save_file\n"
        "x = {str(n): torch.zeros(1 << 22) for n in range(16)}; parent.send('go')\n"
        "while True: save_file(x, sys.argv[1] + '-other'); save_file(x, sys.argv[1] + '-more')\n"
    )
    process, end = start(program, [str(weights)])
    assert end.recv() == "go"
    time.sleep(0.3)
    process.kill()
    process.join()
    assert weights.read_bytes() == before
    for name in os.listdir(weights.parent):
        if not name.startswith("."):
            load_file(weights.parent / name)  # complete, or not there


def test_a_folder_that_is_not_there_is_an_error_of_both_libraries(tmp_path):
    with pytest.raises(SafetensorError) as caught:
        save_file({"x": torch.zeros(1)}, tmp_path / "none" / "x")
    assert isinstance(caught.value, FileNotFoundError)
    assert isinstance(caught.value, ps.NotFoundError)


def nested(layout):
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(2)


def quantized():
    return torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)


@pytest.mark.filterwarnings("ignore:Sparse invariant", "ignore:.*nested", "ignore:.*quantize")
def test_what_a_file_cannot_have_is_refused(tmp_path):
    whole = torch.zeros(4, 4)
    cases = [
        ({"x": whole.T[:2]}, ValueError, "non contiguous"),
        ({"x": torch.sparse_coo_tensor(size=(2, 3))}, ValueError, "sparse"),
        ({"x": [1]}, ValueError, "expected torch.Tensor"),
        ([whole], ValueError, "Expected a dict"),
        ({"x": whole, "y": whole[1:]}, RuntimeError, "share memory"),
        ({"x": torch.zeros(2, dtype=torch.complex128)}, SafetensorError, "complex128"),
        ({"x": torch.zeros(2, device="meta")}, RuntimeError, "'x' is on the device meta"),
        ({"x": torch.zeros(0, device="meta")}, RuntimeError, "'x' is on the device meta"),
        ({"x": nested(torch.strided)}, ValueError, "nested tensor: `x`.*unbind"),
        ({"x": nested(torch.jagged)}, ValueError, "nested tensor: `x`.*unbind"),
        ({"x": fake()}, ps.InvalidError, "'x': .* has no memory"),
        ({"x": quantized()}, SafetensorError, "'x': .*quint8; save dequantize"),
        ({"__metadata__": whole}, SafetensorError, "__metadata__"),
    ]
    for tensors, kind, message in cases:
        with pytest.raises(kind, match=message):
            save_file(tensors, tmp_path / "x")
        with pytest.raises(kind, match=message):
            save(tensors)
    for tensors, metadata in (({"x": whole}, {"a": 1}), ({"x": whole}, {1: "a"}), ({1: whole}, {})):
        for call in (partial(save_file, filename=tmp_path / "x"), save):
            with pytest.raises(TypeError, match="not text") as caught:
                call(tensors, metadata=metadata)
            assert isinstance(caught.value, SafetensorError)
    assert os.listdir(tmp_path) == []
    save_file({"x": whole[:2], "y": whole[2:]}, tmp_path / "x")


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(5, 5)
        self.b = self.a
        self.c = torch.nn.Linear(5, 3)


def test_a_model_with_tied_weights_is_saved_once_and_loaded(tmp_path):
    model, other = Tied(), Tied()
    save_model(model, tmp_path / "x")
    with safe_open(tmp_path / "x", "pt") as opened:
        assert opened.keys() == ["a.bias", "a.weight", "c.bias", "c.weight"]
        assert opened.metadata() == {"b.bias": "a.bias", "b.weight": "a.weight"}
    assert load_model(other, tmp_path / "x") == (set(), [])
    for name, tensor in model.state_dict().items():
        assert_equal(other.state_dict()[name], tensor)


def test_a_model_keeps_its_memory_and_types(tmp_path):
    model, other = Tied(), Tied()
    save_model(model, tmp_path / "x")
    other.c.half()
    before = [tensor.data_ptr() for tensor in other.state_dict().values()]
    load_model(other, tmp_path / "x")
    assert [tensor.data_ptr() for tensor in other.state_dict().values()] == before
    assert_equal(other.a.weight, model.a.weight)
    assert_equal(other.c.weight, model.c.weight.half())


def test_names_that_share_memory_are_filled_in_the_order_of_torch(tmp_path):
    save_file({"a.weight": torch.zeros(5, 5), "b.weight": torch.ones(5, 5)}, tmp_path / "x")
    model = Tied()
    missing, unexpected = load_model(model, tmp_path / "x", strict=False)
    assert (missing, unexpected) == ({"a.bias", "c.bias", "c.weight"}, ["b.weight"])
    assert_equal(model.a.weight.detach(), torch.ones(5, 5))


def test_a_shape_that_differs_is_an_error_of_torch(tmp_path):
    save_file({"c.weight": torch.zeros(5, 3)}, tmp_path / "x")
    with pytest.raises(RuntimeError, match=r"size mismatch for c\.weight"):
        load_model(Tied(), tmp_path / "x")


class Parts(torch.nn.Module):
    """A module with tensors of which none has all of the memory that they share."""

    def __init__(self):
        super().__init__()
        whole = torch.zeros(10)
        self.register_buffer("low", whole[:6])
        self.register_buffer("high", whole[4:])


@pytest.mark.parametrize("hooked", [False, True])
def test_a_model_of_tensors_that_share_memory_in_parts_is_not_changed(tmp_path, hooked):
    save_file({"low": torch.ones(6), "high": torch.ones(6)}, tmp_path / "x")
    model = Parts()
    if hooked:
        model.register_load_state_dict_post_hook(lambda *_: None)
    with pytest.raises(RuntimeError, match="none of them covers the entire storage"):
        load_model(model, tmp_path / "x")
    assert_equal(model.low, torch.zeros(6))


class Renamed(torch.nn.Linear):
    """A module that renames what it loads."""

    def _load_from_state_dict(self, state, prefix, *more):
        if prefix + "old" in state:
            state[prefix + "weight"] = state.pop(prefix + "old")
        super()._load_from_state_dict(state, prefix, *more)


def test_a_module_that_changes_how_it_is_loaded_gets_all_tensors(tmp_path):
    save_file({"old": torch.ones(2, 2), "bias": torch.zeros(2)}, tmp_path / "x")
    model = Renamed(2, 2)
    assert load_model(model, tmp_path / "x") == (set(), [])
    assert_equal(model.weight.detach(), torch.ones(2, 2))


def test_autograd_sees_that_a_parameter_has_changed(tmp_path):
    model = torch.nn.Linear(3, 3)
    save_model(model, tmp_path / "x")
    loss = model.weight.square().sum()
    load_model(model, tmp_path / "x")
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_missing_and_unexpected_names_are_an_error_unless_allowed(tmp_path):
    save_file({"c.weight": torch.zeros(3, 5), "d": torch.zeros(1)}, tmp_path / "x")
    with pytest.raises(RuntimeError, match=r'Missing key.*"a\.bias".*\n.*Unexpected.*"d"'):
        load_model(Tied(), tmp_path / "x")
    missing, unexpected = load_model(Tied(), tmp_path / "x", strict=False)
    assert "a.bias" in missing
    assert unexpected == ["d"]


def test_a_loaded_model_is_saved_again(tmp_path):
    save_model(Tied(), tmp_path / "x")
    model = Tied()
    state = load_file(tmp_path / "x")
    model.load_state_dict(
        state | {"b.weight": state["a.weight"], "b.bias": state["a.bias"]}, assign=True
    )
    save_model(model, tmp_path / "y")
    assert_equal(load_file(tmp_path / "y")["a.weight"], state["a.weight"])


@pytest.mark.parametrize("name", ["x" * 255, "\N{GREEK SMALL LETTER BETA}" * 127])
def test_a_file_may_have_the_longest_name(tmp_path, name):
    for value in (1.0, 2.0):
        save_file({"x": torch.tensor([value])}, tmp_path / name)
        assert load_file(tmp_path / name)["x"].item() == value
    assert len(list(tmp_path.iterdir())) == 1


def test_metadata_of_another_type_is_a_type_error(tmp_path):
    with pytest.raises(TypeError, match="list"):
        save_file({"x": torch.zeros(1)}, tmp_path / "x", ["a"])


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_a_model_is_filled_from_one_file_although_it_is_replaced(tmp_path, monkeypatch, backend):
    from penstock.torch.safetensors import model as loading

    def of(value):
        weight = torch.full((4, 4), value)
        return {"weight": weight, "bias": torch.full((4,), value, dtype=torch.float64)}

    path = tmp_path / "x"
    save_file(of(1.0), path)
    fill = loading._read

    def fill_and_replace(file, pieces):
        fill(file, pieces)
        save_file(of(2.0), path)

    monkeypatch.setattr(loading, "_read", fill_and_replace)
    layer = torch.nn.Linear(4, 4)
    load_model(layer, path, backend=backend)
    assert layer.weight.unique().tolist() == layer.bias.unique().tolist() == [1.0]


@pytest.mark.parametrize(
    "wrong", ["missing", "short", "no header", "no tensor", "shape", "name", "absent"]
)
@pytest.mark.parametrize("first", [True, False])
def test_a_model_is_unchanged_if_one_of_its_files_is_not_as_it_should_be(
    wrong: str, first: bool, tmp_path: Path
) -> None:
    model = torch.nn.Module()
    for name in "wxyz":
        model.register_buffer(name, torch.zeros(3))
    names = [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    states = [{"w": torch.ones(3), "x": torch.ones(3)}, {"y": torch.ones(3)}, {"z": torch.ones(3)}]
    bad = 0 if first else 2
    if wrong == "shape":
        states[bad][min(states[bad])] = torch.ones(4)
    elif wrong == "no tensor":
        states[bad]["other"] = states[bad].pop(min(states[bad]))
    elif wrong == "absent":
        states[bad].pop(max(states[bad]))
    for name, state in zip(names, states, strict=True):
        save_file(state, tmp_path / name)
    weights = {"w": names[0], "x": names[0], "y": names[1], "z": names[2]}
    if wrong == "name":
        save_file({**states[bad], "other": torch.ones(3)}, tmp_path / names[bad])
        weights["other"] = names[bad]
    if wrong == "absent":
        del weights["x" if first else "z"]
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weights}))
    file = tmp_path / names[bad]
    if wrong == "missing":
        file.unlink()
    elif wrong == "short":
        os.truncate(file, file.stat().st_size - 1)
    elif wrong == "no header":
        file.write_bytes(b"text" * 9)
    expected = {
        "missing": "No such file",
        "short": "not fully covered",
        "no header": "header too large",
        "no tensor": "does not contain tensor [wz]",
        "shape": "size mismatch for [wz]",
        "name": 'Unexpected.*"other"',
        "absent": 'Missing.*"[xz]"',
    }[wrong]
    with pytest.raises(Exception, match=expected):
        load_model(model, tmp_path)
    assert all(not tensor.any() for tensor in model.buffers())


def test_a_tensor_of_one_element_is_loaded_into_a_scalar(tmp_path: Path) -> None:
    model = torch.nn.Module()
    model.register_buffer("x", torch.tensor(0.0))
    save_file({"x": torch.full((1,), 2.0)}, tmp_path / "x")
    load_model(model, tmp_path / "x")
    assert model.x.item() == 2
