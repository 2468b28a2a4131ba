"""Requests that move bytes between a file and tensors: one for all tensors of the file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock import arrays, request, transfer
from penstock._native import CData
from penstock._options import OptionKeys, resolve
from penstock.errors import InvalidError
from penstock.files import WRITE, NativeFile
from penstock.frameworks import torch_pending
from penstock.replacement import Replacement
from penstock.request import Request
from penstock.streams import one_stream
from penstock.torch.checkpoint.archive import Part


class Ranges:
    """Ranges of a file and the memory that they are moved from or to."""

    def __init__(self) -> None:
        self._single: list[tuple[int, int, int]] = []
        self._many: list[np.ndarray[Any, np.dtype[Any]]] = []
        self._views: list[arrays.View] = []
        self._storages: list[Any] = []
        self._gpus: set[int] = set()
        self.nbytes = 0
        """The bytes of all ranges."""

    def __bool__(self) -> bool:
        return bool(self._views or self._storages)

    def add(self, memory: Any, offset: int) -> None:
        """Add all of an array or tensor, and where it is in the file.

        It must stay as it is until the request, which is ordered after the stream that fills it,
        is finished.
        """
        view = arrays.view(memory)
        self._single.append((offset, view.nbytes, view.pointer))
        self._views.append(view)
        self.nbytes += view.nbytes

    def add_storage(self, storage: Any, offset: int, begin: int, nbytes: int) -> None:
        """Add bytes of a storage of the CPU or a CUDA device from ``begin`` on, as :meth:`add`.

        Raises:
            InvalidError: The storage does not have them.
        """
        if begin + nbytes > storage.nbytes():
            raise InvalidError(
                f"a storage of {storage.nbytes()} bytes has no byte {begin + nbytes}",
                remedy="allocate the memory of the tensor, which may have been freed",
            )
        self._single.append((offset, nbytes, storage.data_ptr() + begin))
        self._storages.append(storage)
        self.nbytes += nbytes
        if storage.device.type == "cuda":
            self._gpus.add(storage.device.index)

    def add_many(self, memory: Any, offsets: Any, lengths: Any, addresses: Any) -> None:
        """Add parts of an array or tensor, given as arrays of numbers of bytes."""
        ranges = np.empty(len(offsets), transfer.RANGE)
        ranges["offset"], ranges["length"], ranges["buffer"] = offsets, lengths, addresses
        self._many.append(ranges)
        self.nbytes += int(ranges["length"].sum())
        self._views.append(arrays.view(memory))

    def submit(self, file: NativeFile, operation: int, options: CData) -> Request[None]:
        """Start to move all ranges."""
        ranges = np.concatenate([np.array(self._single, transfer.RANGE), *self._many])
        streams = [(view.stream, view.device) for view in self._views]
        stream = one_stream(streams + [(torch_pending(gpu), gpu) for gpu in sorted(self._gpus)])
        keep = self._views, self._storages
        return transfer.start(file, operation, ranges, options, stream=stream, keep=keep)

    def move(self, file: NativeFile, operation: int, options: CData) -> None:
        """Move all ranges."""
        if self:
            transfer.finish(self.submit(file, operation, options))


def write_new(path: Path, parts: Iterable[Part], options: OptionKeys) -> None:
    """Put a file of these parts in place. After an error, the old file is still there."""
    durable = is_durable(options)
    with Replacement(path, durable=durable) as descriptor:
        write(descriptor, parts, **{**options, "durable": durable})


def is_durable(options: OptionKeys) -> bool:
    """Whether options have a new file survive a power failure, as it does by default."""
    return options.get("durable") in (None, True, "yes")


def write(descriptor: int, parts: Iterable[Part], **options: Any) -> None:
    """Write parts, in the order of the file, to an open file by one request."""
    ranges = Ranges()
    offsets: list[int] = []
    small: list[bytearray] = []
    end = -1
    for offset, source in parts:
        if not isinstance(source, bytes):
            ranges.add(source, offset)
        elif offset == end:
            small[-1] += source
            end += len(source)
        else:
            offsets.append(offset)
            small.append(bytearray(source))
            end = offset + len(source)
    if small:
        lengths = np.array([len(one) for one in small], np.uint64)
        memory = np.frombuffer(b"".join(small), np.uint8)
        starts = np.cumsum(lengths) - lengths + np.uint64(memory.__array_interface__["data"][0])
        ranges.add_many(memory, offsets, lengths, starts)
    with NativeFile(descriptor, WRITE) as file:
        ranges.move(file, request.WRITE, resolve(options))


def runs(
    shape: Sequence[int],
    from_steps: Sequence[int],
    to_steps: Sequence[int],
    itemsize: int,
    least: int,
) -> tuple[int, Any, Any] | None:
    """Split a block of elements into runs that are contiguous on both sides.

    Args:
        shape: The lengths of the block, none of which is 0.
        from_steps: Bytes between neighbours in each dimension on one side.
        to_steps: Those on the other side.
        itemsize: Bytes of an element.
        least: The least bytes of a run, if there are several.

    Returns:
        The bytes of a run, and the offsets of all runs on both sides; ``None`` if runs are shorter
        than ``least``, or elements share memory.
    """
    sides = [side for side in zip(shape, from_steps, to_steps, strict=True) if side[0] > 1]
    length = itemsize
    while sides and sides[-1][1] == sides[-1][2] == length:
        length *= sides.pop()[0]
    if sides and (length < least or min(step for _, _, step in sides) < length):
        return None
    offsets = [np.zeros(1, np.int64), np.zeros(1, np.int64)]
    for n, *steps in sides:
        for side, step in enumerate(steps):
            offsets[side] = (offsets[side][:, None] + step * np.arange(n)).ravel()
    return length, offsets[0], offsets[1]
