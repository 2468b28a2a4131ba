"""nvCOMP behind a plain reader: threads that pread, one copy, one call, torch for the shuffle.

The places of the chunks in the file are looked up, and all memory is allocated, beforehand.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penstock._threads import Pool

from .. import gpu
from ..hdf5_files import ITEM, Dataset
from ..measure import Contestant, absent

NAME = "nvCOMP"
_ALIGNMENT = 8
_ZLIB_HEADER, _ZLIB_TRAILER = 2, 4
_PIECE = 4 << 20
_MOST_BUFFERS = 1000  # per preadv; Linux accepts 1024
_LARGEST_GAP = 64 << 10
_CUDA_BACKEND = 2


class _Options(ctypes.Structure):
    _fields_ = [("backend", ctypes.c_int), ("reserved", ctypes.c_int * 15)]


class _Read(NamedTuple):
    """One preadv: neighbouring chunks of the file, each to its place."""

    offset: int
    nbytes: int
    buffers: list[Any]


def contestants(data: Dataset, threads: tuple[int, ...], *, group: str = "") -> list[Contestant]:
    """Return one contestant for each number of reading threads."""
    settings = {count: f"pread by {count} thread{'s' * (count > 1)}" for count in threads}
    try:
        reader = _Reader(data, _library())
    except (OSError, RuntimeError) as error:
        return [absent(NAME, setting, str(error)) for setting in settings.values()]
    keys: dict[str, Any] = {"poison": partial(data.expected.poison, reader.out), "group": group}
    return [
        Contestant(
            NAME, setting, data.nbytes, partial(reader.read, count), check=reader.check, **keys
        )
        for count, setting in settings.items()
    ]


def _library() -> ctypes.CDLL:
    """Load the library that Penstock uses, too: the variable's, or else that of NVIDIA's wheel."""
    named = os.environ.get("PENSTOCK_NVCOMP_LIBRARY")
    folders = (Path(folder) / "nvidia/libnvcomp/lib64" for folder in sys.path)
    found = [named] if named else [path for f in folders for path in f.glob("libnvcomp.so.?")]
    if not found:
        raise OSError("absent: install nvidia-libnvcomp-cu13, or set PENSTOCK_NVCOMP_LIBRARY")
    return ctypes.CDLL(str(found[0]))


class _Reader:
    def __init__(self, data: Dataset, library: ctypes.CDLL) -> None:
        self._data, self._library = data, library
        self._options = _Options(_CUDA_BACKEND)
        gpu.make_current()
        self.out = gpu.empty((data.count,), "float32")
        self._pool = Pool(16)
        places = self._lay_out()
        self._stored = gpu.Buffer(self._pinned.array.size)
        self._shuffled = gpu.Buffer(data.nbytes)
        self._prepare_arrays(places)

    def _lay_out(self) -> np.ndarray[Any, Any]:
        """Return the place of each chunk in pinned memory, which aligns its deflate stream."""
        offsets, sizes = self._data.stored_at
        places = np.zeros(len(sizes), np.int64)
        order = np.argsort(offsets)
        at = 0
        for index in order:
            at = -(-(at + _ZLIB_HEADER) // _ALIGNMENT) * _ALIGNMENT - _ZLIB_HEADER
            places[index] = at
            at += int(sizes[index])
        self._pinned = gpu.Pinned(at)
        memory = self._pinned.array.data
        gap_bytes = memoryview(bytearray(_LARGEST_GAP))
        self._reads: list[_Read] = []
        for index in order:
            offset, size, place = int(offsets[index]), int(sizes[index]), int(places[index])
            last = self._reads[-1] if self._reads else None
            gap = offset - (last.offset + last.nbytes) if last else 0
            if (
                last is None
                or not 0 <= gap < _LARGEST_GAP
                or last.nbytes + size > _PIECE
                or len(last.buffers) + 2 > _MOST_BUFFERS
            ):
                self._reads.append(_Read(offset, size, [memory[place : place + size]]))
                continue
            between = [gap_bytes[:gap]] if gap else []
            buffers = [*last.buffers, *between, memory[place : place + size]]
            self._reads[-1] = _Read(last.offset, last.nbytes + gap + size, buffers)
        return places

    def _prepare_arrays(self, places: np.ndarray[Any, Any]) -> None:
        data, chunks = self._data, self._data.chunks
        chunk_bytes = data.chunk * ITEM
        sizes = data.stored_at[1].astype(np.uint64)
        self._arrays: dict[str, np.ndarray[Any, Any]] = {
            "inputs": places.astype(np.uint64) + np.uint64(self._stored.address + _ZLIB_HEADER),
            "input_sizes": sizes - np.uint64(_ZLIB_HEADER + _ZLIB_TRAILER),
            "rooms": np.full(chunks, chunk_bytes, np.uint64),
            "output_sizes": np.zeros(chunks, np.uint64),
            "outputs": np.arange(chunks, dtype=np.uint64) * np.uint64(chunk_bytes)
            + np.uint64(self._shuffled.address),
            "statuses": np.full(chunks, -1, np.int32),
        }
        self._on_gpu = {name: gpu.Buffer(array.nbytes) for name, array in self._arrays.items()}
        for name, array in self._arrays.items():
            gpu.put(self._on_gpu[name].address, array)
        self._temporary = gpu.Buffer(max(self._temporary_bytes(chunks, chunk_bytes), 1))

    def _temporary_bytes(self, chunks: int, chunk_bytes: int) -> int:
        needed = ctypes.c_size_t()
        sizes = ctypes.c_size_t(chunks), ctypes.c_size_t(chunk_bytes), self._options
        arguments = [*sizes, ctypes.byref(needed), ctypes.c_size_t(chunks * chunk_bytes)]
        name = "nvcompBatchedDeflateDecompressGetTempSize"
        if hasattr(self._library, name):
            _check(getattr(self._library, name)(*arguments, ctypes.c_void_p(None)))
        else:  # before version 6
            _check(getattr(self._library, f"{name}Async")(*arguments))
        return needed.value

    def read(self, threads: int) -> Any:
        with open(self._data.path, "rb", buffering=0) as file:
            read = partial(_read_pieces, file.fileno())
            if threads == 1:
                read(self._reads)
            else:
                share = [self._reads[start::threads] for start in range(threads)]
                list(self._pool.map(read, share))
        self._pinned.send(0, self._pinned.array.size, self._stored.array)
        self._decode()
        gpu.unshuffle(self._shuffled.array, self.out, self._data.chunk)
        gpu.synchronize()
        return self.out

    def _decode(self) -> None:
        names = ("inputs", "input_sizes", "rooms", "output_sizes", "outputs", "statuses")
        *four, outputs, statuses = (ctypes.c_void_p(self._on_gpu[it].address) for it in names)
        temporary = ctypes.c_void_p(self._temporary.address)
        room = ctypes.c_size_t(self._temporary.nbytes)
        decode = self._library.nvcompBatchedDeflateDecompressAsync
        chunks, stream = ctypes.c_size_t(self._data.chunks), ctypes.c_void_p(None)  # of torch
        rest = (outputs, self._options, statuses, stream)
        _check(decode(*four, chunks, temporary, room, *rest))

    def check(self, result: Any) -> None:
        statuses = self._on_gpu["statuses"]
        failed = np.count_nonzero(gpu.get(statuses.address, statuses.nbytes).view(np.int32))
        if failed:
            raise AssertionError(f"nvCOMP could not decode {failed} chunks")
        self._data.expected.check(result)


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"nvCOMP returned status {status}")


def _read_pieces(descriptor: int, pieces: list[_Read]) -> None:
    for piece in pieces:
        if os.preadv(descriptor, piece.buffers, piece.offset) != piece.nbytes:
            raise OSError("a read was incomplete")
