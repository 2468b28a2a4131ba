"""Train a small network from a gzip HDF5 file: samples a second by Penstock and by h5py's loader.

    python examples/train_from_hdf5.py                          # makes a file of images
    python examples/train_from_hdf5.py photos.h5 image label    # datasets of yours

The network is trained twice from the same start, for one epoch: by penstock.torch.Batches, and by
torch's DataLoader over h5py with worker processes. It runs on the GPU if torch can use one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import numpy as np
import torch

from penstock.torch import Batches, HDF5Dataset

SIDE = 128
CLASSES = 4


class H5pySamples(torch.utils.data.Dataset):  # type: ignore[misc, type-arg, unused-ignore]
    """What programs write around h5py. Each worker opens the file once."""

    def __init__(self, path: Path, names: list[str]) -> None:
        self.path = path
        self.names = names
        self.file: Any = None
        with h5py.File(path) as file:
            self.count = len(file[names[0]])

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.file = self.file or h5py.File(self.path)
        return {name: torch.as_tensor(self.file[name][index]) for name in self.names}


def make(path: Path, count: int) -> None:
    """Make images whose class is the direction of their stripes."""
    source = np.random.default_rng(0)
    rows, columns = np.mgrid[:SIDE, :SIDE].astype("f4")
    label = source.integers(0, CLASSES, count)
    with h5py.File(path, "w") as file:
        shape, chunk = (count, SIDE, SIDE, 3), (1, SIDE, SIDE, 3)
        image = file.create_dataset("image", shape, "u1", chunks=chunk, compression="gzip")
        for number, kind in enumerate(label):
            angle = np.pi * kind / CLASSES
            stripes = np.sin(0.3 * (rows * np.cos(angle) + columns * np.sin(angle)))
            picture = 120 + 80 * stripes[..., None] + source.integers(0, 20, (SIDE, SIDE, 3))
            image[number] = picture.astype("u1")
        file["label"] = label


def network(classes: int) -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 5, stride=4),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(512, classes),
    )


def train(batches: Iterable[Any], image: str, label: str, classes: int, device: str) -> str:
    """Train for one epoch, and return the rate and the last loss."""
    model = network(classes).to(device)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    count, loss = 0, torch.zeros(())
    began = time.perf_counter()
    for batch in batches:
        images = batch[image].to(device, non_blocking=True).permute(0, 3, 1, 2).float() / 255
        labels = batch[label].to(device, non_blocking=True).long()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        count += len(labels)
    last = loss.item()  # waits for the GPU
    return f"{count / (time.perf_counter() - began):10,.0f} samples/s, last loss {last:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", nargs="?", type=Path, help="a file with images (n, h, w, 3)")
    parser.add_argument("names", nargs="*", default=["image", "label"], help="images and classes")
    parser.add_argument("--samples", type=int, default=4096, help="images of the file it makes")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--workers", type=int, default=8, help="workers of the loader over h5py")
    arguments = parser.parse_args()
    names = list(arguments.names)
    if len(names) != 2:
        parser.error("name the dataset of the images and that of their classes")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with TemporaryDirectory() as folder:
        path = arguments.path
        if path is None:
            path = Path(folder) / "images.h5"
            make(path, arguments.samples)
        with h5py.File(path) as file:
            classes = int(file[names[1]][()].max()) + 1
        print(f"{path}: {names[0]} and {names[1]}, batches of {arguments.batch}, on {device}")
        dataset = HDF5Dataset(path, names, device=device)
        batches = Batches(dataset, arguments.batch, seed=0)
        print(f"penstock.torch.Batches      {train(batches, *names, classes, device)}")
        loader = torch.utils.data.DataLoader(
            H5pySamples(path, names),
            batch_size=arguments.batch,
            shuffle=True,
            num_workers=arguments.workers,
            multiprocessing_context="spawn" if arguments.workers else None,
            persistent_workers=arguments.workers > 0,
            pin_memory=device == "cuda",
        )
        next(iter(loader))  # starts the workers, which takes seconds
        what = f"DataLoader, {arguments.workers} workers"
        print(f"{what:27} {train(loader, *names, classes, device)}")
        dataset.close()


if __name__ == "__main__":
    main()
