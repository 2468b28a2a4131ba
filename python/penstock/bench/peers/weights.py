"""Other loaders of safetensors files, each at the settings that its documentation gives.

Each contestant returns the tensors by name, complete on the GPU, or a number of them where it keeps
none.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from .. import gpu
from ..measure import Contestant, absent

Load = Callable[[str, str, Any], Any]
"""Loads the file at a path to a device, with a process group if it takes one."""


def entered(
    wants: Callable[[str], bool], path: Path, device: str, template: Contestant, group: Any = None
) -> list[Contestant]:
    """Return the peers that are wanted. A ``group`` of torch's is for those that share the read."""
    found = []
    for peer, settings in _PEERS.items():
        if not wants(peer):
            continue
        for setting, load in settings.items():
            if (group is not None) != (setting in _SHARED):
                continue
            found.append(_contestant(peer, setting, load, path, device, template, group))
    return found


def entered_for_parts(
    wants: Callable[[str], bool],
    path: Path,
    device: str,
    template: Contestant,
    index: Any,
    group: Any,
) -> list[Contestant]:
    """Return the peers that are wanted for parts of each tensor. ``group`` is torch's, if any."""
    settings: list[tuple[str, str, Load]] = [("safetensors", "get_slice", partial(_slices, index))]
    if group is not None:
        all_first = "all by process_group, mmap, then slices"
        load = _instanttensor("MMAP", copy=False, index=index)
        settings.append(("instanttensor", all_first, load))
    return [
        _contestant(peer, f"{template.setting}: {how}", load, path, device, template, group)
        for peer, how, load in settings
        if wants(peer)
    ]


def _contestant(
    peer: str, setting: str, load: Any, path: Path, device: str, template: Contestant, group: Any
) -> Contestant:
    module = _MODULES.get(peer, peer)
    if importlib.util.find_spec(module) is None:
        return absent(peer, setting, "it is not installed")
    if device == "cpu" and peer != "safetensors":
        return absent(peer, setting, "it is measured on GPUs")

    def run() -> Any:
        made = load(str(path), device, group)
        gpu.synchronize()
        return made

    def check(found: object) -> None:
        if not isinstance(found, int):
            template.check(found)

    return replace(template, name=peer, setting=setting, run=run, check=check)


def _safetensors(backend: str) -> Load:
    return lambda path, device, _: import_module("safetensors.torch").load_file(
        path, device=device, backend=backend
    )


def _slices(index: Any, path: str, device: str, _: Any) -> Any:
    with import_module("safetensors").safe_open(path, "pt", device) as opened:
        return {name: opened.get_slice(name)[index] for name in opened.offset_keys()}


def _instanttensor(backend: str | None, *, copy: bool, index: Any = None) -> Load:
    def load(path: str, device: str, group: Any) -> Any:
        it = import_module("instanttensor")
        keys: dict[str, Any] = {} if backend is None else {"backend": it.Backend[backend]}
        keys |= {} if group is None else {"process_group": group}
        with it.safe_open(path, "pt", device, copy=copy, **keys) as opened:
            if index is not None:
                return {name: tensor[index].clone() for name, tensor in opened.tensors()}
            return dict(opened.tensors()) if copy else sum(1 for _ in opened.tensors())

    return load


def _runai(*, is_direct: bool) -> Load:
    def load(path: str, device: str, _: Any) -> Any:
        with import_module("runai_model_streamer").SafetensorsStreamer() as streamer:
            streamer.stream_files([path], device=device if is_direct else "cpu")
            return {name: tensor.to(device) for name, tensor in streamer.get_tensors()}

    return load


def _fastsafetensors(path: str, device: str, _: Any) -> Any:
    opening = import_module("fastsafetensors").fastsafe_open
    with opening(filenames=[path], nogds=True, device=device) as opened:
        return {name: opened.get_tensor(name).clone().detach() for name in list(opened.keys())}


def _by_copier(path: str, device: str, _: Any) -> Any:
    import_module("penstock.torch.fastsafetensors")
    one, loaders, types = (
        import_module(name)
        for name in ("fastsafetensors", "fastsafetensors.loader", "fastsafetensors.st_types")
    )
    keys = {"copier_type": "penstock", "set_numa": False}
    device = types.Device.from_str(device)
    loader = loaders.BaseSafeTensorsFileLoader(one.SingleGroup(), device, **keys)
    loader.add_filenames({0: [path]})
    buffers = loader.copy_files_to_device()
    return {name: buffers.get_tensor(name) for name in loader.get_keys()}


_GROUP = "process_group, mmap, copy=False"
_GROUP_COPY = "process_group, mmap"
_GROUP_BUFFERED = "process_group, buffered, copy=False"
_SHARED = (_GROUP, _GROUP_COPY, _GROUP_BUFFERED)
_MODULES = {"runai": "runai_model_streamer"}
_PEERS: dict[str, dict[str, Load]] = {
    "safetensors": {"mmap": _safetensors("mmap"), "pread": _safetensors("pread")},
    "instanttensor": {
        "mmap": _instanttensor("MMAP", copy=True),
        "mmap, copy=False": _instanttensor("MMAP", copy=False),
        "buffered": _instanttensor("URING_BUFFERED", copy=True),
        "direct (its default)": _instanttensor(None, copy=True),
        _GROUP: _instanttensor("MMAP", copy=False),
        _GROUP_COPY: _instanttensor("MMAP", copy=True),
        _GROUP_BUFFERED: _instanttensor("URING_BUFFERED", copy=False),
    },
    "runai": {
        "to the host, then to()": _runai(is_direct=False),
        "device=": _runai(is_direct=True),
    },
    "fastsafetensors": {"nogds": _fastsafetensors, 'copier_type="penstock"': _by_copier},
}
