"""Reads of parts of cached datasets, contiguous and chunked, into GPU memory."""

from __future__ import annotations

from math import isqrt
from typing import Any, NamedTuple

import numpy as np

from penstock.bench import hdf5
from penstock.bench.command import Found, Plan, main
from penstock.bench.expected import Expected
from penstock.bench.hdf5_files import ITEM, array, create
from penstock.bench.measure import race
from penstock.bench.result import Target


class _Part(NamedTuple):
    title: str
    dataset: str
    selection: Any
    promised: bool


def measure(plan: Plan) -> Found:
    rows = isqrt(plan.size // ITEM // 2)
    side = round((plan.size // ITEM) ** (1 / 3))
    values = {"matrix": array((rows, rows * 2)), "cube": array((side, side, side))}
    chunks = {"matrix": (64, min(4096, rows * 2)), "cube": (min(64, side),) * 3}
    path = plan.folder / f"hdf5-strided-{plan.size}.h5"

    def fill(file: Any) -> None:
        for name, data in values.items():
            file.create_dataset(f"{name}, contiguous", data=data)
            file.create_dataset(f"{name}, chunked", data=data, chunks=chunks[name])

    create(path, 4 * plan.size, fill)
    # Lengths and offsets are not aligned to chunks, as is usual for parts.
    box = slice(side // 5, side // 5 + side * 3 // 5)
    rectangle = (slice(rows // 8, rows // 8 * 5), slice(rows // 5, rows // 5 + rows // 3))
    parts = [
        _Part("every second row", "matrix", np.s_[::2], True),
        _Part("cube of a cube", "cube", (box, box, box), True),
        _Part("rectangle", "matrix", rectangle, False),
        _Part("every second column", "matrix", np.s_[:, ::2], False),
    ]
    found = Found([], [], [])
    for part in parts:
        wanted = Expected(np.ascontiguousarray(values[part.dataset][part.selection]))
        for layout in ("contiguous", "chunked"):
            name = f"{part.dataset}, {layout}"
            contestants = [
                hdf5.penstock(path, wanted, "default options", part.selection, name=name),
                hdf5.h5py_to_gpu(path, wanted, "", part.selection, name=name),
            ]
            group = f"{part.title}, {layout}"
            ours, theirs = race(contestants, "GB/s", rounds=plan.rounds, group=group)
            found.rows += [ours, theirs]
            if part.promised:
                text = f"To the GPU, {group}, against h5py"
                found.targets.append(Target(text, "x", 10, ours.better_than(theirs)))
    return found


if __name__ == "__main__":
    main("Parts of datasets to the GPU", measure, size="1GiB", quick_size="16MiB")
