"""The cases of ``python -m benches daily --gpu``.

The peer is what people write: NumPy or h5py on the host, and a copy by torch, or by Penstock where
torch has no GPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import penstock as ps
from penstock.bench import gpu

from .daily_cases import (
    DOES_LESS,
    LAYOUTS,
    SELECTIONS,
    Case,
    Cases,
    Groups,
    group,
    layouts,
    opened,
    values,
)

GPU_GROUPS: Groups = {}

_ROWS = 1.5
"""The floor of rows that are gathered from all over a file."""
_APPENDS = 1.2


_group = partial(group, groups=GPU_GROUPS)


def _to_gpu(host: Any) -> Any:
    host = np.asarray(host)
    return gpu.torch.from_numpy(host).cuda() if gpu.torch else ps.DeviceArray.from_numpy(host)


def _to_host(array: Any) -> np.ndarray[Any, Any]:
    return np.asarray(array.cpu() if gpu.torch else array.numpy())


def _indexed(folder: Path, files: ExitStack, mode: str) -> Cases:
    ours, theirs = opened(layouts(folder), files, mode)
    for name, what in itertools.product(("contiguous", "chunked", "gzip"), SELECTIONS):
        part = SELECTIONS[what]
        read = partial(ours[name].read, part, device="cuda")
        peer = partial(lambda peer, part: _to_gpu(peer[part]), theirs[name], part)
        yield Case(f"{name}, {what}", read, peer, "h5py, copy")


@_group("reads")
def _reads(folder: Path, files: ExitStack) -> Cases:
    yield from _indexed(folder, files, "r")


@_group("reads of a file open for writing")
def _reads_rw(folder: Path, files: ExitStack) -> Cases:
    yield from _indexed(folder, files, "r+")


@_group("random rows")
def _random_rows(folder: Path, files: ExitStack) -> Cases:
    for nbytes, count in ((128, 200_000), (1 << 10, 50_000), (16 << 10, 4_000)):
        path = folder / f"daily-rows{nbytes}.h5"
        if not path.exists():
            with h5py.File(path, "w") as file:
                file["x"] = values((count, nbytes // 4))
        dataset = files.enter_context(ps.File(path))["x"]
        offset = dataset.id.get_offset()
        mapped = np.memmap(path, "f4", "r", offset, dataset.shape)
        for rows in (64, 1024):
            index = np.random.default_rng(rows).permutation(count)[:rows]
            ours = partial(dataset.read, index, device="cuda")
            peer = partial(lambda mapped, index: _to_gpu(mapped[index]), mapped, index)
            yield Case(f"{rows} rows of {nbytes} B", ours, peer, "memmap, copy", _ROWS)


@_group("writes")
def _writes(folder: Path, files: ExitStack) -> Cases:
    ours = files.enter_context(ps.File(folder / "daily-gpu.h5", "w"))
    theirs = files.enter_context(h5py.File(folder / "daily-gpu.peer.h5", "w"))
    for rows, (layout, keys) in itertools.product((1, 64), list(LAYOUTS.items())[1:3]):
        block = _to_gpu(values((rows, 1024)))
        grown = {**keys, "chunks": (64, 1024), "maxshape": (None, 1024)}
        name = f"{layout} {rows}"
        a, b = (file.create_dataset(name, (0, 1024), "f4", **grown) for file in (ours, theirs))

        def append(dataset: Any, block: Any, made: Callable[[Any], Any]) -> None:
            begin = dataset.shape[0]
            dataset.resize(begin + len(block), 0)
            dataset[begin:] = made(block)

        mine, other = partial(append, a, block, lambda it: it), partial(append, b, block, _to_host)
        yield Case(f"append {rows} rows of 4 KiB, {layout}", mine, other, "copy, h5py", _APPENDS)
    names = map(str, itertools.count())

    def create(file: Any, array: Any, made: Callable[[Any], Any]) -> None:
        file.create_dataset(next(names), data=made(array))

    for size in (4 << 10, 256 << 10):
        array = _to_gpu(values((size // 4,)))
        mine = partial(create, ours, array, lambda it: it)
        other = partial(create, theirs, array, _to_host)
        yield Case(f"create a dataset of {size} bytes", mine, other, "copy, h5py", DOES_LESS)


@_group("plain files")
def _plain(folder: Path, files: ExitStack) -> Cases:
    path, copy = folder / "daily-gpu.bin", folder / "daily-gpu-saved.bin"
    for size in (4 << 10, 64 << 10, 1 << 20, 16 << 20):
        array = _to_gpu(values((size // 4,)))
        _to_host(array).tofile(path)
        keys = {"dtype": "f4", "shape": (size // 4,), "device": "cuda"}
        ours, peer = partial(ps.load, path, **keys), lambda: _to_gpu(np.fromfile(path, "f4"))
        yield Case(f"load {size}", ours, peer, "fromfile, copy")
        save = partial(lambda array: _to_host(array).tofile(f"{copy}.peer"), array)
        yield Case(f"save {size}", partial(ps.save, copy, array), save, "copy, tofile", DOES_LESS)


@_group("many")
def _many(folder: Path, files: ExitStack) -> Cases:
    path = folder / "daily-names.h5"
    count = 500
    if not path.exists():
        with h5py.File(path, "w") as file:
            for number in range(count):
                file[f"{number}"] = values((256,)) + number

    def with_file(kind: Any, read: Callable[[Any], Any]) -> Any:
        with kind(path, "r") as file:
            return [read(file[f"{number}"]) for number in range(count)][-1]

    yield Case(
        f"open, {count} datasets of 1 KiB by name",
        partial(with_file, ps.File, lambda dataset: dataset.read(device="cuda")),
        partial(with_file, h5py.File, lambda dataset: _to_gpu(dataset[...])),
        "h5py, copy",
    )
