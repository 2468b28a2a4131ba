"""Files of samples for training: images that gzip about halves, and numbers beside them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from .hdf5_files import create, deflated, write_chunks
from .measure import WrongBytesError

DISTINCT = 64
"""The images repeat after this number of samples."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class SampleFile:
    """A file with the dataset ``image``, and others with one row for each sample."""

    path: Path
    count: int
    shape: tuple[int, ...]
    """The shape of an image of bytes."""
    names: tuple[str, ...]
    is_gzip: bool

    @property
    def image_nbytes(self) -> int:
        return int(np.prod(self.shape))

    def check(self, batch: Any) -> None:
        """Raise an error if the images of a batch are not those of its numbers."""
        number = np.asarray(batch["number"].cpu()).reshape(-1)
        images = np.asarray(batch["image"].cpu())
        for name in set(self.names) - {"image"}:
            found = np.asarray(batch[name].cpu())
            if not np.array_equal(found, numbers(name, number)):
                raise WrongBytesError(f"{name} of samples {number[:8]}... is wrong")
        if not np.array_equal(images, pictures(self.shape)[number % DISTINCT]):
            raise WrongBytesError(f"images of samples {number[:8]}... are wrong")


@lru_cache(maxsize=4)
def pictures(shape: tuple[int, ...]) -> Array:
    """Return images: smooth areas with noise in the low bits, as cameras give."""
    source = np.random.default_rng(5)
    height, width, channels = shape
    rows, columns = np.mgrid[:height, :width].astype("f4")
    made = np.empty((DISTINCT, *shape), "u1")
    for image in made:
        waves = source.uniform(0.01, 0.08, (channels, 2))
        for channel, (x, y) in enumerate(waves):
            smooth = 110 + 90 * np.sin(rows * x + columns * y + channel)
            image[..., channel] = smooth + source.integers(0, 6, (height, width))
    return made


def numbers(name: str, samples: Array) -> Array:
    """Return the rows of a dataset other than the images."""
    if name == "number":
        return samples
    row = np.arange(14, dtype="f4") + (0.5 if name == "action" else 0.0)
    return samples.astype("f4")[:, None] + row


def made(
    folder: Path, count: int, shape: tuple[int, ...], names: tuple[str, ...], *, is_gzip: bool
) -> SampleFile:
    """Make the file, with a chunk for each image. Afterwards it is in the page cache."""
    words = "gzip" if is_gzip else "raw"
    path = folder / f"samples-{words}-{count}-{'x'.join(map(str, shape))}.h5"
    filters = {"compression": "gzip", "compression_opts": 4} if is_gzip else {}

    def fill(file: Any) -> None:
        images = pictures(shape)
        stored = deflated(images) if is_gzip else [image.tobytes() for image in images]
        dataset = file.create_dataset("image", (count, *shape), "u1", chunks=(1, *shape), **filters)
        write_chunks(dataset, stored, 1, count)
        for name in names[1:]:
            file[name] = numbers(name, np.arange(count))

    create(path, count * int(np.prod(shape)), fill)
    return SampleFile(path, count, shape, names, is_gzip)
