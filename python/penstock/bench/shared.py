"""One file that all ranks write, or that all ranks read whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import h5py

import penstock as ps
from penstock import arrays
from penstock._options import resolve
from penstock.dist import load_replicated, transfers
from penstock.dist.description import Description, StoredArray
from penstock.files import WRITE, NativeFile
from penstock.memory import copy_bytes

from . import gpu, group, native, verify
from .files import DATASET, DataFile, sync_file
from .measure import Contestant, absent
from .ranks import Ranks
from .session import RefusedError
from .vfd import HostArray

_STEP = 1 << 30
"""Bytes of one ``pwrite``: the system writes less than 2 GiB at a time."""


def keys_of(text: str) -> dict[str, Any]:
    """Return the options of a call that a text such as "threads=4;block=4MiB" has."""
    pairs = [part.partition("=") for part in filter(None, text.split(";"))]
    keys: dict[str, Any] = {key.strip(): value.strip() for key, _, value in pairs}
    keys.pop("mode", None)  # only the driver has modes
    try:
        if "threads" in keys:
            keys["threads"] = int(keys["threads"])
        resolve(keys)
    except (ps.Error, ValueError) as error:
        raise RefusedError(f"--options {text!r}: {error}") from None
    return keys


def writers(
    ranks: Ranks, file: DataFile, part: DataFile, buffer: gpu.Buffer, text: str, sync: bool
) -> list[Callable[[], Contestant]]:
    """Return contestants that write this rank's part of a file, into storage that is allocated.

    Opening the file is not timed. Collective: rank 0 describes the dataset to all.
    """
    description: Description | None = None
    if ranks.is_first:
        with h5py.File(file.path, "r") as opened:
            description = Description.of(opened[DATASET])
    (description, *_) = ranks.gather(description)
    assert description is not None
    keys, stored = keys_of(text), StoredArray(description)
    start = part.offset - file.offset
    ranges = transfers.ranges_of((slice(start, start + part.nbytes),), stored.description.shape)

    def write(opened: NativeFile) -> None:
        transfers.write(stored, opened, ranges, arrays.view(buffer.array), resolve(keys))
        if sync:
            opened.sync()

    def by_posix(opened: Any) -> None:
        host = HostArray.of(part.nbytes)
        copy_bytes(host.ctypes.data, buffer.address, part.nbytes)
        done = 0
        while done < part.nbytes:
            piece = host[done : done + _STEP].data
            done += os.pwrite(opened.fileno(), piece, part.offset + done)
        if sync:
            os.fsync(opened.fileno())

    def contestant(
        name: str, setting: str, open_file: Callable[[], Any], run: Callable[[Any], None]
    ) -> Contestant:
        opened: list[Any] = []

        def before() -> None:
            sync_file(file.path)
            opened[:] = [open_file()]

        check = verify.checker(file.path, verify.windows(part.nbytes, part.offset), buffer.address)
        made = Contestant(name, setting, part.nbytes, lambda: run(opened[0]), before, check=check)
        made.after = lambda: opened.pop().close()
        return made

    def ours() -> Contestant:
        setting = text or "default options"
        made = contestant("Penstock", setting, lambda: NativeFile(file.path, WRITE), write)
        made.detail = lambda: native.paths(ps.last_report())
        return made

    def posix() -> Contestant:
        setting = "one copy, a host array, pwrite"
        return contestant("POSIX", setting, lambda: open(file.path, "r+b", buffering=0), by_posix)

    return [ours, posix]


def readers(
    ranks: Ranks,
    folder: Path,
    file: DataFile,
    buffer: gpu.Buffer,
    text: str,
    before: Callable[[], None],
) -> list[Callable[[bool], Contestant]]:
    """Return contestants that read one dataset into the memory of every rank.

    Each takes whether this rank is at work alone: there is nothing to exchange then.
    """
    keys = keys_of(text)
    source = f"{file.path}:{DATASET}"
    poison, check = verify.reading(file, file.nbytes, buffer.address)

    @cache
    def of_nccl() -> Any:
        return group.nccl(ranks, folder)

    def contestant(name: str, setting: str, run: Callable[[], object]) -> Contestant:
        return Contestant(name, setting, file.nbytes, run, before, poison, check)

    def replicated(name: str, members: Any) -> Contestant:
        def run() -> None:
            load_replicated(source, members, out=buffer.array, **keys)

        made = contestant(name, text or "default options", run)
        made.detail = lambda: getattr(ps.last_report(), "note", "")
        return made

    def alone() -> Any:
        return group.BenchGroup(Ranks())

    def ours(is_alone: bool) -> Contestant:
        return replicated("Penstock, replicated", alone() if is_alone else group.of(ranks))

    def by_nccl(is_alone: bool) -> Contestant:
        name, found = "Penstock, replicated by NCCL", of_nccl()
        if isinstance(found, str):
            return absent(name, "", found)
        return replicated(name, alone() if is_alone else found)

    def each(_: bool) -> Contestant:
        read = partial(ps.read, source, out=buffer.array, **keys)
        made = contestant("each reads all", "penstock.read", read)
        made.detail = lambda: native.paths(ps.last_report())
        return made

    return [ours, by_nccl, each]
