"""Small, random and many reads of cached datasets, beside each of h5py's ways."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

import penstock as ps
from penstock.bench import gpu
from penstock.bench.hdf5_files import create
from penstock.bench.measure import Contestant
from penstock.units import size_in_words

from .beside import contestant, each, pair, places, readers
from .run import Run, benchmark

_IMAGE = (224, 224, 3)
_TILE = 28
_SLICES = (64, 64 << 10, 1 << 20)
_CALLS = 200
"""Calls of a run that takes slices, of which one takes too little time to be told."""
_PIECE = 1 << 14
"""Elements of each of many small datasets."""


@benchmark(
    "Small, random and many reads of datasets", size="1MiB", quick_size="1MiB", needs_gpu=False
)
def hdf5_small(run: Run) -> None:
    images, batch, many = (96, 32, 50) if run.quick else (1024, 256, 3000)
    path = run.folder / "hdf5-small.h5"
    pixels = _pixels(images)
    create(path, 8 * pixels.nbytes, partial(_fill, pixels=pixels, many=many))
    with ps.File(path) as file:
        raw, gzip = file["images/raw"], file["images/gzip"]
        for place in places():
            _in_place(run, file, path, pixels, place, batch, many)
        group = "host: random images of gzip by threads"
        for count in (1, 2, 4):
            run.race([_by_threads(gzip, pixels, pixels.nbytes, count)], group=group)
        rows = np.ascontiguousarray(pixels[:, :8])
        for count, threads in ((1, "1 thread"), (8, "8 threads")):
            both = [_by_threads(one, rows, len(rows), count) for one in (raw, raw.h5py)]
            run.race(both, "us", group=f"host: the first 8 rows of random images by {threads}")
    path.unlink()


def _in_place(
    run: Run, file: ps.File, path: Path, pixels: np.ndarray, place: str, batch: int, many: int
) -> None:
    """Read into host memory, or into GPU memory."""
    theirs = readers(place)["h5py"]
    on_gpu = place == "GPU"
    device = "cuda" if on_gpu else None
    names = [f"many/{number}" for number in range(many)]
    last = np.full(_PIECE, many - 1, np.float32)

    def race(what: str, found: list[Contestant], least: float = 1, against: str = "h5py") -> None:
        first, *others = run.race(found, "us", group=f"{place}: {what}")
        peers = [row for row in others if row.value and row.name == against]
        best = min(peers, key=lambda row: row.value or 0, default=None)
        other = "h5py's best" if against == "h5py" else "one by one"
        ratio = None if best is None else first.better_than(best)
        run.target(f"{place}: {what}, against {other}", least, ratio)

    for size in _SLICES:
        parts, expected = [slice(size // 4)] * _CALLS, np.arange(size // 4, dtype=np.float32)
        found = pair(place, expected, _CALLS, partial(each, file["flat"], parts))
        race(f"slice of {size_in_words(size)}", found)
    for name in ("raw", "gzip", "lzf"):
        race(f"{batch} random images, {name}", _batch(file[f"images/{name}"], pixels, batch, place))
    for count in (8, 16, 32, 64, 256) if on_gpu else ():
        shares = _shares(file["images/gzip"], pixels, min(count, len(pixels)))
        run.race(shares, "us", group=f"GPU: {count} gzip images by each decoder")
    # h5py's cache does not hold the larger chunks, so that it decodes one for each row.
    for what, name, count, calls in (
        ("rows/4096, gzip, 256 a chunk, row after row", "rows/4096", 512, 512),
        ("rows/65536, gzip, 256 a chunk, row after row", "rows/65536", 32, 32),
        ("image after image, gzip, 6 a chunk", "images/6", batch, 1),
    ):
        expected = file[name].h5py[count - 1]
        race(what, pair(place, expected, calls, partial(each, file[name], range(count))))
    table = file["columns"]
    part = np.s_[:, np.sort(np.random.default_rng(8).permutation(2000)[:200])]
    found = pair(place, table.h5py[...][part], 1, lambda read: read(table, part))
    for one in found:
        one.setting = "list"
    race("200 columns of 3,000 x 2,000", found)

    def by_name(read: Any) -> Any:
        for name in names:
            found = read(file[name], ())
        return found

    what = f"{many} datasets of 64 KiB"
    race(f"{what}, by name", pair(place, last, 1, by_name))
    together = contestant(
        "Penstock", "read_many", last, 1, lambda: file.read_many(names, device=device)[-1]
    )
    alone = contestant(
        "h5py", "dataset[...]", last, 1, lambda: [theirs(file[name], ()) for name in names][-1]
    )
    race(f"{what} by read_many", [together, alone], 10 if on_gpu else 1.5)

    # In an order of their own, as the names in a file rarely are in that of their bytes.
    order = np.random.default_rng(10).permutation(many).tolist()
    empty = gpu.torch.empty if on_gpu else np.empty
    kind = {"dtype": gpu.torch.float32, "device": "cuda"} if on_gpu else {"dtype": np.float32}
    starts = [file[names[number]].h5py.id.get_offset() for number in order]
    pieces = [(start, empty(_PIECE, **kind)) for start in starts]
    last = np.full(_PIECE, order[-1], np.float32)

    def one_by_one() -> Any:
        return [ps.load(path, out=out, offset=start) for start, out in pieces][-1]

    raw = [
        contestant("Penstock", "load_many", last, 1, lambda: ps.load_many(path, pieces)[-1]),
        contestant("Penstock", "load, one by one", last, 1, one_by_one),
    ]
    race(f"{many} pieces of 64 KiB of a raw file by load_many", raw, against="Penstock")


def _pixels(images: int) -> np.ndarray:
    """Return images of tiles, half of them even: LZF does not shrink texture alone."""
    random = np.random.default_rng(5)
    steps = random.integers(-3, 4, (images, *_IMAGE), np.int8)
    texture = np.cumsum(steps.view(np.uint8), axis=1, dtype=np.uint8)
    tiles = (images, *(side // _TILE for side in _IMAGE[:2]))
    colours = random.integers(0, 256, (*tiles, 3), np.uint8)
    is_even = random.integers(0, 2, (*tiles, 1), np.uint8)
    colours, is_even = (a.repeat(_TILE, 1).repeat(_TILE, 2) for a in (colours, is_even))
    return np.where(is_even, colours, texture)


def _fill(file: Any, pixels: np.ndarray, many: int) -> None:
    file["flat"] = np.arange(1 << 20, dtype=np.float32)
    file["columns"] = np.random.default_rng(6).random((3000, 2000), np.float32)
    for name, codec in {"raw": None, "gzip": "gzip", "lzf": "lzf", "6": "gzip"}.items():
        chunks = (6 if name == "6" else 1, *_IMAGE)
        file.create_dataset(f"images/{name}", data=pixels, chunks=chunks, compression=codec)
    for width in (4 << 10, 64 << 10):
        values = np.random.default_rng(11).integers(0, 8, (512, width), np.uint8)
        file.create_dataset(f"rows/{width}", data=values, chunks=(256, width), compression="gzip")
    for number in range(many):
        file[f"many/{number}"] = np.full(_PIECE, number, np.float32)


def _batch(dataset: Any, pixels: np.ndarray, batch: int, place: str) -> list[Contestant]:
    ours, theirs = readers(place).values()
    chosen = np.random.default_rng(7).permutation(len(pixels))[:batch]
    ordered, back = np.sort(chosen), np.argsort(np.argsort(chosen))
    stack = np.stack
    if place == "GPU":
        stack, back = gpu.torch.stack, gpu.torch.from_numpy(back).cuda()
    ways = {
        ("Penstock", "list"): lambda: ours(dataset, (chosen,)),
        ("h5py", "one by one"): lambda: stack([theirs(dataset, int(index)) for index in chosen]),
        ("h5py", "sorted list"): lambda: theirs(dataset, ordered)[back],
    }
    if batch >= 64:  # which takes h5py too long
        del ways["h5py", "sorted list"]
    first = slice(0, batch)
    return [
        *(contestant(*way, pixels[chosen], 1, run) for way, run in ways.items()),
        contestant("Penstock", "slice of as many", pixels[first], 1, lambda: ours(dataset, first)),
    ]


def _shares(dataset: Any, pixels: np.ndarray, count: int) -> list[Contestant]:
    """Read a list and a slice of as many images, decoded by each side and by both."""
    chosen = np.random.default_rng(12).permutation(len(pixels))[:count]
    found = []
    for how, part in (("list", (chosen,)), ("slice", slice(0, count))):
        for decode in ("auto", "cpu", "gpu"):
            options = {} if decode == "auto" else {"decode": decode}
            run = partial(dataset.read, part, device="cuda", **options)
            found.append(contestant("Penstock", f"{how}, decode={decode}", pixels[part], 1, run))
    return found


def _by_threads(dataset: Any, expected: np.ndarray, amount: float, count: int) -> Contestant:
    """Read the beginning of each image by itself, in a random order."""
    is_ours = isinstance(dataset, ps.Dataset)
    out = np.empty_like(expected)
    rows = slice(expected.shape[1])
    indices = np.random.default_rng(9).permutation(len(expected))

    def work(mine: Sequence[int]) -> None:
        for index in mine:
            if is_ours:
                dataset.read((index, rows), out=out[index])
            else:
                out[index] = dataset[index, rows]

    def run() -> Any:
        threads = [Thread(target=work, args=(indices[n::count].tolist(),)) for n in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return out

    setting = f"{count} thread" + "s" * (count > 1)
    name = "Penstock" if is_ours else "h5py"
    return contestant(name, setting, expected, amount, run)
