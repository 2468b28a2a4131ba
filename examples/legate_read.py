"""Legate computes on an HDF5 dataset: each leaf task reads its own tile.

    legate --cpus 2 examples/legate_read.py [FILE:DATASET]

Without a dataset, it makes a compressed one. The copy goes to a temporary folder. Needs
penstock[legate].
"""

import argparse
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np
from legate.core import get_legate_runtime, types
from legate.core.task import ADD, InputStore, ReductionStore, task

from penstock.dist import legate as penstock_legate


@task
def add(tile: InputStore, total: ReductionStore[ADD]) -> None:
    """Add the elements of a tile to the total."""
    np.asarray(total.get_inline_allocation())[...] += np.asarray(tile.get_inline_allocation()).sum()


def mean(array) -> float:
    """Return the mean of an array, to which every leaf task adds its tile."""
    runtime = get_legate_runtime()
    total = runtime.create_store(types.float64, (1,))
    runtime.issue_fill(total, 0.0)
    add(array, total)
    return float(np.asarray(total.get_physical_store())[0]) / array.size


def summary(path: str, dataset: str, folder: str) -> None:
    """Print the mean of a dataset, whole and by batches, and write a copy of it."""
    began = time.perf_counter()
    array = penstock_legate.from_file(path, dataset)
    shape = tuple(array.shape)
    print(f"{dataset}: {shape} of {array.type} in {time.perf_counter() - began:.2f} s")
    print(f"mean {mean(array):.3f}")
    batches = (-(-shape[0] // 2), *shape[1:])
    for batch, first in penstock_legate.from_file_batched(path, dataset, batches):
        print(f"mean {mean(batch):.3f} from {first}")
    target = Path(folder, f"{Path(path).name}.copy.h5")
    penstock_legate.to_file(array, target, dataset)
    with h5py.File(path) as before, h5py.File(target) as after:
        is_equal = np.array_equal(before[dataset], after[dataset])
        print(f"{target.name}: {'the same' if is_equal else 'other'} elements by h5py")


def main() -> None:
    """Run on the processors that Legate was started with."""
    parser = argparse.ArgumentParser()
    parser.add_argument("dataset", nargs="?", metavar="FILE:DATASET")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if words.dataset:
            path, _, dataset = words.dataset.rpartition(":")
        else:
            path, dataset = str(Path(folder, "noise.h5")), "noise"
            noise = np.random.default_rng(1).random((2000, 64, 32)).astype(">f4")
            with h5py.File(path, "w") as file:
                file.create_dataset(
                    dataset, data=noise, chunks=(100, 64, 32), compression="gzip", shuffle=True
                )
        summary(path, dataset, folder)


if __name__ == "__main__":
    main()
