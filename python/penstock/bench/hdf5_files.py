"""Files with one chunked dataset of float32, made quickly, and their contents."""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from penstock._threads import Pool

from .files import DATASET, DataFile, require_space, warm
from .verify import Expected

ITEM = 4
PERIOD = 64 << 20
"""The values repeat after this many elements, in chunks of another order."""
_THREADS = 16
_PLUGINS = {"lz4": 32004, "zstd": 32015}

Values = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class Dataset:
    """A file whose dataset :data:`DATASET` holds the elements of :func:`field`."""

    path: Path
    count: int
    chunk: int
    """Elements per chunk."""

    @property
    def nbytes(self) -> int:
        return self.count * ITEM

    @property
    def chunks(self) -> int:
        return self.count // self.chunk

    @cached_property
    def expected(self) -> Expected:
        distinct = field(min(self.count, PERIOD)).reshape(-1, self.chunk)
        return Expected(distinct[self.order].reshape(-1))

    @property
    def order(self) -> np.ndarray[Any, Any]:
        """The index of each chunk among the distinct ones; it differs from period to period."""
        distinct = min(self.count, PERIOD) // self.chunk
        number = np.arange(self.chunks)
        return (number + 7 * (number // distinct)) % distinct

    @cached_property
    def stored_at(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The file offset and the stored size of each chunk."""
        found = np.zeros((2, self.chunks), np.uint64)

        def note(info: Any) -> None:
            found[:, info.chunk_offset[0] // self.chunk] = info.byte_offset, info.size

        with h5py.File(self.path, "r") as file:
            file[DATASET].id.chunk_iter(note)
        return found[0], found[1]


def field(count: int) -> Values:
    """Return a noisy wave, rounded like measured values. Shuffled, gzip -4 about halves it."""
    return _field(count)[:count]


@lru_cache(maxsize=1)
def _field(count: int) -> Values:
    block = 1 << 22
    made = np.empty(-(-count // block) * block, np.float32)

    def fill(start: int) -> None:
        random = np.random.default_rng(start)
        phase = np.arange(start, start + block) % (2 << 20)
        noise = random.standard_normal(block, np.float32) * np.float32(0.5)
        wave = np.sin(phase.astype(np.float32) * np.float32(1e-3)) * np.float32(50)
        np.round(wave + noise, 2, out=made[start : start + block])

    with Pool(_THREADS) as pool:
        list(pool.map(fill, range(0, made.size, block)))
    return made


def array(shape: tuple[int, ...]) -> Values:
    """Return the field in any shape."""
    count = int(np.prod(shape))
    return np.resize(field(min(count, PERIOD)), shape)


def compressed(folder: Path, nbytes: int, chunk_nbytes: int, codec: str) -> Dataset:
    """Make the file, or use an existing one. ``codec`` is gzip, lz4, zstd or none.

    Compressed data is also shuffled. Afterwards, the file is in the page cache.
    """
    count, chunk = nbytes // ITEM, chunk_nbytes // ITEM
    path = folder / f"hdf5-{codec}-{chunk_nbytes}-{nbytes}.h5"
    made = Dataset(path, count, chunk)
    if count % chunk or (count > PERIOD and count % PERIOD):
        raise SystemExit(f"{nbytes:,} bytes are not a whole number of chunks")

    if codec in _PLUGINS:
        need_plugin(codec)

    def fill(file: Any) -> None:
        dataset = file.create_dataset(
            DATASET, (count,), "float32", chunks=(chunk,), **_FILTERS[codec]
        )
        distinct = list(_ENCODE[codec](field(min(count, PERIOD)).reshape(-1, chunk)))
        for number, which in enumerate(made.order):
            mask, stored = distinct[which]
            dataset.id.write_direct_chunk((number * chunk,), stored, mask)

    create(path, nbytes, fill)
    return made


def create(path: Path, nbytes: int, fill: Callable[[Any], None]) -> None:
    """Make a file unless it exists, and read it into the page cache."""
    if not path.exists():
        require_space(path.parent, nbytes)
        unfinished = path.with_suffix(".tmp")
        with h5py.File(unfinished, "w") as file:
            fill(file)
        os.rename(unfinished, path)
    warm(DataFile(path, 0, path.stat().st_size))


def deflated(chunks: Iterable[np.ndarray[Any, Any]], *, shuffle: bool = False) -> list[bytes]:
    """Return chunks as HDF5's gzip filter of level 4, its default, stores them."""

    def encode(chunk: np.ndarray[Any, Any]) -> bytes:
        if shuffle:
            chunk = chunk.reshape(-1).view(np.uint8).reshape(-1, chunk.itemsize).T
        return zlib.compress(chunk.tobytes(), 4)

    with Pool(_THREADS) as pool:
        return list(pool.map(encode, chunks))


def write_chunks(dataset: Any, stored: Sequence[bytes], step: int, count: int) -> None:
    """Write stored chunks, again and again, along the first dimension of a dataset."""
    origin = (0,) * (len(dataset.shape) - 1)
    for number in range(count):
        dataset.id.write_direct_chunk((number * step, *origin), stored[number % len(stored)])


def _by_hdf5(codec: str) -> Callable[[Values], Iterable[tuple[int, bytes]]]:
    """Return a function that encodes by the filter's plugin, which HDF5 calls chunk by chunk."""

    def encode(chunks: Values) -> Iterable[tuple[int, bytes]]:
        count, chunk = chunks.size, chunks.shape[1]
        with h5py.File("encode", "w", driver="core", backing_store=False) as file:
            dataset = file.create_dataset(
                DATASET, data=chunks.reshape(-1), chunks=(chunk,), **_FILTERS[codec]
            )
            file.flush()
            read = dataset.id.read_direct_chunk
            return [read((start,)) for start in range(0, count, chunk)]

    return encode


def need_plugin(codec: str) -> None:
    """Raise an error unless HDF5 has the filter, from hdf5plugin or ``HDF5_PLUGIN_PATH``."""
    number = _PLUGINS[codec]
    with contextlib.suppress(ImportError):
        import hdf5plugin  # noqa: F401
    if not h5py.h5z.filter_avail(number):
        raise RuntimeError(f"hdf5plugin is absent: HDF5 has no filter {number} ({codec})")


_FILTERS: dict[str, dict[str, Any]] = {
    "none": {},
    "gzip": {"compression": "gzip", "compression_opts": 4, "shuffle": True},
    "lz4": {"compression": _PLUGINS["lz4"], "compression_opts": (0,), "shuffle": True},
    "zstd": {"compression": _PLUGINS["zstd"], "compression_opts": (3,), "shuffle": True},
}
_ENCODE: dict[str, Callable[[Values], Iterable[tuple[int, bytes]]]] = {
    "none": lambda chunks: ((0, chunk.tobytes()) for chunk in chunks),
    "gzip": lambda chunks: ((0, stored) for stored in deflated(chunks, shuffle=True)),
    "lz4": _by_hdf5("lz4"),
    "zstd": _by_hdf5("zstd"),
}
