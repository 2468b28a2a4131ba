"""Small, random and many reads of cached datasets, into host or GPU memory, against h5py.

h5py takes part in each of its ways; into GPU memory, torch copies what h5py has read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import h5py
import numpy as np

import penstock as ps
from penstock.bench import gpu, native
from penstock.bench.expected import Expected
from penstock.bench.hdf5_files import create
from penstock.bench.measure import Contestant
from penstock.units import size_in_words

from .run import Run, benchmark

_IMAGE = (224, 224, 3)
_TILE = 28
_SLICES = (64, 64 << 10, 1 << 20)
_CALLS = 200
"""Calls of a run that takes slices, of which one takes too little time to be told."""

Read = Callable[[Any, Any], Any]
"""Reads ``dataset[selection]`` to where the results go."""


@benchmark(
    "Small, random and many reads of datasets", size="1MiB", quick_size="1MiB", needs_gpu=False
)
def hdf5_small(run: Run) -> None:
    images, batch, many = (96, 32, 50) if run.quick else (1024, 256, 3000)
    path = run.folder / "hdf5-small.h5"
    pixels = _pixels(images)
    create(path, 8 * pixels.nbytes, partial(_fill, pixels=pixels, many=many))
    with h5py.File(path) as file:
        # In an order of their own, as the names in a file rarely are in that of their bytes.
        starts = [file[f"many/{number}"].id.get_offset() for number in range(many)]
    pieces = np.random.default_rng(10).permutation(starts).tolist()
    with ps.File(path) as file:
        raw, gzip = file["images/raw"], file["images/gzip"]
        for place in ["host", *(["GPU"] if ps.devices() and gpu.torch else [])]:
            _in_place(run, file, path, pixels, pieces, place, batch)
        for count in (1, 2, 4):
            group = "host: random images of gzip by threads"
            run.race([_by_threads(gzip, pixels, pixels.nbytes, count)], group=group)
        first_rows = np.ascontiguousarray(pixels[:, :8])
        for count, threads in ((1, "1 thread"), (8, "8 threads")):
            run.race(
                [_by_threads(d, first_rows, len(first_rows), count) for d in (raw, raw.h5py)],
                "us",
                group=f"host: the first 8 rows of random images by {threads}",
            )
    path.unlink()


def _in_place(
    run: Run,
    file: ps.File,
    path: Path,
    pixels: np.ndarray[Any, Any],
    pieces: list[int],
    place: str,
    batch: int,
) -> None:
    """Read into host memory, or into GPU memory."""
    ours, theirs = _readers(place)
    many = len(pieces)

    def race(
        what: str,
        calls: int,
        contestants: list[Contestant],
        least: float = 1,
        against: str = "h5py",
    ) -> None:
        for contestant in contestants:
            contestant.amount = calls
        first, *others = run.race(contestants, "us", group=f"{place}: {what}")
        peers = [row for row in others if row.value and row.name == against]
        best = min(peers, key=lambda row: row.value or 0, default=None)
        other = "h5py's best" if against == "h5py" else "one by one"
        ratio = None if best is None else first.better_than(best)
        run.target(f"{place}: {what}, against {other}", least, ratio)

    for size in _SLICES:
        race(f"slice of {size_in_words(size)}", _CALLS, _slices(file, size, ours, theirs))
    for name in ("raw", "gzip", "lzf"):
        found = _batch(file[f"images/{name}"], pixels, batch, ours, theirs)
        race(f"{batch} random images, {name}", 1, found)
    if place == "GPU":
        for count in (8, 16, 32, 64, 256):
            shares = _shares(file["images/gzip"], pixels, min(count, len(pixels)))
            run.race(shares, "us", group=f"GPU: {count} gzip images by each decoder")
    # h5py's cache does not hold the larger chunks, so that it decodes one for each row.
    for name, count in (("rows/4096", 512), ("rows/65536", 32)):
        walk = _walk(file[name], count, ours, theirs)
        race(f"{name}, gzip, 256 a chunk, row after row", count, walk)
    walk = _walk(file["images/6"], batch, ours, theirs)
    race("image after image, gzip, 6 a chunk", 1, walk)
    race("200 columns of 3,000 x 2,000", 1, _columns(file["columns"], ours, theirs))
    race(f"{many} datasets of 64 KiB, by name", 1, _by_name(file, many, ours, theirs))
    together = _together(file, many, place, theirs)
    least = 10 if place == "GPU" else 1.5
    race(f"{many} datasets of 64 KiB by read_many", 1, together, least)
    text = f"{many} pieces of 64 KiB of a raw file by load_many"
    race(text, 1, _raw(path, pieces, place), against="Penstock")


def _readers(place: str) -> tuple[Read, Read]:
    """Return how Penstock and how h5py read a selection."""
    if place == "host":
        return lambda d, s: d.read(s), lambda d, s: d.h5py[s]

    def theirs(dataset: Any, selection: Any) -> Any:
        found = gpu.torch.from_numpy(dataset.h5py[selection]).cuda()
        gpu.synchronize()
        return found

    return lambda d, s: d.read(s, device="cuda"), theirs


def _pixels(images: int) -> np.ndarray[Any, Any]:
    """Return images of tiles, half of them even: LZF does not shrink texture alone."""
    random = np.random.default_rng(5)
    steps = random.integers(-3, 4, (images, *_IMAGE), np.int8)
    texture = np.cumsum(steps.view(np.uint8), axis=1, dtype=np.uint8)
    tiles = (images, *(side // _TILE for side in _IMAGE[:2]))
    colours = random.integers(0, 256, (*tiles, 3), np.uint8)
    is_even = random.integers(0, 2, (*tiles, 1), np.uint8)
    colours, is_even = (a.repeat(_TILE, 1).repeat(_TILE, 2) for a in (colours, is_even))
    return np.where(is_even, colours, texture)


def _fill(file: Any, pixels: np.ndarray[Any, Any], many: int) -> None:
    file["flat"] = np.arange(1 << 20, dtype=np.float32)
    file["columns"] = np.random.default_rng(6).random((3000, 2000), np.float32)
    for name, filters in [
        ("raw", {}),
        ("gzip", {"compression": "gzip"}),
        ("lzf", {"compression": "lzf"}),
    ]:
        file.create_dataset(f"images/{name}", data=pixels, chunks=(1, *_IMAGE), **filters)
    file.create_dataset("images/6", data=pixels, chunks=(6, *_IMAGE), compression="gzip")
    for width in (4 << 10, 64 << 10):
        values = np.random.default_rng(11).integers(0, 8, (512, width), np.uint8)
        file.create_dataset(f"rows/{width}", data=values, chunks=(256, width), compression="gzip")
    for number in range(many):
        file[f"many/{number}"] = np.full(1 << 14, number, np.float32)


def _contestants(
    expected: np.ndarray[Any, Any], runs: Sequence[tuple[str, str, Callable[[], Any]]]
) -> list[Contestant]:
    check = Expected(expected).check
    return [
        Contestant(
            name, setting, 1, run, check=check, detail=native.last if name == "Penstock" else str
        )
        for name, setting, run in runs
    ]


def _pair(
    expected: np.ndarray[Any, Any], run: Callable[[Read], Any], ours: Read, theirs: Read
) -> list[Contestant]:
    return _contestants(
        expected,
        [("Penstock", "read", partial(run, ours)), ("h5py", "dataset[...]", partial(run, theirs))],
    )


def _slices(file: ps.File, size: int, ours: Read, theirs: Read) -> list[Contestant]:
    dataset = file["flat"]
    part = slice(0, size // 4)

    def run(read: Read) -> Any:
        for _ in range(_CALLS):
            found = read(dataset, part)
        return found

    return _pair(np.arange(size // 4, dtype=np.float32), run, ours, theirs)


def _batch(
    dataset: Any, pixels: np.ndarray[Any, Any], batch: int, ours: Read, theirs: Read
) -> list[Contestant]:
    chosen = np.random.default_rng(7).permutation(len(pixels))[:batch]
    ordered = np.sort(chosen)
    to_gpu = gpu.torch is not None and not isinstance(ours(dataset, slice(0, 1)), np.ndarray)

    def one_by_one() -> Any:
        images = [theirs(dataset, int(index)) for index in chosen]
        return gpu.torch.stack(images) if to_gpu else np.stack(images)

    def sorted_list() -> Any:
        found = theirs(dataset, ordered)
        back = np.argsort(np.argsort(chosen))
        return found[gpu.torch.from_numpy(back).cuda()] if to_gpu else found[back]

    found = _contestants(
        pixels[chosen],
        [
            ("Penstock", "list", lambda: ours(dataset, (chosen,))),
            ("h5py", "one by one", one_by_one),
            *([("h5py", "sorted list", sorted_list)] if batch < 64 else []),
        ],
    )
    return [
        *found,
        *_contestants(
            pixels[:batch],
            [("Penstock", "slice of as many", lambda: ours(dataset, slice(0, batch)))],
        ),
    ]


def _shares(dataset: Any, pixels: np.ndarray[Any, Any], count: int) -> list[Contestant]:
    """Read a list and a slice of as many images, decoded by each side and by both."""
    chosen = np.random.default_rng(12).permutation(len(pixels))[:count]
    found = []
    for how, part in (("list", (chosen,)), ("slice", slice(0, count))):
        for decode in (None, "cpu", "gpu"):
            options = {} if decode is None else {"decode": decode}
            run = partial(dataset.read, part, device="cuda", **options)
            setting = f"{how}, decode={decode or 'auto'}"
            found += _contestants(pixels[part], [("Penstock", setting, run)])
    return found


def _walk(dataset: Any, batch: int, ours: Read, theirs: Read) -> list[Contestant]:
    def run(read: Read) -> Any:
        for index in range(batch):
            found = read(dataset, index)
        return found

    return _pair(dataset.h5py[batch - 1], run, ours, theirs)


def _columns(dataset: Any, ours: Read, theirs: Read) -> list[Contestant]:
    chosen = np.sort(np.random.default_rng(8).permutation(2000)[:200])
    part = (slice(None), chosen)
    return _contestants(
        dataset.h5py[...][part],
        [
            ("Penstock", "list", lambda: ours(dataset, part)),
            ("h5py", "list", lambda: theirs(dataset, part)),
        ],
    )


def _by_name(file: ps.File, many: int, ours: Read, theirs: Read) -> list[Contestant]:
    def run(read: Read) -> Any:
        for number in range(many):
            found = read(file[f"many/{number}"], ())
        return found

    return _pair(np.full(1 << 14, many - 1, np.float32), run, ours, theirs)


def _together(file: ps.File, many: int, place: str, theirs: Read) -> list[Contestant]:
    names = [f"many/{number}" for number in range(many)]
    device = "cuda" if place == "GPU" else None

    def one_by_one() -> Any:
        return [theirs(file[name], ()) for name in names][-1]

    return _contestants(
        np.full(1 << 14, many - 1, np.float32),
        [
            ("Penstock", "read_many", lambda: file.read_many(names, device=device)[-1]),
            ("h5py", "dataset[...]", one_by_one),
        ],
    )


def _raw(path: Path, starts: Sequence[int], place: str) -> list[Contestant]:
    """Fill arrays that exist from a file of which nothing but the offsets is known."""
    with h5py.File(path) as file:
        number = next(n for n, d in file["many"].items() if d.id.get_offset() == starts[-1])
    expected = np.full(1 << 14, int(number), np.float32)
    if place == "GPU":
        room = [gpu.torch.empty(1 << 14, dtype=gpu.torch.float32, device="cuda") for _ in starts]
    else:
        room = [np.empty(1 << 14, np.float32) for _ in starts]
    pieces = list(zip(starts, room, strict=True))

    def one_by_one() -> Any:
        for start, out in pieces:
            found = ps.load(path, out=out, offset=start)
        return found

    return _contestants(
        expected,
        [
            ("Penstock", "load_many", lambda: ps.load_many(path, pieces)[-1]),
            ("Penstock", "load, one by one", one_by_one),
        ],
    )


def _by_threads(
    dataset: Any, expected: np.ndarray[Any, Any], amount: float, count: int
) -> Contestant:
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
    return Contestant(
        "Penstock" if is_ours else "h5py",
        setting,
        amount,
        run,
        check=Expected(expected).check,
    )
