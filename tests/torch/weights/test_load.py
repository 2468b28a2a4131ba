"""Loads of files, of models in several files, and of bytes."""

from __future__ import annotations

import json
import os
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps

torch = pytest.importorskip("torch", reason="torch is not installed")

from penstock.torch import SafetensorError, load_file, safe_open, save_file  # noqa: E402
from penstock.torch.safetensors import load  # noqa: E402
from penstock.torch.safetensors.layout import lay_out_contiguous  # noqa: E402

from .conftest import assert_equal  # noqa: E402

WAYS: list[dict[str, Any]] = [{}, {"backend": "pread"}, {"copy": True}, {"pin": True}]


@pytest.mark.parametrize("keys", WAYS, ids=str)
def test_all_tensors_are_loaded_in_the_order_of_the_file(keys, weights, tensors):
    found = load_file(weights, **keys)
    with safe_open(weights, "pt") as opened:
        assert list(found) == opened.offset_keys()
    assert found.keys() == tensors.keys()
    for name, tensor in found.items():
        assert_equal(tensor, tensors[name])


@pytest.mark.parametrize("keys", WAYS, ids=str)
def test_each_tensor_has_a_storage_of_its_own(keys, weights):
    for tensor in load_file(weights, **keys).values():
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
        assert tensor.is_leaf
        assert not tensor._is_view()


@pytest.mark.parametrize("keys", [{}, {"backend": "pread"}], ids=str)
def test_tensors_outlive_the_others_and_the_file(keys, weights, tensors):
    matrix = load_file(weights, **keys)["matrix"]
    os.remove(weights)
    assert_equal(matrix, tensors["matrix"])


def test_a_write_to_a_tensor_does_not_reach_the_file(weights, tensors):
    load_file(weights)["matrix"].zero_()
    assert_equal(load_file(weights)["matrix"], tensors["matrix"])


def test_a_save_over_the_file_leaves_tensors_of_its_mapping_as_they_are(weights, tensors):
    found = load_file(weights)
    save_file({"other": torch.zeros(3)}, weights)
    for name, tensor in found.items():
        assert_equal(tensor, tensors[name])
    save_file(found, weights)
    assert_equal(load_file(weights)["matrix"], tensors["matrix"])


def test_tensors_are_loaded_from_bytes(weights, tensors):
    found = load(weights.read_bytes())
    for name, tensor in tensors.items():
        assert_equal(found[name], tensor)
    found["matrix"].zero_()


def test_what_safetensors_loads_is_the_same(weights):
    reference = pytest.importorskip("safetensors.torch").load_file(weights)
    found = load_file(weights)
    assert found.keys() == reference.keys()
    for name, tensor in reference.items():
        assert_equal(found[name], tensor)


def test_threads_load_and_save_at_the_same_time(tmp_path, tensors):
    failed = []

    def work(number: int) -> None:
        try:
            path = tmp_path / str(number)
            for _ in range(5):
                save_file(tensors, path)
                for name, tensor in load_file(path, backend="pread").items():
                    assert_equal(tensor, tensors[name])
        except BaseException as error:
            failed.append(error)

    started = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert not failed


def test_a_plan_loads_its_tensors_and_slices(weights, tensors):
    plan = {"matrix": np.s_[:, 8:1032], "cube": np.s_[1:3], "scalar": None, "odd": np.s_[::3]}
    for keys in ({}, {"backend": "pread"}):
        found = load_file(weights, plan=plan, **keys)
        assert list(found) == list(plan)
        for name, index in plan.items():
            wanted = tensors[name] if index is None else tensors[name][index]
            assert_equal(found[name], wanted)
    assert list(load_file(weights, plan=["odd", "bool"])) == ["odd", "bool"]


def test_a_plan_with_a_wrong_name_or_index_is_refused(weights):
    with pytest.raises(SafetensorError, match="none"):
        load_file(weights, plan=["none"])
    with pytest.raises(SafetensorError, match=r"'odd'.*dimension 1"):
        load_file(weights, plan={"odd": np.s_[1, 2]})


def sharded(folder: Path, tensors: dict[str, Any]) -> Path:
    """Save tensors in two files with an index."""
    names = list(tensors)
    weight_map = {}
    for number in range(2):
        file = f"model-{number + 1:05}-of-00002.safetensors"
        part = {name: tensors[name] for name in names[number::2]}
        save_file(part, folder / file)
        weight_map |= dict.fromkeys(part, file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return index


def test_a_model_of_several_files_is_loaded_by_its_index_or_folder(tmp_path, tensors):
    index = sharded(tmp_path, tensors)
    for path in (index, tmp_path):
        for keys in ({}, {"backend": "pread"}):
            found = load_file(path, **keys)
            assert found.keys() == tensors.keys()
            for name, tensor in tensors.items():
                assert_equal(found[name], tensor)
    found = load_file(tmp_path, plan={"matrix": np.s_[4:6]})
    assert_equal(found["matrix"], tensors["matrix"][4:6])


def test_a_wrong_index_is_refused(tmp_path, tensors):
    index = sharded(tmp_path, tensors)
    for text in ("{", "[]", "{}", '{"weight_map":[]}', '{"weight_map":{"a":1}}'):
        index.write_text(text)
        with pytest.raises(SafetensorError):
            load_file(index)
    for file in ("../x.safetensors", "/x.safetensors", "..", ""):
        index.write_text(json.dumps({"weight_map": {"a": file}}))
        with pytest.raises(SafetensorError, match="not a file name"):
            load_file(index)
    index.write_text(json.dumps({"weight_map": {"a": "none.safetensors"}}))
    with pytest.raises(FileNotFoundError, match="none"):
        load_file(index)
    index.write_text(json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors"}}))
    with pytest.raises(SafetensorError, match="does not contain tensor a"):
        load_file(index)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="neither"):
        load_file(tmp_path / "empty")


def test_a_device_map_gives_each_tensor_its_device(tmp_path):
    names = ["model.embed", "model.layers.1.w", "model.layers.10.w", "head"]
    save_file({name: torch.full((4,), float(n)) for n, name in enumerate(names)}, tmp_path / "x")
    found = load_file(
        tmp_path / "x",
        device_map={
            "model": "cpu",
            "model.layers.1": "cpu",
            "": 0 if torch.cuda.is_available() else "cpu",
        },
    )
    assert [float(found[name][0]) for name in names] == [0, 1, 2, 3]
    with pytest.raises(SafetensorError, match="device_map has no device for tensor 'head'"):
        load_file(tmp_path / "x", device_map={"model": "cpu", "hea": "cpu"})


def test_an_error_names_the_file_and_the_remedy(weights, tmp_path):
    with pytest.raises(FileNotFoundError) as missing:
        load_file(tmp_path / "none")
    assert str(missing.value) == f"No such file or directory: {tmp_path / 'none'}"
    with pytest.raises(SafetensorError, match="backend 'x' is invalid"):
        load_file(weights, backend="x")
    for device in ("meta", "gpu", "cpu:x", -1, 1.5, True):
        with pytest.raises(SafetensorError, match="invalid"):
            load_file(weights, device)
    with pytest.raises((ps.UnavailableError, RuntimeError)):
        load_file(weights, f"cuda:{torch.cuda.device_count()}")
    for device in ("xpu", "mps", "hpu:0"):  # no machine of the tests has them
        with pytest.raises(ps.UnavailableError, match=f"torch cannot use device {device}: .*cpu"):
            load_file(weights, device)
    with pytest.raises(ps.InvalidError, match="threads"):
        load_file(weights, threads=-1)


def test_an_error_can_be_pickled(tmp_path):
    (tmp_path / "x").write_bytes(b"short")
    with pytest.raises(SafetensorError) as caught:
        load_file(tmp_path / "x")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), str(copy), copy.path) == (
        type(caught.value),
        str(caught.value),
        caught.value.path,
    )


def test_the_bytes_of_a_file_stay_together_with_most_of_them_aligned(tmp_path):
    save_file({"s": torch.zeros(1), "w": torch.zeros(64, dtype=torch.uint8)}, tmp_path / "x")
    from penstock.torch.safetensors.header import read_header

    header = read_header(tmp_path / "x")
    shift, places = lay_out_contiguous(list(header.entries.values()), header.begin)
    assert places[1] % 16 == 0
    assert places == [shift, shift + 4]
