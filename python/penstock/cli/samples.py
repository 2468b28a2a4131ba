"""The files of `penstock demo`: HDF5 datasets of several layouts and one tensor file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import penstock as ps

Array = NDArray[Any]


@dataclass(frozen=True)
class Sample:
    """Data to read, by Penstock and by the library that programs usually read it with."""

    name: str
    layout: str
    read: Callable[[str], Any]
    """Read into the memory of a device, with Penstock."""
    peer_name: str
    peer: Callable[[], Array]
    """Read into host memory, with h5py or NumPy."""


def write(folder: Path, total: int) -> None:
    """Write files with about `total` bytes in all."""
    import h5py

    random = np.random.default_rng(20240229)
    with h5py.File(folder / "samples.h5", "w") as file:
        file["contiguous/float32"] = random.random(total // 4 // 4, dtype="float32")
        file["contiguous/float64"] = random.random(_square(total // 8 // 8))
        file["contiguous/int32"] = random.integers(0, 1 << 30, _square(total // 8 // 4), "int32")
        side = _square(total // 8 // 4)
        chunks = (min(512, side[0]), min(512, side[1]))
        file.create_dataset(
            "chunked/float32", data=random.random(side, dtype="float32"), chunks=chunks
        )
        # A random walk compresses about as well as a field of a simulation.
        walk = np.cumsum(random.integers(-2, 3, _square(total // 32 // 4)), axis=1, dtype="int32")
        chunks = (min(256, walk.shape[0]), min(256, walk.shape[1]))
        file.create_dataset(
            "chunked/gzip", data=walk, chunks=chunks, compression="gzip", shuffle=True
        )
        file["big-endian/float64"] = random.random(total // 16 // 8).astype(">f8")
        _write_compact(file, "compact/int16", np.arange(16_000, dtype="int16"))
    random.random(total // 4 // 4, dtype="float32").tofile(folder / "tensor.bin")


@contextmanager
def opened(folder: Path, on_gpu: bool) -> Iterator[list[Sample]]:
    """Yield the samples in the files that `write` has made.

    HDF5's chunk cache is off: a program reads its data once, and repeated reads of the same chunks
    would measure the cache.
    """
    with ps.File(folder / "samples.h5", rdcc_nbytes=0) as file:
        datasets = file.h5py
        rows = slice(None), slice(None, datasets["contiguous/int32"].shape[1] // 2)
        yield [
            _dataset(datasets["contiguous/float32"], "contiguous, 1-D"),
            _dataset(datasets["contiguous/float64"], "contiguous, 2-D"),
            _dataset(datasets["contiguous/int32"], "contiguous, left half of each row", rows),
            _dataset(datasets["chunked/float32"], "chunked"),
            _dataset(datasets["chunked/gzip"], "chunked, shuffle + gzip"),
            _dataset(datasets["big-endian/float64"], "contiguous, big-endian"),
            _dataset(datasets["compact/int16"], "compact"),
            _tensor(folder / "tensor.bin", "auto"),
            *(_tensor(folder / "tensor.bin", route) for route in _GPU_ROUTES if on_gpu),
        ]


_GPU_ROUTES = ("staged", "mapped")


def _dataset(dataset: Any, layout: str, selection: Any = ()) -> Sample:
    return Sample(
        name=dataset.name.lstrip("/"),
        layout=layout,
        read=lambda device: ps.read(dataset, selection, device=device),
        peer_name="h5py",
        peer=lambda: np.asarray(dataset[selection]),
    )


def _tensor(path: Path, route: Any) -> Sample:
    def read(device: str) -> Any:
        with ps.options(route=route):
            return ps.load(path, dtype="float32", device=device)

    layout = "tensor file" if route == "auto" else f"tensor file, route={route}"
    return Sample(path.name, layout, read, "NumPy", lambda: np.fromfile(path, "float32"))


def _square(elements: int) -> tuple[int, int]:
    side = max(int(elements**0.5), 2)
    return side, side


def _write_compact(file: Any, name: str, data: Array) -> None:
    """Write a dataset with compact layout, for which h5py has no keyword."""
    import h5py

    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_layout(h5py.h5d.COMPACT)
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    dataset = h5py.h5d.create(
        file.id,
        name.encode(),
        h5py.h5t.py_create(data.dtype),
        h5py.h5s.create_simple(data.shape),
        dcpl=properties,
        lcpl=links,
    )
    dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, data)
