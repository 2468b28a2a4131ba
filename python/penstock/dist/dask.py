"""Dask arrays in HDF5 files: every worker reads and writes its blocks by itself.

The graph holds paths and slices, and no open file, so it runs on threads and on processes of
several hosts that share a file system. Penstock moves each block; Dask schedules.

>>> from penstock.dist import dask as penstock_dask
>>> rho = penstock_dask.from_hdf5("run.h5", "rho")
>>> penstock_dask.to_hdf5(rho.mean(axis=0), "mean.h5", "rho", compression="gzip")
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import penstock
from penstock import request, transfer
from penstock._native import NULL
from penstock._options import OptionKeys, Unpack, resolve
from penstock.dist import transfers
from penstock.dist.description import Description, StoredArray
from penstock.dist.storage import Storage, has_filters
from penstock.errors import IncompatibleError, InvalidError, IOFailure, UnavailableError
from penstock.files import WRITE, NativeFile, Path, encode, path_of_new
from penstock.placement import HOST, Device, parse_device


def from_hdf5(
    path: Path,
    dataset: str,
    chunks: Any = "auto",
    *,
    device: Device = None,
    **options: Unpack[OptionKeys],
) -> Any:
    """Return a Dask array of a dataset, whose blocks are read when they are needed.

    Args:
        path: The file, which all workers find by this path. It must not change as long as the array
            is in use.
        dataset: The path of the dataset in the file.
        chunks: The blocks, as for ``dask.array.from_array``. With ``"auto"`` they consist of whole
            chunks of the file.
        device: ``"cpu"`` for blocks of NumPy (the default), ``"cuda"`` for blocks of CuPy on the
            current GPU of the worker.
        **options: See :class:`penstock.OptionKeys`.

    Raises:
        UnavailableError: The blocks are to be on the GPU, and CuPy is not installed.

    >>> from_hdf5("run.h5", "rho")[::2].mean().compute()
    """
    import dask.array as da

    name = os.path.abspath(os.fsdecode(encode(path)))
    with penstock.File(name) as file:
        found = file[dataset]
        if not isinstance(found, penstock.Dataset):
            raise InvalidError(f"{name}:{dataset} is not a dataset")
        shape, dtype, stored = found.shape, found.dtype, found.chunks
    if shape is None:
        raise InvalidError(f"{name}:{dataset} has no elements (it has a null dataspace)")
    on_gpu = parse_device(device) != HOST
    # Elements that are arrays become dimensions, the last ones, as in what h5py reads.
    shape, dtype, inner = (*shape, *dtype.shape), dtype.base, dtype.shape
    if stored is not None:
        stored = (*stored, *inner)
    if on_gpu:
        dtype = dtype.newbyteorder("=")
    # Dask cannot compute the bytes of strings of variable length; the file has references.
    sized = np.dtype(_REFERENCE) if dtype.hasobject else dtype
    try:
        blocks = da.core.normalize_chunks(chunks, shape, dtype=sized, previous_chunks=stored)
    except ZeroDivisionError:
        raise InvalidError(f"with chunks={chunks!r}, blocks have no elements") from None
    source = _Source(name, dataset, len(inner), device if on_gpu else None, dict(options))
    return da.map_blocks(
        source, chunks=blocks, dtype=dtype, meta=_meta(len(shape), dtype, on_gpu), name=None
    )


_REFERENCE = "V16"
"""A type as long as HDF5's reference to an element of variable length."""


@dataclass(frozen=True)
class _Source:
    """A dataset by its path. Calling it reads a block."""

    path: str
    dataset: str
    inner: int
    """The number of dimensions of an element."""
    device: Device
    options: dict[str, Any]

    def __call__(self, block_info: Any = None) -> Any:
        location = block_info[None]["array-location"]
        block = tuple(slice(start, stop) for start, stop in location)
        outer = len(block) - self.inner
        slab, within = block[:outer], block[outer:]
        like = None if self.device is None else "cupy"
        with penstock.File(self.path) as file:
            found: Any = file[self.dataset].read(
                slab, device=self.device, like=like, **self.options
            )
        # Of a scalar, h5py and Penstock return an element.
        found = np.asarray(found) if self.device is None else found
        return found[(..., *within)] if within else found

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        about = os.stat(self.path)
        state = (about.st_ino, about.st_size, about.st_mtime_ns)
        return (self.path, self.dataset, str(self.device), sorted(self.options.items()), state)


def _meta(dimensions: int, dtype: np.dtype[Any], on_gpu: bool) -> Any:
    """Return an empty block, from which Dask infers the library of all blocks."""
    if not on_gpu:
        return np.empty((0,) * dimensions, dtype)
    try:
        import cupy
    except ImportError:
        raise UnavailableError(
            "blocks on the GPU are arrays of CuPy, which is not installed",
            remedy="pip install cupy-cuda12x, or leave out device",
        ) from None
    return cupy.empty((0,) * dimensions, dtype)


def to_hdf5(
    array: Any,
    path: Path,
    dataset: str,
    *,
    chunks: Sequence[int] | int | bool | None = None,
    durable: bool = False,
    libver: Any = "v110",
    **arguments: Any,
) -> None:
    """Compute a Dask array, and write it to a dataset of a new HDF5 file.

    Workers write their blocks into the file at the same time. Compressed chunks are encoded by the
    workers and stay there until HDF5, in this process, has found storage for them. The file has a
    temporary name until it is complete, so a failure leaves the file that was at the path before.

    Args:
        array: A ``dask.array.Array`` with blocks of NumPy or CuPy, whose shape is known.
        path: The file, on a file system that this process and all workers share.
        dataset: The path of the dataset in the file.
        chunks: The shape of a chunk in the file, ``True`` for one that h5py chooses; with a filter,
            that of the largest block by default. Blocks that cut compressed chunks are rechunked.
        durable: Whether the file is on stable storage when this returns.
        libver: As for ``h5py.File``.
        **arguments: ``compression`` and others as for ``h5py.Group.create_dataset``.

    Raises:
        IncompatibleError: ``array`` is not an array of Dask; a ``TypeError``.
        InvalidError: The shape of the array is not known.
        IOFailure: A worker does not share the file system with this process.
    """
    import dask
    import dask.array as da

    if not isinstance(array, da.Array):
        raise IncompatibleError(
            f"the first argument is a {type(array).__name__}, not an array of Dask",
            remedy="call to_hdf5(array, path, dataset); dask.array.from_array makes one of NumPy's",
        )
    if any(side != side for side in array.shape):
        raise InvalidError(
            f"the shape {array.shape} of the array is not known",
            remedy="call compute_chunk_sizes() first",
        )
    if chunks is None and has_filters(arguments):
        chunks = tuple(map(max, array.chunks)) if array.size else True
    elif isinstance(chunks, list):
        chunks = tuple(chunks)
    storage = Storage(path_of_new(path).absolute(), {"libver": libver})
    try:
        keys = {"shape": array.shape, "dtype": array.dtype, "chunks": chunks, **arguments}
        made, description = storage.create(dataset, keys)
        if description.is_filtered and not _is_aligned(array.chunks, description.chunks):
            array = array.rechunk(description.chunks)
        place = os.stat(storage.temporary).st_ino
        target = dask.delayed(_Target(str(storage.temporary), place, description))
        blocks = array.to_delayed().ravel()
        slabs = _slabs(array.chunks)
        if description.is_filtered:
            encode_block = dask.delayed(_encode, pure=False)
            encoded = dask.persist(
                *(encode_block(target, b, s) for b, s in zip(blocks, slabs, strict=True))
            )
            table_of = dask.delayed(_table)
            tables = dask.compute(*map(table_of, encoded))
            together = np.concatenate(tables)
            addresses = storage.allocate(made, *together.T)
            ends = np.cumsum([len(table) for table in tables])[:-1]
            put = dask.delayed(_write_encoded, pure=False)
            parts = zip(encoded, tables, np.split(addresses, ends), strict=True)
            work = [put(target, one, table, places, durable) for one, table, places in parts]
        else:
            put = dask.delayed(_write_block, pure=False)
            work = [put(target, b, s, durable) for b, s in zip(blocks, slabs, strict=True)]
        dask.compute(*work)
        storage.finish(durable)
    except BaseException:
        storage.discard()
        raise


@dataclass(frozen=True)
class _Target:
    """The dataset that is written, for workers."""

    path: str
    inode: int
    description: Description

    def open(self) -> NativeFile:
        try:
            file = NativeFile(self.path, WRITE)
        except FileNotFoundError as error:
            raise self._not_shared() from error
        if file.identity()[0] != self.inode:
            file.close()
            raise self._not_shared()
        return file

    def _not_shared(self) -> IOFailure:
        return IOFailure(
            f"{self.path}: the worker on {socket.gethostname()} does not find this file",
            path=self.path,
            remedy="use a path on a file system that all workers share",
        )


def _write_block(target: _Target, block: Any, slab: tuple[slice, ...], durable: bool) -> None:
    description = target.description
    ranges = transfers.ranges_of(slab, description.shape)
    if not all(map(len, ranges)):
        return
    view = transfers.source(description, ranges, block, None)
    with target.open() as file:
        transfers.write(StoredArray(description), file, ranges, view, resolve({}))
        if durable:
            file.sync()


_Encoded = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
"""For each chunk its number, size and mask; and the bytes of all chunks."""


def _encode(target: _Target, block: Any, slab: tuple[slice, ...]) -> _Encoded:
    description = target.description
    ranges = transfers.ranges_of(slab, description.shape)
    if not all(map(len, ranges)):
        return np.empty((0, 3), np.int64), np.empty(0, np.uint8)
    view = transfers.source(description, ranges, block, None)
    chunks = transfers.EncodedChunks(StoredArray(description), ranges, view, resolve({}))
    return chunks.table(), chunks.data()


def _table(encoded: _Encoded) -> np.ndarray[Any, Any]:
    return encoded[0]


def _write_encoded(
    target: _Target,
    encoded: _Encoded,
    expected: np.ndarray[Any, Any],
    addresses: np.ndarray[Any, Any],
    durable: bool,
) -> None:
    """Write encoded chunks into the storage that was found for the ``expected`` ones."""
    table, data = encoded
    if not np.array_equal(table, expected):
        # A worker was lost, and its blocks were computed again.
        raise InvalidError(
            f"{target.description.name}: a block that was computed again has another result",
            remedy="persist the array before, or compute it with fixed seeds",
        )
    if not len(table):
        return
    data, sizes = np.ascontiguousarray(data), table[:, 1]
    ranges = np.empty(len(table), transfer.RANGE)
    ranges["offset"], ranges["length"] = addresses, sizes
    ranges["buffer"] = data.ctypes.data + np.cumsum(sizes) - sizes
    with target.open() as file:
        transfer.finish(transfer.start(file, request.WRITE, ranges, NULL, stream=None, keep=data))
        if durable:
            file.sync()


def _is_aligned(blocks: Any, chunks: Any) -> bool:
    """Whether every block starts at a border of chunks."""
    starts = (np.cumsum(sides)[:-1] % chunk for sides, chunk in zip(blocks, chunks, strict=True))
    return not any(start.any() for start in starts)


def _slabs(blocks: Any) -> list[tuple[slice, ...]]:
    from dask.array.core import slices_from_chunks

    return [tuple(slab) for slab in slices_from_chunks(blocks)]
