"""DeepSpeed's DeepNVMe, with the settings of its published examples."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from ..files import sync_file
from ..measure import Contestant, absent, then
from ..place import Place

NAME = "deepspeed"
# Block size, queue depth, single submit, overlap of events, threads: as in file_access/*.py.
_SETTING = (1 << 20, 128, True, True, 1)
_WORDS = "1 MiB, depth 128, 1 thread"


@cache
def _handle(kind: str) -> Any:
    """Return a handle, or the reason why there is none."""
    try:
        builders: Any = import_module("deepspeed.ops.op_builder")
    except ImportError:
        return "it is not installed"
    try:
        if kind == "aio":
            return builders.AsyncIOBuilder().load().aio_handle(*_SETTING)
        return builders.GDSBuilder().load().gds_handle(*_SETTING)
    except Exception as error:  # DeepSpeed builds the operator, which may fail in any way
        return f"{type(error).__name__}: {error}".split("\n")[0]


def loads(source: Path, target: Any, place: Place, template: Contestant) -> list[Contestant]:
    def read(handle: Any) -> None:
        handle.sync_pread(_torch(target), os.fspath(source), 0)

    return _each(place, target, template, read)


def stores(
    path: Path, array: Any, place: Place, fsync: bool, template: Contestant
) -> list[Contestant]:
    def write(handle: Any) -> None:
        handle.sync_pwrite(_torch(array), os.fspath(path), 0)
        if fsync:
            sync_file(path)

    def before() -> None:
        # DeepSpeed's handles need an existing file of the same length.
        with open(path, "wb") as file:
            file.truncate(int(template.amount))

    return _each(place, array, replace(template, before=before), write)


def _each(
    place: Place, array: Any, template: Contestant, act: Callable[[Any], None]
) -> list[Contestant]:
    """Return a contestant for each handle."""
    found = []
    for kind in ("aio", "gds") if place.is_gpu else ("aio",):
        name, handle = f"{NAME} {kind}", _handle(kind)
        if isinstance(handle, str):
            found.append(absent(name, _WORDS, handle))
            continue
        made = replace(template, name=name, setting=_WORDS, run=partial(act, handle))
        if kind == "gds":
            # The handle ends the process if the tensor is not pinned.
            tensor = _torch(array)
            made.before = then(made.before, partial(handle.pin_device_tensor, tensor))
            made.after = then(partial(handle.unpin_device_tensor, tensor), made.after)
        found.append(made)
    return found


def _torch(array: Any) -> Any:
    import torch

    return torch.as_tensor(array)
