"""What is loaded: a dataset or the bytes of a file, as rows that ranks divide among each other."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock import arrays, report, request, transfer
from penstock._native import CData, ffi, pointer
from penstock._options import resolve
from penstock.dist import transfers
from penstock.dist.description import Description, StoredArray
from penstock.dist.gathering import Gathering
from penstock.dist.mpi.shared import Shared
from penstock.dist.partition import partition
from penstock.dtypes import ElementType, element_type, numpy_dtype
from penstock.errors import IncompatibleError, InvalidError, UnavailableError
from penstock.files import READ, NativeFile, encode
from penstock.hdf5.source import split
from penstock.memory import copy_bytes
from penstock.placement import Device
from penstock.request import Request
from penstock.shapes import Shape

if TYPE_CHECKING:
    from penstock._options import OptionKeys

_UNIT = 4096
"""Bytes to a multiple of which shares of unchunked data are aligned, counted from the first one.

It is not a page size of the system, since all ranks divide alike.
"""


@dataclass(frozen=True)
class Arguments:
    """The arguments of the caller."""

    source: Any
    dtype: object
    shape: Shape | None
    offset: int
    out: arrays.View | None
    """The memory of the caller's array, if there is one."""

    @property
    def element(self) -> ElementType:
        """The type of the elements, if the source is a file of plain bytes."""
        if self.out is not None:
            return self.out.dtype
        return element_type("uint8" if self.dtype is None else self.dtype)


@dataclass(frozen=True)
class KnownFile:
    """The path of a file that the caller has read before, and what the file was then."""

    path: str
    identity: tuple[int, ...]

    def __fspath__(self) -> str:
        return self.path


@dataclass(frozen=True)
class About:
    """What rank 0 has found."""

    path: str
    identity: tuple[int, ...]
    name: str | None
    """The dataset; ``None`` for the bytes of a file."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None
    """The type of an element in the file; ``None`` for bytes, which are of the caller's type."""
    chunks: tuple[int, ...] | None
    description: Description | None
    """Where the elements of a dataset lie; ``None`` if only HDF5 can read them."""


def name_of(source: Any) -> str:
    """Return the name of a source, which is the same on all ranks."""
    if _is_dataset(source):
        return f"{source.file.filename}:{source.name}"
    if isinstance(source, (str, bytes, os.PathLike)):
        return os.fsdecode(source)
    raise IncompatibleError(
        f"a {type(source).__name__} is not a source",
        remedy='give the path of a file, "file.h5:name" or a dataset of an open file',
    )


def look(arguments: Arguments) -> About:
    """Find out what a source is, on rank 0.

    Raises:
        InvalidError: ``shape`` or ``offset`` are given for a dataset, or a dataset has no elements.
        IncompatibleError: The elements are stored elsewhere in the file, as strings may be.
    """
    with _dataset(arguments.source) as dataset:
        if dataset is None:
            return _of_bytes(arguments)
        if arguments.shape is not None or arguments.offset:
            raise InvalidError("shape and offset are for a file of plain bytes, not for a dataset")
        return _of_dataset(dataset)


def _is_dataset(found: Any) -> bool:
    import h5py

    return isinstance(found, h5py.Dataset)


@contextmanager
def _dataset(found: Any) -> Iterator[Any]:
    """Open the dataset that a text names; ``None`` if the source is a file of plain bytes."""
    import h5py

    if _is_dataset(found):
        if found.file.mode != "r":
            raise InvalidError(
                f"{found.file.filename} is open for writing",
                remedy='open it with mode "r", or give "file.h5:name" once it is closed',
            )
        yield found
        return
    path, name = split(found) if isinstance(found, str) else (found, None)
    if name is None:
        yield None
        return
    with h5py.File(path, "r") as file:
        dataset = file[name]
        if not isinstance(dataset, h5py.Dataset):
            raise InvalidError(f"{name} in {path} is not a dataset", path=str(path))
        yield dataset


def _of_dataset(dataset: Any) -> About:
    path, dtype = os.path.abspath(dataset.file.filename), np.dtype(dataset.dtype)
    if dataset.shape is None:
        raise InvalidError(f"{dataset.name} has no elements (it has a null dataspace)", path=path)
    if dtype.hasobject:
        raise IncompatibleError(
            f"{dataset.name} in {path} has elements of type {dtype}, which are stored elsewhere",
            remedy="read it by penstock.read on each rank",
        )
    try:
        description = Description.of(dataset)
    except UnavailableError:
        description = None
    with NativeFile(path, READ) as file:
        identity = file.identity()
    chunks = dataset.chunks
    return About(path, identity, dataset.name, tuple(dataset.shape), dtype, chunks, description)


def _of_bytes(arguments: Arguments) -> About:
    path = os.path.abspath(os.fsdecode(encode(arguments.source)))
    shape = arguments.shape
    if shape is None and arguments.out is not None:
        shape = arguments.out.shape
    with NativeFile(path, READ) as file:
        lengths = transfer.lengths_in(file, path, arguments.element, shape, arguments.offset)
        return About(path, file.identity(), None, lengths, None, None, None)


class Source:
    """What a rank reads, as rows of the array in memory that follow each other there.

    Args:
        arguments: The arguments of the caller.
        about: What rank 0 has found.
        shared: The file as this rank sees it.
        options: The options of the call.

    Raises:
        InvalidError: The file is not the one that the caller has read before.
    """

    def __init__(
        self, arguments: Arguments, about: About, shared: Shared[Gathering], options: OptionKeys
    ) -> None:
        known = arguments.source
        if isinstance(known, KnownFile) and known.identity != about.identity:
            raise InvalidError(
                f"{known.path} was replaced or changed while it was loaded",
                path=known.path,
                remedy="load it again",
            )
        self._arguments, self._about, self._shared = arguments, about, shared
        self._keys, self._options = options, resolve(options)
        self._stored: StoredArray | None = None
        self._view: arrays.View
        self._rest: tuple[int, ...] = ()
        """The shape of a row, in elements of the file."""
        self.count = 0
        """The number of rows."""
        self.row = 0
        """Bytes of a row in memory."""
        self._place: int | None = None
        """Offset in the file of the first row, if the rows in memory are the bytes there."""
        self.unit = 1
        """Rows to a multiple of which shares are aligned."""

    @property
    def is_plain(self) -> bool:
        """Whether the rows in memory are bytes that follow each other in the file."""
        return self._place is not None

    def wanted(self, device: Device) -> tuple[tuple[int, ...], ElementType]:
        """Return shape and type of a new array on a device."""
        stored = self._about.dtype
        if stored is None:
            return self._about.shape, self._arguments.element
        element = transfers.element_wanted(stored, device, self._arguments.dtype)
        return self._about.shape + stored.shape, element

    def into(self, view: arrays.View) -> None:
        """Prepare to read into C-contiguous memory.

        Raises:
            InvalidError: The memory has another shape than the source.
            IncompatibleError: There is no conversion to its type.
        """
        about, description, self._view = self._about, self._about.description, view
        shape = about.shape + (() if about.dtype is None else about.dtype.shape)
        if view.shape != shape:
            raise InvalidError(f"out has shape {view.shape}, and the source has shape {shape}")
        if description is not None:
            transfers.check_type(description, view.dtype)
        follow = about.dtype is None or (description is not None and about.chunks is None)
        if follow:  # the elements can be divided anywhere
            self.count = math.prod(about.shape)
            size = view.dtype.itemsize if about.dtype is None else about.dtype.itemsize
            self.unit = max(_UNIT // max(size, 1), 1)
            if description is not None:
                description = replace(description, shape=(self.count,))
        else:
            self.count = about.shape[0] if about.shape else 1
            self.unit = about.chunks[0] if about.chunks else 1
            self._rest = about.shape[1:]
        self.row = view.nbytes // self.count if self.count else 0
        if about.dtype is None:
            self._place = self._arguments.offset
        elif follow and description is not None and view.dtype.is_numpys(about.dtype.base):
            self._place = description.offset
        if description is not None:
            self._stored = StoredArray(description)
        if about.dtype is None or description is not None:
            self._shared.native()

    def rounds(self, ranks: int, piece: int) -> Iterator[list[int]]:
        """Return the rounds of :func:`rounds`, in rows.

        One rank alone has a single one, unless it reads by HDF5, which may need a second copy.
        """
        is_by_hdf5 = self._about.dtype is not None and self._stored is None
        if ranks == 1 and self.row and not is_by_hdf5:
            return iter([[0, self.count]])
        return rounds(self.count, self.row, self.unit, ranks, piece)

    def start_all(self, shares: Sequence[tuple[int, int]]) -> Request[None] | None:
        """Start one read of all shares, which arrive in order; ``None`` if there are no rows.

        Only for a source that :attr:`is_plain`. The file has the shares in the order given.
        """
        assert self._place is not None
        ranges = [
            (self._place + first * self.row, (last - first) * self.row, first * self.row)
            for first, last in shares
            if first < last
        ]
        if not ranges:
            return None
        start = self._view.pointer
        of_file = [(offset, nbytes, pointer(start + at)) for offset, nbytes, at in ranges]
        return self._submit(ffi.new("penstock_range[]", of_file))

    def _submit(self, ranges: CData) -> Request[None]:
        where = self._shared.native(), request.READ, ranges, self._options
        return transfer.start(*where, stream=None, keep=self._view)

    def start(self, first: int, last: int) -> Request[None]:
        """Start to read rows to their place.

        The caller waits for the rows, so they have as many workers as a plain read.
        """
        about, begin, nbytes = self._about, first * self.row, (last - first) * self.row
        address = self._view.pointer + begin
        if about.dtype is None:
            place = self._arguments.offset + begin
            return self._submit(request.one_range(place, address, nbytes))
        shape = (last - first, *self._rest) if about.shape or self._stored is not None else ()
        part = replace(self._view, pointer=address, nbytes=nbytes, shape=shape + about.dtype.shape)
        slab = (slice(first, last),) if shape else ()
        if self._stored is None:
            dataset = self._shared.by_hdf5(about.name or "")
            array, complete = _array_of(part)
            dataset.read(slab, out=array, **self._keys)
            complete()
            return request.Finished(None, report.last_report() or report.Report("hdf5"))
        ranges = transfers.ranges_of(slab, self._stored.description.shape)
        file = self._shared.native()
        flags = request.CALLER_WAITS | request.ZERO_HOLES
        return transfers.start_read(self._stored, file, ranges, part, self._options, flags=flags)


def rounds(count: int, row: int, unit: int, ranks: int, piece: int) -> Iterator[list[int]]:
    """Divide rows into rounds of shares, one for each rank.

    Args:
        count: The number of rows.
        row: The bytes of a row.
        unit: Rows to a multiple of which shares are aligned.
        ranks: The number of ranks.
        piece: The bytes of a share; more, if a unit has more.

    Returns:
        For each round, at which rows the shares begin, in order of ranks, and at last where they
        end. Shares of all rounds but the last are of equal size; those of the last differ by a unit
        at most, apart from an end that is not a whole one.
    """
    if not row:
        return
    step = max(piece // (unit * row), 1) * unit * ranks

    @lru_cache  # two lengths at most
    def ends_of(length: int) -> list[int]:
        bounds = partition((length,), (unit,), ranks).bounds()
        # A rank for which nothing is left begins and ends where the one before it ends.
        return [int(end) for end in np.maximum.accumulate(bounds[:, 0, 1])]

    for start in range(0, count, step):
        yield [start, *(start + end for end in ends_of(min(step, count - start)))]


def _array_of(part: arrays.View) -> tuple[Any, Callable[[], None]]:
    """Return an array of zeros for :func:`penstock.read` to fill, and what then copies it.

    The read leaves elements that were never written as they are.
    """
    dtype = numpy_dtype(part.dtype)
    if part.device < 0:
        memory = ffi.buffer(ffi.cast("char *", part.pointer), part.nbytes)
        np.frombuffer(memory, np.uint8)[:] = 0
        return np.ndarray(part.shape, dtype, memory), lambda: None
    host = np.zeros(part.shape, dtype)

    def to_gpu() -> None:
        copy_bytes(part.pointer, host.ctypes.data, part.nbytes)

    # The CUDA array interface has no name for other types than those of plain NumPy.
    if dtype.str[1] == "V":
        return host, to_gpu
    to_gpu()
    return OnGpu(part), lambda: None


class OnGpu:
    """Memory of a GPU, by the CUDA array interface."""

    def __init__(self, part: arrays.View) -> None:
        self.__cuda_array_interface__ = {
            "shape": part.shape,
            "typestr": numpy_dtype(part.dtype).str,
            "data": (part.pointer, False),
            "strides": None,
            "version": 3,
        }
