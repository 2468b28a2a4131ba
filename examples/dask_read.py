"""Dask computes on an HDF5 dataset: each process reads its own blocks.

    python examples/dask_read.py [FILE:DATASET] [--device cuda]

Without a dataset, it makes a compressed one. The results go to a temporary folder. Needs
penstock[dask], and CuPy for the GPU.
"""

import argparse
import tempfile
import time
from pathlib import Path

import dask.array as da
import h5py
from distributed import Client, LocalCluster

from penstock.dist import dask as penstock_dask


def summary(path: str, dataset: str, device: str, folder: str) -> None:
    """Print some statistics of a dataset, and write its mean along the first dimension."""
    array = penstock_dask.from_hdf5(path, dataset, device=device)
    print(
        f"{dataset}: {array.shape} of {array.dtype}, {array.npartitions} blocks in {device} memory"
    )
    began = time.perf_counter()
    low, mean, high = da.compute(array.min(), array.mean(), array.max())
    print(f"min {low:.3f}, mean {mean:.3f}, max {high:.3f} in {time.perf_counter() - began:.2f} s")
    target = Path(folder, f"{Path(path).name}.mean.h5")
    penstock_dask.to_hdf5(array.mean(axis=0), target, "mean", compression="gzip")
    with h5py.File(target) as file:
        print(f"{target.name}: {file['mean'].shape} of {file['mean'].dtype}")


def main() -> None:
    """Run on two processes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("dataset", nargs="?", metavar="FILE:DATASET")
    parser.add_argument("--device", default="cpu")
    words = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        if words.dataset:
            path, _, dataset = words.dataset.rpartition(":")
        else:
            path, dataset = str(Path(folder, "noise.h5")), "noise"
            noise = da.random.default_rng(1).random((2000, 64, 32), chunks=(500, 64, 32))
            penstock_dask.to_hdf5(
                noise.astype("f4"), path, dataset, chunks=(100, 64, 32), compression="gzip"
            )
        summary(path, dataset, words.device, folder)


if __name__ == "__main__":
    main()
