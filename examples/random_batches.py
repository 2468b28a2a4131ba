"""Shuffled batches of images, as for training: samples a second by Penstock and by h5py.

    python examples/random_batches.py                    # makes a file of images of 150 KB
    python examples/random_batches.py photos.h5:train/x  # a dataset of yours, one sample a row

The batches go into GPU memory if there is a GPU, else into host memory. h5py takes part in two
ways: sample after sample, and by a sorted list, as it takes lists in no other order.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import numpy as np

import penstock as ps

try:
    import torch
except ImportError:
    torch = None

ON_GPU = bool(ps.devices())
WITH_TORCH = ON_GPU and torch is not None and torch.cuda.is_available()
SHAPE = (224, 224, 3)
TILE = 28
FILTERS: dict[str, dict[str, str]] = {
    "raw": {},
    "gzip": {"compression": "gzip"},
    "lzf": {"compression": "lzf"},
}
Batch = np.ndarray[Any, Any]
Read = Callable[[Batch], Any]


def by_penstock(dataset: ps.Dataset) -> Read:
    """One request for the batch, in the order of the list."""
    if ON_GPU:
        return lambda batch: dataset.read((batch,), device="cuda")
    return lambda batch: dataset[batch]


def by_h5py(dataset: h5py.Dataset) -> Read:
    return lambda batch: to_gpu(np.stack([dataset[index] for index in batch.tolist()]))


def by_h5py_list(dataset: h5py.Dataset) -> Read:
    def read(batch: Batch) -> Any:
        order = np.argsort(batch)
        samples = np.empty((len(batch), *dataset.shape[1:]), dataset.dtype)
        samples[order] = dataset[batch[order]]
        return to_gpu(samples)

    return read


def to_gpu(samples: np.ndarray[Any, Any]) -> Any:
    if WITH_TORCH:
        copied = torch.from_numpy(samples).cuda()
        torch.cuda.synchronize()
        return copied
    return ps.DeviceArray.from_numpy(samples) if ON_GPU else samples


def to_host(samples: Any) -> np.ndarray[Any, Any]:
    if isinstance(samples, np.ndarray):
        return samples
    return samples.cpu().numpy() if hasattr(samples, "cpu") else samples.numpy()


def batches(samples: int, size: int, seed: int) -> Iterator[Batch]:
    """Yield lists of indices, epoch after epoch, each epoch in an order of its own."""
    random = np.random.default_rng(seed)
    while True:
        shuffled = random.permutation(samples)
        for start in range(0, samples - size + 1, size):
            yield shuffled[start : start + size]


def rates(dataset: ps.Dataset, theirs: h5py.Dataset, size: int, seconds: float) -> dict[str, float]:
    """Return the samples a second of each way.

    The ways take turns, a batch each, until each has had its seconds, so that load affects all of
    them equally. The first batch of each is not counted but compared.
    """
    ways = {
        "Penstock": by_penstock(dataset),
        "h5py, one by one": by_h5py(theirs),
        "h5py, sorted list": by_h5py_list(theirs),
    }
    order = batches(len(dataset), size, seed=1)
    first = next(order)
    expected = np.stack([theirs[index] for index in first.tolist()])
    for name, read in ways.items():
        # By bytes, as NaN does not equal itself.
        if to_host(read(first)).tobytes() != expected.tobytes():
            raise SystemExit(f"{name} has read wrong samples of {theirs.name}")
    spent, taken = dict.fromkeys(ways, 0.0), dict.fromkeys(ways, 0)
    while min(spent.values()) < seconds:
        for name, read in ways.items():
            if taken[name] and spent[name] >= seconds:
                continue
            batch = next(order)
            start = time.perf_counter()
            samples = read(batch)
            spent[name] += time.perf_counter() - start
            taken[name] += len(batch)
            del samples
    return {name: taken[name] / spent[name] for name in ways}


def image(random: np.random.Generator) -> Batch:
    """Return an image of tiles, half of them even, since LZF does not shrink texture alone."""
    height, width, _ = SHAPE
    steps = random.integers(-3, 4, SHAPE, np.int8)
    texture = np.cumsum(steps.view(np.uint8), axis=0, dtype=np.uint8)
    colours = random.integers(0, 256, (height // TILE, width // TILE, 3), np.uint8)
    is_even = random.integers(0, 2, (height // TILE, width // TILE, 1), np.uint8)
    colours, is_even = (tiles.repeat(TILE, 0).repeat(TILE, 1) for tiles in (colours, is_even))
    return np.where(is_even, colours, texture)


def make_images(path: Path, count: int) -> None:
    """Write images, each a chunk, as each filter stores them."""
    random = np.random.default_rng(5)
    with h5py.File(path, "w") as file:
        sets = [
            file.create_dataset(name, (count, *SHAPE), "uint8", chunks=(1, *SHAPE), **filters)
            for name, filters in FILTERS.items()
        ]
        for index in range(count):
            made = image(random)
            for images in sets:
                images[index] = made


def compare(path: Path, names: list[str], size: int, seconds: float) -> None:
    with ps.File(path) as file, h5py.File(path) as theirs:
        where = "GPU" if ON_GPU else "host"
        print(f"{path.name}: samples a second into {where} memory, batches of {size}")
        for number, name in enumerate(names):
            if not theirs[name].size:
                raise SystemExit(f"{path}: {name} has no samples")
            found = rates(file[name], theirs[name], min(size, len(file[name])), seconds)
            if number == 0:
                print(f"{'dataset':12}" + "".join(f"{way:>20}" for way in found))
            print(f"{name:12}" + "".join(f"{rate:20,.0f}" for rate in found.values()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", nargs="?", metavar="FILE:DATASET", help="made if none is given")
    parser.add_argument("--batch", type=int, default=256, help="samples of a batch (%(default)s)")
    parser.add_argument("--seconds", type=float, default=3, help="for each way (%(default)s)")
    parser.add_argument("--images", type=int, default=1024, help="of the made file (%(default)s)")
    parser.add_argument("--dir", type=Path, help="a folder for the made file, which is removed")
    parser.add_argument("--quick", action="store_true", help="only show that it works")
    given = parser.parse_args()
    size, seconds, images = given.batch, given.seconds, given.images
    if given.quick:
        size, seconds, images = 8, 0.01, 16
    if size < 1 or images < 1:
        parser.error("--batch and --images must be at least 1")
    if given.file:
        path, _, name = given.file.rpartition(":")
        if not path or not name:
            parser.error(f"{given.file!r} names no dataset: write FILE:DATASET")
        compare(Path(path), [name], size, seconds)
        return
    with TemporaryDirectory(dir=given.dir) as folder:
        made = Path(folder) / "images.h5"
        make_images(made, images)
        compare(made, list(FILTERS), size, seconds)


if __name__ == "__main__":
    main()
