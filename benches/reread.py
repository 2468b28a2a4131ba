"""Chunks that were read a moment ago are read again, into host or GPU memory, against h5py.

HDF5 keeps the last 8 MiB (since 2.0) of decoded chunks of a dataset, and Penstock keeps decoded
chunks by its own rules. Before the first run that counts, each contestant has read its chunks
twice. The last group reads chunks that no cache has.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

import penstock as ps
from penstock.bench import gpu, native
from penstock.bench.expected import Expected
from penstock.bench.hdf5_files import create
from penstock.bench.measure import Contestant

from .run import Run, benchmark

_IMAGE = (96, 96, 3)
"""27 KB, one chunk."""
_BATCH = 64
_ROWS = (256, 256)
"""A chunk of 256 KiB."""
_FILES = 5
_LEAST = 0.91
"""At most 10 % slower than h5py."""

Read = Callable[[Any, Any], Any]
"""Reads ``dataset[selection]`` to where the results go."""
Work = Callable[[Any, Read], Any]
"""Reads some of a dataset and returns the last array."""


@benchmark("Chunks that are read again", size="64MiB", quick_size="1MiB", needs_gpu=False)
def reread(run: Run) -> None:
    paths = [run.folder / f"reread-{number}.h5" for number in range(_FILES)]
    nbytes = max(run.size, 1 << 20)
    images = max(2 * nbytes // int(np.prod(_IMAGE)), 2 * _BATCH)
    pixels = np.random.default_rng(3).integers(0, 12, (images, *_IMAGE), np.uint8)
    rows = np.random.default_rng(4).integers(0, 99, (nbytes >> 10, 256), np.int32)
    for path in paths:
        create(path, pixels.nbytes + rows.nbytes, partial(_fill, pixels=pixels, rows=rows))
    with ExitStack() as stack:
        files = [stack.enter_context(ps.File(path)) for path in paths]
        for place in ["host", *(["GPU"] if ps.devices() and gpu.torch else [])]:
            _in_place(run, files, place, pixels, rows)
    for path in paths:
        path.unlink()


def _fill(file: Any, pixels: np.ndarray[Any, Any], rows: np.ndarray[Any, Any]) -> None:
    images = partial(file.create_dataset, data=pixels, compression="gzip", compression_opts=1)
    images("images", chunks=(1, *_IMAGE))
    table = partial(file.create_dataset, data=rows, compression="gzip", compression_opts=1)
    table("rows", chunks=_ROWS)
    table("small", chunks=(64, 256))


def _in_place(
    run: Run,
    files: list[Any],
    place: str,
    pixels: np.ndarray[Any, Any],
    rows: np.ndarray[Any, Any],
) -> None:
    images, table, small = (files[0][name] for name in ("images", "rows", "small"))

    def race(what: str, of: Any, expected: np.ndarray[Any, Any], calls: int, work: Work) -> None:
        found = [
            _contestant(name, partial(work, of, read), expected, calls)
            for name, read in _readers(place).items()
        ]
        ours, theirs = run.race(found, "us", group=f"{place}: {what}", rounds=11)
        run.target(f"{place}: {what}, against h5py", _LEAST, ours.better_than(theirs))

    def again(what: str, of: Any, part: Any, expected: np.ndarray[Any, Any], calls: int) -> None:
        def work(dataset: Any, read: Read) -> Any:
            for _ in range(calls):
                found = read(dataset, part)
            return found

        race(what, of, expected, calls, work)

    again("one image", images, 7, pixels[7], 200)
    again("rows of one image", images, np.s_[8, :40], pixels[8, :40], 200)
    again(f"{_BATCH} images, one read", images, np.s_[:_BATCH], pixels[:_BATCH], 5)
    numbers = range(_BATCH, 2 * _BATCH)
    race(
        f"{_BATCH} images, one by one", images, pixels[numbers[-1]], _BATCH, partial(_each, numbers)
    )
    chosen = np.sort(np.random.default_rng(9).permutation(_BATCH)[:16])
    again("a list of 16 images", images, (chosen,), pixels[chosen], 20)
    again("64 KiB, one chunk", small, np.s_[:64], rows[:64], 200)
    again("256 KiB, one chunk", table, np.s_[:256], rows[:256], 50)
    again("1 MiB, 16 chunks", small, np.s_[:1024], rows[:1024], 10)
    again("4 MiB, 16 chunks", table, np.s_[:4096], rows[:4096], 3)
    _starved(run, files, place, rows)
    _streamed(run, images, place, pixels)


def _starved(run: Run, files: list[Any], place: str, rows: np.ndarray[Any, Any]) -> None:
    """Read rows of one chunk of the last file, after a row of each chunk of the other files."""
    *others, last = (file["rows"] for file in files)
    found = []
    for name, read in _readers(place).items():
        for other in others:
            for start in range(0, len(rows), _ROWS[0]):
                read(other, start)

        def work(read: Read = read) -> Any:
            for row in range(200):
                array = read(last, row)
            return array

        found.append(_contestant(name, work, rows[199], 200))
    what = f"{place}: a row of a chunk of 256 KiB in the fifth file"
    ours, theirs = run.race(found, "us", group=what, rounds=11)
    run.target(f"{what}, against h5py", _LEAST, ours.better_than(theirs))


def _streamed(run: Run, images: Any, place: str, pixels: np.ndarray[Any, Any]) -> None:
    """Read all images in turn, more than a cache has room for."""
    calls = min(len(pixels), 500)
    found = []
    for turn, (name, read) in enumerate(_readers(place).items()):
        at = [turn * len(pixels) // 2]

        def work(read: Read = read, at: list[int] = at) -> Any:
            for _ in range(calls):
                array = read(images, at[0] % len(pixels))
                at[0] += 1
            return array

        def check(array: object, at: list[int] = at) -> None:
            Expected(pixels[(at[0] - 1) % len(pixels)]).check(array)

        found.append(Contestant(name, "read", calls, work, verify=check))
    what = f"{place}: image after image, none read before"
    ours, theirs = run.race(found, "us", group=what, rounds=11)
    run.target(f"{what}, against h5py", _LEAST, ours.better_than(theirs))


def _each(numbers: range, dataset: Any, read: Read) -> Any:
    for number in numbers:
        found = read(dataset, number)
    return found


def _readers(place: str) -> dict[str, Read]:
    """Return how Penstock and how h5py read a selection."""
    if place == "host":
        return {"Penstock": lambda d, s: d.read(s), "h5py": lambda d, s: d.h5py[s]}

    def theirs(dataset: Any, selection: Any) -> Any:
        found = gpu.torch.from_numpy(dataset.h5py[selection]).cuda()
        gpu.synchronize()
        return found

    return {"Penstock": lambda d, s: d.read(s, device="cuda"), "h5py": theirs}


def _contestant(
    name: str, work: Callable[[], Any], expected: np.ndarray[Any, Any], calls: int
) -> Contestant:
    for _ in range(2):
        work()
    detail = native.last if name == "Penstock" else str
    return Contestant(name, "read", calls, work, check=Expected(expected).check, detail=detail)
