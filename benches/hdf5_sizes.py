"""Slices of 4 B to 256 MiB of cached datasets into host and GPU memory: the time over the size.

The slices follow one another through a dataset. Penstock and h5py take part in each of their ways,
of which the best counts; h5py's next step into GPU memory is torch's ``copy_``, which ends with a
synchronisation. ``--size 1GiB`` goes on to 1 GiB.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps
from penstock.bench import gpu, native
from penstock.bench.figures import Figure, Panel
from penstock.bench.files import DATASET
from penstock.bench.hdf5_files import ITEM, PERIOD, Dataset, compressed, create, field
from penstock.bench.measure import ROUNDS, Contestant, Row
from penstock.bench.verify import Expected
from penstock.units import size_in_words

from .run import Run, benchmark

_STEP = 4
_CHUNK = 256 << 10
_LENGTH = 256 << 20
"""The least bytes of a dataset: too many for a cache to still have what the first runs decoded."""
_PER_RUN = 16 << 20
_MOST_CALLS = 500
_SETTLED = 1 << 20
"""The size below which there are more rounds, as they are short."""
_BULK = 64 << 10
"""The size from which host reads are compared by ratio, below by difference."""
_PEER = "h5py"

Read = Callable[[slice], Any]
"""Reads a slice of the dataset and returns the array that has it."""
Way = tuple[str, str, Read, Any]
"""The contestant's name, its setting, its read, and the array that it always reads to, if any."""
Best = tuple[Row, Row]
"""The best row of Penstock and of h5py."""


@benchmark("Slices of datasets by size", size="256MiB", quick_size="1MiB", needs_gpu=False)
def hdf5_sizes(run: Run) -> None:
    sizes = [ITEM]
    while sizes[-1] * _STEP <= run.size:
        sizes.append(sizes[-1] * _STEP)
    length = max(sizes[-1], _CHUNK if run.quick else _LENGTH)
    layouts = {
        "contiguous": _contiguous(run.folder, length),
        "chunked": compressed(run.folder, length, _CHUNK, "none"),
        "gzip": compressed(run.folder, length, _CHUNK, "gzip"),
    }
    ticks = [size_in_words(size) for size in sizes]
    panels = []
    for place in ("host", *(["GPU"] if ps.devices() else [])):
        panel = Panel(f"into {place} memory", ticks, {}, {})
        for layout, data in layouts.items():
            best = _over_sizes(run, place, layout, data, sizes)
            _targets(run, place, layout, dict(zip(sizes, best, strict=True)))
            panel.series[f"Penstock, {layout}"] = [ours.value for ours, _ in best]
            panel.overlay[f"{_PEER}, {layout}"] = [theirs.value for _, theirs in best]
        panels.append(panel)
    axes = ("size of a slice", "time, µs")
    figure = Figure("slices", "Slices of cached datasets", *axes, panels, "lines", "log")
    run.session.figures.append(figure)


def _contiguous(folder: Path, nbytes: int) -> Dataset:
    path, count = folder / f"hdf5-contiguous-{nbytes}.h5", nbytes // ITEM
    made = Dataset(path, count, _CHUNK // ITEM)

    def fill(file: Any) -> None:
        values = file.create_dataset(DATASET, (count,), "float32")
        distinct = field(min(count, PERIOD)).reshape(-1, made.chunk)
        for number, which in enumerate(made.order):
            start = number * made.chunk
            values[start : start + made.chunk] = distinct[which]

    create(path, nbytes, fill)
    return made


def _over_sizes(run: Run, place: str, layout: str, data: Dataset, sizes: list[int]) -> list[Best]:
    best = []
    with ps.File(data.path) as file:
        for size in sizes:
            calls = max(min(_PER_RUN // size, 20 if run.quick else _MOST_CALLS), 1)
            ways = (_to_host if place == "host" else _to_gpu)(file[DATASET], size // ITEM)
            contestants = [
                _contestant(way, data.expected.values, size // ITEM, calls, turn / len(ways))
                for turn, way in enumerate(ways)
            ]
            rounds = ROUNDS * (3 if size < _SETTLED else 1)
            group = f"{place}: {layout}, {size_in_words(size)}"
            rows = run.race(contestants, "us", rounds=rounds, group=group)
            sides = [[row for row in rows if (row.name == _PEER) == is_peer] for is_peer in (0, 1)]
            first, second = (min(side, key=lambda row: row.value or 1e99) for side in sides)
            best.append((first, second))
            # A way of Penstock's that fails is to be seen, even if another one works.
            failed = [row for row in sides[0] if row.error and row is not first]
            run.keep([first, second, *failed], rows)
    return best


def _to_host(dataset: Any, count: int) -> list[Way]:
    """Return the ways into a new array, and into one that exists."""
    theirs = dataset.h5py
    out = np.empty(count, np.float32)

    def direct(part: slice) -> Any:
        theirs.read_direct(out, part)
        return out

    return [
        ("Penstock", "dataset[...]", partial(getitem, dataset), None),
        ("Penstock", "read(out=)", lambda part: dataset.read(part, out=out), out),
        (_PEER, "dataset[...]", partial(getitem, theirs), None),
        (_PEER, "read_direct", direct, out),
    ]


def _to_gpu(dataset: Any, count: int) -> list[Way]:
    """Return the ways into an array that exists.

    h5py reads into a new array or into host memory that exists, pageable or pinned.
    """
    theirs = dataset.h5py
    out = gpu.empty((count,), "float32")
    pageable = np.empty(count, np.float32)
    pinned = gpu.Pinned(count * ITEM)

    def copy(host: np.ndarray) -> Any:
        if gpu.torch:
            return out.copy_(gpu.torch.from_numpy(host))
        gpu.put(gpu.address_of(out), host)
        return out

    def through(room: np.ndarray, part: slice) -> Any:
        theirs.read_direct(room, part)
        return copy(room)

    by = f"then {gpu.COPIED_BY}"
    locked = pinned.array.view(np.float32)
    return [
        ("Penstock", "read(out=)", lambda part: dataset.read(part, out=out), out),
        (_PEER, f"dataset[...], {by}", lambda part: copy(theirs[part]), out),
        (_PEER, f"read_direct, {by}", partial(through, pageable), out),
        (_PEER, f"read_direct, pinned, {by}", partial(through, locked), out),
    ]


def _contestant(way: Way, expected: np.ndarray, count: int, calls: int, first: float) -> Contestant:
    """Return a contestant whose runs go on through the dataset, from a place of its own.

    ``first`` is this place as a fraction of the dataset, so that no contestant reads chunks that
    another has left in a cache. Of each run, the last slice is checked.
    """
    name, setting, read, out = way
    places = len(expected) // count
    at = int(first * places)
    parts: list[slice] = []

    def before() -> None:
        nonlocal at
        numbers = [(at + call) % places for call in range(calls)]
        parts[:] = [slice(number * count, (number + 1) * count) for number in numbers]
        at += calls

    def run() -> Any:
        for part in parts:
            found = read(part)
        return found

    def verify(found: object) -> None:
        Expected(expected[parts[-1]]).check(found)

    def poison() -> None:
        if out is not None:
            Expected(expected[:count]).poison(out)

    detail = native.last if name == "Penstock" else str
    return Contestant(name, setting, calls, run, before, poison, verify=verify, detail=detail)


def _targets(run: Run, place: str, layout: str, best: dict[int, Best]) -> None:
    """Add the targets, each with the size at which it is met worst."""

    def worst(text: str, wanted: float, among: dict[int, float | None], unit: str = "x") -> None:
        at_most = unit == "us"
        seen = {size: value for size, value in among.items() if value is not None}
        text, value = f"{place}: {layout}, {text}", None
        if len(seen) == len(among):
            size = (max if at_most else min)(seen, key=lambda size: seen[size])
            text, value = f"{text}; at the worst, {size_in_words(size)}", seen[size]
        run.target(text, wanted, value, unit, at_most=at_most)

    ratios = {size: ours.better_than(theirs) for size, (ours, theirs) in best.items()}
    if place == "GPU":
        worst("against h5py's best", 1, ratios)
        return
    more = {
        size: ours.value - theirs.value if ours.value and theirs.value else None
        for size, (ours, theirs) in best.items()
        if size < _BULK
    }
    worst("below 64 KiB, over h5py's best", 0.5, more, "us")
    if bulk := {size: ratio for size, ratio in ratios.items() if size >= _BULK}:
        worst("from 64 KiB, against h5py's best", 0.98, bulk)
