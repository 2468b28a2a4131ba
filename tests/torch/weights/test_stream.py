"""Weights of many files, window by window, and the plug-ins for other loaders."""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import sys
import warnings
import weakref
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest

import penstock as ps

torch = pytest.importorskip("torch", reason="torch is not installed")

from penstock.torch import SafetensorError, save_file  # noqa: E402
from penstock.torch.safetensors import iter_weights  # noqa: E402

from .conftest import assert_equal  # noqa: E402


def two_files(folder, tensors):
    names = list(tensors)
    paths = [folder / f"model-{n}.safetensors" for n in range(2)]
    for number, path in enumerate(paths):
        save_file({name: tensors[name] for name in names[number::2]}, path)
    return paths


@pytest.mark.parametrize("window", [1, 1 << 16, 1 << 30])
def test_all_tensors_of_all_files_come_once(window, tmp_path, tensors):
    seen = []
    for name, tensor in iter_weights(two_files(tmp_path, tensors), window=window):
        assert_equal(tensor, tensors[name])
        seen.append(name)
    assert sorted(seen) == sorted(tensors)


def stray(folder):
    """Make a model of two files, one of which also has a tensor that the other should have."""
    save_file({"y": torch.full((2,), 3.0), "none": torch.ones(1)}, folder / "a.safetensors")
    save_file({"y": torch.full((2,), 2.0), "z": torch.ones(2)}, folder / "b.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"z": "b.safetensors", "y": "a.safetensors"}}))
    return [folder / "a.safetensors", folder / "b.safetensors"]


@pytest.mark.parametrize("which", ["files", "reversed", "bytes", "index", "folder"])
def test_a_tensor_comes_from_the_file_that_the_index_says(which, tmp_path):
    files = stray(tmp_path)
    paths = {
        "files": files,
        "reversed": files[::-1],
        "bytes": [os.fsencode(path) for path in files],
        "index": [tmp_path / "model.safetensors.index.json"],
        "folder": [tmp_path],
    }[which]
    found = list(iter_weights(paths))
    assert sorted(name for name, _ in found) == ["y", "z"]
    assert dict(found)["y"].tolist() == [3, 3]


def test_a_file_that_the_index_does_not_name_has_all_its_tensors(tmp_path):
    stray(tmp_path)
    save_file({"y": torch.zeros(2), "adapter": torch.ones(2)}, tmp_path / "c.safetensors")
    assert sorted(dict(iter_weights([tmp_path / "c.safetensors"]))) == ["adapter", "y"]


def test_a_tensor_that_the_index_says_and_the_file_lacks_is_an_error(tmp_path):
    files = stray(tmp_path)
    save_file({"y": torch.zeros(2)}, files[1])
    with pytest.raises(SafetensorError, match=r"does not contain tensor z.*b\.safetensors"):
        list(iter_weights(files))


def test_names_that_are_not_wanted_are_not_read(tmp_path, tensors):
    paths = two_files(tmp_path, tensors)
    found = dict(iter_weights(paths, wanted=lambda name: name in ("odd", "cube")))
    assert sorted(found) == ["cube", "odd"]


def test_two_windows_are_in_memory_at_a_time(tmp_path, monkeypatch):
    from penstock.torch.safetensors import frameworks

    alive: list[weakref.ref] = []
    allocate = frameworks._Torch.allocate

    def noted(self, nbytes, *, pin=False):
        memory = allocate(self, nbytes, pin=pin)
        alive.append(weakref.ref(memory.owner))
        return memory

    monkeypatch.setattr(frameworks._Torch, "allocate", noted)
    for name in "xy":
        save_file({f"{name}{n}": torch.zeros(1 << 18) for n in range(16)}, tmp_path / name)
    before = len(os.listdir("/proc/self/fd"))
    for _ in iter_weights([tmp_path / "x", tmp_path / "y"], window=1 << 20):
        gc.collect()
        assert sum(one() is not None for one in alive) <= 2
    assert len(alive) == 32
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_consumer_may_leave_early(tmp_path, tensors):
    iterator = iter_weights(two_files(tmp_path, tensors), window=1)
    next(iterator)
    iterator.close()
    ps.drain()


def test_a_file_that_is_damaged_is_an_error_when_it_is_reached(tmp_path, tensors):
    paths = two_files(tmp_path, tensors)
    paths[1].write_bytes(b"damaged")
    with pytest.raises(SafetensorError, match="model-1"):
        list(iter_weights(paths))


@pytest.mark.parametrize("window", [1, 1 << 30])
@pytest.mark.parametrize(
    "ruin", [os.unlink, lambda path: path.write_bytes(b"no")], ids=["gone", "damaged"]
)
def test_tensors_before_a_file_that_cannot_be_opened_come_first(tmp_path, tensors, window, ruin):
    paths = two_files(tmp_path, tensors)
    ruin(paths[1])
    seen = []
    with pytest.raises((SafetensorError, OSError), match="model-1"):
        seen.extend(name for name, _ in iter_weights(paths, window=window))
    assert seen == [name for name, _ in iter_weights(paths[:1], window=window)]


@dataclass
class LoadConfig:
    load_format: str = "penstock"
    model_loader_extra_config: dict = field(default_factory=dict)
    safetensors_load_strategy: Any = None
    device: Any = "cpu"


@dataclass
class Source:
    model_or_path: str
    revision: Any = None
    subfolder: Any = None
    prefix: str = ""
    fall_back_to_pt: bool = True
    allow_patterns_overrides: Any = None
    is_unused_weight: Any = None


class DefaultModelLoader:
    """What vLLM 0.33 asks of a subclass of its default loader."""

    counter_before_loading_weights = 0.0

    def __init__(self, load_config):
        self.load_config = load_config
        self.local_expert_ids = None
        self._encoder_only_lm_prefixes = None
        unknown = set(load_config.model_loader_extra_config) - {"num_threads"}
        if unknown:
            raise ValueError(unknown)

    def _prepare_weights(
        self, model_name_or_path, subfolder, revision, fall_back_to_pt, allow_patterns_overrides
    ):
        assert self.load_config.load_format == "safetensors"
        files = [f"{model_name_or_path}/model-{n}.safetensors" for n in range(2)]
        return model_name_or_path, files, True, "model.safetensors.index.json"


@pytest.fixture
def vllm(monkeypatch):
    """A package with the names of vLLM 0.33 that the plug-in uses."""
    registered: dict[str, type] = {}
    root = "vllm.model_executor.model_loader"
    contents: dict[str, dict[str, Any]] = {
        "vllm": {},
        "vllm.model_executor": {},
        root: {
            "_LOAD_FORMAT_TO_MODEL_LOADER": registered,
            "register_model_loader": lambda name: lambda kind: registered.setdefault(name, kind),
        },
        f"{root}.default_loader": {"DefaultModelLoader": DefaultModelLoader},
        f"{root}.weight_utils": {
            "filter_safetensors_files_by_weight_name": lambda files, unused: files[:1]
        },
        f"{root}.ep_weight_filter": {"should_skip_weight": lambda name, local: name == "odd"},
    }
    for name, values in contents.items():
        module = ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    return registered


def test_vllm_gets_a_load_format(vllm, tmp_path, tensors):
    from penstock.torch.vllm import register

    register()
    register()
    two_files(tmp_path, tensors)
    config = LoadConfig(model_loader_extra_config={"threads": 2, "window": 1 << 20})
    loader = vllm["penstock"](config)
    assert config.load_format == "penstock"
    found = dict(loader._get_weights_iterator(Source(str(tmp_path), prefix="model.")))
    assert found.keys() == {f"model.{name}" for name in tensors}
    assert_equal(found["model.matrix"], tensors["matrix"])
    loader.local_expert_ids = {0}
    assert "odd" not in dict(loader._get_weights_iterator(Source(str(tmp_path))))
    few = dict(loader._get_weights_iterator(Source(str(tmp_path), is_unused_weight=bool)))
    assert len(few) < len(tensors)
    index = {name: f"model-{number % 2}.safetensors" for number, name in enumerate(tensors)}
    del index["matrix"]
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    loader.local_expert_ids = None
    assert dict(loader._get_weights_iterator(Source(str(tmp_path)))).keys() == index.keys()
    with pytest.raises(ValueError, match="unknown"):
        vllm["penstock"](LoadConfig(model_loader_extra_config={"unknown": 1}))


def test_vllm_itself_gets_the_same_weights(tmp_path, tensors):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaders = pytest.importorskip(
            "vllm.model_executor.model_loader", reason="vLLM is not installed"
        )
        from vllm.config.load import LoadConfig as Config
    from penstock.torch.vllm import register

    register()
    two_files(tmp_path, tensors)
    source = loaders.DefaultModelLoader.Source(str(tmp_path), revision=None, prefix="model.")
    mine, other = (
        loaders.get_model_loader(Config(load_format=name, use_tqdm_on_load=False))
        for name in ("penstock", "safetensors")
    )
    found, expected = (dict(loader._get_weights_iterator(source)) for loader in (mine, other))
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert_equal(tensor.cpu(), expected[name])


@pytest.mark.skipif(
    importlib.util.find_spec("fastsafetensors") is None, reason="fastsafetensors is not installed"
)
def test_fastsafetensors_reads_by_a_copier(tmp_path, tensors):
    from fastsafetensors import SingleGroup
    from fastsafetensors.loader import BaseSafeTensorsFileLoader
    from fastsafetensors.st_types import Device

    import penstock.torch.fastsafetensors  # noqa: F401

    weights = tmp_path / "x"
    save_file({name: tensors[name] for name in ("matrix", "cube", "scalar")}, weights)

    def loader():
        made = BaseSafeTensorsFileLoader(
            SingleGroup(), Device.from_str("cpu"), copier_type="penstock", set_numa=False
        )
        made.add_filenames({0: [str(weights)]})
        return made

    for early in (False, True):
        buffers = loader().copy_files_to_device(allow_inflight=early)
        for name in ("matrix", "cube", "scalar"):
            assert_equal(buffers.get_tensor(name), tensors[name])
        buffers.close()
    few = loader()
    few.set_tensor_filter(lambda name: name == "cube")
    buffers = few.copy_files_to_device()
    assert_equal(buffers.get_tensor("cube"), tensors["cube"])
    buffers.close()
