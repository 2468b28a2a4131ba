"""Reads of cached, uncompressed chunks into GPU memory, compared with contiguous data."""

from __future__ import annotations

from math import isqrt
from pathlib import Path
from typing import Any

from penstock.bench import hdf5
from penstock.bench.command import Found, Plan, main
from penstock.bench.expected import Expected
from penstock.bench.files import DATASET
from penstock.bench.hdf5_files import ITEM, array, create
from penstock.bench.measure import Contestant, race
from penstock.bench.result import Target

_CHUNK = 1 << 20
_H5PY_SHARE = 4


def measure(plan: Plan) -> Found:
    count = plan.size // ITEM
    columns = isqrt(count // 512) * 16
    flat, square = (count,), (count // columns, columns)
    side = isqrt(_CHUNK // ITEM)
    layouts: dict[str, tuple[tuple[int, ...], tuple[int, ...] | None]] = {
        "contiguous": (flat, None),
        "chunks of 1 MiB": (flat, (_CHUNK // ITEM,)),
        f"chunks of {side} x {side}": (square, (side, min(side, columns))),
    }
    ours: list[Contestant] = []
    theirs: list[Contestant] = []
    for number, (setting, (shape, chunks)) in enumerate(layouts.items()):
        path = plan.folder / f"hdf5-plain-{number}-{plan.size}.h5"
        expected = Expected(_make(path, shape, chunks))
        ours.append(hdf5.penstock(path, expected, setting))
        rows = max(shape[0] // _H5PY_SHARE, 1)
        theirs.append(hdf5.h5py_to_gpu(path, expected.part(rows), setting, slice(rows)))
    found = race([*ours, *theirs], "GB/s", rounds=plan.rounds)
    contiguous, flat_chunks, square_chunks = found[: len(ours)]
    targets = [
        Target(
            f"Uncompressed chunks of 1 MiB, {words}, share of the contiguous rate",
            "",
            0.9,
            row.better_than(contiguous),
        )
        for words, row in (("1-D", flat_chunks), ("2-D", square_chunks))
    ]
    return Found(found, targets, [])


def _make(path: Path, shape: tuple[int, ...], chunks: tuple[int, ...] | None) -> Any:
    values = array(shape)

    def fill(file: Any) -> None:
        file.create_dataset(DATASET, data=values, chunks=chunks)

    create(path, values.nbytes, fill)
    return values


if __name__ == "__main__":
    main("Uncompressed chunks to the GPU", measure, size="2GiB", quick_size="16MiB")
