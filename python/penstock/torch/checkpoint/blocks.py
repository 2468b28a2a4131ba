"""Reads of blocks of stored tensors into the memory of others."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from penstock import frameworks, request, transfer
from penstock._native import NULL
from penstock.files import NativeFile
from penstock.request import Request
from penstock.request_group import RequestGroup
from penstock.streams import wait_for
from penstock.torch.checkpoint.archive import StoredTensor, bytes_of
from penstock.torch.checkpoint.storages import new_storage
from penstock.torch.checkpoint.transfers import Ranges, runs

_LEAST_RUN = 512
"""Shorter runs are read together with the bytes between, and copied from there."""
_WITH_MEMORY = ("cpu", "cuda")
"""The devices whose memory files fill."""
_MOST_BETWEEN = 64 << 20
"""Bytes of a temporary, at most."""


class _Block(NamedTuple):
    """A block of a stored tensor, and where it goes."""

    stored: StoredTensor
    offset: int
    """Of its first element, in the file."""
    target: torch.Tensor

    def span(self) -> int:
        """Return the bytes from the first to the last element."""
        span: int = self.stored.dtype.itemsize
        for n, step in zip(self.target.shape, self.stored.strides, strict=True):
            span += (n - 1) * step
        return span

    def halves(self) -> Iterator[_Block]:
        """Yield the parts before and behind the middle of the dimension that spans most."""
        shape, strides = self.target.shape, self.stored.strides
        widest = max(range(len(shape)), key=lambda axis: (shape[axis] - 1) * strides[axis])
        middle = shape[widest] // 2
        low = self.target.narrow(widest, 0, middle)
        high = self.target.narrow(widest, middle, shape[widest] - middle)
        yield self._replace(target=low)
        yield self._replace(target=high, offset=self.offset + middle * strides[widest])


class Blocks:
    """The blocks that come from one file.

    All that can be read in place are one request. In a large file, a request starts as soon as it
    has ``at_once`` bytes, so that the medium need not wait until all blocks are added. After an
    error, the caller must stop the requests.
    """

    def __init__(self, file: NativeFile, at_once: int) -> None:
        self._file, self._at_once = file, at_once
        self._ranges = Ranges()
        self._copied: list[_Block] = []
        self._in_place: list[torch.Tensor] = []
        self.requests: RequestGroup[Request[None]] = RequestGroup()
        """Those that use the memory of the targets."""

    def add(self, stored: StoredTensor, offsets: Sequence[int], target: torch.Tensor) -> None:
        """Add the block at these offsets of a tensor, with the shape of ``target``.

        Args:
            stored: The tensor. Its offset is that in the file.
            offsets: In elements, in each dimension.
            target: What to fill: of any strides, data type and device.

        Raises:
            ValueError: The block reaches out of the tensor.
        """
        shape = tuple(target.shape)
        ends = [first + n for first, n in zip(offsets, shape, strict=True)]
        if len(stored.shape) != len(shape) or min([0, *offsets]) < 0:
            raise ValueError(f"no block at {tuple(offsets)} of a tensor of shape {stored.shape}")
        if any(end > n for end, n in zip(ends, stored.shape, strict=True)):
            raise ValueError(f"a tensor of shape {stored.shape} has no elements up to {ends}")
        if 0 in shape:
            return
        offset = stored.offset + sum(map(operator.mul, offsets, stored.strides))
        block = _Block(stored, offset, target)
        if not self._add_ranges(block):
            self._copied.append(block)
            return
        self._in_place.append(target)
        if self._ranges.nbytes >= self._at_once:
            self.start()

    def add_bytes(self, memory: Any, offset: int) -> None:
        """Add bytes that fill an array of bytes."""
        self._ranges.add(memory, offset)

    def start(self) -> None:
        """Start a request for what has been added since the last one."""
        if self._ranges:
            self.requests.add(self._ranges.submit(self._file, request.READ, NULL))
            self._ranges = Ranges()

    def finish(self) -> None:
        """Wait for the requests, and read what needs a copy."""
        self.requests.wait_each(transfer.finish)
        for target in self._in_place:
            frameworks.note_write(target)
        for block in self._copied:
            self._copy(block)
        for gpu in {block.target.device for block in self._copied if block.target.is_cuda}:
            wait_for(frameworks.torch_pending(gpu.index), gpu.index)

    def _add_ranges(self, block: _Block) -> bool:
        """Add the ranges of a block, if its elements can go straight to their places."""
        target, (dtype, _, _, steps) = block.target, block.stored
        simple = type(target) in (torch.Tensor, torch.nn.Parameter)
        if not simple or target.layout != torch.strided or target.device.type not in _WITH_MEMORY:
            return False
        address = frameworks.address(target)
        if target.dtype != dtype or target.is_conj() or target.is_neg():
            return False
        size = dtype.itemsize
        storage, begin = target.untyped_storage(), target.storage_offset() * size
        to_steps = tuple(step * size for step in target.stride())
        if to_steps == steps and target.is_contiguous():
            self._ranges.add_storage(storage, block.offset, begin, target.numel() * size)
            return True
        found = runs(target.shape, steps, to_steps, size, _LEAST_RUN)
        if found is None:
            return False
        length, offsets, places = found
        memory = bytes_of(storage)
        self._ranges.add_many(memory, block.offset + offsets, length, address + places)
        return True

    def _copy(self, block: _Block) -> None:
        """Read all bytes between the first and the last element, and copy the elements."""
        span = block.span()
        if span > _MOST_BETWEEN and block.target.numel() > 1:
            for half in block.halves():
                self._copy(half)
            return
        device = block.target.device
        storage = new_storage(span, device if device.type == "cuda" else "cpu")
        ranges = Ranges()
        ranges.add_storage(storage, block.offset, 0, span)
        ranges.move(self._file, request.READ, NULL)
        dtype = block.stored.dtype
        strides = [step // dtype.itemsize for step in block.stored.strides]
        read = torch.empty(0, dtype=dtype, device=storage.device)
        block.target.copy_(read.set_(storage, 0, block.target.shape, strides))
