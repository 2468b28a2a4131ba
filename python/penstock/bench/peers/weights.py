"""Other loaders of safetensors files, each at the settings that its documentation gives.

Each contestant returns the tensors by name, complete on the GPU, or a number of them where it keeps
none.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from .. import gpu
from ..measure import Contestant, absent


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
    settings = [("safetensors", "get_slice", partial(_slices, index))]
    if group is not None:
        all_first = "all by process_group, mmap, then slices"
        settings.append(("instanttensor", all_first, partial(_slices_of_all, index)))
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


def _safetensors(path: str, device: str, _: Any, backend: str = "mmap") -> Any:
    from safetensors.torch import (  # type: ignore[import-not-found,unused-ignore]
        load_file,
    )

    return load_file(path, device=device, backend=backend)


def _safetensors_pread(path: str, device: str, _: Any) -> Any:
    return _safetensors(path, device, None, "pread")


def _prefetch(path: str, device: str, _: Any) -> Any:
    from safetensors import safe_open  # type: ignore[import-not-found,unused-ignore]

    with safe_open(path, "pt", device) as opened, opened.prefetch() as loader:
        return dict(loader)


def _instanttensor(backend: str | None, *, copy: bool) -> Any:
    def load(path: str, device: str, group: Any) -> Any:
        import instanttensor as it  # type: ignore[import-not-found,unused-ignore]

        keys: dict[str, Any] = {} if backend is None else {"backend": it.Backend[backend]}
        keys |= {} if group is None else {"process_group": group}
        with it.safe_open(path, "pt", device, copy=copy, **keys) as opened:
            if copy:
                return dict(opened.tensors())
            return sum(1 for _ in opened.tensors())

    return load


def _slices(index: Any, path: str, device: str, _: Any) -> Any:
    from safetensors import safe_open

    with safe_open(path, "pt", device) as opened:
        return {name: opened.get_slice(name)[index] for name in opened.offset_keys()}


def _slices_of_all(index: Any, path: str, device: str, group: Any) -> Any:
    import instanttensor as it

    keys = {"backend": it.Backend.MMAP, "process_group": group}
    with it.safe_open(path, "pt", device, copy=False, **keys) as opened:
        return {name: tensor[index].clone() for name, tensor in opened.tensors()}


def _runai(path: str, device: str, _: Any) -> Any:
    from runai_model_streamer import (  # type: ignore[import-not-found,unused-ignore]
        SafetensorsStreamer,
    )

    with SafetensorsStreamer() as streamer:
        streamer.stream_files([path], device="cpu")
        return {name: tensor.to(device) for name, tensor in streamer.get_tensors()}


def _runai_direct(path: str, device: str, _: Any) -> Any:
    from runai_model_streamer import SafetensorsStreamer

    with SafetensorsStreamer() as streamer:
        streamer.stream_files([path], device=device)
        return {name: tensor.to(device) for name, tensor in streamer.get_tensors()}


def _fastsafetensors(path: str, device: str, _: Any) -> Any:
    from fastsafetensors import (  # type: ignore[import-not-found,unused-ignore]
        fastsafe_open,
    )

    with fastsafe_open(filenames=[path], nogds=True, device=device) as opened:
        return {name: opened.get_tensor(name).clone().detach() for name in list(opened.keys())}


def _by_copier(path: str, device: str, _: Any) -> Any:
    from fastsafetensors import SingleGroup
    from fastsafetensors.loader import (  # type: ignore[import-not-found,unused-ignore]
        BaseSafeTensorsFileLoader,
    )
    from fastsafetensors.st_types import (  # type: ignore[import-not-found,unused-ignore]
        Device,
    )

    import penstock.torch.fastsafetensors  # noqa: F401

    loader = BaseSafeTensorsFileLoader(
        SingleGroup(), Device.from_str(device), copier_type="penstock", set_numa=False
    )
    loader.add_filenames({0: [path]})
    buffers = loader.copy_files_to_device()
    return {name: buffers.get_tensor(name) for name in loader.get_keys()}


_GROUP = "process_group, mmap, copy=False"
_GROUP_COPY = "process_group, mmap"
_GROUP_BUFFERED = "process_group, buffered, copy=False"
_SHARED = (_GROUP, _GROUP_COPY, _GROUP_BUFFERED)
_MODULES = {"runai": "runai_model_streamer"}
_PEERS: dict[str, dict[str, Callable[[str, str, Any], Any]]] = {
    "safetensors": {"mmap": _safetensors, "pread": _safetensors_pread},
    "instanttensor": {
        "mmap": _instanttensor("MMAP", copy=True),
        "mmap, copy=False": _instanttensor("MMAP", copy=False),
        "buffered": _instanttensor("URING_BUFFERED", copy=True),
        "direct (its default)": _instanttensor(None, copy=True),
        _GROUP: _instanttensor("MMAP", copy=False),
        _GROUP_COPY: _instanttensor("MMAP", copy=True),
        _GROUP_BUFFERED: _instanttensor("URING_BUFFERED", copy=False),
    },
    "runai": {"to the host, then to()": _runai, "device=": _runai_direct},
    "fastsafetensors": {"nogds": _fastsafetensors, 'copier_type="penstock"': _by_copier},
}
NAMES = tuple(_PEERS)


def has_prefetch() -> bool:
    """Whether the package safetensors has ``prefetch``, which is planned for 0.9."""
    if importlib.util.find_spec("safetensors") is None:
        return False
    from safetensors import safe_open

    return hasattr(safe_open, "prefetch")


if has_prefetch():
    _PEERS["safetensors"]["prefetch"] = _prefetch
