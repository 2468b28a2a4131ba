"""DeepSpeed's DeepNVMe, with the settings of its published examples."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from ..files import sync_file
from ..measure import Contestant, absent
from ..place import Place

NAME = "deepspeed"
# Block size, queue depth, single submit, overlap of events, threads: as in file_access/*.py.
_SETTING = (1 << 20, 128, True, True, 1)
_WORDS = "1 MiB, depth 128, 1 thread"


@cache
def _handle(kind: str) -> Any:
    if kind == "aio":
        from deepspeed.ops.op_builder import AsyncIOBuilder

        return AsyncIOBuilder().load().aio_handle(*_SETTING)
    from deepspeed.ops.op_builder import GDSBuilder

    return GDSBuilder().load().gds_handle(*_SETTING)


def _handles(place: Place) -> list[tuple[str, Any]]:
    """Return each kind with its handle, or with the reason why there is none."""
    found: list[tuple[str, Any]] = []
    for kind in ("aio", "gds") if place.is_gpu else ("aio",):
        try:
            import deepspeed  # noqa: F401
        except ImportError:
            found.append((kind, "it is not installed"))
            continue
        try:
            found.append((kind, _handle(kind)))
        except Exception as error:  # DeepSpeed builds the operator, which may fail in any way
            found.append((kind, f"{type(error).__name__}: {error}".split("\n")[0]))
    return found


def _each(place: Place, array: Any, made: Callable[[str, Any], Contestant]) -> list[Contestant]:
    """Return a contestant for each handle."""
    found = []
    for kind, handle in _handles(place):
        if isinstance(handle, str):
            found.append(absent(f"{NAME} {kind}", _WORDS, handle))
            continue
        contestant = made(f"{NAME} {kind}", handle)
        if kind == "gds":
            _pinned_around(contestant, handle, _torch(array))
        found.append(contestant)
    return found


def _pinned_around(contestant: Contestant, handle: Any, tensor: Any) -> None:
    """Pin the tensor around each run, since the handle ends the process with one that is not."""
    before, after = contestant.before, contestant.after

    def pin() -> None:
        before()
        handle.pin_device_tensor(tensor)

    def unpin() -> None:
        handle.unpin_device_tensor(tensor)
        after()

    contestant.before, contestant.after = pin, unpin


def _torch(array: Any) -> Any:
    import torch

    return torch.as_tensor(array)


def loads(
    source: Path,
    target: Any,
    place: Place,
    nbytes: int,
    check: Callable[[object], None],
    *,
    before: Callable[[], None],
    poison: Callable[[], None],
) -> list[Contestant]:
    def made(name: str, handle: Any) -> Contestant:
        def run() -> None:
            handle.sync_pread(_torch(target), os.fspath(source), 0)

        return Contestant(name, _WORDS, nbytes, run, before=before, poison=poison, check=check)

    return _each(place, target, made)


def stores(
    path: Path,
    array: Any,
    place: Place,
    nbytes: int,
    fsync: bool,
    remove: Callable[[], None],
    check: Callable[[object], None],
) -> list[Contestant]:
    def before() -> None:
        # DeepSpeed's handles need an existing file of the same length.
        with open(path, "wb") as file:
            file.truncate(nbytes)

    def made(name: str, handle: Any) -> Contestant:
        def run() -> None:
            handle.sync_pwrite(_torch(array), os.fspath(path), 0)
            if fsync:
                sync_file(path)

        return Contestant(name, _WORDS, nbytes, run, before=before, check=check, after=remove)

    return _each(place, array, made)
