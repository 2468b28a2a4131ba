"""libdeflate on all cores, then a copy: the limit of decoding on the CPU alone.

The threads are native, from `crates/codec/examples/threaded_inflate.rs`. They read, decode and
unshuffle into pinned memory; each slab is copied to the GPU while the next one is decoded. The
places of the chunks in the file are looked up beforehand.
"""

from __future__ import annotations

import ctypes
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import gpu
from ..hdf5_files import ITEM, Dataset
from ..measure import Contestant, absent

NAME = "libdeflate"
_LIBRARY = "libthreaded_inflate.so"
_SLAB = 256 << 20
_VARIABLE = "PENSTOCK_BENCH_INFLATE"


def contestant(data: Dataset, *, threads: int, group: str = "") -> Contestant:
    setting = f"{threads} threads, pinned memory, {gpu.COPIED_BY}"
    try:
        reader = _Reader(data, threads)
    except OSError as error:
        return absent(NAME, setting, str(error))
    made = Contestant(NAME, setting, data.nbytes, reader.read, check=data.expected.check)
    made.poison, made.group = partial(data.expected.poison, reader.out), group
    return made


def _library() -> ctypes.CDLL:
    target = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    places = [Path("dist-gpu/lib", _LIBRARY), target / "release/examples" / _LIBRARY]
    if named := os.environ.get(_VARIABLE):
        places.insert(0, Path(named))
    for place in places:
        if place.exists():
            return ctypes.CDLL(str(place.resolve()))
    raise OSError(
        f"{_LIBRARY} is missing: build it in a checkout by cargo build --release -p "
        f"penstock-codec --example threaded_inflate, or set {_VARIABLE} to its path"
    )


class _Reader:
    def __init__(self, data: Dataset, threads: int) -> None:
        self._inflate = _library().threaded_inflate
        self._data, self._threads = data, threads
        self._places = [np.ascontiguousarray(found) for found in data.stored_at]
        self._pinned = gpu.Pinned(data.nbytes)
        self.out = gpu.empty((data.count,), "float32")

    def read(self) -> Any:
        with open(self._data.path, "rb", buffering=0) as file:
            self._read(file.fileno())
        gpu.synchronize()
        return self.out

    def _read(self, descriptor: int) -> None:
        chunk_bytes = self._data.chunk * ITEM
        step = max(_SLAB // chunk_bytes, 1)
        for first in range(0, self._data.chunks, step):
            count = min(step, self._data.chunks - first)
            start, stop = first * chunk_bytes, (first + count) * chunk_bytes
            failed = self._inflate(
                ctypes.c_int(descriptor),
                *(ctypes.c_void_p(it.ctypes.data + first * 8) for it in self._places),
                *map(ctypes.c_size_t, (count, chunk_bytes)),
                ctypes.c_void_p(self._pinned.address + start),
                ctypes.c_size_t(self._threads),
            )
            if failed:
                raise RuntimeError("a chunk could not be read or decoded")
            self._pinned.send(start, stop, self.out)
