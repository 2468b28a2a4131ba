"""Chunks that were read a moment ago are read again, into host or GPU memory, against h5py.

HDF5 keeps the last 8 MiB (since 2.0) of decoded chunks of a dataset, and Penstock keeps decoded
chunks by its own rules. Before the first run that counts, each contestant has read its chunks
twice. The last group reads chunks that no cache has.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from itertools import product
from typing import Any

import numpy as np

import penstock as ps
from penstock.bench.hdf5_files import create
from penstock.bench.measure import Contestant
from penstock.bench.verify import Expected

from .beside import each, pair, places, readers
from .run import Run, benchmark

_IMAGE = (96, 96, 3)
"""27 KB, one chunk."""
_BATCH = 64
_ROWS = (256, 256)
"""A chunk of 256 KiB."""
_FILES = 5
_LEAST = 0.91
"""At most 10 % slower than h5py."""


@benchmark("Chunks that are read again", size="64MiB", quick_size="1MiB", needs_gpu=False)
def reread(run: Run) -> None:
    paths = [run.folder / f"reread-{number}.h5" for number in range(_FILES)]
    nbytes = max(run.size, 1 << 20)
    images = max(2 * nbytes // int(np.prod(_IMAGE)), 2 * _BATCH)
    pixels = np.random.default_rng(3).integers(0, 12, (images, *_IMAGE), np.uint8)
    rows = np.random.default_rng(4).integers(0, 99, (nbytes >> 10, 256), np.int32)

    def fill(file: Any) -> None:
        for name, data, chunks in (
            ("images", pixels, (1, *_IMAGE)),
            ("rows", rows, _ROWS),
            ("small", rows, (64, 256)),
        ):
            keys = {"chunks": chunks, "compression": "gzip", "compression_opts": 1}
            file.create_dataset(name, data=data, **keys)

    for path in paths:
        create(path, pixels.nbytes + rows.nbytes, fill)
    with ExitStack() as stack:
        files = [stack.enter_context(ps.File(path)) for path in paths]
        for place in places():
            _in_place(run, files, place, pixels, rows)
    for path in paths:
        path.unlink()


def _in_place(run: Run, files: list[Any], place: str, pixels: np.ndarray, rows: np.ndarray) -> None:
    images, table, small = (files[0][name] for name in ("images", "rows", "small"))
    chosen = np.sort(np.random.default_rng(9).permutation(_BATCH)[:16])
    one_by_one = list(range(_BATCH, 2 * _BATCH))

    def race(what: str, found: list[Contestant]) -> None:
        ours, theirs = run.race(found, "us", group=f"{place}: {what}", rounds=11)
        run.target(f"{place}: {what}, against h5py", _LEAST, ours.better_than(theirs))

    for what, of, parts, expected in (
        ("one image", images, [7] * 200, pixels[7]),
        ("rows of one image", images, [np.s_[8, :40]] * 200, pixels[8, :40]),
        (f"{_BATCH} images, one read", images, [slice(_BATCH)] * 5, pixels[:_BATCH]),
        (f"{_BATCH} images, one by one", images, one_by_one, pixels[one_by_one[-1]]),
        ("a list of 16 images", images, [(chosen,)] * 20, pixels[chosen]),
        ("64 KiB, one chunk", small, [slice(64)] * 200, rows[:64]),
        ("256 KiB, one chunk", table, [slice(256)] * 50, rows[:256]),
        ("1 MiB, 16 chunks", small, [slice(1024)] * 10, rows[:1024]),
        ("4 MiB, 16 chunks", table, [slice(4096)] * 3, rows[:4096]),
    ):
        race(what, _twice(pair(place, expected, len(parts), partial(each, of, parts))))

    # Rows of one chunk of the last file, after a row of each chunk of the other files.
    *others, last = (file["rows"] for file in files)
    for read in readers(place).values():
        for other, start in product(others, range(0, len(rows), _ROWS[0])):
            read(other, start)
    found = pair(place, rows[199], 200, partial(each, last, range(200)))
    race("a row of a chunk of 256 KiB in the fifth file", _twice(found))
    race("image after image, none read before", _streamed(images, place, pixels))


def _twice(found: list[Contestant]) -> list[Contestant]:
    for one in found:
        one.run(), one.run()
    return found


def _streamed(images: Any, place: str, pixels: np.ndarray) -> list[Contestant]:
    """Read all images in turn, more than a cache has room for."""
    calls = min(len(pixels), 500)
    found = []
    for turn, (name, read) in enumerate(readers(place).items()):
        at = [turn * len(pixels) // 2]

        def work(read: Any = read, at: list[int] = at) -> Any:
            for _ in range(calls):
                array = read(images, at[0] % len(pixels))
                at[0] += 1
            return array

        def check(array: object, at: list[int] = at) -> None:
            Expected(pixels[(at[0] - 1) % len(pixels)]).check(array)

        found.append(Contestant(name, "read", calls, work, verify=check))
    return found
